"""How a shop and a question are demonstrated: what a reader of the pages thinks and does next.

A reader says nothing that the pages do not show. In the shop it does not know which product was
meant; about a question it knows which passages to look up, as they are named on the way there.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import dropwhile

from seed_agent.policy import Situation
from seed_agent.trajectory import Turn
from seed_envs.searchqa.dialects import read_action, write_action
from seed_envs.seeding import Draws
from seed_envs.webshop.actions import click
from seed_envs.webshop.catalogue import open_catalogue
from seed_envs.webshop.oracle import typed, wish

Reader = Callable[[Situation, Sequence[str], Draws, bool], tuple[str, str]]
"""From a situation, the environment's plan, draws and whether to err, to a thought and an action."""

SLIP = "try something"
"""The thought before an action that is drawn at random."""

ROWS = tuple(f"#{row}" for row in range(1, 11))
"""How a compact page names its products, before their codes: what stands before a code must not be like elsewhere."""

_BUTTONS = ("back to search", "< prev", "next >", "description", "features", "reviews", "attributes", "buy now")
_PRICE = re.compile(r"\$([\d,]+\.?\d*)")
_CEILING = re.compile(r"price lower than ([\d.]+)")
_OPENING = frozenset("i need am looking can you find me want buy please show must should would like".split())
_QUERY = 8
"""Words of a search at most; the product comes first in a wish, its options last."""
_TITLE = 16
"""Words of a title that a compact page shows."""
_COMMON = frozenset("a and be for has in is it of one or size that the to which with".split())

_DOCUMENT = re.compile(r'^doc \d+: "([^\n]*)"\n([^\n]*)$', re.MULTILINE)
_COMPARED = (
    (re.compile(r"\bsame profession\b"), re.compile(r"\b(?:as|became) an? ([\w ]+)")),
    (re.compile(r"\b(?:first|earlier|older)\b"), re.compile(r"\b(\d{4})\b")),
)
"""Questions that compare, and what in a passage they compare."""


def read_shop(situation: Situation, plan: Sequence[str], draws: Draws, err: bool) -> tuple[str, str]:
    """Search the whole wish, open the product whose title says most of it, choose what is named, buy."""
    offered, wanted = situation.info["admissible_actions"], situation.info["instruction"]
    if offered is None:
        words = typed(wish(wanted)).lower().split()
        if not err:
            told = [word for word in words if word.strip(",.:") not in _OPENING | _COMMON]
            return "search", write_action("search", " ".join(told[:_QUERY]))
        start = draws.below(len(words))
        return SLIP, write_action("search", " ".join(words[start : start + 1 + draws.below(4)]))
    if err:
        return SLIP, draws.choice(offered)
    products = list(_products(situation.observation["text"], offered))
    if products:
        row = max(range(len(products)), key=lambda at: _fit(products[at], wanted))
        asin, title, _ = products[row]
        return f"{_told(title, wanted)}{ROWS[row]}[{asin}]", click(asin)
    if click("buy now") not in offered:  # a description, or nothing found
        back = "< prev" if click("< prev") in offered else "back to search"
        return "go back", click(back)
    missing = list(_unchosen(offered, wanted, situation.info["extra"]["options"].values()))
    return (f"choose {', '.join(missing)}", click(missing[0])) if missing else ("buy it", click("buy now"))


