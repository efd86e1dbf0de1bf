"""What a purchase is worth. Source: goal.py of princeton-nlp/WebShop 64fa2a5, quirks included.

``reward = r_type * (attributes met + options met + price met) / (attributes + options + 1)``
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rapidfuzz import fuzz, utils

from seed_envs.webshop.goals import Goal
from seed_envs.webshop.product import Product

SCORING_VERSION = "webshop-1"
"""Changes whenever a purchase could be worth something else."""
Nouns = Callable[[str], Sequence[str]]
"""A tagger: the nouns of a title in lower case, in order, with repeats."""

_CLOSE = 85
"""Texts count as equal above this ratio."""
_LATIN = dict.fromkeys(range(128, 256))
_COLOURS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo "
    "caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream "
    "crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather "
    "indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha "
    "multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal "
    "rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise "
    "violet walnut wheat white wine yellow"
).split()


@dataclass(frozen=True, slots=True)
class Score:
    """A reward and what it is made of, by upstream's names."""

    reward: float
    r_type: float
    r_att: float
    r_option: float | None
    """None when the goal asks for no options."""
    r_price: bool
    query_match: bool
    category_match: bool
    title_score: float

    @property
    def success(self) -> bool:
        """Whether everything was right."""
        return self.reward == 1.0


def score(product: Product, goal: Goal, options: Mapping[str, str], price: float, nouns: Nouns) -> Score:
    """Return what buying ``product`` with ``options`` at ``price`` is worth for ``goal``.

    Args:
        product: what is bought.
        goal: what was asked for; it has at least one attribute.
        options: the values chosen, by name.
        price: what the product costs, in dollars.
        nouns: finds the nouns of a title.
    """
    query = product.query == goal.query
    category = len(_path(product.product_category) & _path(goal.product_category)) >= 2
    title = title_score(nouns(product.title), nouns(goal.name))
    kind = type_score(query or category, title)
    attributes = sum(_has(product, attribute) for attribute in goal.attributes)
    chosen = [colour(value) for value in options.values()]
    met = sum(any(similar(value, wanted) for value in chosen) for wanted in map(_wanted, goal.options))
    cheap = price <= goal.price_upper
    return Score(
        reward=(attributes + met + cheap) / (len(goal.attributes) + len(goal.options) + 1) * kind,
        r_type=kind,
        r_att=attributes / len(goal.attributes),
        r_option=met / len(goal.options) if goal.options else None,
        r_price=cheap,
        query_match=query,
        category_match=category,
        title_score=title,
    )


def title_score(bought: Sequence[str], wanted: Sequence[str]) -> float:
    """Return the share of the wanted nouns that the bought title has too.

    Upstream counts different nouns above and all nouns below, so a title that repeats one stays
    below 1 even against itself. A title without nouns is worth 0.2.
    """
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else 0.2


def type_score(match: bool, title: float) -> float:
    """Return ``r_type``; too low a title score overrides even an exact match."""
    if title == 0:
        return 0.0
    if title < 0.1:
        return 0.1
    return 1.0 if match or title > 0.2 else 0.5


def colour(value: str) -> str:
    """Return the first colour word of the alphabet that ``value`` contains, else ``value``.

    ``dark grey`` is ``dark`` and ``titan`` is ``tan``.
    """
    return next((word for word in _COLOURS if word in value), value)


@lru_cache(1 << 16)
def similar(one: str, other: str) -> bool:
    """Whether upstream's fuzzy comparison takes two texts for the same; one inside the other is enough."""
    return round(fuzz.token_set_ratio(_plain(one), _plain(other))) > _CLOSE


def _plain(text: str) -> str:
    return utils.default_process(text.translate(_LATIN))


def _wanted(option: str | tuple[str, str]) -> str:
    """Return what a goal's option is compared as: of a (name, value) pair upstream compares the pair's repr."""
    if isinstance(option, str):
        return colour(option)
    return next((word for word in _COLOURS if word in option), str(option))


def _has(product: Product, attribute: str) -> bool:
    if any(similar(found, attribute) for found in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(attribute in text.lower() for text in texts)


def _path(category: str) -> set[str]:
    return {name.strip() for name in category.split("\u203a")}
