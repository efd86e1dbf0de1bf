"""A plug-in that gives runs a commit, as in a checkout, also where the tests run on an installed wheel."""

from typing import Any

from harness import provenance

COMMIT = "c0ffee" + "0" * 34


def pretend(monkeypatch: Any, *, commit: str | None = COMMIT, dirty: bool | None = False) -> None:
    """Do it for one test."""
    monkeypatch.setattr(provenance, "_git", lambda root: (commit, dirty))


def load() -> None:
    """Do it for a process: ``--plugin committed:load``."""
    provenance._git = lambda root: (COMMIT, False)
