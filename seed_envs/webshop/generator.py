"""The generated catalogue, in the official file format: ``python -m seed_envs.webshop.generator FOLDER`` writes it.

Everything follows from the place of a product in the plan, so it is made anew wherever it is
needed and never stored.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seed_envs.files import write_atomically
from seed_envs.seeding import Draws
from seed_envs.webshop.generator_words import SHELVES, VALUES, Kind
from seed_envs.webshop.official import HUMAN_FILE, SIZES

VERSION = 1
"""Part of every draw: another version is another catalogue."""
PRODUCTS = 1_000
"""As many as upstream's small catalogue has."""
IMAGES = "https://shop.example/images"
"""Where images would be; the name is reserved and leads nowhere."""

_ASIN_LETTERS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_PATH = " \u203a "
_SEEDS = ("webshop", "catalogue", VERSION)

_NOTES = (
    "Made to last.",
    "Packed with care.",
    "A gift people keep.",
    "Tested by our own staff.",
    "Small parts included.",
)
_CLAIMS = (
    "{noun} that is {trait} and ready when you are",
    "We kept it {trait}, because that is what customers asked us for",
    "{trait}: you notice it from the first day",
)
_WITH_CLAIMS = ("Comes with {trait}", "{trait} included, so nothing else is needed", "The {noun} has {trait}")
_FOR_CLAIMS = ("A good choice for {trait}", "Made with {trait} in mind", "Works well for {trait}")

_OPENINGS = ("i need {0}", "i am looking for {0}", "can you find me {0}", "i want to buy {0}", "please show me {0}")
_ADJECTIVES = (" that is {0}", " which should be {0}", ", it must be {0}")
_PARTS = (" and has {0}", " that comes with {0}", ", preferably with {0}")
_PURPOSES = (" for {0}", ", it is for {0}", " that i can use for {0}")
_WISHES = {
    "Color": (" in {0}", ". the color should be {0}"),
    "Size": (" in size {0}", ". i would like the {0} one"),
    "Length": (" that is {0} long", ". get the {0} length"),
    "Capacity": (" with {0} of space", ". {0} would be best"),
    "Fits": (" that fits my {0}", ". my phone is a {0}"),
    "Style": (" as a {0}", ". please choose the {0} style"),
    "Scent": (" with the {0} scent", ". i prefer {0} scent"),
    "Shade": (" in the shade {0}", ". my shade is {0}"),
    "Flavor Name": (" in {0} flavor", ". i like the {0} flavor"),
}
"""How people name the value of an option."""


@dataclass(frozen=True, slots=True)
class Made:
    """What the generator makes of one place in the plan: a row of each official file."""

    item: dict[str, Any]
    """Of ``items_shuffle.json``."""
    extra: dict[str, Any]
    """Of ``items_ins_v2.json``."""
    human: list[dict[str, Any]]
    """Of ``items_human_ins.json``."""


def generate(count: int = PRODUCTS) -> Iterator[Made]:
    """Yield ``count`` products with their instructions; the categories take turns.

    A longer catalogue begins with the shorter one.
    """
    shelves = list(SHELVES)
    for number in range(count):
        category, place = shelves[number % len(shelves)], number // len(shelves)
        kinds = SHELVES[category].kinds
        yield make(category, kinds[place % len(kinds)], number)


def make(category: str, kind: Kind, number: int) -> Made:
    """Return the product with this number in the plan, which no other product depends on."""
    draws = Draws(*_SEEDS, number)
    asin = _asin(number)
    traits = draws.shuffled(kind.traits)[: 3 + draws.below(3)]
    plain = [trait.lstrip("+>") for trait in traits]
    options = _options(draws, kind, asin)
    title = f"{draws.choice(SHELVES[category].brands)} {_title(kind, traits, _series(draws, number))}"
    bullets = [_claim(draws, kind, trait) for trait in draws.shuffled(traits)]
    shelf = SHELVES[category].path
    item = {
        "asin": asin,
        "name": title,
        "full_description": f"{kind.noun.capitalize()} with a difference. {' '.join(draws.shuffled(_NOTES)[:2])}",
        "small_description": bullets if draws.below(20) else bullets[0],
        "pricing": _pricing(draws, kind),
        "customization_options": options or "",
        "images": [f"{IMAGES}/{asin}.jpg"],
        "category": category,
        "query": kind.query,
        "product_category": _PATH.join([shelf, *kind.path]),
    }
    wanted = draws.shuffled(traits)[: 1 + draws.below(3)]
    extra = {
        "attributes": plain,
        "instruction": _synthetic(kind, wanted),
        "instruction_attributes": [trait.lstrip("+>") for trait in wanted],
    }
    return Made(item, extra, [_human(draws, kind, traits, options, asin)])


def _asin(number: int) -> str:
    """Return ten letters that say nothing about the product: a permutation of seven-letter numbers."""
    size = len(_ASIN_LETTERS) ** 7
    rest = (number * 31_415_926_533 + 27_182_818_284) % size  # the factor has no divisor in common with 34
    letters = []
    for _ in range(7):
        rest, digit = divmod(rest, len(_ASIN_LETTERS))
        letters.append(_ASIN_LETTERS[digit])
    return "E0S" + "".join(letters)


