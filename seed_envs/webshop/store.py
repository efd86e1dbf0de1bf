"""A catalogue compiled once into a folder that worker processes share.

The products are rows of an SQLite file, the search index is a folder of mapped arrays beside it.
SQLite and not mapped files of our own, because what is asked for is rows by key: it finds one
among a million in some ten microseconds through a few pages of its index, keeps two megabytes to
itself, leaves the rest to the page cache that all processes share, and comes with Python.
"""

import json
import os
import shlex
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

from seed_envs import paths
from seed_envs.errors import DataError, UnknownName
from seed_envs.search import BM25Index, seal
from seed_envs.search import store as index_store
from seed_envs.seeding import sha256_text
from seed_envs.webshop.official import find_files
from seed_envs.webshop.product import RESULTS, Product, from_record

FORMAT = 2
DATABASE, INDEX, MANIFEST = "products.sqlite", "index", "store.json"
KEPT = 512
"""Products a process keeps unpacked."""


def store_folder(root: Path, size: str) -> Path:
    """Return where the store of the official files in ``root`` belongs, below ``$SEED_CACHE``."""
    place = sha256_text(os.fspath(root.expanduser().absolute()))[:12]
    return paths.cache_root().absolute() / "webshop" / f"{size}-{place}"


def open_store(folder: Path, *, root: Path | None = None, size: str = "full") -> "StoredCatalogue":
    """Open a store for reading.

    Args:
        folder: what ``build_store`` made.
        root: the data root it was made from. Where its files are still there they must be the ones
            that were compiled: same size and time, or same hash.
        size: of the catalogue, for messages and the names of its files.

    Raises:
        DataError: when there is none, it is torn, or it was made by another version or from other files.
    """
    if root is not None:
        _check_sources(read_manifest(folder, size, root), root, size)
    return _open(folder, size, root)


def _open(folder: Path, size: str, root: Path | None) -> "StoredCatalogue":
    manifest, again = read_manifest(folder, size, root), _again(size, root)
    seal.check({folder / DATABASE: manifest["database"]}, again)
    index = BM25Index.open(folder / INDEX, expect={"shop_sha256": manifest["shop_sha256"]}, again=again)
    if len(index) != manifest["products"]:
        raise DataError(
            f"the index in {folder} has {len(index)} documents for {manifest['products']} products; {again}"
        )
    return StoredCatalogue(folder, manifest, index, (size, root))


def read_manifest(folder: Path, size: str = "full", root: Path | None = None) -> dict[str, Any]:
    """Return what a store says of itself; ``size`` and ``root`` are for messages.

    Raises:
        DataError: when there is no store, its manifest is torn or another version made it.
    """
    path, again = folder / MANIFEST, _again(size, root)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        found = (manifest["format"], manifest["kind"])
    except FileNotFoundError:
        again = again if folder.is_dir() else again.removesuffix(" --force")
        raise DataError(f"there is no WebShop store in {folder}; {again}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); {again}") from error
    if found != (FORMAT, "webshop"):
        raise DataError(f"{folder} is a store of another version of this package; {again}")
    return seal.opened(manifest, path, again)


def verify(folder: Path, size: str = "full", root: Path | None = None) -> None:
    """Hash the whole store; ``size`` and ``root`` are for messages.

    Raises:
        DataError: when it is not what it was when it was written.
    """
    manifest, again = read_manifest(folder, size, root), _again(size, root)
    seal.check({folder / DATABASE: manifest["database"]}, again, whole=True)
    index_store.verify(folder / INDEX, again)


