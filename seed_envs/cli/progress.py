"""Progress on stderr: a bar in a terminal, else a plain line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seed_envs.cli.common import note

EVERY_S = 10.0
"""Seconds between lines where there is no terminal."""


@contextmanager
def progress() -> Iterator[Callable[[str, int, int | None, str], None]]:
    """Yield a function to call with (what, done, total or None, unit); ``bytes`` are shown as MB."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int | None, unit: str) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, amount="")
            bars.update(tasks[what], completed=done, total=total, amount=_amount(done, total, unit))

        yield report


class _Lines:
    """Writes a line when something begins, ends, or has been going on for a while."""

    def __init__(self) -> None:
        self._what, self._due = "", 0.0

    def __call__(self, what: str, done: int, total: int | None, unit: str) -> None:
        """Take one report."""
        now = time.monotonic()
        if what != self._what or now >= self._due or done == total:
            note(f"{what}: {_amount(done, total, unit)}")
            self._what, self._due = what, now + EVERY_S


def _amount(done: int, total: int | None, unit: str) -> str:
    if unit == "bytes":
        return f"{done / 1e6:.1f} MB" + (f" of {total / 1e6:.1f} MB" if total else "")
    return f"{done} of {total} {unit}" if total else f"{done} {unit}"
