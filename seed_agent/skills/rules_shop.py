"""What the rule-based annotator knows of WebShop: how a purchase was made, or what kept it from being right.

All of it is read from the record: the instruction, the pages and the clicks. No skill names the
product, since the next episode of the task would only have to click it.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seed_agent.trajectory import Episode, Turn
from seed_envs.webshop.actions import CLICK, SEARCH, read
from seed_envs.webshop.engine import BACK, BUY, NEXT, PREVIOUS, SUB_PAGES
from seed_envs.webshop.oracle import wish
from seed_envs.webshop.pages import SEPARATOR

RULE = (
    "Search for the thing with its qualities, open a product that fits and is cheap enough, choose every option "
    "that was asked for, and buy."
)

_BUTTONS = {BACK, BUY, NEXT, PREVIOUS, "search", *SUB_PAGES}
_RESULTS = re.compile(r"Page \d+ \(Total results: \d+\)")
_LIMIT = re.compile(r"price lower than ([0-9]+(?:\.[0-9]+)?) dollars")
_DOLLARS = re.compile(r"\$([0-9][0-9,]*(?:\.[0-9]+)?)")
_PAIR = re.compile(r"\b(?:with|and) ([\w ]+): (.+?)(?=, and [\w ]+: |$)")
_MARK = re.compile(r"^\s*\[(?:clicked )?button\] (.*) \[(?:clicked )?button_\]$")
_NAME = re.compile(
    "(?:color|size|style|scent|shade|length|width|capacity|fits|flavor|material|pattern|edition|configuration|model)"
    "|.* (?:name|type|shape|quantity|count)"
)
"""How options are called. On a page of the style ``text`` names and values look alike."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a product's page said, in lower case, when it was left or bought."""

    options: tuple[str, ...]
    """Names of options and their values, as they follow one another."""
    low: float
    high: float
    """Dollars; equal unless the page showed a range."""


def rule(episode: Episode) -> str:
    """Return what decides in such a task."""
    return RULE


def told(turn: Turn, episode: Episode) -> str:
    """Return an action as a skill may quote it: a product is called one, a search keeps the task's own words."""
    name, argument = read(turn.action)
    if argument is None or name not in (SEARCH, CLICK):
        return "something else"
    if name == SEARCH:
        known = set(_words(wish(episode.instruction)))
        return f"{SEARCH}[{' '.join(word for word in _words(argument) if word in known) or '...'}]"
    if not _is_product(turn, argument):
        return f"{CLICK}[{argument}]"
    return f"{CLICK}[...]" if turn.admissible is False else f"{CLICK}[a product]"


def key_actions(episode: Episode) -> list[str]:
    """Return the way to the purchase: the last search, the product, its options; detours are left out."""
    deeds = _effective(episode)
    searches = [i for i, turn in enumerate(deeds) if read(turn.action)[0] == SEARCH]
    way = deeds[searches[-1] :] if searches else deeds
    here = _last_product(way)
    pages = [turn for turn in way[: len(way) - len(here)] if read(turn.action)[1] == NEXT or turn is way[0]]
    opened = way[len(way) - len(here) - 1 : len(way) - len(here)]
    offer = _offer(deeds[-1].observation.text) if deeds else None
    options = _chosen(episode, offer, here) if offer else []
    return [
        *(told(turn, episode) for turn in [*pages, *(turn for turn in opened if turn not in pages)]),
        *(f"{CLICK}[{value}]" for value in options),
        *(told(turn, episode) for turn in here if read(turn.action)[1] == BUY),
    ]


def mistakes(episode: Episode) -> Iterator[str]:
    """Yield what kept a purchase from being right, or from being made."""
    deeds = _effective(episode)
    if any(read(turn.action) == (CLICK, BUY) for turn in deeds):
        yield from _bought_wrong(episode, deeds)
    else:
        yield _not_bought(deeds)


def _not_bought(deeds: Sequence[Turn]) -> str:
    searches = sum(read(turn.action)[0] == SEARCH for turn in deeds)
    opened = sum(_is_product(turn, read(turn.action)[1] or "") for turn in deeds)
    if not searches:
        return "Begin with a search for the thing and its most telling qualities: nothing was ever searched for."
    if not opened:
        return (
            f"Open the result that fits best and look at its options: after {_count(searches, 'search')} "
            "not one product was opened."
        )
    return (
        f"Buy before the turns run out: {_count(opened, 'product')} opened, nothing bought. As soon as kind, price and "
        "options fit, choose the options and click buy now."
    )