class StoredCatalogue:
    """The catalogue of a store; pickled as its folder, safe to use from several threads and after a fork."""

    def __init__(
        self, folder: Path, manifest: Mapping[str, Any], index: BM25Index, origin: tuple[str, Path | None]
    ) -> None:
        """Take what ``open_store`` checked; ``origin`` is the size and the data root, for messages."""
        self.folder, self.manifest, self._origin = folder, manifest, origin
        self.name: str = manifest["name"]
        self._index, self._local = index, threading.local()
        self._product = lru_cache(KEPT)(self._load)

    @property
    def sha256(self) -> str:
        """The identity of the shop."""
        return str(self.manifest["shop_sha256"])

    @property
    def asins(self) -> Sequence[str]:
        """All products in order, read when they are asked for."""
        return _Asins(self)

    def __len__(self) -> int:
        """Return the number of products."""
        return int(self.manifest["products"])

    def __contains__(self, asin: object) -> bool:
        """Whether there is such a product."""
        return isinstance(asin, str) and bool(self.rows("SELECT 1 FROM product WHERE asin = ?", key_of(asin)))

    def product(self, asin: str) -> Product:
        """Return a product.

        Raises:
            UnknownName: when there is none.
            DataError: when its row is torn.
        """
        return self._product(asin)

    def search(self, query: str, k: int = RESULTS) -> list[str]:
        """Return the asins of the best ``k`` products, best first."""
        found = [hit.doc for hit in self._index.search(query, k)]
        asins: dict[int, str] = {}
        for start in range(0, len(found), 500):  # SQLite takes a limited number of values
            part = found[start : start + 500]
            marks = ",".join("?" * len(part))
            asins |= {
                at: text_of(asin)
                for at, asin in self.rows(f"SELECT position, asin FROM product WHERE position IN ({marks})", *part)
            }
        return [asins[position] for position in found]

    def in_category(self, category: str) -> list[str]:
        """Return the asins of a category in order."""
        return self._asins("SELECT asin FROM product WHERE category = ? ORDER BY position", key_of(category))

    def with_query(self, query: str) -> list[str]:
        """Return the asins of a query in order."""
        return self._asins("SELECT asin FROM product WHERE query = ? ORDER BY position", key_of(query))

    def instructed(self) -> Iterator[Product]:
        """Yield the products that have an instruction, in order."""
        last = -1
        while rows := self.rows(
            "SELECT position, body FROM product WHERE instructed AND position > ? ORDER BY position LIMIT 256", last
        ):
            yield from (self._unpack(body) for _, body in rows)
            last = rows[-1][0]

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Return what a query finds, through a connection of this thread's and process's own.

        Raises:
            DataError: when the file is torn.
        """
        local = self._local
        if getattr(local, "pid", None) != os.getpid():
            local.connection, local.pid = _connect(self.folder / DATABASE), os.getpid()
        try:
            return list(local.connection.execute(sql, values))
        except sqlite3.Error as error:
            raise DataError(f"cannot read {self.folder / DATABASE} ({error}); {_again(*self._origin)}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the folder, which is opened and checked again."""
        return _open, (self.folder, *self._origin)

    def _asins(self, sql: str, *values: Any) -> list[str]:
        return [text_of(asin) for (asin,) in self.rows(sql, *values)]

    def _load(self, asin: str) -> Product:
        rows = self.rows("SELECT body FROM product WHERE asin = ?", key_of(asin))
        if not rows:
            raise UnknownName("asin", asin, self._near(asin))
        return self._unpack(rows[0][0])

    def _near(self, asin: str) -> list[str]:
        """Return a few asins around one that does not exist: a million are too many to compare."""
        after = self._asins("SELECT asin FROM product WHERE asin >= ? ORDER BY asin LIMIT 3", key_of(asin))
        return after + self._asins("SELECT asin FROM product WHERE asin < ? ORDER BY asin DESC LIMIT 3", key_of(asin))

    def _unpack(self, body: bytes) -> Product:
        try:
            return unpack(body)
        except (zlib.error, ValueError, TypeError) as error:
            raise DataError(
                f"{self.folder / DATABASE} holds a damaged product ({error}); {_again(*self._origin)}"
            ) from error


class _Asins(Sequence[str]):
    """The asins of a store in order."""

    def __init__(self, catalogue: StoredCatalogue) -> None:
        self._catalogue = catalogue

    def __len__(self) -> int:
        return len(self._catalogue)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return text_of(self._catalogue.rows("SELECT asin FROM product WHERE position = ?", place)[0][0])


def _check_sources(manifest: Mapping[str, Any], root: Path, size: str) -> None:
    """Compare the files a store was made from with those in ``root``, if there are any still."""
    try:
        files = {path.name: path for path in find_files(root, size).there}
    except DataError:
        return
    for name, path in files.items():
        known = manifest["sources"].get(name)
        stat, again = path.stat(), _again(size, root)
        if known and (known["bytes"], known["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns):
            continue
        try:
            seal.check({path: known or {"bytes": None}}, again)
        except DataError:
            raise DataError(f"{path} is not the file the WebShop store was made from; {again}") from None


def _connect(path: Path) -> sqlite3.Connection:
    # Nothing writes to a finished store, so no locks: workers share it, also on a read-only disk.
    return sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


def _again(size: str, root: Path | None) -> str:
    profile = "full-human" if size == "full" else "small-synthetic"
    usual = root is None or root.absolute() == paths.data_root("webshop").absolute()
    place = "" if usual else f"--data {shlex.quote(str(root))} "
    return f"type: python -m seed_envs build webshop --profile {profile} {place}--force"


def unpack(body: bytes) -> Product:
    """Return the product in a row of the store.

    Raises:
        zlib.error, ValueError, TypeError: when the row is torn.
    """
    return from_record(json.loads(zlib.decompress(body).decode("utf-8", "surrogatepass")))


def key_of(text: str) -> bytes:
    """Return a text as SQLite keeps it: in bytes, because JSON may hold lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def text_of(key: bytes) -> str:
    """Return the text of ``key_of``."""
    return key.decode("utf-8", "surrogatepass")