def _series(draws: Draws, number: int) -> str:
    """Return a model name that is the product's own."""
    return f"{draws.choice('ABCDEFGHKLMNPRSTVWX')}{number + 100}"


def _title(kind: Kind, traits: list[str], series: str) -> str:
    """Return the traits around the noun as sellers write it."""
    before = [t for t in traits if t[0] not in "+>"][:1]
    rest = [t for t in traits if t not in before][:2]
    words = " ".join([*before, kind.noun])
    phrases = [{"+": "with ", ">": "for "}.get(t[0], "") + t.lstrip("+>") for t in rest]
    return ", ".join([_capitals(words), *map(_capitals, phrases), series])


def _capitals(text: str) -> str:
    return " ".join(w if w in ("with", "for", "of") else w[:1].upper() + w[1:] for w in text.split(" "))


def _claim(draws: Draws, kind: Kind, trait: str) -> str:
    claims = {"+": _WITH_CLAIMS, ">": _FOR_CLAIMS}.get(trait[0], _CLAIMS)
    text = draws.choice(claims).format(noun=kind.noun, trait=trait.lstrip("+>"))
    return text[:1].upper() + text[1:]


def _options(draws: Draws, kind: Kind, asin: str) -> dict[str, Any]:
    """Return one option in two of each kind's, all, or none at all; colours have images."""
    keys = [key for key in kind.options if draws.below(5)]
    options: dict[str, Any] = {}
    for key in keys:
        name, pool = VALUES[key]
        first = draws.below(len(pool))
        chosen = sorted((first + i) % len(pool) for i in range(min(len(pool), 3 + draws.below(4))))
        values: list[dict[str, Any]] = [{"value": pool[i]} for i in chosen]
        for place, value in enumerate(values) if name == "Color" else ():
            value["image"] = f"{IMAGES}/{asin}-{place}.jpg"
        options[name] = values
    if not draws.below(15):
        options["Gift Wrap"] = None  # official files have options without values
    return options


def _pricing(draws: Draws, kind: Kind) -> str:
    """Return a price, for one product in six a range, for one in twelve nothing."""
    low, high = (100 * dollars for dollars in kind.dollars)
    cents = low + draws.below(high - low)
    form = draws.below(12)
    if form == 0:
        return ""
    if form <= 2:
        return f"{_dollars(cents)} to {_dollars(cents + 100 + draws.below(cents))}"
    return _dollars(cents)


def _dollars(cents: int) -> str:
    return f"${cents // 100:,}.{cents % 100:02d}"


def _parted(traits: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return what a product is to be, to have and to be for."""
    be = [t for t in traits if t[0] not in "+>"]
    return be, [t[1:] for t in traits if t[0] == "+"], [t[1:] for t in traits if t[0] == ">"]


def _synthetic(kind: Kind, traits: list[str]) -> str:
    be, have, use = _parted(traits)
    text = f"Find me {', '.join(be)} {kind.query}" if be else f"Find me {kind.query}"
    return text + (f" with {', '.join(have)}" if have else "") + (f" for {', '.join(use)}" if use else "")


def _human(draws: Draws, kind: Kind, traits: list[str], options: dict[str, Any], asin: str) -> dict[str, Any]:
    """Return a row as people were asked for: an instruction, and what it says in the shop's own words."""
    wanted = draws.shuffled(traits)[: 1 + draws.below(2)]
    be, have, use = _parted(wanted)
    text = draws.choice(_OPENINGS).format(_with_article(kind))
    for parts, wordings in ((be, _ADJECTIVES), (have, _PARTS), (use, _PURPOSES)):
        if parts:
            text += draws.choice(wordings).format(" and ".join(parts))
    named, values, wishes = [], [], []
    for name in sorted(options):
        if options[name]:
            value = draws.choice(options[name])["value"].lower()
            named.append(f"{name.lower()}: {value}")
            values.append(value)
            wishes.append(draws.choice(_WISHES[name]).format(value))
    text += "".join(sorted(wishes, key=lambda wish: wish[0] == "."))  # sentences of their own come last
    return {
        "asin": asin,
        "instruction": text + ".",
        "attributes": [trait.lstrip("+>") for trait in traits],
        "options": named,
        "instruction_attributes": [trait.lstrip("+>") for trait in wanted],
        "instruction_options": values,
    }


def _with_article(kind: Kind) -> str:
    if kind.noun == kind.query:  # a plural, or a stuff
        return kind.noun
    return f"an {kind.noun}" if kind.noun[0] in "aeio" else f"a {kind.noun}"


def write_official(folder: Path, count: int = PRODUCTS) -> None:
    """Write the catalogue as the three official files of the small catalogue.

    Raises:
        OSError: when the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = list(generate(count))
    files = {
        f"items_shuffle{SIZES['small']}.json": [m.item for m in made],
        f"items_ins_v2{SIZES['small']}.json": {m.item["asin"]: m.extra for m in made},
        HUMAN_FILE: {m.item["asin"]: m.human for m in made},
    }
    for name, content in files.items():
        write_atomically(folder / name, json.dumps(content, ensure_ascii=False, indent=0).encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m seed_envs.webshop.generator", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the three files go")
    write_official(parser.parse_args().folder)
