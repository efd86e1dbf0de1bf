"""The commands of a sweep as processes: side by side, after their needs, past failures, and all ended when stopped."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.sweeps.jobs import Launcher, last_line, run_steps
from harness.sweeps.units import Step

WAIT = "import pathlib, sys, time\nend = time.time() + 60\n"
MEET = (
    WAIT + "pathlib.Path({own!r}).touch()\n"
    "while not pathlib.Path({other!r}).exists():\n"
    "    if time.time() > end: sys.exit(3)\n"
    "    time.sleep(0.01)\n"
    "pathlib.Path({product!r}).touch()\n"
)
"""Ends well only beside another one."""

Fake = Callable[[Step, int], "subprocess.Popen[bytes]"]


@pytest.fixture
def launch() -> Iterator[Any]:
    """Return a launcher of the programs that stand in the place of modules; all are gone in the end."""
    children: list[subprocess.Popen[bytes]] = []

    def start(step: Step, slot: int) -> "subprocess.Popen[bytes]":
        with step.log.open("ab") as log:
            command = [sys.executable, "-S", "-E", "-u", "-c", step.module]
            children.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        return children[-1]

    start.children = children  # type: ignore[attr-defined]
    yield start
    for child in children:
        if child.poll() is None:
            child.kill()
            child.wait()


def step(folder: Path, name: str, program: str, *needs: Step) -> Step:
    (folder / name / "logs").mkdir(parents=True)
    return Step("train", name, folder / name, program, (), (folder / name / "product",), needs)


def maker(folder: Path, name: str, *needs: Step) -> Step:
    return step(folder, name, f"open({str(folder / name / 'product')!r}, 'w')", *needs)


def test_jobs_run_side_by_side_and_one_at_a_time(tmp_path: Path, launch: Any) -> None:
    def pair(folder: Path) -> list[Step]:
        marks = [str(tmp_path / f"{folder.name}-{i}") for i in range(2)]
        products = [str(folder / f"{i}" / "product") for i in range(2)]
        programs = [MEET.format(own=marks[i], other=marks[1 - i], product=products[i]) for i in range(2)]
        return [step(folder, str(i), programs[i]) for i in range(2)]

    assert not run_steps(pair(tmp_path / "two"), jobs=2, launch=launch).failed
    lonely = pair(tmp_path / "one")
    short = [Step(s.what, s.unit, s.folder, s.module.replace("+ 60", "+ 0.3"), (), s.products) for s in lonely]
    assert run_steps(short, jobs=1, launch=launch).failed[short[0]].startswith("exit code 3")


def test_what_is_done_is_not_run_and_needs_come_first(tmp_path: Path, launch: Any) -> None:
    first = maker(tmp_path, "first")
    second = step(
        tmp_path, "second", f"open({str(first.products[0])!r}); open({str(tmp_path / 'second/product')!r}, 'w')", first
    )
    begun: list[str] = []
    outcome = run_steps([first, second], jobs=2, launch=launch, begin=lambda s: begun.append(s.unit))
    assert begun == ["first", "second"] and not outcome.failed and second.done
    assert not run_steps([first, second], jobs=2, launch=launch).failed and len(launch.children) == 2


def test_what_fails_takes_along_what_needs_it_and_nothing_else(tmp_path: Path, launch: Any) -> None:
    bad = step(tmp_path, "bad", "print('some'); raise ValueError('no luck')")
    child, other = maker(tmp_path, "child", bad), maker(tmp_path, "other")
    empty = step(tmp_path, "empty", "pass")  # claims success and leaves nothing
    outcome = run_steps([bad, child, empty, other], jobs=1, launch=launch)
    assert outcome.failed == {
        bad: "exit code 1, ValueError: no luck",
        child: "not run, for train bad failed",
        empty: "exit code 0, nothing said",
    }
    assert other.done and "some" in bad.log.read_text() and last_line(tmp_path / "none") == "nothing said"


def test_an_interrupt_ends_every_child(tmp_path: Path, launch: Any, capsys: Any) -> None:
    steps = [
        step(tmp_path, str(i), f"open({str(tmp_path / f'up{i}')!r}, 'w'); import time; time.sleep(600)")
        for i in range(2)
    ]

    def until_up(one: Step) -> None:
        if one is steps[2]:
            while not all((tmp_path / f"up{i}").exists() for i in range(2)):
                time.sleep(0.01)
            raise KeyboardInterrupt

    steps.append(maker(tmp_path, "last"))
    with pytest.raises(KeyboardInterrupt):
        run_steps(steps, jobs=3, launch=launch, begin=until_up)
    assert [child.returncode for child in launch.children] == [-signal.SIGTERM] * 2
    assert (
        "stopping 2 commands, which keep what is done; interrupt again to stop them at once" in capsys.readouterr().err
    )


def test_a_child_that_will_not_end_is_killed_at_the_third_interrupt(tmp_path: Path, launch: Any, capsys: Any) -> None:
    program = (
        "import signal, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"pathlib.Path({str(tmp_path / 'up')!r}).touch(); time.sleep(600)"
    )
    stubborn = step(tmp_path, "stubborn", program)

    def interrupt(*given: Any) -> None:
        if (tmp_path / "up").exists():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_steps([stubborn], jobs=1, launch=launch)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert launch.children[0].returncode == -signal.SIGKILL
    assert "interrupt again to stop them by force" in capsys.readouterr().err


def test_the_launcher_logs_and_hands_out_devices_and_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Started:
        def __init__(self, command: list[str], **options: Any) -> None:
            seen.append((command, options))

    monkeypatch.setattr("harness.sweeps.jobs.subprocess.Popen", Started)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    one = Step("train", "u", tmp_path, "harness.train", ("--seed", "0", "a b"), ())
    one.log.parent.mkdir()
    launcher = Launcher(("4", "7"), 3)
    for slot in range(3):
        launcher(one, slot)
    assert seen[0][0] == [sys.executable, "-m", "harness.train", "--seed", "0", "a b"]
    assert [options["env"]["CUDA_VISIBLE_DEVICES"] for _, options in seen] == ["4", "7", "4"]
    assert {options["env"]["OMP_NUM_THREADS"] for _, options in seen} == {"3"}
    assert one.log.read_text() == "$ python -m harness.train --seed 0 'a b'\n" * 3


SLEEPER = """
import pathlib, signal, sys, time
def end(*given):
    pathlib.Path("ended").touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
pathlib.Path("up").touch()
time.sleep(600)
"""
PARENT = """
import pathlib, time
from harness.sweeps.jobs import Launcher
from harness.sweeps.units import Step
folder = pathlib.Path.cwd()
(folder / "logs").mkdir()
Launcher()(Step("train", "u", folder, "sleeper", (), ()), 0)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_killed_sweep_leaves_nobody_behind(tmp_path: Path, cli_env: Callable[..., dict[str, str]]) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path, env=cli_env())
    try:
        _wait_for(tmp_path / "up", parent)
    finally:
        parent.kill()
        parent.wait()
    _wait_for(tmp_path / "ended")


def _wait_for(path: Path, child: "subprocess.Popen[bytes] | None" = None) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert child is None or child.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
