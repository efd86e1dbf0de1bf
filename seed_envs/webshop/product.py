"""What a shop knows: products as upstream loads them, and the catalogue that holds them."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from seed_envs.seeding import Draws, canonical

RATING = "N.A."
"""The rating of every product: upstream no longer loads its reviews."""
DUMMY_ATTRIBUTE = "DUMMY_ATTR"
"""The one attribute of a product that has no list of attributes."""
NO_PRICE = 100.0
"""What a product without a price costs."""
RESULTS = 50
"""How many products a search finds at most."""


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """What a person asked for when shown a product: one row of ``items_human_ins.json``."""

    text: str
    attributes: tuple[str, ...]
    """``instruction_attributes``: what the reward looks for. Rows without any make no goal."""
    options: tuple[str, ...]
    """``instruction_options``: values alone, without the names of the options."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product after upstream's cleaning. Source: load_products of princeton-nlp/WebShop.

    Rating and reviews are the same for all products (``RATING``, none), so they are no fields.
    """

    asin: str
    """At most ten characters, in the case of the file."""
    title: str
    """``name`` and ``Title``."""
    category: str
    query: str
    """The search the product was found by, in lower case."""
    product_category: str
    """A path of names, parted by U+203A between blanks."""
    description: str
    bullets: tuple[str, ...]
    pricing: tuple[float, ...]
    """One price, or the two ends of a range, in dollars."""
    price_tag: str
    """The price as pages show it: ``$11.99``, ``$5.0 to $7.5``."""
    price: float
    """What buying it costs: the price itself, or ``frozen_price`` of a range."""
    options: Mapping[str, tuple[str, ...]]
    """Values by name of the option, in lower case and in the order of pages."""
    option_images: Mapping[str, str | None]
    """Addresses of images by value; a value that several options share has the last one's."""
    attributes: tuple[str, ...]
    images: tuple[str, ...]
    instruction: str | None = None
    """The start of its synthetic goals: ``Find me …``; None makes none."""
    instruction_attributes: tuple[str, ...] = ()
    """What the reward of its synthetic goals looks for."""
    human: tuple[HumanInstruction, ...] = ()

    @property
    def main_image(self) -> str:
        """The address of the image on its page, "" for none."""
        return self.images[0] if self.images else ""


def frozen_price(asin: str, pricing: Sequence[float]) -> float:
    """Return the one price of a product, the same in every process and every catalogue.

    Upstream draws the price of a range when a process loads it, from a generator nobody seeds.
    Here the place in the range follows from the asin alone, rounded to cents.

    Args:
        asin: whose price it is.
        pricing: its price, or the two ends of its range; more count for nothing.
    """
    if len(pricing) < 2:
        return pricing[0] if pricing else NO_PRICE
    share = (Draws("webshop", "price", asin).random_raw() >> 11) / (1 << 53)
    return round(pricing[0] + (pricing[1] - pricing[0]) * share, 2)


def document(product: Product) -> str:
    """Return the text the search index holds. Source: convert_product_file_format.py."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    first = product.bullets[0] if product.bullets else ""
    return " ".join([product.title, product.description, first, options]).lower()


def to_record(product: Product) -> list[Any]:
    """Return a product as plain values, which ``from_record`` turns back."""
    human = [[asked.text, asked.attributes, asked.options] for asked in product.human]
    return [*(getattr(product, name) for name in _FIELDS), human]


def from_record(record: Sequence[Any]) -> Product:
    """Return the product ``to_record`` wrote down, also after a way through JSON.

    Raises:
        ValueError, TypeError: when it is no such record.
    """
    *values, human = record
    named = dict(zip(_FIELDS, values, strict=True))
    for name in _TUPLES:
        named[name] = tuple(named[name])
    named["options"] = {name: tuple(found) for name, found in named["options"].items()}
    asked = tuple(HumanInstruction(text, tuple(wanted), tuple(options)) for text, wanted, options in human)
    return Product(**named, human=asked)


_FIELDS = tuple(field.name for field in fields(Product) if field.name != "human")
_TUPLES = ("bullets", "pricing", "attributes", "images", "instruction_attributes")
_SHOP_FIELDS = _FIELDS[: _FIELDS.index("instruction")]


class ShopHash:
    """The identity of a shop: sha256 over its products in order, without what people are told to buy."""

    def __init__(self) -> None:
        """Begin with no product."""
        self._hash = hashlib.sha256()

    def add(self, product: Product) -> None:
        """Add the next product."""
        line = canonical([getattr(product, name) for name in _SHOP_FIELDS]) + "\n"
        self._hash.update(line.encode("utf-8", "surrogatepass"))

    def hexdigest(self) -> str:
        """Return the hash of the products so far."""
        return self._hash.hexdigest()


def shop_sha256(products: Iterable[Product]) -> str:
    """Return the identity of a shop that sells ``products``."""
    found = ShopHash()
    for product in products:
        found.add(product)
    return found.hexdigest()


class Catalogue(Protocol):
    """The products of one shop; safe to share by all episodes of a process."""

    name: str
    """``webshop-embedded``, ``webshop-small``, ``webshop-full`` or a folder's own."""

    @property
    def sha256(self) -> str:
        """The identity of the shop: over all of its products in order."""

    @property
    def asins(self) -> Sequence[str]:
        """All products in the order of the file."""

    def __len__(self) -> int:
        """Return the number of products."""

    def __hash__(self) -> int:
        """Catalogues are told apart as objects, so that results can be kept by them."""

    def __contains__(self, asin: object) -> bool:
        """Whether there is a product with this asin (in the case of the file)."""

    def product(self, asin: str) -> Product:
        """Return a product.

        Raises:
            UnknownName: when there is none.
        """

    def search(self, query: str, k: int = RESULTS) -> list[str]:
        """Return the asins of the best ``k`` products for any text, best first; maybe none."""

    def in_category(self, category: str) -> list[str]:
        """Return the asins whose category is exactly this, in the order of the file."""

    def with_query(self, query: str) -> list[str]:
        """Return the asins whose query is exactly this, in the order of the file."""

    def instructed(self) -> Iterator[Product]:
        """Yield the products that have a synthetic or human instruction, in the order of the file."""
