"""Settings, presets and plans of training runs; nothing here needs torch."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.train import main
from harness.training_progress import SINKS, SafeSink, TrainingMeter, line
from seed_agent.methods import METHODS
from seed_agent.train.plan import make_plan
from seed_agent.train.presets import FOR_ENV, get_preset, names
from seed_agent.train.rollouts import draw_tasks, pool_of
from seed_agent.train.settings import Settings, build, override
from seed_envs.errors import ConfigError, SeedError, UnknownName
from seed_envs.presets import get_preset as language_preset
from seed_envs.tasks import Task, TaskSet


def _refused(capsys: Any, *arguments: str) -> str:
    """Return the one line a command is refused with."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("error: ") and err.count("\n") == 1
    return str(err)


# --- presets ----------------------------------------------------------------------------------------------------------


def test_published_values() -> None:
    s = get_preset("alfworld/qwen2.5-3b/seed").settings
    language = language_preset(s.language)
    assert (s.iterations, s.tasks, s.group, s.minibatch, s.lr) == (150, 16, 8, 256, 1e-6)
    assert (s.clip_low, s.clip_high, s.kl, s.entropy, s.invalid_penalty) == (0.2, 0.2, 0.01, 0.0, 0.0)
    assert (s.temperature, s.top_p, s.eval_temperature, s.weight_decay) == (1.0, 1.0, 0.4, 0.01)
    assert (language.max_turns, language.history) == (30, 5)
    assert (language.max_prompt_tokens, language.max_reply_tokens, language.parser) == (2048, 512, "verl_agent")
    assert (s.adv_stats, s.adv_std, s.adv_singleton, s.dual_clip) == ("trajectory", "population", "zero", None)
    assert s.model == "Qwen/Qwen2.5-3B-Instruct" and s.dtype == "bfloat16" and s.reward_scale == 10
    vision = get_preset("sokoban/qwen2.5-vl-3b/grpo").settings
    assert (vision.tasks, vision.minibatch, vision.reward, vision.reward_scale) == (32, 64, "native", 1.0)
    assert (vision.analyzer_prompt_tokens, vision.analyzer_reply_tokens) == (24_576, 2_048)
    assert not get_preset("alfworld/qwen3-1.7b/grpo").settings.think


def test_published_values_of_the_shop() -> None:
    s = get_preset("webshop/qwen2.5-7b/seed").settings
    language = language_preset(s.language)
    assert (s.iterations, s.tasks, s.group, s.minibatch, s.lr, s.kl) == (150, 16, 8, 64, 1e-6, 0.01)
    assert (s.reward, s.reward_scale, s.adv_std, s.warmup) == ("success", 10.0, "none", 0)
    assert (language.max_turns, language.history, language.parser) == (15, 2, "verl_agent")
    assert (language.max_prompt_tokens, language.max_reply_tokens, language.max_prompt_chars) == (4096, 512, 20_000)
    assert (s.analyzer_prompt_tokens, s.analyzer_reply_tokens, s.eval_splits, s.eval_limit) == (
        16_384, 4_096, ("test",), 128,
    )  # fmt: skip
    parity = get_preset("webshop-parity/qwen2.5-7b/seed").settings
    assert (parity.adv_stats, parity.adv_std, parity.adv_singleton) == ("step_rows", "none", "raw")
    assert (parity.dual_clip, parity.entropy, parity.invalid_penalty) == (3.0, 0.001, 0.1)
    for name, std in (("sdar", "population"), ("sdar-parity", "sample"), ("parity-sdar", "sample")):
        assert get_preset(f"webshop-{name}/qwen2.5-3b/sdar").settings.adv_std == std


