"""The pages of a leaderboard, from its files alone: ``README.md`` and ``index.html``."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness.board import markdown, page
from harness.board.actions import successes
from harness.board.entry import Entry, read_entry, rows
from harness.board.measured import results
from harness.board.published import published
from harness.board.reported import HEADER, read_reported
from harness.board.standing import Contest, Result, rankings
from seed_envs.errors import ConfigError, DataError
from seed_envs.files import write_atomically

REPORTED, PAGE, README = "reported", "index.html", "README.md"


def build(directory: Path) -> list[Path]:
    """Write ``README.md`` and ``index.html`` of the leaderboard in ``directory`` and return their paths.

    Both follow from the files of ``measured`` and ``reported`` alone: the same files, the same bytes. They are
    written when everything could be read, and not at all otherwise.

    Raises:
        ConfigError: when ``directory`` is no leaderboard, or cannot be written.
        DataError: when a row, an action log or a reported table is missing or damaged; ``validate`` checks more.
    """
    tables, files = directory / REPORTED, rows(directory)
    if not files and not (tables / HEADER).is_file():
        raise ConfigError(
            f"{directory} is no leaderboard: it holds neither rows in measured/ nor {REPORTED}/{HEADER}; "
            "expected a folder such as leaderboards"
        )
    ranked = rankings(found for path in files for found in _measured(path))
    papers = published(read_reported(tables)) if tables.is_dir() else []
    pages = {
        directory / README: markdown.render(ranked, papers).encode("utf-8", "replace"),
        directory / PAGE: page.render(ranked, papers),
    }
    try:
        for path, content in pages.items():
            write_atomically(path, content)
    except OSError as error:
        raise ConfigError(f"cannot write into {directory}: {error.strerror}; choose another folder") from None
    return list(pages)


def _measured(path: Path) -> Iterator[tuple[Contest, Result]]:
    """Yield what the board shows of the row in ``path``, with the outcomes of its action logs."""
    entry = read_entry(path)
    logs = [successes(path.parent / run.log.file) for run in entry.runs]
    _check(path, entry, logs)
    outcomes = {split: np.array([list(log[split].values()) for log in logs]) for split in entry.environment.splits}
    yield from results(entry, outcomes)


def _check(path: Path, entry: Entry, logs: list[dict[str, dict[str, float]]]) -> None:
    """Refuse logs that are not of the tasks the row names: the comparisons would be of others."""
    for split, data in entry.environment.splits.items():
        tasks = [list(log.get(split, ())) for log in logs]
        if len(tasks[0]) != data.n_tasks or any(ids != tasks[0] for ids in tasks):
            raise DataError(
                f"{path}: the action logs do not hold the {data.n_tasks} tasks of {split} that the row names; "
                f"look with: python -m harness.leaderboard validate {path}"
            )
