"""Training whose rollouts run on vLLM, over a stand-in for it (``fake_vllm``)."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_vllm
import pytest
from train_kit import FIXTURES, SMALL, SOKOBAN, policy_of, small, timeless, vary_returns, weights, write_skills

from harness.train import main
from seed_envs.errors import ConfigError, MissingDependency, SeedError

torch, text_folder, vision_folder = FIXTURES
Trained = Callable[..., Any]


@pytest.fixture
def trained(torch: Any, text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a trainer whose rollouts run on a stand-in with faults."""
    from seed_agent.train.loop import Trainer

    runs: list[Any] = []

    def make(*faults: str, **changes: Any) -> Any:
        fake_vllm.install(monkeypatch, *faults)
        runs.append(Trainer(small(text_folder, rollout_backend="vllm", **changes), policy_of(text_folder)))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


def test_an_iteration_of_seed(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Played and analysed on vLLM, scored and updated on transformers; the weights follow."""
    vary_returns(monkeypatch)
    run = trained(method="seed", lr=1e-2)
    asked = write_skills(run.copy, monkeypatch, every=2)
    monkeypatch.setattr(run.policy, "generate", None)  # transformers is not asked for anything
    before, engine = weights(run.policy), run.copy.llm
    found = [run.iteration(number) for number in range(2)]
    assert weights(run.policy) != before and len(asked) == 8 and found[0]["skill/parse_rate"] == 0.5
    assert 0.3 < found[0]["opd/active_ratio"] < 0.7 and found[0]["opd/loss"] != 0
    assert all(math.isfinite(value) for metrics in found for value in metrics.values())
    # one sync before each play; without it the second iteration would be played by the first one's weights
    assert engine.calls == ["reload_weights", "reset_prefix_cache"] * 2
    assert [metrics["rl/logp_drift_max"] < 1e-4 for metrics in found] == [True, True]
    assert engine.sizes == [4] * 4 and found[0]["rl/samples"] == 8


def test_weights_that_do_not_follow_show_in_the_drift(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)
    run = trained(method="grpo", lr=1e-2)
    monkeypatch.setattr(run.copy, "sync", lambda model: None)
    assert run.iteration(0)["rl/logp_drift_max"] < 1e-4 and run.iteration(1)["rl/logp_drift_max"] > 1e-2


def test_sampled_log_probabilities_stand_in_for_scored_ones(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)
    found = {old: trained(method="grpo", old=old).iteration(0) for old in ("rescored", "sampled")}
    norms = [metrics["rl/grad_norm"] for metrics in found.values()]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3) and norms[0] > 0
    assert 0 < found["sampled"]["rl/logp_drift_max"] < 1e-4  # measured, on the longest samples


def test_below_top_p_1_there_is_no_drift_to_report(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)
    found = trained(method="grpo", top_p=0.7).iteration(0)
    assert "rl/logp_drift_max" not in found and found["rl/grad_norm"] > 0 and found["rl/samples"] == 8
    with pytest.raises(ConfigError, match=r"vLLM does not give at top_p=0\.7; give old=rescored"):
        trained(method="grpo", top_p=0.7, old="sampled")


def test_the_trainers_number_format_stays_outside(
    torch: Any, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    vary_returns(monkeypatch)
    run = trained(method="grpo", dtype="bfloat16")
    found = run.iteration(0)
    assert run.copy.llm.autocast == [False, False] and run.copy.llm.options["dtype"] == "bfloat16"
    assert run.policy.model.dtype == torch.float32 and 0 < found["rl/logp_drift_max"] < 0.5


def test_the_engine_is_as_long_as_the_longest_prompt_with_its_reply(trained: Trained) -> None:
    run = trained(method="grpo", batch=7, rollout_memory=0.25)
    options = run.copy.llm.options
    assert (options["max_model_len"], options["max_num_seqs"], options["gpu_memory_utilization"]) == (2007, 7, 0.25)
    assert trained(method="seed").copy.llm.options["max_model_len"] == 3009  # the analyzer's prompt and reply
    assert trained(method="grpo", max_prompt_tokens=9000).copy.llm.options["max_model_len"] == 4096  # the model's own


def test_a_frozen_analyzer_stays_on_transformers(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    from seed_agent.methods import METHODS

    frozen = next(name for name in METHODS if METHODS.get(name).skill_source == "frozen")
    run = trained(method=frozen)
    asked = write_skills(run.reference, monkeypatch)
    assert run.iteration(0)["opd/active_ratio"] == 1 and len(asked) == 4


# --- what others do wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("no_logprobs", "the first by NoLogProbs: vLLM gave no log-probability of token 1"),
        ("nan", "the first by BadLogits"),
        ("lose_one", "the first by SeedError: vLLM gave 3 answers to 4 prompts"),
        ("refuse_weights", "vLLM cannot take over the weights in training"),
        ("refuse_reset", "vLLM kept its prefix cache"),
    ],
)
def test_a_sampler_that_cannot_be_trained_on_stops_the_run(trained: Trained, fault: str, said: str) -> None:
    with pytest.raises(SeedError, match=said) as caught:
        trained(fault, method="grpo").iteration(0)
    assert "\n" not in str(caught.value)


def test_faults_that_can_be_made_good_change_nothing(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)
    found = []
    for faults in ((), ("extra_token", "shuffle")):
        run = trained(*faults, method="grpo")
        found.append((timeless(run.iteration(0)), weights(run.policy)))
    assert found[0] == found[1]


# --- what cannot be asked ---------------------------------------------------------------------------------------------


def test_what_vllm_cannot_do_is_refused(
    text_folder: Path, vision_folder: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seed_agent.train.loop import Trainer
    from seed_agent.train.model import lacking, load_policy
    from seed_agent.train.plan import make_plan

    with pytest.raises(ConfigError, match="computes in float32 or bfloat16"):
        trained(method="grpo", dtype="float64")
    settings = small(vision_folder, rollout_backend="vllm", method="grpo", **SOKOBAN)
    with pytest.raises(ConfigError, match=r"takes text models only .* rollout_backend=hf"):
        Trainer(settings, policy_of(vision_folder))
    settings = small(text_folder, rollout_backend="vllm", method="grpo")
    with pytest.raises(ConfigError, match="stage 1 plays on transformers"):
        load_policy(settings, start="base")
    plain = make_plan(small(text_folder, method="grpo")).memory_gib or 0.0
    assert make_plan(settings).memory_gib == pytest.approx(plain * 24 / 20)  # one more copy of 4 bytes
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert make_plan(settings).episodes and "not installed here: vllm; a run needs the extra 'vllm'" in lacking("vllm")
    with pytest.raises(MissingDependency, match=r"rollout_backend=vllm\) .* pip install 'seed-suite\[vllm\]'"):
        load_policy(settings)


# --- runs on disk -----------------------------------------------------------------------------------------------------


def test_a_run_that_goes_on_plays_with_the_weights_it_had(
    text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted and repeated in a fresh engine, it ends as one that was not."""
    module = fake_vllm.install(monkeypatch)
    vary_returns(monkeypatch)
    changes = {**SMALL, "method": "grpo", "iterations": 3, "save_every": 1, "eval_limit": 1, "lr": 1e-2}
    changes |= {"model": text_folder, "init": "given", "eval_splits": "valid_seen", "rollout_backend": "vllm"}
    flags = [f"{key}={value}" for key, value in changes.items()]
    assert main([*flags, "--out", str(tmp_path / "whole")]) == 0
    from seed_agent.train.loop import Trainer

    real = Trainer.iteration

    def stop(self: Any, number: int) -> Any:
        if number == 2:
            raise KeyboardInterrupt
        return real(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "iteration", stop)
        assert main([*flags, "--out", str(tmp_path / "cut")]) == 130
    assert main([*flags, "rollout_memory=0.3", "--out", str(tmp_path / "cut")]) == 0  # may change in between
    runs = [
        [timeless(json.loads(line)) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("cut", "whole")
    ]
    assert runs[0] == runs[1] and len(runs[0]) == 4
    assert max(row.get("rl/logp_drift_max", 0.0) for row in runs[0]) < 1e-4
    weights = [(tmp_path / name / "final" / "model.safetensors").read_bytes() for name in ("cut", "whole")]
    assert weights[0] == weights[1]
    assert [engine.calls[-1] for engine in module.engines] == ["shutdown"] * 3
    facts = json.loads((tmp_path / "cut" / "train.json").read_text())["player"]
    assert facts["kind"] == "vllm" and facts["versions"]["vllm"] == "0.99.0" and "weights_sha256" not in facts
    line = (tmp_path / "cut" / "evaluations" / "iteration_000003-valid_seen.jsonl").read_text()
    assert '"policy":"vllm:' in line
