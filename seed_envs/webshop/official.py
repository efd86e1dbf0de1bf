"""The official WebShop files: found, read one item at a time, and cleaned as upstream cleans them."""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from seed_envs.errors import DataError, UnknownName
from seed_envs.webshop.product import DUMMY_ATTRIBUTE, NO_PRICE, HumanInstruction, Product, frozen_price

SIZES = {"small": "_1000", "full": ""}
"""How the file names of a catalogue end."""
PROFILES = {
    "small-synthetic": ("small", "synthetic"),
    "small-human": ("small", "human"),
    "full-human": ("full", "human"),
}
"""The size of the catalogue and the style of the goals, by name."""
RELEASED = {"small-synthetic": 6_910, "small-human": 13, "full-human": 12_087}
"""Goals of a profile. Source: upstream's programs on the official files."""
HUMAN_FILE = "items_human_ins.json"
HELP = "type: python -m seed_envs fetch webshop (--by-hand shows the way without it)"

_CHUNK = 1 << 20
_LONGEST_ASIN = 10
_PRICE_JUNK = re.compile(r"[^\d.]")


@dataclass(frozen=True, slots=True)
class Files:
    """The three files of a catalogue."""

    products: Path
    attributes: Path
    human: Path
    """What people asked for; may be absent where no human goals are wanted."""

    @property
    def there(self) -> tuple[Path, ...]:
        """Those that exist."""
        return tuple(path for path in (self.products, self.attributes, self.human) if path.is_file())


class Extra(NamedTuple):
    """What ``items_ins_v2.json`` says of one product."""

    attributes: tuple[str, ...]
    instruction: str | None
    instruction_attributes: tuple[str, ...]


_NO_EXTRA = Extra((DUMMY_ATTRIBUTE,), None, ())


def find_files(root: Path, size: str, *, human: bool = False) -> Files:
    """Find the files of a catalogue in ``root`` or in ``root``/data, where upstream has them.

    Args:
        root: the data root, ``$SEED_DATA/webshop`` by default elsewhere.
        size: ``small`` or ``full``.
        human: whether the file of human instructions is needed.

    Raises:
        UnknownName: for another size.
        DataError: when a file is missing, with the place looked at and what to type.
    """
    if size not in SIZES:
        raise UnknownName("size of the WebShop catalogue", size, SIZES)
    names = f"items_shuffle{SIZES[size]}.json", f"items_ins_v2{SIZES[size]}.json", HUMAN_FILE
    folder = next((f for f in (root, root / "data") if (f / names[0]).is_file()), root)
    files = Files(*(folder / name for name in names))
    needed = [files.products, files.attributes, *([files.human] if human else [])]
    missing = [path.name for path in needed if not path.is_file()]
    if missing:
        raise DataError(f"{folder} has no {' and no '.join(missing)}; {HELP}, or give the folder as data")
    return files


def read_products(files: Files, skipped: Counter[str] | None = None) -> Iterator[Product]:
    """Yield the products of a catalogue in the order of its file, with what is asked of them.

    Items upstream leaves out are left out: no usable asin (``nan``, over ten characters) and
    asins that came before.

    Args:
        files: where to read.
        skipped: counts the items left out, by reason.

    Raises:
        DataError: when a file cannot be read or is not what it should be.
    """
    extras = {asin: read_extra(value) for asin, value in _pairs(files.attributes)}
    human = dict(_pairs(files.human)) if files.human.is_file() else {}
    items = (_mapping(item, files.products, number) for number, (_, item) in enumerate(_entries(files.products, "[")))
    yield from clean_products(items, extras, human, skipped)


def clean_products(
    items: Iterable[Mapping[str, Any]],
    extras: Mapping[str, Extra],
    human: Mapping[str, Any],
    skipped: Counter[str] | None = None,
) -> Iterator[Product]:
    """Yield the products among ``items`` of the official file; see ``read_products``."""
    skipped = Counter() if skipped is None else skipped
    seen: set[str] = set()
    for item in items:
        asin = item.get("asin")
        if not isinstance(asin, str) or asin == "nan" or not asin:
            skipped["no asin"] += 1
        elif len(asin) > _LONGEST_ASIN:
            skipped["asin too long"] += 1
        elif asin in seen:
            skipped["asin repeated"] += 1
        else:
            seen.add(asin)
            yield _clean(asin, item, extras.get(asin, _NO_EXTRA), _human(human.get(asin)))


def count_goals(root: Path, profile: str) -> int:
    """Return how many goals the files in ``root`` make, 0 where they are missing.

    The full catalogue is not read for it: all of its human instructions are for products it has.

    Raises:
        DataError: when a file is not what it should be.
    """
    size, style = PROFILES[profile]
    try:
        files = find_files(root, size, human=style == "human")
    except DataError:
        return 0
    if size == "full":
        return sum(bool(row.attributes) for _, rows in _pairs(files.human) for row in _human(rows))
    products = read_products(files)
    if style == "human":
        return sum(bool(row.attributes) for product in products for row in product.human)
    return sum(math.prod(map(len, p.options.values())) for p in products if p.instruction and p.instruction_attributes)


def read_price(pricing: object) -> tuple[tuple[float, ...], str]:
    """Return the prices in a text like ``$5.00 to $7.50`` and how pages show them.

    What follows each ``$`` is one price, of which digits and points count; the first two are
    kept. Where upstream raises (``Free``, ``$1.2.3``) there is no price, and it is 100 dollars.
    """
    pieces = pricing.split("$")[1:] if isinstance(pricing, str) else []
    prices = tuple(price for price in map(_number, pieces) if price is not None)[:2] or (NO_PRICE,)
    return prices, " to ".join(f"${price}" for price in prices)


