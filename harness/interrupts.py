"""Ctrl-C and SIGTERM: whenever they come, a command ends with one line and exit code 130."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


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
def terminable() -> Iterator[None]:
    """Let both signals raise ``KeyboardInterrupt`` within, because there is something to be kept."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    kept = {}
    with suppress(ValueError):  # not in the main thread
        kept[signal.SIGTERM] = signal.signal(signal.SIGTERM, interrupt)
        if signal.getsignal(signal.SIGINT) is _leave:
            kept[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
