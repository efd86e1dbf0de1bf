"""A catalogue searched by real Lucene in place of our BM25."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from seed_envs import paths
from seed_envs.search.passages import Passage
from seed_envs.search.retrievers import CARD, FORMAT, build_retriever, open_retriever
from seed_envs.webshop.product import RESULTS, Catalogue, Product, document


def index_folder(shop: Catalogue) -> Path:
    """Return where the Lucene index of a catalogue belongs, below ``$SEED_CACHE``."""
    return paths.cache_root().absolute() / "webshop" / f"lucene-{FORMAT}-{shop.sha256[:12]}"


def with_lucene(shop: Catalogue) -> "LuceneCatalogue":
    """Return the same catalogue, searched through pyserini; its index is built at the first call.

    Raises:
        MissingDependency: when pyserini is not installed.
        ConfigError: when there is no Java for it.
    """
    folder = index_folder(shop)
    if not (folder / CARD).is_file():
        documents = (Passage(asin, document(shop.product(asin))) for asin in shop.asins)
        build_retriever(documents, folder, backend="pyserini", once=True)
    return LuceneCatalogue(shop, folder)


class LuceneCatalogue:
    """The products of another catalogue, found by Lucene."""

    def __init__(self, shop: Catalogue, folder: Path) -> None:
        """Join products and the index made of them."""
        self.name = shop.name
        self._shop, self._folder = shop, folder
        self._retriever = open_retriever(folder, again=f"remove {folder}: it is built again when it is needed")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without Java."""
        return LuceneCatalogue, (self._shop, self._folder)

    @property
    def sha256(self) -> str:
        """The identity of the shop."""
        return self._shop.sha256

    @property
    def asins(self) -> Sequence[str]:
        """All products in order."""
        return self._shop.asins

    def __len__(self) -> int:
        """Return the number of products."""
        return len(self._shop)

    def __contains__(self, asin: object) -> bool:
        """Whether there is such a product."""
        return asin in self._shop

    def product(self, asin: str) -> Product:
        """Return a product."""
        return self._shop.product(asin)

    def search(self, query: str, k: int = RESULTS) -> list[str]:
        """Return the asins of the best ``k`` products, best first."""
        return [passage.id for passage in self._retriever.search([query], k)[0]]

    def in_category(self, category: str) -> list[str]:
        """Return the asins of a category in order."""
        return self._shop.in_category(category)

    def with_query(self, query: str) -> list[str]:
        """Return the asins of a query in order."""
        return self._shop.with_query(query)

    def instructed(self) -> Iterator[Product]:
        """Yield the products that have an instruction, in order."""
        return self._shop.instructed()
