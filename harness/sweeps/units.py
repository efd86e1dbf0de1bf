"""The folders of a sweep on disk: a cell or what cells share, the commands that fill it, and what of it is there."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.runs import SUMMARY, flat
from harness.sweeps.grid import Cell
from seed_envs.errors import ConfigError, DataError
from seed_envs.files import write_atomically

CELL, EVALUATION, TRAINING = "cell.json", "eval", "train"
CELL_VERSION = 1
DONE = "DONE"
"""What a finished model folder holds."""


@dataclass(frozen=True)
class Step:
    """One command of a sweep."""

    what: str
    """``base``, ``stage1``, ``train`` or ``eval``."""
    unit: str
    """Whose it is: a folder below the sweep's."""
    folder: Path
    """That folder; the command's log is in ``logs``."""
    module: str
    arguments: tuple[str, ...]
    products: tuple[Path, ...]
    """Files that are there when it is finished."""
    needs: tuple["Step", ...] = ()

    @property
    def command(self) -> str:
        """What to type to run it by hand."""
        return shlex.join(["python", "-m", self.module, *self.arguments])

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folder / "logs" / f"{self.what}.log"

    @property
    def made(self) -> bool:
        """Whether its result is there, with episodes that broke or without."""
        return all(path.is_file() for path in self.products)

    @property
    def done(self) -> bool:
        """Whether nothing is left to do; an evaluation is owed the episodes that broke."""
        return self.made and (self.what != EVALUATION or not broken(self.folder))


def broken(folder: Path) -> int:
    """Return how many episodes of a cell's evaluation broke.

    Raises:
        DataError: when its summary cannot be read.
    """
    return int(read_json(folder / EVALUATION / SUMMARY)["errors"])


@dataclass(frozen=True)
class Unit:
    """A folder of the sweep: a cell, or something that cells share."""

    name: str
    folder: Path
    content: Mapping[str, Any]
    """What ``cell.json`` holds: all that decides the result, what the method was given, the commands."""
    steps: tuple[Step, ...]
    cell: Cell | None = None

    @property
    def state(self) -> str:
        """``done``, ``begun`` or ``missing``."""
        steps = list(self.every_step)
        if all(step.done for step in steps):
            return "done"
        return "begun" if (self.folder / CELL).exists() else "missing"

    @property
    def every_step(self) -> Iterator[Step]:
        """The commands behind the unit, those of shared units too, each after what it needs."""
        return iter(ordered(self.steps))

    def check(self) -> None:
        """Refuse a folder that holds something else.

        Raises:
            ConfigError: naming what differs.
            DataError: when ``cell.json`` cannot be read.
        """
        if not (self.folder / CELL).exists():
            others = sorted(path.name for path in self.folder.glob("*")) if self.folder.exists() else []
            others = [name for name in others if not name.startswith(f".{CELL}.")]
            if others:
                raise ConfigError(f"{self.folder} is no cell of a sweep (it holds {others[0]}); choose another --out")
            return
        there, now = (flat(what["config"]) for what in (read_json(self.folder / CELL), _as_read(self.content)))
        odd = [key for key in sorted(there.keys() | now.keys()) if there.get(key) != now.get(key)]
        if odd:
            said = "; ".join(f"{key}: {there.get(key)!r} there, {now.get(key)!r} now" for key in odd[:3])
            raise ConfigError(
                f"{self.folder} holds a cell of another configuration ({said}"
                f"{f'; and {len(odd) - 3} more' if len(odd) > 3 else ''}); choose another --out"
            )

    def begin(self) -> None:
        """Make the folder and say in it what it is.

        Raises:
            ConfigError: when it cannot be made.
        """
        try:
            (self.folder / "logs").mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / CELL, (json.dumps(self.content, indent=2) + "\n").encode())
        except OSError as error:
            raise ConfigError(f"cannot write in {self.folder}: {error.strerror}; choose another --out") from None


def ordered(steps: Iterable[Step]) -> list[Step]:
    """Return ``steps`` and all they need, each once and after its needs."""
    found: dict[Step, None] = {}

    def visit(step: Step) -> None:
        for need in step.needs:
            visit(need)
        found.setdefault(step)

    for step in steps:
        visit(step)
    return list(found)


def content_of(config: Mapping[str, Any], given: Mapping[str, Any], steps: Sequence[Step]) -> dict[str, Any]:
    """Return what ``cell.json`` holds."""
    commands = {f"{step.what} {step.unit}": step.command for step in steps}
    return {"schema_version": CELL_VERSION, "config": config, "given": given, "commands": commands}


def _as_read(content: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(content)))


def read_json(path: Path) -> dict[str, Any]:
    """Return a file that holds a JSON object.

    Raises:
        DataError: when it cannot be read.
    """
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({type(error).__name__}); remove it or choose another --out") from None
