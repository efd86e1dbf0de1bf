"""Calling the code of third parties: whatever it raises or prints, a command stays a command."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import gymnasium as gym

from seed_envs.errors import ConfigError, SeedError

T = TypeVar("T")
STDIN, STDOUT, STDERR = 0, 1, 2


def call(what: str, make: Callable[[], T], *, problem: str = "cannot be made") -> T:
    """Call third-party code about ``what``; whatever it raises becomes one line.

    Raises:
        ConfigError: saying ``problem`` and what was raised; a ``SeedError`` is passed on.
    """
    try:
        return make()
    except SeedError:
        raise
    except SystemExit as error:
        raise ConfigError(f"{what} {problem}: it called {exit_call(error)}; add --traceback to see where") from error
    except Exception as error:
        raise ConfigError(f"{what} {problem}: {type(error).__name__}: {error}; add --traceback to see where") from error


def exit_call(error: SystemExit) -> str:
    """Return the call that ended a program."""
    return f"sys.exit({'' if error.code is None else repr(error.code)})"


@contextlib.contextmanager
def closing(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """Close ``env`` at the end; that it cannot be closed is no reason to stop."""
    try:
        yield env
    finally:
        with contextlib.suppress(Exception, SystemExit):
            env.close()


@contextlib.contextmanager
def results_only() -> Iterator[None]:
    """Keep stdout for results: what is printed meanwhile, also by child processes, goes to stderr."""
    if not _is_real(STDOUT):
        yield
        return
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(OSError, ValueError):  # written through a reference to the real stdout
            sys.stdout.flush()
        os.dup2(kept, STDOUT)
        os.close(kept)
        mend_streams()


def _is_real(fd: int) -> bool:
    """Whether ``sys.stdout`` writes to ``fd``, as it does unless something captures it."""
    try:
        return sys.stdout.fileno() == fd
    except (OSError, ValueError):
        return False


def mend_streams() -> None:
    """Make the standard streams usable: closed ones lead nowhere, and no character is refused."""
    for fd, name, mode in ((STDIN, "stdin", "r"), (STDOUT, "stdout", "w"), (STDERR, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:  # else the next file that is opened would become the stream
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is fd
        stream = getattr(sys, name)
        if stream is None or getattr(stream, "closed", False):
            setattr(sys, name, os.fdopen(fd, mode, encoding="utf-8", errors="backslashreplace", closefd=False))
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
