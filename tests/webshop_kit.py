"""The official WebShop files and golden records for tests, and a shop of three products."""

import fcntl
import functools
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from seed_envs.webshop.catalogue import MemoryCatalogue, open_catalogue
from seed_envs.webshop.goals import Goal
from seed_envs.webshop.product import Catalogue, Product


@pytest.fixture(scope="session")
def webshop_root(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of official files, unpacked once per test session."""
    base = tmp_path_factory.getbasetemp()
    dest = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "official-webshop"
    with dest.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (dest / ".done").exists():
            command = [sys.executable, str(shared / "data" / "unpack.py"), str(dest), "--only", "webshop"]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            (dest / ".done").touch()
    return dest / "webshop"


@pytest.fixture(scope="session")
def official(webshop_root: Path) -> Catalogue:
    """Return the official catalogue of a thousand products."""
    return open_catalogue(str(webshop_root))


@functools.cache
def golden(shared: Path, name: str) -> list[dict[str, Any]]:
    """Return the records of a golden file."""
    path = shared / "golden/webshop" / name
    text = lzma.open(path, "rt", encoding="utf-8").read() if path.suffix == ".xz" else path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def golden_goal(row: Mapping[str, Any], **more: Any) -> Goal:
    """Return a recorded goal as ours."""
    options = row["goal_options"]
    given = {
        "asin": row["asin"], "category": row.get("category", ""), "query": row["query"], "name": row["name"],
        "product_category": row["product_category"], "instruction": row.get("instruction_text", ""),
        "attributes": tuple(row["attributes"]), "price_upper": row["price_upper"],
        "options": tuple(options.items()) if isinstance(options, dict) else tuple(options),
    }  # fmt: skip
    return Goal(**{**given, **more})


def product(asin: str = "P000000001", **fields: Any) -> Product:
    """Return a product with a few options."""
    given: dict[str, Any] = {
        "asin": asin, "title": "Tin Mug", "category": "garden", "query": "mugs",
        "product_category": "Home \u203a Kitchen \u203a Mugs", "description": "A mug.", "bullets": ("Holds tea.", ""),
        "pricing": (9.5,), "price_tag": "$9.5", "price": 9.5,
        "options": {"color": ("red", "blue"), "size": ("small", "large")}, "option_images": {},
        "attributes": ("easy clean",), "images": (),
    }  # fmt: skip
    return Product(**{**given, **fields})


def shop(products: Iterable[Product] | None = None) -> MemoryCatalogue:
    """Return a catalogue of these products, or of twelve mugs."""
    if products is None:
        products = [product(f"P{number:09d}", title=f"Tin Mug number {number}") for number in range(12)]
    return MemoryCatalogue("test", products)


def goal(**fields: Any) -> Goal:
    """Return a goal that ``product()`` meets with the options red and large."""
    given: dict[str, Any] = {
        "asin": "P000000001", "category": "garden", "query": "mugs", "name": "Tin Mug",
        "product_category": "Home \u203a Kitchen \u203a Mugs", "instruction": "Find me mugs",
        "attributes": ("easy clean",),
        "price_upper": 20.0, "options": (("color", "red"), ("size", "large")),
    }  # fmt: skip
    return Goal(**{**given, **fields})
