"""One sample per episode: it says what one per turn says, token by token, in value and gradient."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_kit import (
    FIXTURES,
    SMALL,
    SOKOBAN,
    TALK,
    policy_of,
    small,
    timeless,
    trainer,
    vary_returns,
    weights,
    write_skills,
)

from harness.players import Seats, Speech
from harness.train import main
from seed_agent.methods import METHODS, Distill
from seed_agent.policy import Decision
from seed_agent.skills.insert import HEADING, insert_into_chat
from seed_agent.skills.skill import Skill
from seed_agent.train.samples import Sample, build_samples, micro_batches
from seed_envs.errors import SeedError

torch, text_folder, vision_folder = FIXTURES
LOOK = {**SOKOBAN, "language": "sokoban/conversation"}
"""Over `TALK`: the same on images."""


@pytest.fixture
def exact(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """Return a function that loads a model which computes in float64 throughout; its norms would not."""

    def norm(self: Any, states: Any) -> Any:
        return self.weight * states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    def load(folder: Path) -> Any:
        policy = policy_of(folder)
        policy.model.double()
        for module in policy.model.modules():
            if hasattr(module, "variance_epsilon"):
                monkeypatch.setattr(type(module), "forward", norm)
        return policy

    return load


def running(folder: Path, policy: Any, **changes: Any) -> Any:
    from seed_agent.train.loop import Trainer

    return Trainer(small(folder, **{**TALK, "dtype": "float64", **changes}), policy)


def both(run: Any, played: Sequence[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[list[Sample], list[Sample]]:
    """Return the samples of the same episodes, one per turn and one per episode, scored and with advantages."""
    found = []
    for kind in ("turn", "episode"):
        run.settings = run.settings.model_copy(update={"samples": kind})
        samples = build_samples(played, run._teachers(played, 0), run.settings)
        run._advantages(samples)
        run._rescore(samples, 0)
        found.append(samples)
    return found[0], found[1]


def give_skills(played: Sequence[Any], every: int = 1) -> None:
    for place, one in enumerate(played[::every]):
        text = f"Find lamp {place} first, then take what is near it."
        one.skill = Skill("", text, one.episode.task_id, one.episode.attempt, one.episode.success, "test")


# --- equality with one sample per turn --------------------------------------------------------------------------------


@pytest.mark.parametrize("sight", [False, True])
def test_every_token_has_the_log_probability_that_its_turn_gives_it(
    sight: bool, text_folder: Path, vision_folder: Path, exact: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = vision_folder if sight else text_folder
    run = running(folder, exact(folder), method="sdar", **(LOOK if sight else {"max_turns": 3}))
    played = run.play(_requests(run))
    give_skills(played, every=2)
    turns, episodes = both(run, played, monkeypatch)
    run.close()
    assert len(turns) == 4 * run.stage.limit and [s.turn for s in episodes] == [run.stage.limit - 1] * 4
    assert len(episodes[0].row.images) == (2 if sight else 0)
    for number, sample in enumerate(episodes):
        own = [turn for turn in turns if turn.episode == number]
        assert sample.reply_ids == tuple(token for turn in own for token in turn.reply_ids)
        assert sample.sampled_logp == tuple(nats for turn in own for nats in turn.sampled_logp)
        assert (sample.teacher is None) == (own[0].teacher is None) == bool(number % 2)
        for key in ("old", "ref", *(["teacher"] if sample.teacher else [])):
            together = np.concatenate([turn.scores[key].numpy() for turn in own])
            assert np.abs(sample.scores[key].numpy() - together).max() < 1e-9, key
        if sample.teacher is not None:
            assert sample.teacher.ids[sample.teacher.prompt :] == sample.row.ids[sample.row.prompt :]
            assert float((sample.scores["teacher"] - sample.scores["old"]).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["seed", "rlsd", "jsd"])
def test_loss_and_gradient_are_those_of_one_sample_per_turn(
    name: str, text_folder: Path, exact: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seed_agent.train.objective import Denominators, objective

    row = replace(METHODS.get("opsd"), name="jsd", distill=Distill("jsd", 0.5, inputs="logits"))
    monkeypatch.setitem(METHODS._entries, "jsd", row)
    vary_returns(monkeypatch)
    teacher = {"teacher": "current"} if name == "jsd" else {}
    changes = {"entropy": 0.01, "kl": 0.1, "invalid_penalty": 0.3, "adv_stats": "step_rows", **teacher}
    run = running(text_folder, exact(text_folder), method=name, init="given", **changes)
    played = run.play(_requests(run))
    give_skills(played, every=2)
    layouts = both(run, played, monkeypatch)
    run._score_teacher([s for samples in layouts for s in samples if s.teacher is not None], 0)
    assert len({value for s in layouts[1] for value in s.turn_advantages}) >= (2 if name != "jsd" else 0)

    def at(samples: list[Sample], budget: int) -> tuple[float, Any]:
        for sample in samples:  # other weights than now, so that ratios are not 1
            sample.scores = {key: value + (key == "old") * 0.05 * sample.episode for key, value in stored[id(sample)]}
        run.policy.model.zero_grad()
        totals, loss = Denominators.of(samples, run.settings), 0.0
        for batch in micro_batches(samples, budget):
            part = objective(batch, run.network, run.method, run.settings, totals, 0)
            part.loss.backward()
            loss += float(part.loss.detach())
        import torch

        gradients = [p.grad.flatten() for p in run.policy.model.parameters() if p.grad is not None]
        return loss, torch.cat(gradients).clone()

    stored = {id(s): list(s.scores.items()) for samples in layouts for s in samples}
    wanted, slope = at(layouts[0], 100_000)
    size = float(slope.abs().max())
    assert size > 1e-4
    for samples, budget in ((layouts[1], 100_000), (layouts[1], 2_500)):
        loss, found = at(samples, budget)
        assert loss == pytest.approx(wanted, rel=1e-6, abs=1e-9)
        assert float((found - slope).abs().max()) < 1e-6 * size
    run.close()


# --- iterations -------------------------------------------------------------------------------------------------------


def _requests(run: Any, number: int = 0) -> Any:
    from seed_agent.train.rollouts import draw_tasks, requests_of

    return requests_of(draw_tasks(run.pool, number, run.settings), number, run.settings)


@pytest.mark.parametrize("sight", [False, True])
def test_an_iteration_of_seed(
    sight: bool, text_folder: Path, vision_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = vision_folder if sight else text_folder
    run = trainer(folder, method="seed", **{**TALK, **(LOOK if sight else {}), "minibatch": 2, "max_turns": 3})
    vary_returns(monkeypatch)
    asked = write_skills(run.policy, monkeypatch, every=2)
    samples: list[Sample] = []
    real = run._update
    monkeypatch.setattr(run, "_update", lambda found, number: samples.extend(found) or real(found, number))
    before, found = weights(run.policy), run.iteration(0)
    run.close()
    assert weights(run.policy) != before and all(math.isfinite(value) for value in found.values())
    assert found["rl/samples"] == 4 and found["rl/updates"] == 2 and found["rl/logp_drift_max"] < 1e-4
    assert found["rl/reply_tokens"] == sum(sample.reply for sample in samples) <= 4 * 3 * 6
    assert found["skill/parse_rate"] == 0.5 and found["opd/loss"] != 0 and len(asked) == 4
    assert found["env/unasked"] == found["env/history_dropped"] == found["skill/teacher_too_long"] == 0
    taught = [sample for sample in samples if sample.teacher is not None]
    assert len(taught) == 2 and found["opd/active_ratio"] == pytest.approx(
        sum(s.reply for s in taught) / found["rl/reply_tokens"]
    )
    for sample in taught:
        assert sample.teacher is not None
        beginning = run.policy.tokenizer.decode(sample.teacher.ids[: sample.teacher.prompt])
        assert HEADING in beginning and "Find the lamp first" in beginning
        assert HEADING not in run.policy.tokenizer.decode(sample.row.ids)
        assert run.policy.tokenizer.decode(sample.teacher.ids).count(HEADING) == 1


def test_the_teachers_first_message_without_its_skill_is_the_students(text_folder: Path) -> None:
    run = trainer(text_folder, method="sdar", **TALK)
    played = run.play(_requests(run))
    run.skills.annotate(played)
    teachers = run._teachers(played, 0)
    assert sorted(teachers) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    for (episode, turn), taught in teachers.items():
        plain = played[episode].decisions[turn].prompt
        assert taught.chat[1:] == plain.chat[1:] and HEADING in taught.chat[0].text
        begin, start = taught.replies[0][0], plain.replies[0][0]
        assert taught.ids[begin:] == plain.ids[start:] and begin > start
        assert run.policy.prompt(insert_into_chat(plain.chat[:1], played[episode].skill.text)).ids == taught.ids[:begin]
    run.policy.context = max(len(prompt.ids) for prompt in teachers.values())  # no room for the reply any more
    run.skills.too_long = 0
    assert len(run._teachers(played, 0)) < 4 and run.skills.too_long > 0
    run.close()


def test_turns_that_were_not_asked_are_in_no_sample(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vary_returns(monkeypatch)
    run = trainer(text_folder, method="grpo", **{**TALK, "max_turns": 4})
    longest = max(len(one.decisions[1].prompt.ids) for one in run.play(_requests(run)))
    run.close()
    run = trainer(text_folder, method="grpo", **{**TALK, "max_turns": 4, "max_prompt_tokens": longest})
    samples: list[Sample] = []
    real = run._update
    monkeypatch.setattr(run, "_update", lambda found, number: samples.extend(found) or real(found, number))
    found = run.iteration(0)
    run.close()
    assert found["env/turns"] == 4 and found["env/errors"] == 0 and found["env/unasked"] > 0
    asked = sum(len(sample.row.replies) for sample in samples)
    assert found["env/unasked"] == 16 - asked and all(not s.rejected for s in samples)
    assert all(len(s.row.ids) <= longest + 6 and len(s.sampled_logp) == s.reply for s in samples)


def test_one_sample_per_turn_of_a_conversation_is_a_run_too(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer(text_folder, method="sdar", **{**TALK, "samples": "turn", "minibatch": 4})
    found = run.iteration(0)
    run.close()
    assert found["rl/samples"] == 8 and found["rl/updates"] == 2 and found["opd/active_ratio"] == 1
    assert found["rl/logp_drift_max"] < 1e-4


def test_an_interrupted_run_goes_on_bit_for_bit(
    text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seed_agent.train.run import TrainingRun

    vary_returns(monkeypatch)
    settings = small(text_folder, **{**TALK, "method": "sdar", "save_every": 1, "minibatch": 2})

    def run(name: str, stop: bool = False) -> tuple[str, list[Any]]:
        this = TrainingRun(tmp_path / name, settings, policy_of(text_folder), provenance={})
        try:
            if stop:
                monkeypatch.setattr(this.trainer, "play", _interrupt_at(1, this.trainer.play))
                with pytest.raises(KeyboardInterrupt):
                    this.train()
            else:
                this.train()
        finally:
            this.close()
        return weights(this.policy), [timeless(row) for row in this.rows.values()]

    whole = run("whole")
    halved = run("halves", stop=True)
    assert len(halved[1]) == 1 and halved[0] != whole[0]
    assert run("halves") == whole


def _interrupt_at(call: int, real: Callable[..., Any]) -> Callable[..., Any]:
    left = iter(range(call))

    def play(*given: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(*given)

    return play


def test_an_evaluation_asks_what_training_asked(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``harness.eval``'s own player, on the same tasks with the same seeds: the very same ids."""
    from seed_agent.rollout import env_record, play
    from seed_envs.vector import EnvMaker, GroupVectorEnv

    run = trainer(text_folder, method="grpo", **TALK)
    requests = _requests(run)
    trained = {
        (one.episode.task_id, one.episode.attempt): [d.prompt.ids for d in one.decisions] for one in run.play(requests)
    }
    run.close()
    speech = Speech(preset="alfworld/conversation", temperature=1.0, max_reply_tokens=SMALL["max_reply_tokens"])
    seat = Seats(speech).seat(f"hf:{text_folder}?device=cpu", "seed_envs/ALFWorld-v0")
    assert seat.config["language"]["layout"] == "conversation"
    asked: dict[Any, list[Any]] = {}
    maker = EnvMaker("seed_envs/ALFWorld-v0", {"split": "train", "max_episode_steps": SMALL["max_turns"]})
    envs = GroupVectorEnv(maker, num_tasks=4)
    try:

        def watch(request: Any, turn: int, decision: Decision) -> None:
            assert decision.prompt is not None
            asked.setdefault((request.task.id, request.attempt), []).append(decision.prompt.ids)

        list(play(requests, seat.make(), envs, env_record(maker, envs.prototype), watch=watch))
    finally:
        envs.close()
    assert asked == trained and all(len(ids) == 2 for ids in asked.values())


