"""Sweeps of a tiny model: what to type, and a launcher that runs the commands in this process."""

import contextlib
import importlib
import io
from pathlib import Path
from typing import Any

import pytest

from harness import sweep

GRID = ("--methods", "grpo,sdar", "--fractions", "0.5,1", "--seeds", "0,1")
TINY = {
    "iterations": 2,
    "tasks": 2,
    "group": 2,
    "minibatch": 4,
    "max_turns": 2,
    "max_reply_tokens": 6,
    "lr": 1e-3,
    "eval_splits": "",
    "analyzer_reply_tokens": 8,
    "batch": 16,
}


def arguments(model: Path, out: Path, *flags: str, **changes: Any) -> list[str]:
    """Return a command line for a sweep of seconds on ALFWorld."""
    settings = [f"{key}={value}" for key, value in {**TINY, **changes}.items()]
    return ["--envs", "alfworld", "--models", f"micro={model}", "--limit", "2", *flags, *settings, "--out", str(out)]


class Ended:
    """A child process that has ended."""

    pid = -1

    def __init__(self, code: int) -> None:
        self.returncode = code

    def poll(self) -> int:
        return self.returncode

    def wait(self) -> int:
        return self.returncode

    def terminate(self) -> None:
        raise AssertionError("it has ended")


class HereLauncher:
    """Runs commands in this process, which saves the imports; may be told to stop or to fail at one."""

    def __init__(self, *, stop_at: int | None = None, fail: str = "") -> None:
        self.steps: list[Any] = []
        self.stop_at, self.fail = stop_at, fail

    def __call__(self, step: Any, slot: int) -> Any:
        if self.stop_at == len(self.steps):
            raise KeyboardInterrupt
        self.steps.append(step)
        if self.fail and self.fail in f"{step.what} {step.unit}":
            step.log.write_text(f"$ {step.command}\nTraceback...\nValueError: broken on purpose\n")
            return Ended(1)
        main = importlib.import_module(step.module).main
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(list(step.arguments))
        step.log.write_text(f"$ {step.command}\n{said.getvalue()}")
        return Ended(code)


def use_launcher(patch: pytest.MonkeyPatch, **options: Any) -> HereLauncher:
    """Have sweeps run their commands in this process."""
    made = HereLauncher(**options)
    patch.setattr(sweep, "Launcher", lambda *given: made)
    return made
