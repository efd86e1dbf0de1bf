"""Ctrl-C and SIGTERM: whenever they come, a command ends with one line and exit code 130."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


def _leave(*_: object) -> None:
    """End at once: what an interrupt does while modules are imported and nothing is at stake."""
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(130)


def leave_at_once() -> None:
    """Have an interrupt end the process at once, outside of ``terminable``.

    Importing torch and the like takes seconds, and foreign code swallows a ``KeyboardInterrupt`` now and
    then. A signal that the caller has ignored stays ignored.
    """
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is usual:
            signal.signal(number, _leave)


@contextmanager
def terminable() -> Iterator[Callable[[], None]]:
    """Let both signals raise ``KeyboardInterrupt`` within, because there is something to be kept.

    Yields:
        What to call now and then: it raises for an interrupt that foreign code has swallowed.
    """
    asked = False

    def interrupt(*_: object) -> None:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    def stop() -> None:
        if asked:
            raise KeyboardInterrupt

    def unraised(what: Any) -> None:  # in a __del__, say, where Python prints what it cannot raise
        if not issubclass(what.exc_type, KeyboardInterrupt):
            told(what)

    kept, told = {}, sys.unraisablehook
    sys.unraisablehook = unraised
    with suppress(ValueError):  # not in the main thread
        kept[signal.SIGTERM] = signal.signal(signal.SIGTERM, interrupt)
        if signal.getsignal(signal.SIGINT) is _leave:
            kept[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        sys.unraisablehook = told
        for number, handler in kept.items():
            signal.signal(number, handler)
