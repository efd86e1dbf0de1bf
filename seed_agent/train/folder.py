"""A training run's folder before any weights are read: whether a run may begin or go on in it. Needs no torch."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seed_agent.train.checkpoint import STATE
from seed_agent.train.settings import HOW, Settings
from seed_envs.errors import ConfigError, DataError
from seed_envs.files import unwritable
from seed_envs.locks import claim

RUN, STAGE1, CARD, BUILDING = "train.json", "sft.json", "card.json", ".building"
"""What says that a folder is of stage 2, of stage 1, a base policy, or one that is being built."""

_HARMLESS = (".lock", "report.html")


@dataclass(frozen=True)
class Begun:
    """What a folder's run began with."""

    weights: str
    """SHA-256 of the model's weights."""
    provenance: list[Any]
    """One entry a start."""


def check_writable(folder: Path) -> None:
    """Refuse a folder in which nothing can be written; it is not made.

    Raises:
        ConfigError: naming what is in the way.
    """
    if (there := unwritable(folder)) is not None:
        what = "nothing can be written in it" if there.is_dir() else "that is a file"
        raise ConfigError(f"cannot make {folder} in {there}: {what}; choose another --out")


def check_own(folder: Path, *own: str) -> None:
    """Refuse a folder that holds something, but none of the files that say it is ours; nothing is made.

    Raises:
        ConfigError: when it cannot be written, or naming what it holds.
    """
    check_writable(folder)
    found = sorted(path.name for path in folder.iterdir() if path.name not in _HARMLESS) if folder.exists() else []
    if found and not any((folder / name).exists() for name in own):
        raise ConfigError(f"{folder} holds {found[0]} and no {own[0]}: another thing's folder; choose another --out")


def check_base(folder: Path) -> None:
    """Refuse a folder in which no base policy may be built: what it holds would be lost.

    Raises:
        ConfigError: naming what it holds.
    """
    try:
        state = json.loads((folder / STATE).read_bytes())
    except (OSError, ValueError):
        state = {}
    half = isinstance(state, dict) and "base" in state  # killed between the weights and the card
    check_own(folder, CARD, BUILDING, *([STATE] if half else []))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder that exists.

    Raises:
        ConfigError: when one is in there.
    """
    handle = lock(folder)
    try:
        yield
    finally:
        os.close(handle)


def lock(folder: Path) -> int:
    """Return a file descriptor that keeps other processes out of a folder until it is closed.

    Raises:
        ConfigError: when one is in there.
    """
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    claim(handle, f"another process is training in {folder}; choose another --out")
    return handle


def begun(folder: Path, settings: Settings) -> Begun | None:
    """Return what a folder's run began with, None where there is no run yet.

    Raises:
        ConfigError: when the folder cannot be written, or holds another thing or a run of other settings.
        DataError: when what is there is torn.
    """
    check_own(folder, RUN)
    path = folder / RUN
    if not path.exists():
        return None
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        before, digest = dict(known["settings"]), known["digest"]
        found = Begun(known["model"]["weights_sha256"], list(known["provenance"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read ({error!r}); choose another --out") from None
    if digest != settings.digest:
        now = settings.model_dump(mode="json")
        names = sorted(name for name in now if name not in HOW and before.get(name) != now[name])
        odd = [f"{name}: {before.get(name)!r} there, {now[name]!r} now" for name in names]
        raise ConfigError(f"{folder} holds a run of other settings ({'; '.join(odd)}); choose another --out")
    return found
