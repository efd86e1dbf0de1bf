"""The files of a run as the report needs them; every number is computed from the records."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.protocol import FULL
from harness.records import advised
from harness.runs import ANOTHER, RECORDS, RUN, SUMMARY, read_run
from harness.summary import Key, Row, merge, summarise_rows, to_bytes
from seed_agent.trajectory import read_line
from seed_envs.errors import ConfigError, DataError


@dataclass(frozen=True)
class RunFiles:
    """What a run folder holds."""

    folder: Path
    state: dict[str, Any]
    """``run.json``."""
    rows: tuple[Row, ...]
    """The episodes that count, sorted by key."""
    offsets: dict[Key, int]
    """Where the line of each of them begins in ``trajectories.jsonl``, in bytes."""
    summary: dict[str, Any]
    """What ``summary.json`` says, or would say if the run were finished."""
    planned: dict[str, int]
    """Episodes per split that the run is to have."""
    torn: bool
    """Whether the last line was not written whole; it does not count."""
    notices: tuple[str, ...]
    """What its results have to be read with, as the environment said when it was played."""
    ceilings: dict[str, Any]
    """Of ``harness.ceilings``: the splits of which some tasks cannot reach 1."""
    altered: bool
    """Whether there is a ``summary.json`` that says something else than the records."""

    @property
    def complete(self) -> bool:
        """Whether every planned episode is there, so that the numbers are a result."""
        return Counter(row.key[0] for row in self.rows) == self.planned != {}

    @property
    def finished(self) -> bool:
        """Whether the run was also closed as finished."""
        return self.complete and self.state.get("status") == "finished"


def read(folder: Path) -> RunFiles:
    """Read the run in ``folder``.

    Raises:
        ConfigError: when there is no run.
        DataError: naming the file or line that cannot be read.
    """
    state = read_run(folder, ANOTHER) if folder.is_dir() else None
    if state is None:
        raise ConfigError(
            f"{folder} is no run: it holds no {RUN}; expected a folder that python -m harness.eval has written"
        )
    try:
        planned = _planned(state["config"])
        protocol = str(state["config"].get("protocol", {"name": FULL})["name"])
        notices, ceilings = _stated(state)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder / RUN} is damaged ({type(error).__name__}: {error}); play the run again") from None
    rows, offsets, torn = _read_records(folder / RECORDS)
    summary = summarise_rows(rows.values(), planned=sum(planned.values()), protocol=protocol)
    path = folder / SUMMARY
    return RunFiles(
        folder=folder,
        state=state,
        rows=tuple(rows[key] for key in sorted(rows)),
        offsets=offsets,
        summary=summary,
        planned=planned,
        torn=torn,
        notices=notices,
        ceilings=ceilings,
        altered=path.exists() and path.read_bytes() != to_bytes(summary),
    )


def _planned(config: dict[str, Any]) -> dict[str, int]:
    """Return the episodes per split, having seen that all is there that the page needs."""
    for key in ("id", "version", "kwargs"):
        config["env"][key]
    config["policy"], config["max_turns"]
    return {
        name: int(split.get("episodes", split["tasks"] * config["attempts"]))
        for name, split in config["splits"].items()
    }


def _stated(state: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return notices and ceilings, having seen that a page can show them."""
    ceilings = dict(state.get("ceilings", {}))
    for split in ceilings.values():
        split["n"] + split["below"]
        for best in (split, split["macro"], *split["categories"].values()):
            float(best["success"]) + float(best["score"])
    return tuple(map(str, state.get("notices", ()))), ceilings


def _read_records(path: Path) -> tuple[dict[Key, Row], dict[Key, int], bool]:
    """Return rows and line offsets by key, and whether the last line is torn."""
    rows: dict[Key, Row] = {}
    offsets: dict[Key, int] = {}
    if not path.exists():
        return rows, offsets, False
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):  # only the last line can lack it
                return rows, offsets, True
            try:
                row = Row.of(read_line(line.decode()))
                merge(rows, row)
            except (DataError, UnicodeDecodeError) as error:
                raise DataError(f"{path}:{number}: {advised(str(error), 'play the run again')}") from None
            offsets[row.key] = offset
            offset += len(line)
    return rows, offsets, False
