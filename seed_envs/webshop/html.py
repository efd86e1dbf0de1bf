"""A page of the shop as HTML that a person can read: no script, nothing fetched from elsewhere."""

from functools import cache

import jinja2

from seed_envs.webshop.engine import DONE, FOUND, INDEX, ITEM, State, Visit, product, shown
from seed_envs.webshop.pages import parts


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("seed_envs.webshop", "")
    made = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return made.get_template("page.html.jinja")


def page(visit: Visit, state: State) -> str:
    """Return a whole document; what can be clicked says how to in its tooltip.

    Addresses of images are shown as text only: a page that is looked at asks nobody for anything.
    """
    found = product(visit, state) if state.asin else None
    return _template().render(
        instruction=visit.instruction,
        kind={INDEX: "search", FOUND: "results", ITEM: "item", DONE: "done"}.get(state.page, "sub"),
        state=state,
        product=found,
        products=[visit.shop.product(asin) for asin in shown(state)] if state.page == FOUND else [],
        chosen=dict(state.options),
        buttons=[part.text for part in parts(visit, state) if part.kind == "button"],
        lines=[part.text.strip() for part in parts(visit, state) if part.kind == "text"][2:],
    )