def test_published_values_of_the_search() -> None:
    s = get_preset("searchqa/qwen3-1.7b/seed").settings
    language = language_preset(s.language)
    assert (s.iterations, s.tasks, s.group, s.minibatch, s.lr, s.kl) == (150, 128, 8, 512, 1e-6, 0.001)
    assert (s.reward, s.reward_scale, s.adv_std, s.think) == ("success", 1.0, "population", False)
    assert s.warmup == 0.1 * 150 * (128 * 8 * 4 / 512)  # a tenth of the optimiser steps, at most
    assert (language.max_turns, language.history, language.parser) == (4, 4, "verl_agent")
    assert (language.max_prompt_tokens, language.max_reply_tokens, s.eval_every) == (4096, 512, 0)
    assert (s.eval_splits, s.eval_limit, s.eval_temperature) == (("seen", "unseen"), None, 0.4)
    parity = get_preset("searchqa-parity/qwen3-1.7b/seed").settings
    assert (parity.adv_stats, parity.adv_std, parity.entropy, parity.invalid_penalty) == (
        "step_rows", "sample", 0.0, 0.01,
    )  # fmt: skip
    assert parity.env_args == {"search_turns": 3} and s.env_args == {}
    sdar = get_preset("searchqa-sdar/qwen2.5-3b/sdar").settings
    assert (sdar.minibatch, sdar.eval_temperature, sdar.language) == (256, 0.0, "searchqa/seed")


@pytest.mark.parametrize("env", list(FOR_ENV))
def test_micro_presets_plan_with_their_own_language(env: str) -> None:
    preset = get_preset(f"{env}/micro/seed")
    s = preset.settings
    lr = {"alfworld": 2e-4, "sokoban": 3e-4}.get(env, 1e-4)
    assert (s.tasks, s.group, s.lr, s.kl, s.language) == (16, 8, lr, 0.0, f"{env}/micro")
    plan = make_plan(s)
    turns = language_preset(s.language).max_turns
    assert plan.turns == turns and plan.samples == s.iterations * s.tasks * 8 * turns and plan.pool >= 600
    assert (s.warmup, s.minibatch) == (0, 1_024 if env == "alfworld" else 256)
    assert "two CPU cores" in preset.sources["minibatch"] and "SEED" in preset.sources["reward"]


def test_variants() -> None:
    sdar = get_preset("alfworld-sdar/qwen2.5-7b/sdar").settings
    language = language_preset(sdar.language)
    assert (language.max_turns, language.history) == (50, 2)
    parity = get_preset("alfworld-parity/qwen2.5-3b/seed").settings
    assert (parity.adv_stats, parity.adv_std, parity.dual_clip) == ("step_rows", "sample", 3.0)
    assert (parity.entropy, parity.invalid_penalty) == (0.001, 0.1)
    both = get_preset("alfworld-sdar-parity/qwen2.5-3b/sdar").settings
    assert both.language == "alfworld/sdar" and both.adv_stats == "step_rows"


def test_every_preset_plans_and_names_the_source_of_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seed_agent.train.plan._tasks", lambda settings: (600, 15, 140))
    for name in names():
        for method in ("seed", "grpo"):
            preset = get_preset(f"{name}/{method}")
            changed = {k for k, v in preset.settings.model_dump().items() if v != getattr(Settings(), k)}
            assert all(preset.sources.get(key) for key in changed - {"preset", "method"}), name
            plan = make_plan(preset.settings, parameters=preset.parameters)
            assert plan.episodes == preset.settings.iterations * preset.settings.tasks * preset.settings.group
            assert (plan.memory_gib is None) == ("micro" in name)
    assert len(names()) == 3 * 4 * len(FOR_ENV["alfworld"]) + 2 * len(FOR_ENV["sokoban"])


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("alfword/qwen2.5-3b/seed", "alfworld"),
        ("alfworld/qwen2.5-3/seed", "qwen2.5-3b"),
        ("alfworld/qwen2.5-3b/sede", "seed"),
        ("alfworld-sdra/qwen2.5-3b/seed", "sdar"),
        ("sokoban-sdar/micro/seed", "parity"),
        ("sokoban/qwen2.5-3b/seed", "qwen2.5-vl-3b"),
        ("webshop/qwen2.5-vl-3b/seed", "qwen2.5-3b"),
        ("searchqa-sdarr/micro/seed", "sdar"),
        ("alfworld/seed", "ENV/MODEL/METHOD"),
    ],
)
def test_unknown_parts_name_their_neighbours(name: str, near: str, capsys: Any) -> None:
    assert near in _refused(capsys, "--preset", name, "--dry-run")


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_are_converted_by_their_fields() -> None:
    texts = ["lr=2e-5", "tasks=3", "dual_clip=none", "eval_splits=valid_seen,valid_unseen", "think=false"]
    changed = override(Settings(), [*texts, "betas=0.9,0.95", 'env_args={"data": "official"}', "model=7"])
    assert (changed.lr, changed.tasks, changed.dual_clip, changed.think) == (2e-5, 3, None, False)
    assert changed.eval_splits == ("valid_seen", "valid_unseen") and changed.betas == (0.9, 0.95)
    assert changed.env_args == {"data": "official"} and changed.model == "7"
    assert changed.digest != Settings().digest == build({}).digest


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("ler=1", "did you mean lr"),
        ("lr", "expected key=value"),
        ("lr=0", "greater than 0"),
        ("lr=nan", "lr='nan' cannot be used"),
        ("tasks=2.5", "tasks='2.5' cannot be used"),
        ("reduction=mean", "token_mean"),
        ("env_args=x", "JSON object"),
        ("betas=0.9", "betas"),
    ],
)
def test_settings_that_cannot_be(text: str, match: str) -> None:
    with pytest.raises(SeedError, match=match) as caught:
        override(Settings(), [text])
    assert "\n" not in str(caught.value)


