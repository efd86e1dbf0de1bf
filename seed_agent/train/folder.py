"""A training run's folder before any weights are read: whether a run may begin or go on in it. Needs no torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seed_agent.train.settings import HOW, Settings
from seed_envs.errors import ConfigError, DataError
from seed_envs.files import unwritable

RUN = "train.json"


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


def begun(folder: Path, settings: Settings) -> Begun | None:
    """Return what a folder's run began with, None where there is no run yet.

    Raises:
        ConfigError: when the folder holds a run of other settings.
        DataError: when what is there is torn.
    """
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