def _number(text: str) -> float | None:
    try:
        value = float(Decimal(_PRICE_JUNK.sub("", text)))
    except (InvalidOperation, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _clean(asin: str, item: Mapping[str, Any], extra: Extra, human: tuple[HumanInstruction, ...]) -> Product:
    pricing, tag = read_price(item.get("pricing"))
    options, images = _options(item.get("customization_options"))
    bullets = item.get("small_description")
    pictures = item.get("images")
    return Product(
        asin=asin,
        title=_text(item.get("name")),
        category=_text(item.get("category")),
        query=_text(item.get("query")).lower().strip(),
        product_category=_text(item.get("product_category")),
        description=_text(item.get("full_description")),
        bullets=_texts(bullets) if isinstance(bullets, list) else (_text(bullets),),
        pricing=pricing,
        price_tag=tag,
        price=frozen_price(asin, pricing),
        options=options,
        option_images=images,
        attributes=extra.attributes,
        images=_texts(pictures),
        instruction=extra.instruction,
        instruction_attributes=extra.instruction_attributes,
        human=human,
    )


def _options(customization: object) -> tuple[dict[str, tuple[str, ...]], dict[str, str | None]]:
    """Return values by option and images by value; what is no option is left out."""
    options: dict[str, tuple[str, ...]] = {}
    images: dict[str, str | None] = {}
    for name, contents in customization.items() if isinstance(customization, dict) else ():
        if not isinstance(contents, list):
            continue
        values = []
        for content in contents:
            if isinstance(content, dict) and content.get("value") is not None:
                values.append(_text(content["value"]).strip().replace("/", " | ").lower())
                image = content.get("image")
                images[values[-1]] = image if isinstance(image, str) else None
        options[name.lower()] = tuple(values)
    return options, images


def read_extra(value: object) -> Extra:
    """Return what one entry of ``items_ins_v2.json`` says; nothing where it is none."""
    if not isinstance(value, dict):
        return _NO_EXTRA
    instruction = value.get("instruction")
    return Extra(
        _texts(value["attributes"]) if "attributes" in value else _NO_EXTRA.attributes,
        instruction if isinstance(instruction, str) else None,
        _texts(value.get("instruction_attributes")),
    )


def _human(value: object) -> tuple[HumanInstruction, ...]:
    rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    return tuple(
        HumanInstruction(
            _text(row.get("instruction")),
            _texts(row.get("instruction_attributes")),
            _texts(row.get("instruction_options")),
        )
        for row in rows
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _texts(value: object) -> tuple[str, ...]:
    """Return a list of texts; attributes recur by the million, so equal ones are one object."""
    return tuple(sys.intern(_text(part)) for part in value) if isinstance(value, list) else ()


def _mapping(item: object, path: Path, number: int) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise DataError(
            f"{path}: item {number} is {type(item).__name__}; expected an object with asin, name, …; {HELP}"
        )
    return item


def _pairs(path: Path) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in _entries(path, "{") if key is not None)


def _entries(path: Path, opening: str) -> Iterator[tuple[str | None, Any]]:
    """Yield key (None in an array) and value of every entry of a JSON array or object.

    The full catalogue has five gigabytes, which as Python objects would need twenty: only one
    entry is held at a time.
    """
    try:
        with path.open(encoding="utf-8") as file:
            yield from _Entries(file.read, opening)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is no readable file of WebShop ({error}); {HELP}") from error


class _Entries:
    """Walks over the text of one JSON array or object, reading more where an entry is cut."""

    _blank = re.compile(r"[ \t\r\n]*")

    def __init__(self, read: Any, opening: str) -> None:
        self._read, self._opening = read, opening
        self._text, self._at, self._done = "", 0, False
        self._decode = json.JSONDecoder().raw_decode

    def __iter__(self) -> Iterator[tuple[str | None, Any]]:
        closing = {"[": "]", "{": "}"}[self._opening]
        if (found := self._mark()) != self._opening:
            raise ValueError(f"it begins with {found!r}, expected {self._opening!r}")
        self._at += 1
        if self._mark() != closing:
            while True:
                yield self._entry()
                if (mark := self._mark()) != ",":
                    break
                self._at += 1
            if mark != closing:
                raise ValueError(f"{mark!r} where ',' or {closing!r} was expected" if mark else "it ends too early")
        self._at += 1
        if rest := self._mark():
            raise ValueError(f"{rest!r} after its end")

    def _entry(self) -> tuple[str | None, Any]:
        key = None
        if self._opening == "{":
            key = self._value()
            if not isinstance(key, str) or self._mark() != ":":
                raise ValueError("a name and ':' were expected")
            self._at += 1
        return key, self._value()

    def _mark(self) -> str:
        """Return the next character that is no blank, "" at the end."""
        while True:
            match = self._blank.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        self._mark()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise
                continue
            if end < len(self._text) or not self._more():  # a number at the very end may go on
                self._at = end
                return value

    def _more(self) -> bool:
        """Read on, twice as much when an entry is long; false at the end of the file."""
        if self._done:
            return False
        rest = self._text[self._at :]
        new = self._read(max(_CHUNK, len(rest)))
        self._text, self._at, self._done = rest + new, 0, not new
        return bool(new)