def test_a_budget_shortens_the_schedule() -> None:
    assert build({"fraction": 0.2}).planned == 30
    assert build({"fraction": 0.2, "fraction_mode": "subset"}).planned == 150
    assert build({"fraction": 0.001}).planned == 1


# --- tasks ------------------------------------------------------------------------------------------------------------


def _pool(size: int) -> TaskSet:
    return TaskSet([Task(id=f"t{i}", split="train", category="c", sha256="0") for i in range(size)])


def test_no_task_twice_in_an_iteration_and_all_of_them_in_time() -> None:
    settings, pool = build({"tasks": 3, "seed": 4}), _pool(10)
    drawn = [[task.id for task in draw_tasks(pool, i, settings)] for i in range(30)]
    assert all(len(set(tasks)) == 3 for tasks in drawn)
    for start in range(0, 30, 3):  # a round: no task twice
        assert len({name for tasks in drawn[start : start + 3] for name in tasks}) == 9
    assert {name for tasks in drawn for name in tasks} == {f"t{i}" for i in range(10)}
    assert drawn != [[task.id for task in draw_tasks(pool, i, build({"tasks": 3, "seed": 5}))] for i in range(30)]


def test_a_pool_that_is_too_small() -> None:
    with pytest.raises(ConfigError, match="tasks=16 tasks an iteration exceed the pool of 10; give tasks=10 or less"):
        pool_of(_pool(10), build({}))
    with pytest.raises(ConfigError, match=r"pool of 5; .* or a larger fraction"):
        pool_of(_pool(50), build({"fraction": 0.1, "fraction_mode": "subset"}))


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_plan_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--preset", "alfworld/qwen2.5-3b/seed", "--fraction", "0.2", "--seed", "3", "--dry-run"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "30 iterations (0.2 of the budget)" in out and "3,840 episodes" in out and "63.2 GiB" in out
    assert "first: method seed starts from a stage-1 model" in out and "checkpoints" in out
    assert main(["kl=0.5", *arguments, "init=given", "--json", "kl=0.02"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["episodes"] == 3_840 and found["plan"]["needs"] == ""
    assert found["settings"]["kl"] == 0.02 and found["settings"]["seed"] == 3 and "arXiv" in found["sources"]["lr"]
    assert not list(tmp_path.iterdir())


def test_a_dry_run_says_what_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    needs = "note: not installed here: accelerate; a run needs the extra 'train': pip install 'seed-suite[train]'\n"
    named = "note: there is no folder Qwen/Qwen2.5-3B-Instruct here; it is taken for a name on the Hugging Face hub\n"
    preset = ("--preset", "alfworld/qwen2.5-3b/seed", "--dry-run")
    assert main(["--stage", "base", "--env", "alfworld", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith(needs)
    for stage in ("sft", "rl"):
        assert main([*preset, "--stage", stage]) == 0
        assert capsys.readouterr().out.endswith(needs + named)
        assert "there is no folder ./gone; expected" in _refused(capsys, *preset, "--stage", stage, "model=./gone")
    for change, expected in (
        ("sft.tasks=100000", "cannot take 100000 of"),
        ("sft.annotator=nobody", "unknown annotator 'nobody'"),
        ("sft.lr=inf", "sft.lr=inf cannot be used"),
        ("rollout_backend=vllm", "stage 1 plays on transformers"),
    ):
        assert expected in _refused(capsys, *preset, "--stage", "sft", change)


def test_arguments_of_the_environment_do_not_take_its_data_away(capsys: Any) -> None:
    command = ("--dry-run", "--json", "--data", "embedded", "model=m")
    assert main([*command, 'env_args={"goal_style": "templated"}']) == 0
    found = json.loads(capsys.readouterr().out)["settings"]["env_args"]
    assert found == {"goal_style": "templated", "data": "embedded"}
    assert "name different data" in _refused(capsys, *command, 'env_args={"data": "official"}')


def test_a_dry_run_looks_at_the_folder_too(tmp_path: Path, capsys: Any) -> None:
    command = ("--preset", "sokoban/micro/grpo", "--dry-run", "--out")
    (tmp_path / "file").write_text("")
    assert "holds file and no train.json" in _refused(capsys, *command, str(tmp_path))
    for stage in ("rl", "sft", "base"):
        stages = ("--stage", "base", "--env", "sokoban", "--dry-run", "--out") if stage == "base" else command
        told = _refused(capsys, *stages, str(tmp_path / "file" / "run"), *(("--stage", stage) * (stage == "sft")))
        assert "/file: that is a file; choose another --out" in told
    begun = {"settings": {"lr": 1.0}, "digest": "", "model": {"weights_sha256": ""}, "provenance": []}
    (tmp_path / "train.json").write_text(json.dumps(begun))
    assert "holds a run of other settings" in _refused(capsys, *command, str(tmp_path))
    for stage in (("--stage", "sft"), ("--stage", "base", "--env", "sokoban")):
        preset = command[:2] if "sft" in stage else ()
        told = _refused(capsys, *preset, *stage, "--dry-run", "--out", str(tmp_path))
        assert f"{tmp_path} holds file and no " in told and "choose another --out" in told
    (tmp_path / "train.json").write_text("[]")
    assert "cannot be read" in _refused(capsys, *command, str(tmp_path))
    assert main([*command, str(tmp_path / "new")]) == 0 and not (tmp_path / "new").exists()


@pytest.mark.parametrize("env", ["webshop", "searchqa"])
def test_dry_runs_of_the_shop_and_the_search(env: str, tmp_path: Path, capsys: Any) -> None:
    name = f"{env}-sdar-parity/qwen2.5-7b/sdar"
    assert main(["--preset", name, "--dry-run", "--json", "--out", str(tmp_path / "run")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["preset"] == name and found["plan"]["eval_episodes"] == {"webshop": 128 * 31}.get(env, 576)
    assert found["sources"]["reward"].startswith("SEED's released scripts") and not list(tmp_path.iterdir())
    assert main(["--preset", f"{env}/micro/seed", "--dry-run"]) == 0
    assert "30 iterations of 16 tasks x 8 episodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (["tasks=601"], "exceed the pool of 600"),
        (["tasks=1", "group=2"], "minibatch=256 can never be filled: .* = 60 samples"),
        (["group=1", "minibatch=0"], "group=1 gives every episode advantage 0"),
        (["language=sokoban"], "language=sokoban is for sokoban"),
        (["language=alfword"], "alfworld"),
        (['env_args={"colour": 1}'], "colour"),
        (['env_args={"split": "test"}'], "cannot choose a split"),
        (["betas=1,2"], "betas='1' cannot be used: Input should be less than 1"),
        (["lr=1e38"], "less than or equal to 1"),
        (["sft.warmup=3"], "above 0 and at most 1"),
        (["eval_splits=tset"], "tset"),
        (["method=opid", "annotator=ruels"], "rules"),
        (["--env", "Sokobann"], "Sokoban"),
        (["--method", "vanilla"], "trains nothing"),
        (["--fraction", "2"], "fraction=2.0 cannot be used"),
        (["--fraction-mode", "most"], "budget"),
        (["--plugin", "no_such_module"], "cannot be loaded"),
        (["sft.epoch=3"], "did you mean epochs"),
        (["sft.tasks=none"], "expected a number above 0"),
        (["--stage", "base", "--env", "ezpoints"], "base policy"),
        (["--stage", "base", "lr=1"], "takes no settings"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(changes: list[str], match: str, capsys: Any) -> None:
    import re

    assert re.search(match, _refused(capsys, "--preset", "alfworld/qwen2.5-3b/grpo", "--dry-run", *changes))


def test_a_run_starts_from_what_its_method_names(tmp_path: Path, capsys: Any) -> None:
    from seed_agent.train.model import missing

    sft = tmp_path / "final"
    sft.mkdir()
    (sft / "DONE").touch()
    (sft / "state.json").write_text('{"stage": "sft"}')

    def needs(method: str, model: object, **more: Any) -> str:
        return missing(build({"method": method, "model": str(model), **more}))

    assert "first python -m harness.train --stage sft" in needs("seed", "Qwen/Qwen2.5-3B-Instruct")
    assert "starts from a base model and" in needs("grpo", sft) and "no model is named" in needs("grpo", "")
    assert needs("seed", sft) == needs("grpo", tmp_path) == needs("grpo", sft, init="given") == ""
    refused = _refused(capsys, "--preset", "alfworld/micro/seed", f"model={tmp_path}")
    assert "stage-1 model" in refused


# --- progress ---------------------------------------------------------------------------------------------------------

METRICS = {
    "iteration": 3,
    "env/reward": 1.5,
    "env/success": 0.25,
    "opd/loss": 0.0241,
    "opd/gate": 0.5,
    "opd/active_ratio": 0.61,
    "skill/parse_rate": 0.9,
    "env/reply_tokens": 31.0,
    "rl/entropy": 1.25,
    "time/tokens_per_s": 812.3,
    "eval/valid_seen/success": 0.5,
    "env/errors": 1,
}


def test_a_line_says_how_it_is_going(capsys: Any) -> None:
    assert line(METRICS) == (
        "reward 1.50, success 25%, opd 0.0241, gate 0.50, active 61%, parsed 90%, reply 31 tok, entropy 1.25, "
        "speed 812 tok/s, valid_seen 50.0%, 1 episodes broke"
    )
    now = [0.0]
    with TrainingMeter("seed", 10, done=1, terminal=False, clock=lambda: now[0]) as meter:
        now[0] = 20.0
        meter.add(METRICS)
    assert capsys.readouterr().err.endswith("seed: 3/10: " + line(METRICS) + ", 0:01:10 left\n")
    with TrainingMeter("seed", 10, terminal=True) as meter:
        meter.add(METRICS)


def test_a_sink_cannot_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    class Breaks:
        def __init__(self, *_: Any) -> None:
            self.calls = 0

        def add(self, metrics: Any) -> None:
            self.calls += 1
            raise OSError(f"the network is down, call {self.calls}")

    monkeypatch.setitem(SINKS, "tensorboard", Breaks)
    sink = SafeSink("tensorboard", tmp_path, {})
    for _ in range(3):
        sink.add(METRICS)
    warning = "warning: no more metrics to tensorboard (the network is down, call 1); metrics.jsonl has them all\n"
    assert capsys.readouterr().err == warning

    def missing(*_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'wandb'")

    monkeypatch.setitem(SINKS, "wandb", missing)
    SafeSink("wandb", tmp_path, {}).add(METRICS)
    assert "no more metrics to wandb (No module named 'wandb')" in capsys.readouterr().err
    with pytest.raises(UnknownName, match="tensorboard"):
        SafeSink("tensorbord", tmp_path, {})


def test_every_trained_method_has_a_preset() -> None:
    for name in METHODS:
        for env in FOR_ENV:
            assert get_preset(f"{env}/micro/{name}").settings.language == f"{env}/micro"
