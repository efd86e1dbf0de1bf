"""Sweeps: budget checkpoints, stopping and repeating, what each method is given, failures, the table."""

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
from sweep_kit import GRID, TINY, arguments, use_launcher
from train_kit import FIXTURES

from harness import sweep, train
from harness.sweeps.grid import make_grid
from harness.sweeps.plan import plan_sweep
from harness.sweeps.table import read_cells, rows_of
from seed_agent.methods import METHODS

torch, text_folder, _ = FIXTURES
MODEL = "model.safetensors"
PATIENCE = 900.0
OUT = Path("sweep")
"""Below the current folder: records name their policy by its path, and two sweeps are to have the same."""


@pytest.fixture(scope="module")
def whole(text_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder below which a sweep was made that nobody touched."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        use_launcher(patch)
        assert sweep.main(arguments(text_folder, OUT, *GRID)) == 0
    yield folder


@pytest.fixture
def there(whole: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the whole sweep, the current folder being above it."""
    monkeypatch.chdir(whole)
    return OUT


def found(out: Path) -> tuple[Any, Any]:
    content = json.loads((out / "sweep.json").read_text())
    return content["rows"], content["cells"]


# --- the whole of it --------------------------------------------------------------------------------------------------


def test_a_sweep_stopped_and_repeated_gives_the_same_table(
    text_folder: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    line = arguments(text_folder, OUT, *GRID)
    for stop_at in (0, 3, 5):  # before anything, after a training, after an evaluation
        used = use_launcher(monkeypatch, stop_at=stop_at)
        assert sweep.main(line) == 130
        said = capsys.readouterr()
        assert said.out == "" and said.err.splitlines()[-1].startswith("interrupted: what is done is kept in sweep")
        assert len(used.steps) == stop_at and json.loads((OUT / "sweep.json").read_text())["status"] == "interrupted"
    last = use_launcher(monkeypatch)
    assert sweep.main(line) == 0
    assert found(OUT) == found(whole / OUT)
    rows, cells = found(OUT)
    assert len(last.steps) == 4 + 8 - 3 - 5 and len(rows) == 4 and len(cells) == 8
    assert len({cell["records_sha256"] for cell in cells}) == 8
    taught = [
        cell["weights_sha256"] for cell in cells if cell["method"] == "sdar"
    ]  # nothing is won, so GRPO learns little
    assert len(set(taught)) == 4


def test_a_finished_sweep_runs_nothing_and_prints_its_table(
    there: Path, text_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    used, before = use_launcher(monkeypatch), (there / "sweep.json").read_bytes()
    assert sweep.main(arguments(text_folder, there, *GRID)) == 0
    table = capsys.readouterr().out
    assert not used.steps and (there / "sweep.json").read_bytes() == before
    assert sweep.main(["--show", "--out", str(there)]) == 0
    assert table == capsys.readouterr().out + f"sweep  {there}\n"
    lines = table.splitlines()
    assert lines[0] == "alfworld, micro: valid_seen 2 episodes, valid_unseen 2 episodes"
    assert [line.split()[:7] for line in lines[2:6]] == [
        ["grpo", "0.5", "2", "0", "4", "none", "none"],
        ["sdar", "0.5", "2", "0", "4", "static", "none"],
        ["grpo", "1", "2", "0", "8", "none", "none"],
        ["sdar", "1", "2", "0", "8", "static", "none"],
    ]
    assert sweep.main(["--dry-run", "--json", *arguments(text_folder, there, *GRID)]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["commands"] == [] and {cell["state"] for cell in plan["cells"]} == {"done"}


def test_every_row_follows_from_the_files_of_its_cells(there: Path) -> None:
    rows, cells = found(there)
    assert rows == json.loads(json.dumps(rows_of(read_cells(there))))
    for cell in cells:
        folder = there / cell["folder"]
        summary = json.loads((folder / "eval" / "summary.json").read_text())
        run = json.loads(
            (there / json.loads((folder / "cell.json").read_text())["config"]["run"] / "train.json").read_text()
        )
        assert (run["settings"]["method"], run["settings"]["seed"]) == (cell["method"], cell["seed"])
        assert cell["iteration"] == {0.5: 1, 1.0: 2}[cell["fraction"]]
        assert set(cell["splits"]) == {"valid_seen", "valid_unseen"}  # of one run of one checkpoint
        for name, split in cell["splits"].items():
            assert split["macro"]["success"] == summary["splits"][name]["macro"]["success"]
            assert split["n"] == summary["splits"][name]["n"] == 2  # whatever the fraction
    assert len({split["tasks_sha256"] for cell in cells for split in cell["splits"].values()}) == 2


def test_a_budget_cell_is_the_checkpoint_of_the_whole_run_bit_for_bit(
    there: Path, text_folder: Path, tmp_path: Path
) -> None:
    run = there / "alfworld/sdar/micro/f1-s0/train"
    assert not (there / "alfworld/sdar/micro/f0.5-s0/train").exists()
    half, alone = run / "milestones" / "iteration_000001", tmp_path / "alone"
    command = json.loads((there / "alfworld/sdar/micro/f1-s0/cell.json").read_text())["commands"]
    typed = command["train alfworld/sdar/micro/f1-s0"].split()[3:]
    typed = [text for text in typed if not text.startswith("milestones=")]
    assert train.main([*typed[: typed.index("--out")], "--fraction", "0.5", "--out", str(alone)]) == 0
    assert (half / MODEL).read_bytes() == (alone / "final" / MODEL).read_bytes()
    assert (half / MODEL).read_bytes() != (run / "final" / MODEL).read_bytes()
    # What the finished run still has can be kept later; what is gone is refused.
    assert train.main([*typed[:-1], str(run), "milestones=1,2"]) == 0
    assert (run / "milestones/iteration_000002" / MODEL).read_bytes() == (run / "final" / MODEL).read_bytes()
    assert train.main([*typed[: typed.index("--out")], "--fraction", "0.5", "--out", str(alone), "milestones=1"]) == 0


def test_a_milestone_that_was_not_kept_is_refused(there: Path, text_folder: Path, capsys: Any) -> None:
    run = there / "alfworld/grpo/micro/f1-s1"
    typed = json.loads((run / "cell.json").read_text())["commands"]["train alfworld/grpo/micro/f1-s1"].split()[3:]
    kept = run / "train/milestones/iteration_000001"
    kept.rename(kept.with_name("elsewhere"))
    try:
        assert sweep.main(arguments(text_folder, there, *GRID)) == 2
        assert "f1-s1 is finished and did not keep iteration_000001; leave that fraction" in capsys.readouterr().err
        assert train.main(typed) == 2
    finally:
        kept.with_name("elsewhere").rename(kept)
    err = capsys.readouterr().err
    assert err.splitlines()[-1] == (
        "error: sweep/alfworld/grpo/micro/f1-s1/train is past iteration 1 and did not keep it; "
        "leave it out of milestones, or train anew in another --out"
    )
    assert train.main([*typed, "--dry-run", "milestones=1,3"]) == 2
    assert "milestones=3 is never reached; the run has iterations 1 to 2" in capsys.readouterr().err


def test_another_configuration_is_refused(there: Path, text_folder: Path, capsys: Any) -> None:
    def refusal(*flags: str, **changes: Any) -> str:
        assert sweep.main(arguments(text_folder, there, *flags, **changes)) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        return str(err)

    assert "holds a sweep of another configuration (settings: " in refusal(*GRID, lr=2e-3)
    assert "holds a sweep of another configuration (limit: '2' there, '3' now)" in refusal(*GRID, "--limit", "3")
    other = refusal("--methods", "grpo", "--fractions", "0.5", "--seeds", "0")
    assert (
        "f0.5-s0 holds a cell of another configuration (" in other and "run: 'alfworld/grpo/micro/f1-s0/train'" in other
    )
    known = there / "alfworld/grpo/micro/f1-s0/cell.json"
    before = known.read_text()
    known.write_text("{")
    try:
        assert "f1-s0/cell.json cannot be read (" in refusal(*GRID)
    finally:
        known.write_text(before)


# --- methods and what they are given ----------------------------------------------------------------------------------


def planned(out: Path, **values: Any) -> Any:
    settings = tuple(f"{key}={value}" for key, value in TINY.items())
    values = {"envs": "alfworld", "models": "micro=m", "settings": settings, "limit": "2", **values}
    return plan_sweep(make_grid(values), out)


def test_all_methods_share_stage_1_and_have_equal_rollouts(tmp_path: Path) -> None:
    settings = (*(f"{key}={value}" for key, value in TINY.items()), "sft.tasks=5", "sft.rollouts=4")
    plan = planned(tmp_path / "s", methods="all", seeds="0,1", fractions="0.5,1", models="micro", settings=settings)
    trained = [name for name in METHODS if METHODS.get(name).trained]
    cells = {unit.cell.method: unit.content["given"] for unit in plan.cells if unit.cell.fraction in (None, 1.0)}
    assert set(cells) == set(METHODS) and not plan.left_out
    assert {name: given["rl_episodes"] for name, given in cells.items()} == {
        name: 8 if name in trained else 0 for name in METHODS
    }
    staged = {name for name in METHODS if METHODS.get(name).init == "sft"}
    assert {name for name, given in cells.items() if given["stage1_episodes"] == 5 * 4} == staged
    assert {name for name, given in cells.items() if given["test_skill"] != "none"} == {
        "skill-prompt-star",
        "skill-grpo-star",
    }
    assert cells["skill-sd-bank"]["annotator"] == cells["seed"]["stage1_annotator"] == "rules"
    what = [step.what for step in plan.steps]
    assert what.count("base") == 1 and what.count("stage1") == 2 and what.count("train") == 2 * len(trained)
    assert what.count("eval") == 4 * len(trained) + len(list(METHODS)) - len(trained)
    assert plan.notices == ("the prompt of react is not used: alfworld/micro has one of its own",)
    assert all(plan.steps.index(need) < i for i, step in enumerate(plan.steps) for need in step.needs)


def test_the_published_protocol_samples_at_its_temperature(tmp_path: Path) -> None:
    for name, settings, heat in (("full", (), "1"), ("paper", (), "0.4"), ("paper", ("eval_temperature=0.7",), "0.7")):
        given = (
            tuple(f"{key}={value}" for key, value in TINY.items() if key not in ("eval_temperature", "max_turns"))
            + settings
        )
        plan = planned(tmp_path / "s", methods="grpo,vanilla", protocol=name, limit=None, settings=given)
        played = [step.arguments for step in plan.steps if step.what == "eval"]
        assert [args[args.index("--temperature") + 1] for args in played] == [heat] * 2


def test_a_subset_trains_every_cell_on_its_share_of_the_tasks(tmp_path: Path) -> None:
    plan = planned(tmp_path / "s", methods="grpo", fractions="0.5,1", fraction_mode="subset")
    half, full = (unit.content for unit in plan.cells)
    assert [step.what for step in plan.steps] == ["train", "eval"] * 2
    assert "--fraction 0.5 --fraction-mode subset" in half["commands"]["train alfworld/grpo/micro/f0.5-s0"]
    assert half["given"] == full["given"] and half["config"]["iteration"] == 2  # as many rollouts, of fewer tasks
    assert half["config"]["evaluation"] == full["config"]["evaluation"]


def test_two_environments_have_models_of_their_own(tmp_path: Path) -> None:
    models = "alfworld/micro=a,sokoban/micro=s"
    plan = planned(tmp_path / "s", envs="alfworld,sokoban", methods="vanilla", models=models)
    policies = [step.arguments[step.arguments.index("--policy") + 1] for step in plan.steps]
    assert policies == ["hf:a", "hf:s?min_pixels=0"]
    assert [list(unit.content["config"]["evaluation"]["splits"]) for unit in plan.cells][1] == ["seen", "unseen"]


@pytest.mark.slow
def test_every_method_of_an_environment_has_a_row(
    text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    used = use_launcher(monkeypatch)
    few = {"iterations": 1, "sft.tasks": 2, "sft.rollouts": 1, "sft.epochs": 1}
    assert sweep.main(arguments(text_folder, OUT, "--methods", "all", "--limit", "1", **few)) == 0
    rows, _ = found(OUT)
    assert {row["method"] for row in rows} == set(METHODS) and all(row["evaluated"] == 1 for row in rows)
    assert {row["given"]["rl_episodes"] for row in rows if row["fraction"] is not None} == {4}
    assert [step.what for step in used.steps].count("stage1") == 1
    shown = capsys.readouterr().out
    assert all(f"\n{name} " in shown for name in METHODS)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_crashed_cell_is_named_and_the_others_go_on(
    text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    line = arguments(text_folder, OUT, "--methods", "grpo,vanilla", "--fractions", "0.5,1")
    use_launcher(monkeypatch, fail="train alfworld/grpo")
    assert sweep.main(line) == 1
    out, err = capsys.readouterr()
    log = OUT / "alfworld/grpo/micro/f1-s0/logs/train.log"
    reason = "exit code 1, ValueError: broken on purpose"
    assert f"failed: train alfworld/grpo/micro/f1-s0: {reason}; its log: {log}\n" in err
    assert "failed: eval alfworld/grpo/micro/f0.5-s0: not run, for train alfworld/grpo/micro/f1-s0 failed" in err
    assert "broken on purpose" in log.read_text()
    rows, _ = found(OUT)
    assert [(row["method"], row["evaluated"], row["planned"]) for row in rows] == [("vanilla", 1, 1), ("grpo", 0, 1)]
    assert json.loads((OUT / "sweep.json").read_text())["status"] == "failed"
    assert "0 of 1" in out and "vanilla" in out


def test_episodes_that_broke_count_and_are_played_again(
    text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    line = arguments(text_folder, OUT, "--methods", "vanilla")
    use_launcher(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("seed_agent.backends.hf.too_long", _broken)
        assert sweep.main(line) == 1
    err = capsys.readouterr().err
    assert "episodes broke and count as failures: alfworld/vanilla/micro/untrained; repeat the command" in err
    rows, _ = found(OUT)
    assert rows[0]["errors"] == 4 and rows[0]["splits"]["valid_seen"]["n"] == 2
    assert sweep.main(line) == 0
    assert found(OUT)[0][0]["errors"] == 0


def _broken(*given: Any) -> Any:
    from seed_envs.vector import Failure

    return Failure("Test", "broken on purpose")


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def start(cli_env: Callable[..., dict[str, str]]) -> Iterator[Any]:
    """Return a function that starts a sweep as a process; none is left in the end."""
    children: list[subprocess.Popen[str]] = []

    def begin(line: list[str], folder: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "harness.sweep", *line]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        children.append(subprocess.Popen(command, cwd=folder, env=cli_env(OMP_NUM_THREADS="1"), **pipes))
        return children[-1]

    yield begin
    for child in children:  # of a test that failed
        if child.poll() is None:
            child.kill()
            child.communicate()


@pytest.mark.slow
def test_a_killed_sweep_goes_on(text_folder: Path, tmp_path: Path, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    grid = ("--methods", "grpo,vanilla", "--fractions", "0.5,1")
    line = arguments(text_folder, OUT, *grid, "--jobs", "2")
    for folder in (killed, whole):
        folder.mkdir()
    first = start(line, killed)
    _wait(first, (killed / OUT / "alfworld/grpo/micro/f1-s0/train/train.json").exists)
    first.send_signal(signal.SIGINT)
    said, err = first.communicate(timeout=PATIENCE)
    assert first.returncode == 130 and said == "" and err.splitlines()[-1].startswith("interrupted: "), err
    second = start(line, killed)
    _wait(second, (killed / OUT / "alfworld/grpo/micro/f0.5-s0/eval/run.json").exists)
    os.kill(second.pid, signal.SIGKILL)
    second.communicate()
    third = start(line, killed)
    said, err = third.communicate(timeout=PATIENCE)
    assert third.returncode == 0, err
    monkeypatch.chdir(whole)
    use_launcher(monkeypatch)
    assert sweep.main(arguments(text_folder, OUT, *grid)) == 0
    assert found(killed / OUT) == found(OUT)


def _wait(child: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