def _products(text: str, offered: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield asin, title and price of the products listed on a page of results, in lower case."""
    pieces = text.lower().split(" [sep] ")
    for asin, title, price in zip(pieces, pieces[1:], pieces[2:], strict=False):
        if asin not in _BUTTONS and click(asin) in offered and price.startswith("$"):
            yield asin, title, price


def _fit(product: tuple[str, str, str], wanted: str) -> tuple[bool, int]:
    """Return whether a product's price fits, and how many words of its title are wanted."""
    ceiling, price = _CEILING.search(wanted), _PRICE.search(product[2])
    cheap = not ceiling or not price or float(price[1].replace(",", "")) <= float(ceiling[1])
    return cheap, len(set(_words(product[1])) & set(_words(wanted)))


def _told(title: str, wanted: str) -> str:
    """Return a title as its page shows it, from the first wanted word on."""
    words = set(_words(wanted))
    return " ".join(dropwhile(lambda word: words.isdisjoint(_words(word)), title.split()[:_TITLE]))


def _words(text: str) -> list[str]:
    """Return the words of a text that say something, in order."""
    return [word for word in re.findall(r"[\w.]+", text.lower()) if word not in _COMMON]


def _unchosen(offered: Sequence[str], wanted: str, chosen: Collection[str]) -> Iterator[str]:
    """Yield values to click that the instruction names and nobody chose; a longer one hides its parts."""
    rest = wanted.lower()
    values = [action.removeprefix("click[").removesuffix("]") for action in offered]
    for value in sorted((v for v in values if v not in _BUTTONS), key=lambda value: (-len(value), value)):
        whole = re.compile(rf"(?<![\w-]){re.escape(value)}(?![\w-])")
        if whole.search(rest):
            rest = whole.sub(" ", rest)
            if value not in chosen:
                yield value


def read_passages(situation: Situation, plan: Sequence[str], draws: Draws, err: bool) -> tuple[str, str]:
    """Look up what the plan names, quoting first the words that name it; everything in lower case."""
    question = situation.info["instruction"].lower()
    shown = _documents(situation.observation["text"])
    if err or not plan:
        return SLIP, _guess(question, list(shown), draws)
    verb, target = read_action(plan[0].lower()) or ("", "")
    if not situation.turns:
        return "look it up", write_action(verb, target)
    return _quote(question, target, shown, situation.turns) or "not here", write_action(verb, target)


def _guess(question: str, titles: Sequence[str], draws: Draws) -> str:
    """Return a search or an answer that needs no reading."""
    if titles and draws.chance(0.5):
        return write_action("answer", draws.choice([*titles, "yes", "no"]))
    words = question.split()
    start = draws.below(len(words))
    return write_action("search", draws.choice([question, " ".join(words[start : start + 2]), *titles]))


def _documents(text: str) -> dict[str, str]:
    """Return the passages shown, by title, in lower case."""
    return dict(_DOCUMENT.findall(text.lower()))


def _quote(question: str, target: str, shown: dict[str, str], turns: Sequence[Turn]) -> str:
    """Return the words of a passage that lead to ``target``, or what is compared; "" where nothing does."""
    last = (read_action(turns[-1].action.lower()) or ("", ""))[1]
    for asked, told in _COMPARED:
        if asked.search(question):
            seen = {title: text for turn in turns for title, text in _documents(turn.observation.text).items()} | shown
            looked_up = [(read_action(turn.action.lower()) or ("", ""))[1] for turn in turns]
            facts = [(title, told.search(seen[title])) for title in looked_up if title in seen and title in question]
            return ", ".join(f"{title} {fact[1]}" for title, fact in facts if fact)
    for title in [title for title in shown if title == last] + list(shown):
        for sentence in shown[title].split(". "):
            if found := re.search(rf"\b{re.escape(target)}\b", sentence):
                lead, after = sentence[: found.start()].split()[-3:], sentence[found.end() :].split(" ")[:3]
                return f"{title}: {' '.join([*lead, target])}{'' if lead else ' '.join(after)}"
    return ""


def tokens_of(kind: str) -> tuple[str, ...]:
    """Return what has to be one token each for a kind: codes in brackets and what names the rows of a page."""
    codes = codes_of(kind)
    return (*ROWS, *(f"[{code}]" for code in codes)) if codes else ()


def codes_of(kind: str) -> tuple[str, ...]:
    """Return names of letters without a meaning; in brackets each is a token: a small model cannot copy its letters.

    They are the codes of all products in the embedded shop, which every split sells.
    """
    return tuple(asin.lower() for asin in open_catalogue().asins) if kind == "webshop" else ()


def rename(texts: Sequence[str], codes: Sequence[str], draws: Draws) -> list[str]:
    """Return ``texts`` with the codes in them exchanged for drawn ones, the same everywhere.

    A code learnt by heart would spare a model to look at the page.
    """
    known, renamed = set(codes), dict[str, str]()
    for text in texts:
        for word in dict.fromkeys(re.findall(r"\w+", text)):
            if word in known and word not in renamed:
                free = [code for code in (draws.choice(codes) for _ in range(20)) if code not in renamed.values()]
                renamed[word] = free[0]
    return [re.sub(r"\w+", lambda found: renamed.get(found[0], found[0]), text) for text in texts]


READERS: dict[str, Reader] = {"webshop": read_shop, "searchqa": read_passages}
"""By kind of environment; kinds that are played from a plan alone have a thinker instead."""
