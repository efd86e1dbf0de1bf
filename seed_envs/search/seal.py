"""Seals: what the files of an index were when it was made, so that others in their place are refused.

Every byte is hashed when an index is made and by ``--check``. At each opening that would take minutes
(21 million passages: up to 65 GB of vectors), so a folder of more than ``VERIFIED_BYTES`` is then
compared by size and by ``BLOCKS`` blocks of each file, evenly spread from its first byte to its last:
2 MiB a file, however large. Noticed for certain are other files and cut ones, and a tenth of a file lost
in 999 cases of 1,000; a few bytes between two blocks only by ``--check``. Times are not compared: copies
and archives change them. Manifests hold their own hash. All this is against accidents and edits by hand,
not against forgers, who can seal anew.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seed_envs.errors import DataError
from seed_envs.seeding import sha256_text

VERIFIED_BYTES = 64 << 20
"""Files up to this size in all are hashed whole at every opening."""

BLOCK, BLOCKS = 32 << 10, 64
"""Bytes of a block, and blocks that are compared of a larger file."""

OWN = "manifest_sha256"
"""The entry of a manifest that holds the hash of all its others."""


def file_sha256(path: Path) -> str:
    """Return the hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sample_sha256(path: Path) -> str:
    """Return the hash of a file's blocks; of all its bytes where the blocks hold them all."""
    size, hasher = path.stat().st_size, hashlib.sha256()
    if size <= BLOCK * BLOCKS:
        return file_sha256(path)
    with path.open("rb") as file:
        for number in range(BLOCKS):
            file.seek(number * (size - BLOCK) // (BLOCKS - 1))
            hasher.update(file.read(BLOCK))
    return hasher.hexdigest()


def of(path: Path) -> dict[str, Any]:
    """Return the seal of a file: its ``bytes``, ``sha256`` and ``sample_sha256``."""
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path), "sample_sha256": sample_sha256(path)}


def check(seals: Mapping[Path, Mapping[str, Any]], again: str, *, whole: bool = False) -> None:
    """Compare files with their seals.

    Args:
        seals: what ``of`` returned, by path.
        again: what to do when they differ, for the message.
        whole: hash every byte, whatever the sizes.

    Raises:
        DataError: when one is missing, of another size or has changed.
    """
    for path, seal in seals.items():
        if not path.is_file():
            raise DataError(f"{path} is missing, expected {seal['bytes']} bytes; {again}")
        if (size := path.stat().st_size) != seal["bytes"]:
            raise DataError(f"{path} has {size} bytes, expected {seal['bytes']}; {again}")
    whole = whole or sum(seal["bytes"] for seal in seals.values()) <= VERIFIED_BYTES
    name, hashed = ("sha256", file_sha256) if whole else ("sample_sha256", sample_sha256)
    for path, seal in seals.items():
        if (found := hashed(path)) != seal[name]:
            raise DataError(f"{path} has changed: its {name} is {found:.12}, expected {seal[name]:.12}; {again}")


def manifest(values: Mapping[str, Any]) -> bytes:
    """Return a manifest as it is written: JSON with its own hash."""
    return (json.dumps({**values, OWN: _own(values)}, indent=1) + "\n").encode()


def opened(values: Mapping[str, Any], path: Path, again: str) -> dict[str, Any]:
    """Return the entries of a manifest, as they were read, without its hash.

    Raises:
        DataError: when they are not those it was written with.
    """
    rest = {key: value for key, value in values.items() if key != OWN}
    if values.get(OWN) != _own(rest):
        raise DataError(f"{path} has changed: its entries do not give the {OWN} in it; {again}")
    return rest


def _own(values: Mapping[str, Any]) -> str:
    return sha256_text(json.dumps(values, sort_keys=True))
