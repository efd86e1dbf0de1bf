"""Training runs on disk: kill and resume, foreign and torn checkpoints, numbers that are none, the export."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from train_kit import FIXTURES, SMALL, SOKOBAN, policy_of, small, timeless, vary_returns, weights

from harness.train import main
from seed_agent.policy import Message, Sampling
from seed_agent.skills.insert import HEADING
from seed_agent.trajectory import read_line
from seed_envs.errors import ConfigError, DataError, SeedError

torch, text_folder, vision_folder = FIXTURES
Opened = Any
"""A function that takes up a run, with ``close`` for all of them."""


@pytest.fixture
def opened(torch: Any, tmp_path: Path) -> Any:
    """Return a function that takes up a run; all are closed in the end."""
    from seed_agent.train.run import TrainingRun

    runs: list[Any] = []

    def take_up(model: Path, *, out: str = "run", **changes: Any) -> Any:
        settings = small(model, **changes)
        runs.append(TrainingRun(tmp_path / out, settings, policy_of(model), provenance={"command": "test"}))
        return runs[-1]

    def close() -> None:
        for run in runs:
            run.close()

    take_up.close = close  # type: ignore[attr-defined]
    yield take_up
    close()


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _closed(run: Any) -> Any:
    run.train()
    run.close()
    return run


# --- resuming ---------------------------------------------------------------------------------------------------------


def _arguments(model: Path, out: Path) -> list[str]:
    changes = {**SMALL, "method": "sdar", "iterations": 4, "save_every": 2, "eval_every": 2, "eval_limit": 1}
    changes |= {"model": model, "init": "given", "eval_splits": "valid_seen", "batch": 16}
    return [f"{key}={value}" for key, value in changes.items()] + ["--out", str(out)]


def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    text_folder: Path, tmp_path: Path, cli_env: Callable[..., dict[str, str]]
) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "harness.train", *_arguments(text_folder, killed)]
    with (tmp_path / "stderr").open("w") as said:
        child = subprocess.Popen(command, env=cli_env(OMP_NUM_THREADS="1"), stderr=said)
    mark, end = killed / "checkpoints" / "iteration_000002" / "DONE", time.monotonic() + 240
    while not mark.exists() and child.poll() is None and time.monotonic() < end:
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL, (tmp_path / "stderr").read_text()
    assert not (killed / "final" / "DONE").exists()
    with (killed / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"iteration": 3, "torn')
    assert main(_arguments(text_folder, killed)) == 0
    assert main(_arguments(text_folder, whole)) == 0
    assert _rows(killed) == _rows(whole) and len(_rows(whole)) == 5
    for name in ("final", "checkpoints/iteration_000004"):
        assert (killed / name / "model.safetensors").read_bytes() == (whole / name / "model.safetensors").read_bytes()
        assert (killed / name / "state.json").read_text() == (whole / name / "state.json").read_text()
    done = json.loads((killed / "train.json").read_text())
    assert len(done["provenance"]) == 2 and done["random"]["mini-batches"] == "mini-batches, 0, iteration"
    before = (killed / "metrics.jsonl").read_bytes()
    assert main(_arguments(text_folder, killed)) == 0  # finished: nothing is done again
    assert (killed / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_killed_at_any_moment(text_folder: Path, tmp_path: Path, cli_env: Callable[..., dict[str, str]]) -> None:
    whole, killed = ([*_arguments(text_folder, tmp_path / name), "save_every=1"] for name in ("whole", "killed"))
    assert main(whole) == 0
    for after in range(12):
        command = [sys.executable, "-m", "harness.train", *killed]
        child = subprocess.Popen(command, env=cli_env(OMP_NUM_THREADS="1"), stderr=subprocess.DEVNULL)
        time.sleep(4 + 0.25 * after)  # what happens until then is importing and loading
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert main(killed) == 0
    folders = tmp_path / "killed", tmp_path / "whole"
    assert _rows(folders[0]) == _rows(folders[1])
    one, two = ((folder / "final" / "model.safetensors").read_bytes() for folder in folders)
    assert one == two


def test_an_interruption_keeps_every_finished_iteration(
    text_folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"method": "skill-sd-bank", "iterations": 3}
    whole = _closed(opened(text_folder, out="whole", **changes))
    run = opened(text_folder, **changes)
    real = run.trainer.skills.annotate

    def stop(played: Any) -> Any:
        found = real(played)  # the bank has grown already
        if run.done == 2:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(run.trainer.skills, "annotate", stop)
    with pytest.raises(KeyboardInterrupt):
        run.train()
    run.close()
    assert run.saved == 2
    with (run.folder / "skills.jsonl").open("a") as file:
        file.write('{"iteration": 2, "torn')
    again = opened(text_folder, **changes)
    assert again.done == 2
    _closed(again)
    assert _rows(again.folder) == _rows(whole.folder) and weights(again.policy) == weights(whole.policy)
    skills = [json.loads(line) for line in (whole.folder / "skills.jsonl").read_text().splitlines()]
    assert [skill["iteration"] for skill in skills] == [1] * 4 + [2] * 4 + [3] * 4
    assert all(skill["text"] and skill["category"] and skill["source"] == "rules" for skill in skills)
    assert (again.folder / "skills.jsonl").read_bytes() == (whole.folder / "skills.jsonl").read_bytes()


@pytest.fixture
def heard() -> Iterator[None]:
    """Have Ctrl-C raise also where the tests run in the background, where it is ignored."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.fixture
