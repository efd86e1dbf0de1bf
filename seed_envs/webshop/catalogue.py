"""Catalogues in memory, and the way from the name of some data to the catalogue that holds them."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path

from seed_envs import paths
from seed_envs.errors import UnknownName
from seed_envs.search import BM25Index
from seed_envs.webshop import generator
from seed_envs.webshop.official import Extra, Files, clean_products, find_files, read_extra, read_products
from seed_envs.webshop.product import RESULTS, Catalogue, Product, document, shop_sha256
from seed_envs.webshop.store import StoredCatalogue, open_store, store_folder

EMBEDDED = "webshop-embedded"


class MemoryCatalogue:
    """A small catalogue, held as Python objects; its search index is made at the first search."""

    def __init__(self, name: str, products: Iterable[Product]) -> None:
        """Hold ``products``, whose asins are distinct, in the order given."""
        self.name = name
        self._products = {product.asin: product for product in products}
        self._asins = tuple(self._products)

    @cached_property
    def sha256(self) -> str:
        """The identity of the shop."""
        return shop_sha256(self._products.values())

    @cached_property
    def _index(self) -> BM25Index:
        return BM25Index.in_memory(map(document, self._products.values()), ids=self._asins)

    @property
    def asins(self) -> Sequence[str]:
        """All products in order."""
        return self._asins

    def __len__(self) -> int:
        """Return the number of products."""
        return len(self._asins)

    def __contains__(self, asin: object) -> bool:
        """Whether there is such a product."""
        return asin in self._products

    def product(self, asin: str) -> Product:
        """Return a product.

        Raises:
            UnknownName: when there is none.
        """
        if asin not in self._products:
            raise UnknownName("asin", asin, self._asins)
        return self._products[asin]

    def search(self, query: str, k: int = RESULTS) -> list[str]:
        """Return the asins of the best ``k`` products, best first."""
        return [self._asins[hit.doc] for hit in self._index.search(query, k)]

    def in_category(self, category: str) -> list[str]:
        """Return the asins of a category in order."""
        return [asin for asin, product in self._products.items() if product.category == category]

    def with_query(self, query: str) -> list[str]:
        """Return the asins of a query in order."""
        return [asin for asin, product in self._products.items() if product.query == query]

    def instructed(self) -> Iterator[Product]:
        """Yield the products that have an instruction, in order."""
        return (p for p in self._products.values() if p.instruction is not None or p.human)


def open_catalogue(data: str = "embedded", size: str = "small") -> Catalogue:
    """Return the catalogue of some data, the same object for the same data in a process.

    Official data are read from their store where ``python -m seed_envs build webshop`` made one;
    else the small catalogue is read from its files into memory.

    Args:
        data: ``embedded``, ``official`` (``$SEED_DATA/webshop``) or a folder of official files.
        size: ``small`` or ``full``; the embedded catalogue has one size only.

    Raises:
        DataError: when files or the store are missing, torn or not of each other.
        UnknownName: for another size.
    """
    if data == "embedded":
        return embedded()
    root = paths.data_root("webshop") if data == "official" else Path(data).expanduser()
    folder = store_folder(root, size)
    if size == "full" or folder.is_dir():
        return _opened(folder, root.absolute(), size)
    files = find_files(root, size)
    return _read(files, tuple(path.stat().st_mtime_ns for path in files.there))


@cache
def embedded() -> MemoryCatalogue:
    """Return the catalogue that comes with the package, made in this process."""
    made = list(generator.generate())
    extras: dict[str, Extra] = {m.item["asin"]: read_extra(m.extra) for m in made}
    human = {m.item["asin"]: m.human for m in made}
    return MemoryCatalogue(EMBEDDED, clean_products((m.item for m in made), extras, human))


@cache
def _read(files: Files, changed: tuple[int, ...]) -> MemoryCatalogue:
    return MemoryCatalogue("webshop-small", read_products(files))


@cache
def _opened(folder: Path, root: Path, size: str) -> StoredCatalogue:
    return open_store(folder, root=root, size=size)
