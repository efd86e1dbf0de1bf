"""What ``harness.eval`` does for leaderboards: the row of a run it has just finished, or how to make one."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seed_envs.cli.common import FAILED, OK, note, one_line
from seed_envs.errors import ConfigError, DataError
from seed_envs.files import unwritable


def check_listable(board: Path, provenance: Mapping[str, Any]) -> None:
    """Refuse, before anything is played, what could make no row.

    Raises:
        ConfigError: when the code's commit is not known, or the leaderboard is no folder that can be written.
    """
    if board.exists() and not board.is_dir():
        raise ConfigError(f"--leaderboard {board} is a file; expected a folder, for example leaderboards")
    if there := unwritable(board):
        raise ConfigError(f"--leaderboard {board}: nothing can be written in {there}; choose another folder")
    if not provenance.get("git_commit"):
        raise ConfigError(
            "--leaderboard needs the commit of the suite, which is not known here; run in a checkout of the "
            "repository, or leave it out"
        )


def trained(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what provenance says of how a model was trained, under ``training``; empty for any other policy.

    Weights whose run is gone are evaluated all the same; no row can be made of them.
    """
    if facts.get("kind") not in ("hf", "vllm"):
        return {}
    from harness.board.lineage import lineage

    try:
        found = lineage(str(facts.get("model", "")).partition("?")[0])
    except DataError as error:
        return {"training": {"unknown": one_line(error)}}
    return {} if found is None else {"training": found}


def list_runs(folders: Sequence[Path], board: Path | None, *, broke: bool) -> int:
    """Add the rows of finished runs to ``board``, or say which command would; return the exit code.

    Raises:
        SeedError: when a row is refused.
    """
    if board is None:
        more = " --with-errors" if broke else ""
        named = shlex.join(map(str, folders))
        note(f"to list it: python -m harness.leaderboard add {named} --to leaderboards{more}")
        return OK
    if broke:
        note(f"no row was added to {board}: episodes broke; repeat the command to play them again")
        return FAILED
    from harness.board.adding import add  # a tenth of a second that an evaluation without a leaderboard does not need
    from harness.board.entry import read_entry, rows
    from harness.board.finished import read_finished

    listed = {(run.digest, run.summary.records_sha256): path for path in rows(board) for run in read_entry(path).runs}
    new = []
    for folder in folders:
        run = read_finished(folder)
        there = listed.get((run.state["digest"], run.summary["records_sha256"]))
        if there is None:
            new.append(folder)
        else:
            note(f"{folder} is listed already: {there}")
    for path in add(new, board) if new else []:
        note(f"listed: {path}")
        note(f"check it by playing again: python -m harness.verify {path}")
    return OK
