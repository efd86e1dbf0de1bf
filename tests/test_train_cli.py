"""The command harness.train around its training: interrupts at any moment, the report, what goes to stdout."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from train_kit import FIXTURES, SMALL
from training_runs import learning, write_training

from harness import train
from harness.interrupts import leave_at_once, terminable
from harness.train import main
from seed_agent.train.patience import patient

torch, text_folder, _ = FIXTURES
PATIENCE = 300.0
STUBBORN = """
import pathlib, time
pathlib.Path("importing").touch()
try:
    time.sleep(60)
except BaseException:  # as third-party code does now and then
    pass
"""
Start = Callable[..., subprocess.Popen[str]]


def arguments(model: Path | str, out: Path | str, **changes: Any) -> list[str]:
    values = {k: v for k, v in SMALL.items() if k not in ("eval_every", "eval_splits")} | {"init": "given"}
    values |= {"model": model, "method": "sdar", "eval_splits": "valid_seen", "eval_limit": 1, "batch": 16, **changes}
    return [f"{key}={value}" for key, value in values.items()] + ["--out", str(out)]


@pytest.fixture
def start(cli_env: Callable[..., dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts the command as a process of its own, in a folder of the test's."""
    monkeypatch.chdir(tmp_path)
    children: list[subprocess.Popen[str]] = []

    def begin(*args: str, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "harness.train", *args],
            cwd=tmp_path,
            env=cli_env(OMP_NUM_THREADS="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before,
        )
        children.append(child)
        return child

    yield begin
    for child in children:  # of a test that failed
        if child.poll() is None:
            child.kill()
            child.communicate()


def wait(child: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


# --- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["gymnasium", "accelerate"])
def test_an_interrupt_while_modules_load_is_one_line(start: Start, module: str, number: signal.Signals) -> None:
    Path(f"{module}.py").write_text(STUBBORN)
    child = start("model=m", "init=given", "--out", "run")
    wait(child, Path("importing").exists)
    child.send_signal(number)
    out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out, err) == (130, "", "interrupted\n") and not Path("run").exists()


def test_an_interrupt_while_a_plan_is_made_is_one_line(start: Start) -> None:
    Path("slow.py").write_text(
        "import pathlib, time, seed_agent.train.plan as plan\n"
        "plan._tasks = lambda settings: (pathlib.Path('importing').touch(), time.sleep(60))\n"
    )
    child = start("--dry-run", "model=m", "init=given", "--plugin", "slow")
    wait(child, Path("importing").exists)
    child.send_signal(signal.SIGINT)
    assert (*child.communicate(timeout=PATIENCE), child.returncode) == ("", "interrupted\n", 130)


def test_an_ignored_interrupt_stays_ignored(start: Start) -> None:
    Path("once.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ignore = ["--dry-run", "--stage", "base", "--env", "alfworld", "--plugin", "once"]
    child = start(*ignore, before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None)
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0 and err == "" and "base policy" in out


def test_within_terminable_both_signals_raise_and_afterwards_all_is_as_before() -> None:
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        leave_at_once()
        early = {number: signal.getsignal(number) for number in usual}
        assert early[signal.SIGINT] is early[signal.SIGTERM] is not usual[signal.SIGINT]
        for number in usual:
            with pytest.raises(KeyboardInterrupt), terminable():
                os.kill(os.getpid(), number)
                time.sleep(5)
            assert {number: signal.getsignal(number) for number in usual} == early
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


class Swallowing:
    """Where an interrupt comes too late to be raised."""

    number = 0

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)
        time.sleep(5)


def test_an_interrupt_that_foreign_code_swallows_is_raised_at_the_next_good_moment() -> None:
    usual = signal.getsignal(signal.SIGINT)
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            leave_at_once()
            with terminable() as ended:
                ended()
                with patient(lambda: False, lambda: None) as stop:
                    stop()
                    swallowing = Swallowing()
                    swallowing.number = number
                    del swallowing  # pytest would take what Python cannot raise for a warning, and that for an error
                    with pytest.raises(KeyboardInterrupt):
                        stop()
                with pytest.raises(KeyboardInterrupt):
                    ended()
    finally:
        signal.signal(signal.SIGINT, usual)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.parametrize("stage", ["base", "sft", "rl"])
