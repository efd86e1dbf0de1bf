"""A customer who knows the goal: the shortest way to buy its product with what was asked for."""

import re
from collections.abc import Iterator, Mapping

from seed_envs.errors import SeedError
from seed_envs.webshop.actions import SEARCH, click, reachable
from seed_envs.webshop.engine import (
    BACK,
    BUY,
    DONE,
    FOUND,
    INDEX,
    ITEM,
    NEXT,
    PER_PAGE,
    PREVIOUS,
    SUB,
    State,
    Visit,
    find,
    step,
)
from seed_envs.webshop.goals import Goal
from seed_envs.webshop.product import Product
from seed_envs.webshop.reward import colour, similar

_UNTYPED = re.compile(r"[\[\]\r\n]+")
_PRICE = re.compile(r", and price lower than [0-9.]+ dollars$")


class Unreachable(SeedError):
    """The product cannot be bought from here any more."""


def own_options(goal: Goal, product: Product) -> dict[str, str]:
    """Return the options to choose for a goal on its own product, among those that can be clicked.

    A synthetic goal names them. For a human one, each option gets the value that fits most of what
    is wanted and names it most exactly; an option that nothing wanted fits stays unchosen.
    """
    wanted = dict(option for option in goal.options if not isinstance(option, str))
    texts = [option for option in goal.options if isinstance(option, str)]
    chosen: dict[str, str] = {}
    for name, values in product.options.items():
        there = [value for value in values if _can_choose(product, name, value)]
        if name in wanted:
            chosen |= {name: wanted[name]} if wanted[name] in there else {}
        elif texts and there:
            best = max(there, key=lambda value: _fit(value, texts))
            chosen |= {name: best} if _fit(best, texts)[0] else {}
    return chosen


def _fit(value: str, wanted: list[str]) -> tuple[int, int]:
    return sum(similar(colour(value), colour(text)) for text in wanted), sum(value == text.lower() for text in wanted)


def _can_choose(product: Product, name: str, value: str) -> bool:
    """Whether clicking ``value`` chooses it for ``name``: of equal values the last option gets the click."""
    owners = [other for other, values in product.options.items() if value in values]
    return reachable(value) and owners[-1] == name


def plan(visit: Visit, state: State, goal: Goal) -> list[str]:
    """Return the fewest actions after which the goal's product is bought for the highest reward.

    Followed one action at a time, the rest of the plan is a plan of the state reached.

    Raises:
        Unreachable: when the product is sold already, or no search finds it.
    """
    tried = [(_worth(visit, state, actions), actions) for actions in _plans(visit, state, goal)]
    bought = [(worth, actions) for worth, actions in tried if worth is not None]
    if not bought:
        raise Unreachable(f"no way from here to {goal.asin}, which {visit.instruction!r} was made from")
    return max(bought, key=lambda found: (found[0], -len(found[1])))[1]


def _worth(visit: Visit, state: State, actions: list[str]) -> float | None:
    for action in actions:
        state = step(visit, state, action).state
    return state.score if state.page == DONE else None


def _plans(visit: Visit, state: State, goal: Goal) -> Iterator[list[str]]:
    product = visit.shop.product(goal.asin)
    options = own_options(goal, product)
    here = dict(state.options) if state.asin == goal.asin else {}
    if state.page == DONE:
        return
    if state.page == ITEM and state.asin == goal.asin:
        yield _buy(options, here)
    if state.page == SUB and state.asin == goal.asin:
        yield [click(PREVIOUS), *_buy(options, here)]
    if state.page == FOUND and goal.asin in state.results:
        yield [*_walk(state.results, goal.asin, state.number), *_buy(options, {})]
    back = [] if state.page == INDEX else [click(BACK)]  # a search works anyway, but only there it is offered
    for query in filter(None, (typed(wish(visit.instruction)), typed(product.title))):
        results, problem = find(visit, query.lower())
        if not problem and goal.asin in results:
            yield [*back, f"{SEARCH}[{query}]", *_walk(results, goal.asin, 1), *_buy(options, {})]


def wish(instruction: str) -> str:
    """Return an instruction without its price, which no product text holds."""
    return _PRICE.sub("", instruction)


def typed(text: str) -> str:
    """Return a text as it can stand in the brackets of a search."""
    return " ".join(_UNTYPED.sub(" ", text).split())


def _walk(results: tuple[str, ...], asin: str, number: int) -> list[str]:
    moves = results.index(asin) // PER_PAGE + 1 - number
    return [click(NEXT if moves > 0 else PREVIOUS)] * abs(moves) + [click(asin.lower())]


def _buy(options: Mapping[str, str], chosen: Mapping[str, str]) -> list[str]:
    return [*(click(value) for name, value in options.items() if chosen.get(name) != value), click(BUY)]
