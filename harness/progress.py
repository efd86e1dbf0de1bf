"""How far a run is: a bar on a terminal, otherwise a plain line now and then; always on stderr."""

import contextlib
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from seed_envs.cli.common import note
from seed_envs.visible import escaped

if TYPE_CHECKING:
    from rich.progress import Progress

EVERY_S = 10.0
"""Seconds between two plain lines."""


class Bar:
    """A bar on a terminal, nothing elsewhere; a context manager that shows and removes it."""

    def __init__(
        self, label: str, total: int, *, done: int = 0, terminal: bool | None = None, width: int | None = 40
    ) -> None:
        """Start at ``done``; ``terminal`` is found out unless given."""
        self._bar: Progress | None = None
        if sys.stderr.isatty() if terminal is None else terminal:
            from rich import progress  # here, for only a terminal needs them
            from rich.console import Console
            from rich.markup import escape

            columns = (
                progress.TextColumn("{task.description}"),
                progress.BarColumn(width),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[rest]}"),
            )
            self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(escape(escaped(label)), total=total, completed=done, rest="")

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


class Meter(Bar):
    """Counts episodes and shows done/total, success so far, seconds per episode and what is left."""

    def __init__(
        self,
        label: str,
        total: int,
        *,
        done: int = 0,
        successes: int = 0,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start at ``done`` episodes kept from before; ``terminal`` is found out unless given."""
        self.label, self.total, self.done, self.successes = label, total, done, successes
        self._clock = clock
        self._started = self._shown = clock()
        self._before = done
        super().__init__(label, total, done=done, terminal=terminal)

    def add(self, success: bool) -> None:
        """Count an episode that ended."""
        self.done += 1
        self.successes += success
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, rest=self._rest())
        elif self._clock() - self._shown >= EVERY_S:
            self._shown = self._clock()
            with contextlib.suppress(OSError):  # a closed terminal is no reason to stop
                note(f"{self.label}: {self.done}/{self.total}, {self._rest()}")

    def _rest(self) -> str:
        seconds = (self._clock() - self._started) / max(1, self.done - self._before)
        left = timedelta(seconds=round(seconds * (self.total - self.done)))
        return f"success {100 * self.successes / self.done:.1f} %, {seconds:.2g} s/episode, {left} left"
