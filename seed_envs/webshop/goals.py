"""What customers are asked to buy: synthetic and human goals in upstream's order, with frozen prices."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from seed_envs.seeding import Draws, canonical, sha256_text
from seed_envs.webshop.product import Product

UPSTREAM_SEED = 233
"""Upstream shuffles its goals with it."""
NO_CEILING = 1_000_000.0
"""The ceiling of a product so dear that fewer than two multiples of ten up to 990 lie above its price."""
_LADDER = range(10, 1000, 10)

Ceiling = Callable[[Product], float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Goal:
    """One task of the shop."""

    asin: str
    """The product the goal was made from; others may do as well."""
    category: str
    query: str
    name: str
    """The title of the product."""
    product_category: str
    instruction: str
    """What the agent is told, with the price ceiling."""
    attributes: tuple[str, ...]
    price_upper: float
    """In dollars; ``NO_CEILING`` for none."""
    options: tuple[tuple[str, str], ...] | tuple[str, ...]
    """(name, value) pairs of a synthetic goal, values alone of a human one."""

    @property
    def sha256(self) -> str:
        """The identity of the goal: what is asked and what the reward depends on."""
        fields = [self.asin, self.instruction, self.attributes, round(self.price_upper * 100), self.options]
        return sha256_text(canonical([*fields, self.query, self.product_category, self.name]))


def frozen_ceiling(product: Product) -> float:
    """Return the price ceiling of a product's goals, the same in every process.

    Upstream takes the larger of two out of the first four multiples of ten above the price, drawn
    from a generator that nobody seeds. Here the draw follows from the asin alone.
    """
    ladder = rungs(product.price)
    return max(Draws("webshop", "ceiling", product.asin).shuffled(ladder)[:2]) if len(ladder) > 1 else NO_CEILING


def rungs(price: float) -> list[float]:
    """Return the first four multiples of ten above a price, up to 990."""
    return [float(rung) for rung in _LADDER if rung > price][:4]


def synthetic_goals(products: Iterable[Product], ceiling: Ceiling = frozen_ceiling) -> Iterator[Goal]:
    """Yield a goal for every combination of option values of every product with an instruction."""
    for product in products:
        if product.instruction is None or not product.instruction_attributes:
            continue
        upper = ceiling(product)
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            options = tuple(zip(names, values, strict=True))
            wanted = ", and ".join(f"{name}: {value}" for name, value in options)
            text = f"{product.instruction}{f' with {wanted}' if wanted else ''}{_price_text(upper)}"
            yield _goal(product, text, product.instruction_attributes, upper, options)


def human_goals(products: Iterable[Product], ceiling: Ceiling = frozen_ceiling) -> Iterator[Goal]:
    """Yield a goal for every instruction a person wrote that names an attribute."""
    for product in products:
        for asked in product.human:
            if asked.attributes:
                upper = ceiling(product)
                text = asked.text.strip(".") + _price_text(upper)
                yield _goal(product, text, asked.attributes, upper, asked.options)


def _goal(product: Product, text: str, attributes: tuple[str, ...], upper: float, options: Any) -> Goal:
    return Goal(
        asin=product.asin,
        category=product.category,
        query=product.query,
        name=product.title,
        product_category=product.product_category,
        instruction=text,
        attributes=attributes,
        price_upper=upper,
        options=options,
    )


def _price_text(upper: float) -> str:
    return "" if upper == NO_CEILING else f", and price lower than {upper:.2f} dollars"


def upstream_order(goals: Iterable[T], seed: int = UPSTREAM_SEED) -> list[T]:
    """Return the goals as CPython's ``random`` shuffles them with upstream's seed."""
    ordered = list(goals)
    random.Random(seed).shuffle(ordered)
    return ordered


def upstream_draws(products: Iterable[Product], seed: int) -> tuple[dict[str, float], Ceiling]:
    """Return prices by asin and ceilings as an upstream process draws them that seeds ``random`` first.

    Ceilings must be asked for once per goal or product, in the order of the products.

    Args:
        products: all of the catalogue, in the order of its file.
        seed: of CPython's generator; a private one is used.
    """
    rng = random.Random(seed)
    prices = {p.asin: rng.uniform(*p.pricing[:2]) if len(p.pricing) > 1 else p.price for p in products}

    def ceiling(product: Product) -> float:
        ladder = rungs(prices[product.asin])
        return max(rng.sample(ladder, 2)) if len(ladder) > 1 else NO_CEILING

    return prices, ceiling