def test_an_interrupt_while_a_model_loads_is_one_line(
    stage: str, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    for name in ("load_for_training", "load_policy"):
        monkeypatch.setattr(train, name, stop)
    given = ["--env", "alfworld"] if stage == "base" else ["model=m", "init=given"]
    assert main(["--stage", stage, *given, "--out", str(tmp_path / "run")]) == 130
    assert capsys.readouterr() == ("", "interrupted\n") and not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_interrupt_while_training_keeps_all_and_draws_the_curves(
    start: Start, text_folder: Path, number: signal.Signals
) -> None:
    metrics = Path("run/metrics.jsonl")
    given = arguments(text_folder, "run", iterations=500, tasks=1, save_every=1)
    child = start(*given)
    wait(child, lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 3)
    child.send_signal(number)
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130 and out == "" and "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("interrupted: ") and last.endswith(
        "of 500 iterations kept in run; repeat the command to go on"
    )
    kept = int(last.split()[1])
    have = len(metrics.read_bytes().splitlines()) - 1
    assert kept == have >= 3  # one that is in its update is finished first
    assert f"{have} of 500 iterations are here" in Path("run/report.html").read_text()


@pytest.mark.slow
def test_an_interrupt_at_any_moment_is_one_line(start: Start, text_folder: Path) -> None:
    given = arguments(text_folder, "run", iterations=100_000)
    for after in [0.4 * i for i in range(1, 26)]:
        child = start(*given)
        time.sleep(after)
        child.send_signal(signal.SIGTERM if round(after / 0.4) % 2 else signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
        usual = ("sdar: ", "run: ", "hf:", "interrupted: iteration ")
        said = [line for line in err.splitlines() if not line.startswith(usual)]
        assert child.returncode == 130 and out == "" and len(said) == 1 and said[0].startswith("interrupted"), (
            after,
            err,
        )


# --- the report -------------------------------------------------------------------------------------------------------


def test_training_ends_with_its_curves(text_folder: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    assert main(arguments(text_folder, out)) == 0
    page = (out / "report.html").read_text()
    assert "2 of 2 iterations" in page and "not finished" not in page and "python -m harness.train" in page
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    drawn = {key for line in rows for key in line if key != "iteration" and not key.startswith("eval/")}
    assert not [key for key in drawn if key not in page] and len(drawn) > 30
    said = capsys.readouterr()
    assert "report.html" not in said.err and f"{out}" in said.out


def test_curves_that_cannot_be_written_take_nothing_from_a_run(text_folder: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    (out / "report.html").mkdir(parents=True)
    assert main(arguments(text_folder, out)) == 0
    err = capsys.readouterr().err
    assert "warning: no report.html (cannot write" in err and f"python -m harness.report {out} makes it" in err
    assert (out / "final" / "DONE").exists()


def test_a_run_that_has_to_stop_draws_its_curves(
    text_folder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(episode: Any, settings: Any) -> float:
        return float("nan")

    monkeypatch.setattr("seed_agent.train.samples.episode_return", lost)
    assert main(arguments(text_folder, tmp_path / "run", method="grpo")) == 2
    assert "error: the loss of iteration 1 is nan" in capsys.readouterr().err
    page = (tmp_path / "run" / "report.html").read_text()
    assert "This run met a number that is none" in page and "0 of 2 iterations are here" in page


def test_dry_run_names_the_report(capsys: Any) -> None:
    assert main(["--dry-run", "--json", "model=m", "init=given"]) == 0
    assert "report.html" in json.loads(capsys.readouterr().out)["files"]


def test_a_report_can_be_made_without_torch(run_cli: Any, tmp_path: Path) -> None:
    run = write_training(tmp_path / "run", learning(20))
    for name in ("torch", "accelerate", "transformers"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError")
    code, out, err = run_cli("harness.report", run, cwd=tmp_path)
    assert (code, out, err) == (0, f"{run / 'report.html'}\n", "")


# --- stdout -----------------------------------------------------------------------------------------------------------


def test_what_plug_ins_print_does_not_mix_with_the_result(start: Start) -> None:
    Path("printer.py").write_text("import os\nprint('from Python')\nos.system('echo from a child')\n")
    child = start("--dry-run", "--json", "model=m", "init=given", "--plugin", "printer")
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0 and json.loads(out)["stage"] == "rl", err
    assert "from Python" in err and "from a child" in err


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_closed_streams_change_nothing(start: Start, closed: tuple[int, ...]) -> None:
    def close() -> None:
        for fd in closed:
            os.close(fd)

    child = start("--dry-run", "model=m", "init=given", before=close)
    assert (*child.communicate(timeout=PATIENCE), child.returncode) == ("", "", 0)


def test_a_full_stdout_is_one_line(start: Start) -> None:
    child = start(
        "--dry-run", "model=m", "init=given", before=lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1) and None
    )
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 2 and err.startswith("error: No space left") and err.count("\n") == 1
