"""Errors a user can act on: what was wrong, what was expected, what to type."""

import difflib
from collections.abc import Iterable


class SeedError(Exception):
    """Base of every error caused by input, data or the machine rather than by a bug.

    Commands print it as one line and exit with status 2.
    """


UPDATE = "pip install -U seed-suite (in a checkout: git pull)"
"""What to type where a newer version wrote something."""


def installs(extra: str) -> str:
    """Return what to type for an extra.

    In the environment of the suite pip finds the suite itself, a checkout as well as a wheel, and installs from any
    folder what the extra lacks.
    """
    return f"pip install 'seed-suite[{extra}]'"


class MissingDependency(SeedError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str, instead: str = "") -> None:
        """Name the ``extra`` to install, its ``package`` that is not there and, where there is one, a way round."""
        text = f"{purpose} needs the extra '{extra}' (no {package} here): {installs(extra)}"
        super().__init__(f"{text}; {instead}" if instead else text)


class DataError(SeedError):
    """A data root, game file or record is missing, torn or not what it claims to be."""


class ConfigError(SeedError):
    """An argument or setting has a value that cannot be used."""


class UnknownName(SeedError, ValueError):
    """A name is not registered, listed or accepted."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        """Say which names are near ``name``, or how many there are when none is."""
        known = sorted(known)
        near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
        if near:
            hint = "did you mean " + " or ".join(near) + "?"
        elif len(known) <= 12:
            hint = "known: " + (", ".join(known) or "none")
        else:
            hint = f"{len(known)} are known, from {known[0]} to {known[-1]}"
        super().__init__(f"unknown {kind} {str(name)!r}; {hint}")


class WorkerDied(SeedError):
    """A worker process ended while it still owed an answer."""
