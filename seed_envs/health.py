"""What works on this machine: the findings of ``python -m seed_envs doctor``.

A package adds its own with a module ``health`` beside its environment's module that has a
function ``doctor() -> list[Finding]``.
"""

import contextlib
import importlib
import importlib.util
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import gymnasium as gym

from seed_envs import paths
from seed_envs.errors import SeedError
from seed_envs.vector import EnvMaker

Status = Literal["ok", "missing", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    """What: an environment's backend or data, or a part of the machine."""
    status: Status
    message: str
    """What was found."""
    remedy: str = ""
    """What to type; empty when all is well."""
    base: bool = False
    """Whether the base install must have it; the other things are optional."""


def diagnose(ids: Sequence[str], plugins: tuple[str, ...] = ()) -> list[Finding]:
    """Look at the machine, play one game of every environment, and ask their packages.

    Args:
        ids: registered environments.
        plugins: what to load before an environment is made.
    """
    findings = [_python(), _cache(), *(plays(EnvMaker(env_id, plugins=plugins)) for env_id in ids)]
    for package in sorted({_package(env_id) for env_id in ids} - {"", "seed_envs"}):
        findings += _own_findings(package)
    return findings


def plays(maker: EnvMaker) -> Finding:
    """Play the first task with default arguments as far as the environment's oracle goes."""
    subject = f"{maker.id} (default arguments)"
    try:
        with contextlib.closing(maker()) as env:
            task_id = env.unwrapped.tasks[0].id  # type: ignore[attr-defined]
            _, info = env.reset(seed=0, options={"task_id": task_id})
            try:
                actions = env.get_wrapper_attr("oracle")()
            except NotImplementedError:
                return Finding(subject, "ok", f"begins {task_id}; it has no oracle", base=True)
            for action in actions:
                *_, info = env.step(action)
            won = bool(info["success"])
    except SeedError as error:
        return Finding(subject, "wrong", str(error), base=True)
    except Exception as error:  # an environment may raise anything, and a doctor must go on
        return Finding(subject, "wrong", f"raised {type(error).__name__}: {error}", _check(maker.id), base=True)
    if not won:
        return Finding(subject, "wrong", f"its oracle did not reach the goal of {task_id}", _check(maker.id), base=True)
    return Finding(subject, "ok", f"plays: the oracle reached the goal of {task_id} in {len(actions)} turns", base=True)


def _check(env_id: str) -> str:
    return f"python -m seed_envs check {env_id}"


def _package(env_id: str) -> str:
    """Return the package whose module defines an environment."""
    entry = gym.spec(env_id).entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    return module.rpartition(".")[0]


def _own_findings(package: str) -> list[Finding]:
    """Return what the ``health`` module of a package finds, if there is one."""
    name = f"{package}.health"
    try:
        if importlib.util.find_spec(name) is None:
            return []
        findings: list[Finding] = importlib.import_module(name).doctor()
        return findings
    except Exception as error:  # somebody else's code; the other findings still count
        return [Finding(name, "wrong", f"raised {type(error).__name__}: {error}", base=True)]


def _python() -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    return Finding("Python", "ok", f"{found}; Java is not needed", base=True)


def _cache() -> Finding:
    cache = paths.cache_root()
    nearest = next(folder for folder in (cache, *cache.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return Finding("cache folder", "ok", f"{cache} can be written")
    except OSError as error:
        text = f"{cache} cannot be written ({error.strerror}); indexes are made anew each time"
        return Finding("cache folder", "missing", text, "export SEED_CACHE=FOLDER, one that you can write to")