def _bought_wrong(episode: Episode, deeds: Sequence[Turn]) -> Iterator[str]:
    here = _last_product(deeds)
    offer = _offer(deeds[-1].observation.text)
    found = [*_too_dear(offer, _limit(episode.instruction)), *_wrong_options(episode, offer, here)] if offer else []
    yield from found
    if episode.score == 0:
        yield "Check that the title names the very kind of thing that was asked for: what was bought is another thing."
    elif not found:
        looked = any(read(turn.action)[1] in SUB_PAGES for turn in here)
        where = "the titles of the other results" if looked else "its title and its Features page"
        yield (
            f"Match every quality that was asked for against {where} before you buy: the purchase met only a part of "
            f"the wishes and scored {episode.score:.2f}."
        )


def _too_dear(offer: _Offer, limit: float) -> Iterator[str]:
    if offer.low > limit:
        yield "Compare the price with the limit before you buy and open a cheaper product: this one cost too much."
    elif offer.high > limit:
        yield "Do not trust a range of prices that reaches above the limit: the product may cost more than is allowed."


def _wrong_options(episode: Episode, offer: _Offer, here: Sequence[Turn]) -> Iterator[str]:
    """Yield what was not chosen though it was asked for and there, and what was asked for and not there."""
    wanted, chosen = _wanted(episode.instruction, offer.options), _chosen(episode, offer, here)
    if missed := [value for value in wanted if value not in chosen]:
        wrong = [value for value in chosen if value not in wanted]
        instead = f" and not {_listed(wrong)}" if wrong else ""
        yield f"Choose every option that was asked for before you buy: here {_listed(missed)}{instead}."
    elif offer.options and not chosen and not wanted:
        yield "Look through the options before you buy: the product had some, and none was chosen."
    if absent := [value for value in _pairs(episode.instruction) if value not in offer.options]:
        yield f"Leave a product that does not come in {_listed(absent)} and open another one."


def _chosen(episode: Episode, offer: _Offer, here: Sequence[Turn]) -> list[str]:
    """Return the values that were chosen when the product was left: of each option the one clicked last."""
    text, owner, name = wish(episode.instruction).lower(), dict[str, str](), ""
    for piece in offer.options:
        name = piece if _NAME.fullmatch(piece) or f"{piece}: " in text else name
        owner[piece] = name
    clicks = [value for turn in here if (value := read(turn.action)[1] or "") in owner]
    return list({owner[value]: value for value in clicks}.values())


def _pairs(instruction: str) -> list[str]:
    """Return the values that a synthetic instruction asks for; none of one that a person wrote."""
    return [value.strip() for _, value in _PAIR.findall(wish(instruction).lower())]


def _wanted(instruction: str, options: Sequence[str]) -> list[str]:
    """Return the values offered that the instruction asks for, in people's words the longest of several."""
    if pairs := _pairs(instruction):
        return [value for value in pairs if value in options]
    text = wish(instruction).lower()
    found = [
        value
        for value in dict.fromkeys(options)
        if not _NAME.fullmatch(value) and re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-]|\.\d)", text)
    ]
    return [value for value in found if not any(value != other and value in other for other in found)]


def _offer(page: str) -> _Offer | None:
    """Read a product's page in either style of observation; None where it is none."""
    pieces = _pieces(page)
    price = next((i for i, piece in enumerate(pieces) if piece.startswith("price: ")), None)
    if price is None or PREVIOUS not in pieces[:price]:
        return None
    dollars = [float(found.replace(",", "")) for found in _DOLLARS.findall(pieces[price])] or [0.0]
    options = tuple(pieces[pieces.index(PREVIOUS) + 1 : price - 1])  # the title stands before the price
    return _Offer(options, min(dollars), max(dollars))


def _pieces(page: str) -> list[str]:
    if SEPARATOR in page:
        return [piece.strip().lower() for piece in page.split(SEPARATOR)]
    return [_MARK.sub(r"\1", line).strip().lower() for line in page.split("\n") if line.strip()]


def _limit(instruction: str) -> float:
    found = _LIMIT.search(instruction)
    return float(found[1]) if found else math.inf


def _last_product(deeds: Sequence[Turn]) -> Sequence[Turn]:
    """Return the turns since the last product was opened; sub-pages belong to it."""
    opened = [i for i, turn in enumerate(deeds) if _is_product(turn, read(turn.action)[1] or "")]
    return deeds[opened[-1] + 1 :] if opened else deeds


def _is_product(turn: Turn, argument: str) -> bool:
    """Whether a click was on a result: nothing but products and buttons can be clicked beside results."""
    return (
        read(turn.action)[0] == CLICK
        and argument not in _BUTTONS
        and _RESULTS.search(turn.observation.text) is not None
    )


def _effective(episode: Episode) -> list[Turn]:
    return [turn for turn in episode.turns if turn.action and turn.admissible is not False]


def _words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text.lower())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def _listed(values: Sequence[str]) -> str:
    return " and ".join(f"'{value}'" for value in values)
