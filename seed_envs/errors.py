"""Errors a user can act on: what was wrong, what was expected, what to type."""

import difflib
from collections.abc import Iterable


class SeedError(Exception):
    """Base of every error caused by input, data or the machine rather than by a bug.

    Commands print it as one line and exit with status 2.
    """


class MissingDependency(SeedError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str, instead: str = "") -> None:
        """Name the ``package``, the ``extra`` that brings it and, where there is one, a way round."""
        text = f"{purpose} needs the package '{package}': pip install 'seed-suite[{extra}]'"
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
