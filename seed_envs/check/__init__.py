"""The conformance suite: whether an environment keeps the contract of ``docs/contract.md``.

``check_env(id)`` runs every check and returns a report. In a test, parametrise over ``CHECKS`` and
call ``check_env(id, only=[name]).raise_if_failed()``.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from seed_envs.check.checks import CHECKS
from seed_envs.check.subject import Env, NotApplicable, Subject
from seed_envs.errors import ConfigError, SeedError, UnknownName
from seed_envs.vector import EnvMaker

__all__ = ["CHECKS", "Finding", "NotApplicable", "Report", "Subject", "check_env"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    status: Literal["ok", "failed", "not applicable"]
    message: str = ""
    """Why it failed or does not apply; empty when it passed."""


@dataclass(frozen=True, slots=True)
class Report:
    """The findings about one environment, in the order of ``CHECKS``."""

    subject: str
    findings: tuple[Finding, ...]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that failed."""
        return tuple(f for f in self.findings if f.status == "failed")

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    def __str__(self) -> str:
        """One line per finding."""
        lines = (f"{f.status:14}  {f.check}" + (f": {f.message}" if f.message else "") for f in self.findings)
        return "\n".join([self.subject, *lines])

    def raise_if_failed(self) -> None:
        """Raise an ``AssertionError`` that lists the failures, if there are any."""
        if self.failures:
            raise AssertionError(str(Report(self.subject, self.failures)))


def check_env(make: str | Callable[[], Env], *, max_tasks: int = 8, only: Iterable[str] | None = None) -> Report:
    """Run the checks on an environment and report every finding.

    Args:
        make: an environment id, or a function that makes the environment; an importable one
            (an ``EnvMaker``, a function of a module) can be tried in a worker process as well.
        max_tasks: the largest number of tasks to try.
        only: names of ``CHECKS``; all of them by default.

    Raises:
        UnknownName: for a name in ``only`` that is no check, or an id that is not registered.
        SeedError: when the environment cannot be made at all.
    """
    if max_tasks < 1:
        raise ConfigError(f"cannot check with {max_tasks} tasks; expected at least 1")
    names = list(CHECKS) if only is None else list(only)
    for name in names:
        if name not in CHECKS:
            raise UnknownName("check", name, CHECKS)
    subject = Subject(EnvMaker(make) if isinstance(make, str) else make, max_tasks)
    try:
        subject.make().close()
    except SeedError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"the environment cannot be made: {type(error).__name__}: {error}") from error
    title = make if isinstance(make, str) else getattr(make, "id", getattr(make, "__name__", repr(make)))
    return Report(str(title), tuple(_run(name, subject) for name in names))


def _run(name: str, subject: Subject) -> Finding:
    try:
        CHECKS[name](subject)
    except NotApplicable as why:
        return Finding(name, "not applicable", str(why))
    except AssertionError as error:
        return Finding(name, "failed", str(error) or "an assertion without a message")
    except (Exception, SystemExit) as error:  # a broken environment may raise anything
        message = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # Gymnasium colours its warnings
        return Finding(name, "failed", f"{type(error).__name__}: {' '.join(message.split())}")
    return Finding(name, "ok")
