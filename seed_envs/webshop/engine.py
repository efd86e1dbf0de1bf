"""WebShop's rules as functions over frozen states: what a page shows and what an action does.

Source: princeton-nlp/WebShop 64fa2a5 as observed (recorded episodes); see docs/webshop.md for its
quirks, all of which are kept.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from seed_envs.seeding import Draws
from seed_envs.webshop.actions import CLICK, SEARCH, read
from seed_envs.webshop.product import RESULTS, Catalogue, Product

INDEX, FOUND, ITEM, SUB, DONE = "index", "search_results", "item_page", "item_sub_page", "done"
"""The kinds of page, called as in upstream's addresses."""
PER_PAGE = 10
BUY, BACK, NEXT, PREVIOUS = "buy now", "back to search", "next >", "< prev"
SUB_PAGES = ("description", "features", "reviews", "attributes")
_SEARCH_BUTTON = "search"

Rate = Callable[[str, Mapping[str, str]], float]
"""From the asin that is bought and the options chosen to the reward."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What stays the same in an episode."""

    shop: Catalogue
    instruction: str
    rate: Rate
    seed: int = 0
    """Decides what the query ``<r>`` finds."""
    show_attributes: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """Where the customer is."""

    page: str = INDEX
    keywords: tuple[str, ...] = ()
    """The words searched for, parted by single blanks."""
    results: tuple[str, ...] = ()
    """The asins found."""
    number: int = 1
    """The page of results; there is no last one."""
    asin: str = ""
    """The product looked at."""
    sub: str = ""
    """Which sub-page of the product."""
    options: tuple[tuple[str, str], ...] = ()
    """(name, value) in the order they were first chosen in."""
    seen: frozenset[str] = frozenset()
    """Products looked at since the search page."""
    score: float = 0.0
    """The reward, once something is bought."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action led to."""

    state: State
    admissible: bool
    reason: str = ""
    """Why the action was refused."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a clickable text stands for: a product's asin, an option's name, or neither for a button."""

    asin: str = ""
    option: str | None = None


def clickables(visit: Visit, state: State) -> dict[str, Target]:
    """Return what can be clicked by its text in lower case, in upstream's order.

    Buttons come first, then products, then values of options. Of equal texts the last one counts,
    in the place of the first.
    """
    found: dict[str, Target] = {text.lower(): Target() for text in buttons(visit, state)}
    if state.page == FOUND:
        found |= {asin.lower(): Target(asin=asin) for asin in shown(state)}
    if state.page == ITEM:
        for name, values in visit.shop.product(state.asin).options.items():
            found |= dict.fromkeys(values, Target(option=name))
    return found


def buttons(visit: Visit, state: State) -> tuple[str, ...]:
    """Return the texts of the buttons of a page, as they are written."""
    if state.page == INDEX:
        return ("Search",)
    if state.page == FOUND:
        return ("Back to Search", *(("< Prev",) if state.number > 1 else ()), "Next >")
    if state.page == ITEM:
        subs = ("Description", "Features", "Reviews", *(("Attributes",) if visit.show_attributes else ()))
        return ("Back to Search", "< Prev", *subs, "Buy Now")
    return ("Back to Search", "< Prev") if state.page == SUB else ()


def shown(state: State) -> tuple[str, ...]:
    """Return the asins on the page of results; none past the last page."""
    return state.results[(state.number - 1) * PER_PAGE : state.number * PER_PAGE]


def product(visit: Visit, state: State) -> Product:
    """Return the product looked at."""
    return visit.shop.product(state.asin)


def address(state: State) -> str:
    """Return the part of upstream's URL that two quirks read: what is chosen, and the kind of page."""
    words = "+".join(state.keywords)
    if state.page == FOUND:
        return f"{FOUND}/{words}/{state.number}"
    if state.page == ITEM:
        return f"{ITEM}/{state.asin}/{words}/{state.number}/{json.dumps(dict(state.options))}"
    if state.page == SUB:
        return f"{SUB}/{state.asin}/{words}/{state.number}/{state.sub}/{dict(state.options)}"
    return state.page


def step(visit: Visit, state: State, action: str) -> Outcome:
    """Take an action, verbatim; a refused one returns the same state and says why."""
    name, argument = read(action)
    if argument is None or name not in (SEARCH, CLICK):
        return Outcome(state, False, f"{_cut(action)} is no action; expected search[words] or click[what]")
    if name == SEARCH:
        results, problem = find(visit, argument)
        if problem:
            return Outcome(state, False, problem)
        return Outcome(_results(state, tuple(argument.split(" ")), results, 1), True)
    there = clickables(visit, state)
    if argument == _SEARCH_BUTTON:
        return Outcome(state, False, "click[search] does nothing; type search[words]")
    if argument not in there:
        return Outcome(state, False, f"there is nothing called {_cut(argument)} to click on this page")
    return Outcome(_click(visit, state, argument, there[argument]), True)


def find(visit: Visit, query: str) -> tuple[tuple[str, ...], str]:
    """Return the asins a query finds, and what is wrong with it, if anything.

    ``<r>`` finds 50 drawn products, ``<c> name`` all of a category, ``<q> text`` all that have this
    as their query; anything else is searched for. Where upstream raises, the query is wrong.
    """
    first, *rest = query.split(" ")
    shop = visit.shop
    if first == "<r>":
        return _drawn(shop, visit.seed), ""
    if first == "<a>":
        return (), "<a> finds nothing: products are not listed by attribute"
    if first == "<c>":
        return (tuple(shop.in_category(rest[0].strip())), "") if rest else ((), "<c> needs the name of a category")
    if first == "<q>":
        return tuple(shop.with_query(" ".join(rest).strip())), ""
    return tuple(shop.search(query, RESULTS)), ""


def _drawn(shop: Catalogue, seed: int) -> tuple[str, ...]:
    draws, asins = Draws("webshop", "random results", seed), shop.asins
    chosen: dict[int, None] = {}
    while len(chosen) < min(RESULTS, len(asins)):
        chosen[draws.below(len(asins))] = None
    return tuple(asins[place] for place in chosen)


def _click(visit: Visit, state: State, text: str, target: Target) -> State:
    kind = next((kind for kind in (FOUND, ITEM, SUB) if kind in address(state)), "")
    if text == BUY:
        return replace(state, page=DONE, score=visit.rate(state.asin, dict(state.options)))
    if text == BACK:
        return State()
    if text == NEXT and kind == FOUND:
        return _results(state, state.keywords, state.results, state.number + 1)
    if text == PREVIOUS and kind == FOUND:
        return _results(state, state.keywords, state.results, state.number - 1)
    if text == PREVIOUS and kind == ITEM:
        return _results(state, state.keywords, state.results, state.number)
    if text in SUB_PAGES:
        return replace(state, page=SUB, sub=text)
    if target.asin:
        return replace(state, page=ITEM, asin=target.asin, seen=state.seen | {target.asin})
    if target.option is not None:
        state = replace(state, options=tuple((dict(state.options) | {target.option: text}).items()))
    return replace(state, page=ITEM, sub="")


def _results(state: State, keywords: tuple[str, ...], results: tuple[str, ...], number: int) -> State:
    return State(FOUND, keywords, results, number, seen=state.seen)


def _cut(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