# --- refusals and the plan --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (["samples=episode"], r"samples=episode needs a conversation.*language=alfworld/conversation, or samples=turn"),
        (["samples=episode", "language=alfworld/conversation"], r"16 tasks x 8 episodes = 128 samples; give minibatch"),
        (
            ["samples=episode", "language=alfworld/conversation", "minibatch=0", "method=opid"],
            "opid has skills of single turns.*give samples=turn",
        ),
        (["language=alfworld/conversation", "history=3"], "history=3 means nothing"),
        (["samples=trajectory"], "'turn' or 'episode'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: list[str], match: str, capsys: Any) -> None:
    assert main(["--preset", "alfworld/qwen2.5-3b/grpo", "--dry-run", *changes]) == 2
    said = capsys.readouterr().err.strip()
    assert re.search(match, said) and "\n" not in said


def test_a_template_that_takes_thoughts_out_is_refused_before_anything_is_played(
    text_folder: Path, tmp_path: Path
) -> None:
    import shutil

    folder = Path(shutil.copytree(text_folder, tmp_path / "model"))
    template = (folder / "chat_template.jinja").read_text()
    thoughtless = template.replace("{{ message.content }}", "{{ message.content.split('</think>')[-1] }}")
    assert thoughtless != template
    (folder / "chat_template.jinja").write_text(thoughtless)
    with pytest.raises(SeedError, match=r"is not prefix-stable: it writes .*open door.*; give samples=turn$"):
        trainer(folder, method="grpo", **TALK)
    run = trainer(folder, method="grpo", **{**TALK, "samples": "turn"})  # renders every prompt as a whole
    assert run.iteration(0)["rl/samples"] == 8
    run.close()


def test_a_dry_run_counts_the_samples(capsys: Any) -> None:
    import json

    def plan(*changes: str) -> Any:
        arguments = ["--preset", "alfworld/qwen2.5-3b/grpo", "--fraction", "0.2", "language=alfworld/conversation"]
        assert main([*arguments, "--dry-run", "--json", *changes]) == 0
        return json.loads(capsys.readouterr().out)["plan"]

    turn, episode = plan("minibatch=256"), plan("samples=episode", "minibatch=64")
    assert (turn["samples"], turn["updates"]) == (30 * 128 * 30, 30 * 15)
    assert (episode["samples"], episode["updates"]) == (30 * 128, 30 * 2)
    assert turn["generated"] == episode["generated"] == 30 * 128 * 30 * 512
    each = 16_384 + 512
    # rollouts ask in every turn; old, reference and update read each sample once
    assert turn["processed"] == 30 * 128 * 30 * 4 * each
    assert episode["processed"] == 30 * 128 * (30 + 3) * each
    changes = ["language=alfworld/conversation", "samples=episode", "minibatch=64"]
    assert main(["--preset", "alfworld/qwen2.5-3b/grpo", "--dry-run", *changes]) == 0
    assert "19,200 samples at most, one per episode; 300 updates" in capsys.readouterr().out
