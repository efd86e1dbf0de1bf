"""Measured rows to tamper with: made of real runs of the toy environment, and signed anew after an edit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import eval
from harness.board import checks, derived, entry
from harness.board.actions import Header, Logged, read_log, rows_of, write_log
from harness.board.adding import add
from harness.board.entry import Entry, Run
from harness.board.measures import Summary

Edit = Callable[[list[dict[str, Any]]], Any]


def play(folder: Path, *flags: str, policy: str = "spell:wavers", code: int = 0) -> Path:
    """Evaluate a policy in the toy environment and return the run's folder."""
    args = ["--env", "evaltoy/Spell-v0", "--set", "size=4", "--policy", policy, "--out", str(folder), *flags]
    assert eval.main(args) == code
    return folder


def listed(tmp_path: Path, *flags: str, **how: Any) -> Path:
    """Return the row of a new run."""
    [path] = add([play(tmp_path / "run", *flags, **how)], tmp_path / "board")
    return path


def edit_row(path: Path, *place: str | int, value: Any) -> None:
    """Change one value of a row's file."""
    content = json.loads(path.read_bytes())
    found = content
    for key in place[:-1]:
        found = found[key]
    assert found[place[-1]] != value
    found[place[-1]] = value
    path.write_text(json.dumps(content))


def log_of(path: Path) -> Path:
    """Return the first log of a row."""
    return path.parent / json.loads(path.read_bytes())["runs"][0]["log"]["file"]


def edit_log(path: Path, edit: Edit, *, header: dict[str, Any] | None = None) -> None:
    """Change the episodes of a row's log as ``edit`` does, and have the row name the new file's hash."""
    log = log_of(path)
    with read_log(log) as (before, episodes):
        found = [one.model_dump(mode="json") for one in episodes]
    edit(found)
    new = Header.model_validate({**before.model_dump(mode="json"), **(header or {})})
    write_log(log, new, map(Logged.model_validate, found))
    content = json.loads(path.read_bytes())
    content["runs"][0]["log"] = checks.describe_log(log, len(found)).model_dump(mode="json")
    path.write_text(json.dumps(content))


def sign(path: Path) -> None:
    """Make a row agree with its log in everything that follows from it: what a careful forger would do."""
    content = json.loads(path.read_bytes())
    with read_log(log_of(path)) as (header, episodes):
        rows = rows_of(header, episodes)
    run = content["runs"][0]
    run["summary"] = checks.recomputed(rows, len(rows), content["protocol"]["name"])
    for name, found in run["summary"]["splits"].items():
        split = content["environment"]["splits"][name]
        split |= {key: found[key] for key in ("manifest_sha256", "tasks_sha256", "n_tasks")}
    content["aggregate"] = {
        name: part.model_dump(mode="json")
        for name, part in derived.aggregate([Summary.model_validate(run["summary"])]).items()
    }
    row = Entry.model_validate(content)
    flags = derived.flags(row.environment, row.protocol, row.method, row.training, row.runs)
    path.write_bytes(row.model_copy(update={"flags": flags}).to_bytes())


def first_run(path: Path) -> Run:
    """Return the first run of a row."""
    return entry.read_entry(path).runs[0]
