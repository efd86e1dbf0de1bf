"""Iterations of the trainer: every method, both kinds of model, what is random, what may go wrong."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from train_kit import FIXTURES, SOKOBAN, policy_of, small, timeless, trainer, vary_returns, weights, write_skills

from seed_agent.methods import METHODS, Distill
from seed_agent.policy import Completion
from seed_agent.skills.insert import HEADING, remove_from_chat
from seed_envs.errors import ConfigError, SeedError
from seed_envs.vector import Failure

torch, text_folder, vision_folder = FIXTURES
TRAINED = [name for name in METHODS if METHODS.get(name).trained]


@pytest.mark.parametrize("name", TRAINED)
def test_every_method_takes_an_iteration(name: str, text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = METHODS.get(name)
    run = trainer(text_folder, method=name, kl=0.0, lr=1e-2)
    vary_returns(monkeypatch)
    write_skills(run.policy, monkeypatch)
    if run.reference is not None:
        write_skills(run.reference, monkeypatch)
    before = weights(run.policy)
    found = run.iteration(0)
    run.close()
    assert weights(run.policy) != before
    assert all(math.isfinite(value) for value in found.values())
    assert found["rl/updates"] >= 1 and found["rl/samples"] == 8 and found["rl/logp_drift_max"] < 1e-4
    assert (run.reference is not None) == (method.skill_source == "frozen")
    if method.distill is None:
        assert not any(key.startswith("opd/") for key in found)
    elif method.skill_source == "bank":
        assert found["opd/active_ratio"] == 0 and len(run.skills.bank.to_json()) > 100  # filled, not yet read
    else:
        assert found["opd/active_ratio"] == 1


def test_an_iteration_of_seed_on_text(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the episodes get a usable skill; teacher and student share the reply and the plain prompt."""
    run = trainer(text_folder, method="seed")
    asked = write_skills(run.policy, monkeypatch, every=2)
    samples: list[Any] = []
    real = run._update
    monkeypatch.setattr(run, "_update", lambda found, number: samples.extend(found) or real(found, number))
    found = run.iteration(0)
    run.close()
    assert len(asked) == 4 and "Interaction trajectory" in asked[0].chat[0].text
    assert found["skill/parse_rate"] == 0.5 and found["skill/failed_no_json"] == 2
    assert 0.3 < found["opd/active_ratio"] < 0.7 and 0 < found["opd/gate"] < 1 and found["opd/loss"] != 0
    taught = [sample for sample in samples if sample.teacher is not None]
    assert len(taught) == 4
    bos = run.policy.tokenizer.bos_token_id
    for sample in taught:
        reply = sample.row.ids[sample.row.prompt :]
        assert sample.teacher.ids[sample.teacher.prompt :] == reply
        plain, shown = sample.row.ids[: sample.row.prompt], sample.teacher.ids[: sample.teacher.prompt]
        assert plain.count(bos) == shown.count(bos) == 1
        text = run.policy.tokenizer.decode(shown)
        assert HEADING in text and "Find the lamp first" in text and "None" not in text
        assert HEADING not in run.policy.tokenizer.decode(plain)
        assert len(sample.scores["old"]) == len(sample.scores["teacher"]) == len(reply)


