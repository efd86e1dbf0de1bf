"""Compiling a catalogue into a store: products one by one, then the index, then all of it into its place."""

import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seed_envs.download import Report, silent
from seed_envs.errors import DataError
from seed_envs.files import write_atomically
from seed_envs.search import build_index, seal
from seed_envs.search.store import discard, empty, locked, put_in_place, versions
from seed_envs.seeding import canonical
from seed_envs.webshop.official import find_files, read_products
from seed_envs.webshop.product import Product, ShopHash, document, to_record
from seed_envs.webshop.store import (
    DATABASE,
    FORMAT,
    INDEX,
    MANIFEST,
    key_of,
    store_folder,
    text_of,
    unpack,
)

_EVERY = 1_000
_TABLE = """
CREATE TABLE product (
    position INTEGER PRIMARY KEY, asin BLOB NOT NULL UNIQUE, category BLOB NOT NULL, query BLOB NOT NULL,
    instructed INTEGER NOT NULL, body BLOB NOT NULL
)"""
_INDEXES = (
    "CREATE INDEX by_category ON product (category, position, asin)",
    "CREATE INDEX by_query ON product (query, position, asin)",
    "CREATE INDEX with_goals ON product (position) WHERE instructed",
)


def build_store(
    products: Iterable[Product],
    folder: Path,
    *,
    name: str,
    sources: Mapping[str, Mapping[str, Any]] | None = None,
    skipped: Counter[str] | None = None,
    report: Report = silent,
) -> dict[str, Any]:
    """Compile ``products`` into ``folder``, which appears only when it is complete.

    Another build of the same store waits; what a killed one left is removed.

    Args:
        products: with distinct asins, read once.
        folder: where to; a store that is there is replaced when the new one is complete.
        name: of the catalogue.
        sources: what ``describe_sources`` says of the files they come from.
        skipped: filled while ``products`` are read; kept in the manifest.
        report: told (what, done, total or None, unit).

    Returns:
        The manifest.

    Raises:
        DataError: when there are no products.
        OSError: when the disk is full or the folder cannot be written; what was there stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    with locked(partial):
        empty(partial)
        done = partial / "store"
        done.mkdir()
        count, shop = _write_products(products, done / DATABASE, report)
        if not count:
            raise DataError(f"{name} has no products; expected at least one")
        with sqlite3.connect(done / DATABASE) as database:
            asins = (text_of(asin) for (asin,) in database.execute("SELECT asin FROM product ORDER BY position"))
            meta = {"shop_sha256": shop}
            build_index(_documents(database), done / INDEX, ids=asins, meta=meta, report=report)
        database.close()
        manifest = {
            "format": FORMAT,
            "kind": "webshop",
            "name": name,
            "products": count,
            "shop_sha256": shop,
            "skipped": dict(sorted((skipped or {}).items())),
            "sources": {name: dict(entry) for name, entry in (sources or {}).items()},
            "database": seal.of(done / DATABASE),
            "versions": {**versions(), "sqlite": sqlite3.sqlite_version},
        }
        write_atomically(done / MANIFEST, seal.manifest(manifest))
        put_in_place(done, folder)
        discard(partial)
    return manifest


def build_official(root: Path, size: str, *, human: bool = False, report: Report = silent) -> Path:
    """Compile the official files in ``root`` into their place below ``$SEED_CACHE`` and return it.

    Raises:
        DataError: when files are missing or not what they should be.
        OSError: when the disk is full or the cache cannot be written.
    """
    files = find_files(root, size, human=human)
    skipped: Counter[str] = Counter()
    folder = store_folder(root, size)
    sources = describe_sources(files.there)
    products = read_products(files, skipped)
    build_store(products, folder, name=f"webshop-{size}", sources=sources, skipped=skipped, report=report)
    return folder


def describe_sources(files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return time of change and seal of files by name."""
    return {path.name: {"mtime_ns": path.stat().st_mtime_ns, **seal.of(path)} for path in files}


def _write_products(products: Iterable[Product], path: Path, report: Report) -> tuple[int, str]:
    """Write the rows and return how many there are, and the identity of the shop."""
    shop, count = ShopHash(), 0

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal count
        for product in products:
            shop.add(product)
            body = zlib.compress(canonical(to_record(product)).encode("utf-8", "surrogatepass"))
            instructed = product.instruction is not None or bool(product.human)
            yield count, key_of(product.asin), key_of(product.category), key_of(product.query), instructed, body
            count += 1
            if count % _EVERY == 0:
                report("compiling", count, None, "products")

    database = sqlite3.connect(path)
    try:
        database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;" + _TABLE
        )
        database.executemany("INSERT INTO product VALUES (?, ?, ?, ?, ?, ?)", rows())
        for index in _INDEXES:
            database.execute(index)
        database.commit()
    finally:
        database.close()
    report("compiling", count, count, "products")
    return count, shop.hexdigest()


def _documents(database: sqlite3.Connection) -> Iterator[str]:
    for (body,) in database.execute("SELECT body FROM product ORDER BY position"):
        yield document(unpack(body))
