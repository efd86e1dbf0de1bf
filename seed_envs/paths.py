"""Where official data and derived files live; nothing here creates a folder."""

import os
from pathlib import Path


def _home(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value).expanduser() if value else Path.home() / ".cache" / "seed-suite" / default


def data_root(benchmark: str) -> Path:
    """Return the official data folder of ``benchmark``: ``$SEED_DATA/benchmark``.

    ``ALFWORLD_DATA`` wins for ALFWorld, as upstream's own programs expect.
    """
    own = os.environ.get("ALFWORLD_DATA", "") if benchmark == "alfworld" else ""
    return Path(own).expanduser() if own else _home("SEED_DATA", "data") / benchmark


def cache_root() -> Path:
    """Return the folder for derived indexes and stores: ``$SEED_CACHE``; safe to delete."""
    return _home("SEED_CACHE", "cache")


def manifest_path(name: str) -> Path:
    """Return the path of a committed manifest."""
    return Path(__file__).parent / "data" / "manifests" / f"{name}.tsv"