def test_an_iteration_of_seed_on_images(vision_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer(vision_folder, method="seed", **SOKOBAN)
    asked = write_skills(run.policy, monkeypatch)
    before, found = weights(run.policy), run.iteration(0)
    run.close()
    assert len(asked[0].images) == 2  # one a turn
    assert found["opd/active_ratio"] == 1 and found["skill/parse_rate"] == 1
    assert weights(run.policy) != before and found["rl/logp_drift_max"] < 1e-4


def test_the_teachers_prompt_without_its_skill_is_the_students(
    text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trainer(text_folder, method="sdar")
    played = run.play(_requests(run, 0))
    run.skills.annotate(played)
    teachers = run._teachers(played, 0)
    assert len(teachers) == 8
    for (episode, turn), prompt in teachers.items():
        plain = played[episode].decisions[turn].prompt
        assert run.policy.prompt(remove_from_chat(prompt.chat)).ids == plain.ids != prompt.ids
    played[0].skill = None
    assert {key[0] for key in run._teachers(played, 0)} == {1, 2, 3}
    run.policy.context = 600  # the replies still fit behind the plain prompts only
    assert not run._teachers(played, 0) and run.skills.too_long > 0
    run.close()


def _requests(run: Any, number: int) -> Any:
    from seed_agent.train.rollouts import draw_tasks, requests_of

    return requests_of(draw_tasks(run.pool, number, run.settings), number, run.settings)


# --- equalities -------------------------------------------------------------------------------------------------------


def test_seed_without_lambda_is_grpo(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The analyzer runs and draws from streams of its own: bit-equal weights after two iterations."""
    vary_returns(monkeypatch)
    found = []
    for changes in ({"method": "grpo"}, {"method": "seed", "distill_coefficient": 0.0}, {"method": "seed"}):
        run = trainer(text_folder, **changes)
        asked = write_skills(run.policy, monkeypatch)
        metrics = [run.iteration(i) for i in range(2)]
        assert len(asked) == (0 if changes["method"] == "grpo" else 8)
        found.append((weights(run.policy), metrics[1]["rl/grad_norm"]))
        run.close()
    assert found[0] == found[1] and found[0][0] != found[2][0] and found[0][1] > 0


def test_tied_rewards_teach_through_distillation_alone(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    norms = {}
    for name in ("grpo", "seed"):
        run = trainer(text_folder, method=name, kl=0.0)
        write_skills(run.policy, monkeypatch)
        found = run.iteration(0)
        assert found["rl/tied"] == found["rl/groups"] == 2
        norms[name] = found["rl/grad_norm"]
        run.close()
    assert norms["grpo"] == 0 and norms["seed"] > 0


def test_the_seed_reaches_everything(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)

    def run(seed: int) -> tuple[list[str], list[Any], list[dict[str, Any]], str]:
        this = trainer(text_folder, method="sdar", seed=seed, minibatch=3)
        tasks = [request.task.id for request in _requests(this, 0)]
        replies = [decision.token_ids for one in this.play(_requests(this, 0)) for decision in one.decisions]
        metrics = [timeless(this.iteration(i)) for i in range(2)]
        this.close()
        return tasks, replies, metrics, weights(this.policy)

    one, again, two = run(1), run(1), run(2)
    assert one == again
    assert one[0] != two[0] and one[1] != two[1] and one[2] != two[2] and one[3] != two[3]


def test_a_subset_is_nested_and_smaller(text_folder: Path) -> None:
    def pool(fraction: float) -> set[str]:
        run = trainer(text_folder, method="grpo", fraction=fraction, fraction_mode="subset")
        run.close()
        assert run.settings.planned == 2
        return {task.id for task in run.pool}

    assert pool(0.1) < pool(0.5) < pool(1.0) and len(pool(0.5)) == len(pool(1.0)) / 2


def test_the_current_teacher_follows_the_updates(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal at the first mini-batch of an iteration, another at the second."""
    from seed_agent.train import loop

    def scores(teacher: str) -> list[float]:
        run = trainer(text_folder, method="sdar", teacher=teacher, minibatch=4, micro_tokens=100_000, lr=1e-2)
        found: list[float] = []
        real = loop.objective

        def watch(batch: Sequence[Any], *rest: Any) -> Any:
            found.append(sum(float(sample.scores["teacher"].sum()) for sample in batch))
            return real(batch, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "objective", watch)
            run.iteration(0)
        run.close()
        return found

    snapshot, current = scores("snapshot"), scores("current")
    assert len(snapshot) == len(current) == 2
    assert snapshot[0] == pytest.approx(current[0], rel=1e-5) and abs(snapshot[1] - current[1]) > 1e-2


def test_a_method_of_ones_own_may_compare_whole_distributions(
    text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = replace(METHODS.get("opsd"), name="jsd-row", distill=Distill("jsd", 0.5, inputs="logits"))
    monkeypatch.setitem(METHODS._entries, "jsd-row", row)
    run = trainer(text_folder, method="jsd-row", teacher="current", kl=0.0)
    found = run.iteration(0)
    run.close()
    assert found["opd/jsd"] > 0 and found["opd/loss"] == pytest.approx(found["opd/jsd"], rel=0.2)
    assert found["rl/grad_norm"] > 0 and "rl/loss" not in found


def test_sampled_log_probabilities_stand_in_for_scored_ones(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)
    norms = []
    for old in ("rescored", "sampled"):
        run = trainer(text_folder, method="grpo", old=old)
        found = run.iteration(0)
        norms.append(found["rl/grad_norm"])
        run.close()
    assert norms[0] == pytest.approx(norms[1], rel=1e-3) and norms[0] > 0


# --- precision and memory ---------------------------------------------------------------------------------------------


def test_bfloat16_computes_over_float32_weights(torch: Any, text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)
    run = trainer(text_folder, method="grpo", dtype="bfloat16", lr=1e-6)
    kinds = []
    run.policy.model.model.layers[0].mlp.register_forward_hook(lambda m, i, out: kinds.append(out.dtype))
    before, found = weights(run.policy), run.iteration(0)
    run.close()
    assert set(kinds) == {torch.bfloat16} and run.policy.model.dtype == torch.float32
    assert weights(run.policy) != before  # an update of 1e-6 is not lost
    assert math.isfinite(found["rl/loss"]) and found["rl/ratio"] == pytest.approx(1, abs=0.02)


def test_gradient_checkpointing_changes_nothing(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)
    found = []
    for on in (False, True):
        run = trainer(text_folder, method="sdar", gradient_checkpointing=on)
        calls: list[bool] = []
        run.policy.model.model.layers[0].input_layernorm.register_forward_hook(
            lambda m, i, o, c=calls: c.append(m.training)
        )
        norm = run.iteration(0)["rl/grad_norm"]
        found.append((norm, calls.count(True)))
        run.close()
    (plain, once), (again, twice) = found
    assert plain == pytest.approx(again, rel=1e-5) and twice == 2 * once > 0


def test_memory_that_is_too_small_names_the_knobs(
    torch: Any, text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trainer(text_folder, method="grpo")
    for error in (torch.OutOfMemoryError("CUDA out of memory. Tried"), RuntimeError("can't allocate memory: you")):

        def full(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(run, "_update", full)
        with pytest.raises(SeedError, match=r"lower micro_tokens=16384 or batch=64, set gradient_checkpointing=true"):
            run.iteration(0)

    def wrong(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(run, "_update", wrong)
    with pytest.raises(RuntimeError, match="a bug"):
        run.iteration(0)
    run.close()


@pytest.mark.parametrize("alone", [False, True], ids=["all episodes", "one of them"])
def test_memory_that_is_too_small_for_replies_stops_the_run(
    alone: bool, torch: Any, text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trainer(text_folder, method="grpo")
    generate = run.policy.generate

    def full(*arguments: Any) -> Any:
        if not alone:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")
        return [Failure("OutOfMemory", "one sequence does not fit"), *generate(*arguments)[1:]]

    monkeypatch.setattr(run.policy, "generate", full)
    with pytest.raises(SeedError, match=r"^memory is too small \(.*\); lower batch=64, max_reply_tokens or "):
        run.iteration(0)
    run.close()


# --- what others do wrong ---------------------------------------------------------------------------------------------


def test_an_analyzer_without_json_costs_its_skills_only(text_folder: Path) -> None:
    run = trainer(text_folder, method="seed", kl=0.1)
    found = run.iteration(0)  # the random model writes none
    run.close()
    assert found["skill/parse_rate"] == 0 and found["skill/failed"] == 4
    assert found["opd/active_ratio"] == 0 == found["opd/loss"] and "opd/gate" not in found
    assert found["rl/updates"] == 2 and found["rl/samples"] == 8


def test_an_annotator_that_times_out_costs_its_skills_only(text_folder: Path) -> None:
    from seed_agent.skills.annotators import Options
    from seed_agent.skills.model import ModelAnnotator

    run = trainer(text_folder, method="opid")

    class Slow:
        name = "slow"

        def prompt(self, chat: Any) -> Any:
            return run.policy.prompt(chat)

        def generate(self, prompts: Sequence[Any], *_: Any) -> list[Completion | Failure]:
            return [Failure("Timeout", "no answer in 60 s")] * len(prompts)

    run.skills.annotator = ModelAnnotator(Slow(), Options())  # type: ignore[arg-type]
    found = run.iteration(0)
    run.close()
    assert found["skill/failed_call_failed"] == 4 and found["skill/parse_rate"] == 0 and found["rl/updates"] == 2


def test_an_iteration_in_which_everything_broke_stops_the_run(
    text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trainer(text_folder, method="grpo", max_prompt_tokens=20)
    with pytest.raises(SeedError, match=r"all 4 episodes of an iteration broke, the first by PromptTooLong"):
        run.iteration(0)
    run.close()


def test_an_episode_that_broke_teaches_nothing(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)
    run = trainer(text_folder, method="sdar", minibatch=0)
    real, calls = run.policy.generate, []

    def generate(prompts: Sequence[Any], sampling: Any, seeds: Sequence[int]) -> list[Any]:
        calls.append(len(prompts))
        found = list(real(prompts, sampling, seeds))
        return [Failure("Broken", "cable"), *found[1:]] if len(calls) == 2 else found

    monkeypatch.setattr(run.policy, "generate", generate)
    found = run.iteration(0)
    run.close()
    assert calls == [4, 4] and found["env/errors"] == 1 and found["rl/samples"] == 7
    assert found["rl/rejected"] == 1 and found["skill/episodes"] == 3 and found["opd/active_ratio"] == 1


def test_a_model_that_cannot_be_trained_is_refused(text_folder: Path) -> None:
    from seed_agent.train.loop import Trainer

    policy = policy_of(text_folder)
    with pytest.raises(ConfigError, match=r"max_reply_tokens=4096 leaves no prompt in the context of .*, 4096"):
        Trainer(small(text_folder, method="grpo", max_reply_tokens=4_096), policy)
    with pytest.raises(ConfigError, match=r"analyzer_prompt_tokens \+ analyzer_reply_tokens = 9008 exceed"):
        Trainer(small(text_folder, method="seed", analyzer_prompt_tokens=9_000), policy)
    policy.tokenizer.chat_template = None
    from seed_agent.backends.hf_render import Renderer

    policy.renderer = Renderer("m", policy.tokenizer)
    with pytest.raises(ConfigError, match=r"has no chat template; expected a chat model"):
        Trainer(small(text_folder, method="grpo"), policy)


def test_vanilla_trains_nothing(text_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"trains nothing; evaluate it with python -m harness.eval"):
        trainer(text_folder, method="vanilla")
