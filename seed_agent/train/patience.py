"""Ctrl-C and SIGTERM while weights change: the first waits until they are whole again."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

ONE_S = 0.5
"""Seconds within which several signals are one request: a terminal and a parent process often both send one."""

Stop = Callable[[], None]
"""Raises ``KeyboardInterrupt`` where one waits."""


@contextmanager
def patient(busy: Callable[[], bool], say: Callable[[], None]) -> Iterator[Stop]:
    """Have the first interrupt that comes while ``busy()`` wait; another, or one at any other time, acts as before.

    Args:
        busy: Whether stopping now would lose something; called in a signal handler.
        say: Tells the user that the interrupt waits; called in a signal handler.

    Yields:
        What to call where it is well to stop: an interrupt that waited, or that foreign code swallowed, is raised
        there. A signal that is ignored or ends the process outright stays so.
    """
    since: float | None = None

    def wrapped(usual: Callable[..., Any]) -> Callable[..., None]:
        def handle(*given: Any) -> None:
            nonlocal since
            if since is None and busy():
                since = time.monotonic()
                say()
            elif since is None or not busy() or time.monotonic() - since > ONE_S:
                since = time.monotonic() if since is None else since  # where foreign code swallows what usual raises
                usual(*given)

        return handle

    def stop() -> None:
        if since is not None:
            raise KeyboardInterrupt

    kept = {}
    with suppress(ValueError):  # not in the main thread: no signal comes here
        for number in (signal.SIGINT, signal.SIGTERM):
            usual = signal.getsignal(number)
            if callable(usual):
                kept[number] = signal.signal(number, wrapped(usual))
    try:
        yield stop
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
