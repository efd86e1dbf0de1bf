"""Running the commands of a sweep: several at a time, each in a process of its own, none of them left behind."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from harness.sweeps.units import Step
from seed_envs.cli.common import note

POLL_S = 0.05
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""

Child = subprocess.Popen[bytes]
Launch = Callable[[Step, int], Child]
"""Starts a command in a slot, numbered from 0."""


@dataclass
class Outcome:
    """How the commands of a sweep ended; those in neither are done."""

    failed: dict[Step, str] = field(default_factory=dict)
    """What left no result, and why."""
    broke: list[Step] = field(default_factory=list)
    """Evaluations with episodes that broke: they count as failures and are there."""


@dataclass(frozen=True)
class Launcher:
    """Starts commands as child processes."""

    gpus: tuple[str, ...] = ()
    """One for each slot in turn; empty leaves the choice to the commands."""
    threads: int | None = None
    """For each command's arithmetic, None for what they take by themselves."""

    def __call__(self, step: Step, slot: int) -> Child:
        """Start a command; its output is appended to its log."""
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}  # output and errors in their order
        if self.gpus:
            env["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        if self.threads is not None:
            env.setdefault("OMP_NUM_THREADS", str(self.threads))
        with step.log.open("ab") as log:
            log.write(f"$ {step.command}\n".encode())
            log.flush()
            return subprocess.Popen(
                [sys.executable, "-m", step.module, *step.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,  # a terminal's Ctrl-C comes to the sweep alone, which hands it on
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )


_LIBC = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """Have the kernel send SIGTERM to this child when the sweep is killed, so that nobody trains on unseen."""
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGTERM)


@dataclass
class _Running:
    step: Step
    child: Child
    slot: int
    since: float


def run_steps(
    steps: Sequence[Step], *, jobs: int, launch: Launch, begin: Callable[[Step], None] = lambda step: None
) -> Outcome:
    """Run what is not done of ``steps``, ``jobs`` at a time; what fails stops only what needs it.

    Args:
        steps: Each after what it needs.
        jobs: Processes at a time.
        launch: Starts one.
        begin: Told of a command before it starts.

    Raises:
        KeyboardInterrupt: when interrupted; every child has ended by then.
    """
    waiting, running, outcome = [step for step in steps if not step.done], list[_Running](), Outcome()
    total, free = len(waiting), list(range(jobs))
    try:
        while waiting or running:
            for step in _ready(waiting, running, outcome)[: len(free)]:
                waiting.remove(step)
                begin(step)
                slot = free.pop(0)
                note(f"{step.what} {step.unit}: begins, {step.log}")
                running.append(_Running(step, launch(step, slot), slot, time.monotonic()))
            for one in [one for one in running if one.child.poll() is not None]:
                running.remove(one)
                free = sorted([*free, one.slot])
                said = _ended(one, outcome)
                note(f"{one.step.what} {one.step.unit}: {said} ({total - len(waiting) - len(running)} of {total})")
            time.sleep(POLL_S if running else 0)
    except BaseException:
        _stop([one.child for one in running])
        raise
    return outcome


def _ready(waiting: list[Step], running: Sequence[_Running], outcome: Outcome) -> list[Step]:
    """Return what can start; what needs something that failed is taken from ``waiting`` and fails with it."""
    for step in list(waiting):
        lost = next((need for need in step.needs if need in outcome.failed), None)
        if lost is not None:
            waiting.remove(step)
            outcome.failed[step] = f"not run, for {lost.what} {lost.unit} failed"
    pending = {*waiting, *(one.step for one in running)}
    return [step for step in waiting if not any(need in pending for need in step.needs)]


def _ended(one: _Running, outcome: Outcome) -> str:
    step, code = one.step, one.child.returncode
    if step.made and code in (0, 1):
        if code == 1 and step.what == "eval":
            outcome.broke.append(step)
            return "done, but episodes broke"
        return f"done in {timedelta(seconds=round(time.monotonic() - one.since))}"
    outcome.failed[step] = f"exit code {code}, {last_line(step.log)}"
    return f"failed: {outcome.failed[step]}"


def last_line(path: Path) -> str:
    """Return the last line of a log that says something, cut where it is long."""
    with suppress(OSError):
        lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        if lines and not lines[-1].startswith("$ "):
            return lines[-1].strip()[:300]
    return "nothing said"


def _stop(children: Sequence[Child]) -> None:
    """End children: ask, ask again at the second interrupt, kill at the third; return when all have ended."""
    for attempt in range(3):
        alive = [child for child in children if child.poll() is None]
        for child in alive:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL) if attempt == 2 else child.terminate()
        if alive and attempt < 2:
            again = "at once" if attempt == 0 else "by force"
            note(f"stopping {len(alive)} commands, which keep what is done; interrupt again to stop them {again}")
        try:
            for child in alive:
                child.wait()
            return
        except KeyboardInterrupt:
            continue
