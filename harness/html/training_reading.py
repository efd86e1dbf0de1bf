"""The files of a training run as its page needs them. Reading never needs torch, nor that the run has ended."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.html.curves import finite
from seed_agent.train.settings import build
from seed_envs.errors import ConfigError, DataError, SeedError

RUN, METRICS, EVALS, FINAL, DIVERGED = "train.json", "metrics.jsonl", "evaluations", "final/DONE", "diverged.json"
"""As ``seed_agent.train.run`` names them, which needs torch."""


@dataclass(frozen=True)
class TrainingFiles:
    """What the folder of a training run holds."""

    state: dict[str, Any]
    """``train.json``."""
    rows: dict[int, dict[str, Any]]
    """The lines of ``metrics.jsonl`` by iteration, in order; 0 is the evaluation before the first."""
    planned: int | None
    """Iterations the run is to have; None where its settings are of another version."""
    torn: bool
    """Whether the last line was not written whole."""
    unreadable: int
    """Other lines that are none."""
    files: frozenset[str]
    """Names of the evaluations' files."""
    exported: bool
    """Whether the trained model was written."""
    diverged: bool
    """Whether a loss or gradient was no number."""

    @property
    def done(self) -> int:
        """The last iteration that is there."""
        return max(self.rows, default=0)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run."""
        return _mapping(self.state.get("settings"))

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The provenance of every start."""
        found = self.state.get("provenance")
        return [start for start in found if isinstance(start, dict)] if isinstance(found, list) else []

    @cached_property
    def columns(self) -> dict[str, list[tuple[int, float | None]]]:
        """Iteration and value of every metric; None where the value is no number that can be drawn."""
        found: dict[str, list[tuple[int, float | None]]] = {}
        for iteration, row in self.rows.items():
            for key, value in row.items():
                found.setdefault(key, []).append((iteration, finite(value)))
        return found

    def points(self, key: str) -> list[tuple[int, float]]:
        """Return iteration and value of a metric wherever it is a number."""
        return [(at, value) for at, value in self.columns.get(key, ()) if value is not None]


def is_training(folder: Path) -> bool:
    """Return whether ``folder`` holds a run of stage 2."""
    return (folder / RUN).exists()


def read_training(folder: Path) -> TrainingFiles:
    """Read the training run in ``folder``.

    Raises:
        ConfigError: when there is none.
        DataError: when a file cannot be read.
    """
    if not is_training(folder):
        raise ConfigError(f"{folder} is no training run: it holds no {RUN}; expected a folder of harness.train")
    try:
        state = json.loads((folder / RUN).read_bytes(), parse_constant=str)  # settings are shown, not used
        content = (folder / METRICS).read_bytes() if (folder / METRICS).exists() else b""
        files = frozenset(path.name for path in (folder / EVALS).glob("*.jsonl"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"the files of {folder} cannot be read ({error}); choose another run") from None
    if not isinstance(state, dict):
        raise DataError(f"{folder / RUN} is damaged: it holds no settings; choose another run")
    rows, torn, unreadable = _rows(content)
    return TrainingFiles(
        state=state,
        rows=rows,
        planned=_planned(_mapping(state.get("settings"))),
        torn=torn,
        unreadable=unreadable,
        files=files,
        exported=(folder / FINAL).exists(),
        diverged=(folder / DIVERGED).exists(),
    )


def last_evaluation(folder: Path, files: TrainingFiles) -> dict[str, Path]:
    """Return the records of the newest evaluation of each split."""
    newest = {}
    for file in sorted(files.files):  # iteration_NNNNNN-SPLIT.jsonl
        iteration, _, split = file.removeprefix("iteration_").removesuffix(".jsonl").partition("-")
        if iteration.isdigit() and int(iteration) <= files.done:
            newest[split] = folder / EVALS / file
    return newest


def _rows(content: bytes) -> tuple[dict[int, dict[str, Any]], bool, int]:
    """Return the rows by iteration, the later of two that have the same; whether the last is torn; how many others."""
    lines = content.split(b"\n")
    last = lines.pop()
    rows, unreadable = {}, 0
    for line in lines:
        row = _row(line)
        if row is None:
            unreadable += 1
        else:
            rows[row["iteration"]] = row
    return dict(sorted(rows.items())), bool(last), unreadable


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or type(row.get("iteration")) is not int or not 0 <= row["iteration"] < 10**9:
        return None
    return row


def _planned(settings: Mapping[str, Any]) -> int | None:
    try:
        return build(dict(settings)).planned
    except SeedError:
        return None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