def interrupts(heard: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that has signals arrive in the middle of iteration 2's update."""

    def plan(run: Any, *signals: int) -> None:
        real, left = run.trainer._step, list(signals)

        def step(*given: Any) -> None:
            real(*given)
            while run.done == 1 and left:
                os.kill(os.getpid(), left.pop(0))

        monkeypatch.setattr(run.trainer, "_step", step)

    return plan


UPDATES = {"method": "grpo", "iterations": 3, "minibatch": 2}
"""Several updates an iteration."""


def test_an_interrupt_lets_the_update_end_and_keeps_it(
    text_folder: Path, opened: Opened, interrupts: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seed_agent.train.patience.ONE_S", 600.0)  # whatever else the machine does
    changes = {**UPDATES, "eval_every": 2, "eval_splits": ("valid_seen",), "eval_limit": 1}
    whole = _closed(opened(text_folder, out="whole", **changes))
    run, said = opened(text_folder, **changes), list[str]()
    usual = signal.getsignal(signal.SIGINT)
    interrupts(run, signal.SIGINT, signal.SIGINT)  # a terminal and a parent send one each: one request
    with pytest.raises(KeyboardInterrupt):
        run.train(say=said.append)
    assert said == [
        "interrupted: iteration 2 is finished first; interrupt again to stop at once and lose iterations 1 to 2"
    ]
    assert run.saved == run.done == 2 and signal.getsignal(signal.SIGINT) is usual
    assert not any(key.startswith("eval/") for key in _rows(run.folder)[2])  # still to come
    run.close()
    again = _closed(opened(text_folder, **changes))
    assert _rows(again.folder) == _rows(whole.folder) and weights(again.policy) == weights(whole.policy)
    files = [sorted((one.folder / "evaluations").iterdir()) for one in (again, whole)]
    played = [[read_line(path.read_text()).sha256 for path in paths] for paths in files]
    assert played[0] == played[1] and len(played[1]) == 3


def test_a_second_interrupt_stops_at_once(
    text_folder: Path, opened: Opened, interrupts: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seed_agent.train.patience.ONE_S", -1.0)
    run, said = opened(text_folder, **UPDATES), list[str]()
    interrupts(run, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run.train(say=said.append)
    assert len(said) == 1 and run.done == 1 and run.saved == 0
    assert not list((run.folder / "checkpoints").glob("*"))


def test_an_interruption_of_an_evaluation_loses_no_iteration(
    text_folder: Path, opened: Opened, heard: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {**UPDATES, "iterations": 2, "eval_splits": ("valid_seen",), "eval_limit": 1}
    whole = _closed(opened(text_folder, out="whole", **changes))
    run = opened(text_folder, **changes)
    real = run._evaluate

    def stop(iteration: int) -> Any:
        if iteration == 2:
            os.kill(os.getpid(), signal.SIGINT)  # not in an update: at once
        return real(iteration)

    monkeypatch.setattr(run, "_evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        run.train()
    run.close()
    assert run.saved == 2 and not (run.folder / "final").exists()
    again = _closed(opened(text_folder, **changes))
    assert _rows(again.folder) == _rows(whole.folder) and weights(again.policy) == weights(whole.policy)


def test_that_no_skill_is_usable_is_said_once(text_folder: Path, opened: Opened) -> None:
    run, said = opened(text_folder, method="seed", iterations=2), list[str]()
    run.train(say=said.append)  # the random model writes none
    assert len(said) == 1 and said[0].startswith("warning: no skill of iteration 1 was usable, the first by no_json: ")
    assert not (run.folder / "skills.jsonl").exists()


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_run_of_other_settings_or_another_model_is_refused(text_folder: Path, opened: Opened, tmp_path: Path) -> None:
    model = Path(shutil.copytree(text_folder, tmp_path / "model"))
    run = opened(model, method="grpo", iterations=1)
    with pytest.raises(ConfigError, match="another process is training"):
        opened(model, method="grpo", iterations=1)
    _closed(run)
    with pytest.raises(ConfigError, match=r"other settings \(lr: 0.001 there, 0.5 now\); choose another --out"):
        opened(model, method="grpo", iterations=1, lr=0.5)
    assert opened(model, method="grpo", iterations=1, micro_tokens=2_000, batch=3).done == 1  # how, not what
    opened.close()
    from seed_agent import tiny

    tiny.build_text_model(model, std=0.1, hidden=32, seed=5)
    with pytest.raises(ConfigError, match=r"began with other weights than those in"):
        opened(model, method="grpo", iterations=1)
    (run.folder / "train.json").write_text("{")
    with pytest.raises(DataError, match=r"train.json cannot be read"):
        opened(model, method="grpo", iterations=1)


def test_torn_and_foreign_checkpoints_are_refused(text_folder: Path, opened: Opened, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"method": "grpo", "iterations": 2, "save_every": 1}
    _closed(opened(text_folder, **changes))
    last = tmp_path / "run" / "checkpoints" / "iteration_000002"
    kept = shutil.copytree(last, tmp_path / "kept")

    def refused(match: str) -> None:
        with pytest.raises(DataError, match=match) as caught:
            opened(text_folder, **changes)
        assert "\n" not in str(caught.value)
        shutil.rmtree(last)
        shutil.copytree(kept, last)

    (last / "model.safetensors").write_bytes(b"\x10" * 100)
    refused("torn or a checkpoint of another model")
    (last / "optimizer.pt").write_bytes(b"PK")
    refused("torn or a checkpoint of another model")
    state = json.loads((last / "state.json").read_text())
    (last / "state.json").write_text(json.dumps({**state, "weights_sha256": "0"}))
    refused("not those that were saved")
    (last / "state.json").write_text(json.dumps({**state, "digest": "0"}))
    refused("a checkpoint of another run")
    from seed_agent import tiny

    tiny.build_text_model(last, std=0.1, hidden=64)
    refused(r"torn or a checkpoint of another model \(Error\(s\) in loading .* size mismatch for ")
    (last / "DONE").unlink()  # never finished: the one before is taken
    assert opened(text_folder, **changes).done == 1


def test_a_full_disk_keeps_the_checkpoint_before(
    text_folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = opened(text_folder, method="grpo", iterations=2, save_every=1)
    real = run.policy.model.save_pretrained

    def full(folder: Path) -> None:
        if "iteration_000002" in str(folder):
            raise OSError(28, "No space left on device")
        real(folder)

    monkeypatch.setattr(run.policy.model, "save_pretrained", full)
    with pytest.raises(SeedError, match=r"No space left .*; the checkpoint of iteration 1 is whole"):
        run.train()
    assert [path.name for path in sorted((run.folder / "checkpoints").iterdir())] == ["iteration_000001"]


def test_metrics_that_cannot_be_written_stop_it_in_one_line(
    text_folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(text_folder, method="grpo", iterations=2, save_every=1)

    def full(report: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run, "_log", full)
    with pytest.raises(SeedError, match=r"^No space left on device in .*; the checkpoint of iteration 1 is whole$"):
        run.train()


def test_a_loss_that_is_no_number_stops_and_is_dumped(
    text_folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(text_folder, method="grpo", iterations=3, save_every=1)
    monkeypatch.setattr(
        "seed_agent.train.samples.episode_return", lambda episode, settings: float("nan") if run.done else 0.0
    )
    with pytest.raises(
        SeedError, match=r"the loss of iteration 2 is nan; lower lr.*diverged.json.*iteration 1 is whole"
    ):
        run.train()
    dumped = json.loads((run.folder / "diverged.json").read_text())
    assert len(dumped) == 4 and dumped[0]["advantage"] == "nan" and "task" in dumped[0]["prompt"]
    assert len(dumped[0]["reply_ids"]) == len(dumped[0]["old"]) > 0


# --- evaluation and export --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "training", "testing"),
    [("sdar", False, False), ("skill-grpo", True, False), ("skill-grpo-star", True, True)],
)
def test_prompts_hold_a_skill_only_where_the_method_says_so(
    method: str, training: bool, testing: bool, text_folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(text_folder, method=method, eval_every=1, eval_splits=("valid_seen",), eval_limit=2, iterations=1)
    real, seen = run.policy.generate, dict[float, set[bool]]()

    def generate(prompts: Any, sampling: Sampling, seeds: Any) -> Any:
        shown = {HEADING in prompt.chat[0].text for prompt in prompts}
        seen.setdefault(sampling.temperature, set()).update(shown)
        return real(prompts, sampling, seeds)

    monkeypatch.setattr(run.policy, "generate", generate)
    result = run.train()
    assert seen == {1.0: {training}, 0.4: {testing}}
    assert result["eval/valid_seen/n"] == 2 and [row["iteration"] for row in _rows(run.folder)] == [0, 1]
    lines = (run.folder / "evaluations" / "iteration_000000-valid_seen.jsonl").read_text().splitlines()
    assert [json.loads(line)["split"] for line in lines] == ["valid_seen"] * 2


def test_the_export_is_a_model_for_the_harness(
    vision_folder: Path, opened: Opened, tmp_path: Path, capsys: Any
) -> None:
    from harness.eval import main as evaluate

    run = _closed(opened(vision_folder, method="grpo", iterations=1, **SOKOBAN))
    final = run.folder / "final"
    fresh = policy_of(final)
    assert weights(fresh) == weights(run.policy) != weights(policy_of(vision_folder))
    chat = (Message("user", "go"),)
    assert fresh.generate([fresh.prompt(chat)], Sampling(1.0, 1.0, 8), [3]) == run.policy.generate(
        [run.policy.prompt(chat)], Sampling(1.0, 1.0, 8), [3]
    )
    arguments = [
        "--policy",
        f"hf:{final}?device=cpu",
        "--env",
        "seed_envs/Sokoban-v0",
        "--split",
        "seen",
        "--limit",
        "1",
    ]
    code = evaluate([*arguments, "--max-turns", "2", "--max-reply-tokens", "4", "--out", str(tmp_path / "e"), "--json"])
    assert code == 0 and json.loads(capsys.readouterr().out)["runs"][0]["summary"]["errors"] == 0


def test_groups_that_differ_are_learned_from(
    text_folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    vary_returns(monkeypatch)
    run = _closed(opened(text_folder, method="grpo", iterations=1, tasks=4))
    row = _rows(run.folder)[0]
    assert row["rl/tied"] < row["rl/groups"] == 4 and row["rl/grad_norm"] > 0
