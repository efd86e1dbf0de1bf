"""What a page says: its parts in order, and the two texts upstream makes of them."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from jinja2.utils import htmlsafe_json_dumps

from seed_envs.webshop.engine import DONE, FOUND, INDEX, ITEM, SUB, State, Visit, address, buttons, product, shown
from seed_envs.webshop.product import RATING

SEPARATOR = " [SEP] "
Kind = Literal["text", "button", "option", "product"]


class Part(NamedTuple):
    """A piece of text on a page."""

    kind: Kind
    text: str


def parts(visit: Visit, state: State) -> list[Part]:
    """Return the pieces of a page in the order they are read.

    What is empty or a line end is left out; upstream keeps other blanks as a piece.
    """
    pages = {INDEX: _index, FOUND: _found, ITEM: _item, SUB: _sub, DONE: _done}
    return [part for part in pages[state.page](visit, state) if part.text not in ("", "\n")]


def text(found: list[Part]) -> str:
    """Return the observation of the style ``text``; it does not tell which options are chosen."""
    return SEPARATOR.join(part.text.strip() for part in found)


def text_rich(found: list[Part], state: State) -> str:
    """Return the observation of the style ``text_rich``: one line a piece, with marks on what can be clicked."""
    clicked: list[str] = []
    lines: list[str] = []
    where = address(state)
    for kind, words in found:
        mark = "button"
        if kind == "option" and f'"{words}"' in where:
            clicked.insert(0, f"You have clicked {words}.")
        if (kind == "option" and f'"{words}"' in where) or (kind == "product" and words in state.seen):
            mark = "clicked button"
        before = {"option": "  ", "product": "\n"}.get(kind, "")
        lines.append(words if kind == "text" else f"{before}[{mark}] {words} [{mark}_]")
    return "".join(f"{line}\n" for line in [*clicked, *lines])


def _index(visit: Visit, state: State) -> Iterator[Part]:
    yield Part("text", "WebShop")
    yield Part("text", "Instruction: ")
    yield Part("text", visit.instruction)
    yield from _buttons(visit, state)


def _top(visit: Visit) -> Iterator[Part]:
    yield Part("text", "Instruction:")
    yield Part("text", visit.instruction)


def _buttons(visit: Visit, state: State, start: int = 0, stop: int | None = None) -> Iterator[Part]:
    return (Part("button", label) for label in buttons(visit, state)[start:stop])


def _found(visit: Visit, state: State) -> Iterator[Part]:
    yield from _top(visit)
    yield from _buttons(visit, state, 0, 1)
    yield Part("text", f"Page {state.number} (Total results: {len(state.results)})")
    yield from _buttons(visit, state, 1)
    for asin in shown(state):
        found = visit.shop.product(asin)
        yield Part("product", asin)
        yield Part("text", found.title)
        yield Part("text", found.price_tag)


def _item(visit: Visit, state: State) -> Iterator[Part]:
    found = product(visit, state)
    yield from _top(visit)
    yield from _buttons(visit, state, 0, 2)
    for name, values in found.options.items():
        yield Part("text", name)
        yield from (Part("option", value) for value in values)
    yield Part("text", found.title)
    yield Part("text", f"Price: {found.price_tag}")
    yield Part("text", f"Rating: {RATING}")
    yield from _buttons(visit, state, 2)


def _sub(visit: Visit, state: State) -> Iterator[Part]:
    found = product(visit, state)
    yield from _top(visit)
    yield from _buttons(visit, state)
    if state.sub == "description":
        yield Part("text", found.description)
    elif state.sub == "features":
        yield from (Part("text", f" {bullet}") for bullet in found.bullets)
    elif state.sub == "attributes":
        yield from (Part("text", f" {attribute}") for attribute in found.attributes)
        yield from (Part("text", line) for line in (found.category, found.query, found.product_category))


def _done(visit: Visit, state: State) -> Iterator[Part]:
    bought = [("asin", state.asin), ("options", str(htmlsafe_json_dumps(dict(state.options), sort_keys=True)))]
    bought += [(name, "None") for name in ("attrs", "category", "query", "product category")]
    wanted = ("asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query")
    lines = ["Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"]
    lines += ["Purchased", *(word for pair in bought for word in pair), "Target", *wanted, "Goal ", "None"]
    lines += ["Reward", "Your score (min 0.0, max 1.0)", str(state.score), "Reward Details ", "None"]
    yield from (Part("text", line) for line in lines)
