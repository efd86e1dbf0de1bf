"""Rows of whole episodes: which tokens count, what stands where, what each turn earned."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_train_objective import _bigram
from train_kit import FIXTURES, SMALL, TALK, trainer

from seed_agent.backends.hf_model import Row, join
from seed_agent.policy import Decision, Prompt
from seed_agent.train.samples import Sample, build_samples
from seed_agent.train.settings import build
from seed_envs.errors import ConfigError
from seed_envs.seeding import Draws

torch, text_folder, vision_folder = FIXTURES


PIECES = ((5, False), (3, True), (4, False), (2, True))
"""Tokens of prompt, reply, observation, reply."""


def _row(start: int = 0) -> Row:
    ids = tuple(8 + start + i for i in range(sum(count for count, _ in PIECES)))
    return Row(ids, 5, spans=((5, 8), (12, 14)))


def test_the_mask_holds_sampled_tokens_only(torch: Any) -> None:
    from seed_agent.train.scoring import align, columns_of, reply_mask

    row, plain = _row(), Row(tuple(range(8, 19)), 9)
    mask = reply_mask([row, plain])
    assert mask.shape == (2, 9)
    assert [5 + i for i, on in enumerate(mask[0].tolist()) if on] == [5, 6, 7, 12, 13]
    assert mask[1].tolist() == [False] * 7 + [True] * 2 and columns_of(plain, 9) == [slice(7, 9)]
    spread = align([(1.0, 2.0, 3.0, 4.0, 5.0), torch.tensor([6.0, 7.0])], [row, plain], like=torch.zeros(2, 9))
    assert spread.tolist() == [[1, 2, 3, 0, 0, 0, 0, 4, 5], [0] * 7 + [6, 7]]
    last = Row(row.ids, 12, spans=row.spans)  # the same turns, one sample per turn
    assert reply_mask([last]).tolist() == [[True, True]] and last.replies == ((12, 14),)


def test_observations_are_no_targets(torch: Any) -> None:
    """Sure of each sampled token from the one before it: 0 nats there, whatever is between."""
    from seed_agent.train.scoring import reply_mask, score_rows

    row = _row()
    table = np.zeros((40, 40))
    for start, end in row.spans:
        for place in range(start, end):
            table[row.ids[place - 1], row.ids[place]] = 1_000.0
    scores = score_rows(_bigram(torch, table), [row, Row((1, 2, *row.ids), 7, spans=((7, 10), (14, 16)))], 1.0)
    mask = reply_mask([row, row])
    assert scores.logp[mask].abs().max() == 0 and mask.sum() == 10
    other = list(row.ids)
    other[8:11] = [30, 31, 32]  # all of the observation but the token before the reply
    changed = score_rows(_bigram(torch, table), [Row(tuple(other), 5, spans=row.spans)], 1.0)
    assert bool((changed.logp[0] == scores.logp[0]).all())
    other[11] = 33
    assert score_rows(_bigram(torch, table), [Row(tuple(other), 5, spans=row.spans)], 1.0).logp.min() < -1


def test_a_longer_beginning_shifts_nothing(torch: Any) -> None:
    """Whatever skill stands in the first message, a bigram model sees the same tokens behind it."""
    from seed_agent.train.scoring import score_samples

    network, samples = _bigram(torch, np.random.default_rng(0).normal(size=(60, 60))), []
    for length in (1, 7, 200):
        row = _row()
        skill = tuple(Draws("skill", length).below(60) for _ in range(length))
        spans = tuple((a + length, b + length) for a, b in row.spans)
        teacher = Row(skill + row.ids, 5 + length, spans=spans)
        samples.append(Sample(row, "t", 0, 1, 0.0, False, (), teacher=teacher))
    score_samples(network, samples, "old", temperature=0.7, budget=60)
    score_samples(network, samples, "teacher", temperature=0.7, budget=300, teacher=True)
    for sample in samples:
        assert len(sample.scores["old"]) == sample.reply == 5 == len(sample.reply_ids)
        assert bool((sample.scores["teacher"] == sample.scores["old"]).all())


def test_prompts_that_do_not_begin_with_the_turns_before_are_refused() -> None:
    first = Prompt((), (1, 2, 3))
    good = Prompt((), (1, 2, 3, 4, 5, 6), ((3, 5),))
    one = _played(first, good)
    (sample,) = build_samples([one], {}, _episodes())
    assert sample.row.ids == (1, 2, 3, 4, 5, 6, 7) and sample.row.replies == ((3, 5), (6, 7))
    for odd in (
        Prompt((), (1, 9, 3, 4, 5, 6), ((3, 5),)),  # another beginning
        Prompt((), (1, 2, 3, 4, 8, 6), ((3, 5),)),  # the reply as another tokenisation has it
        Prompt((), (1, 2, 3, 4, 5, 6), ((3, 4),)),  # a wrong span
        Prompt((), (1, 2, 3, 4, 5, 6)),  # rendered again
    ):
        with pytest.raises(ConfigError, match=r"samples=episode: the prompt of a turn .* give samples=turn"):
            build_samples([_played(first, odd)], {}, _episodes())
    assert join(good, (7,)).prompt == 6 and join(good, (7,), episode=True).prompt == 3


def _episodes(**changes: Any) -> Any:
    return build({**SMALL, **TALK, **changes})


def _played(*prompts: Prompt, good: Sequence[bool] = (True, True)) -> Any:
    from types import SimpleNamespace

    replies = ((4, 5), (7,))
    decisions = tuple(
        Decision("x", "", format_ok=ok, token_ids=ids, logp=(-1.0,) * len(ids), prompt=prompt)
        for prompt, ids, ok in zip(prompts, replies, good, strict=True)
    )
    episode = SimpleNamespace(task_id="t", success=True, turns=())
    return SimpleNamespace(episode=episode, decisions=decisions, rejected=False, skill=None)


# --- rewards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stats", ["trajectory", "step_rows", "first_row"])
def test_a_penalty_does_to_an_episode_what_it_does_to_its_turns(stats: str, text_folder: Path) -> None:
    first, second = Prompt((), (1, 2, 3)), Prompt((), (1, 2, 3, 4, 5, 6), ((3, 5),))
    played = [_played(first, second, good=good) for good in ((True, False), (True, True), (False, False))]
    run = trainer(text_folder, method="grpo", kl=0.0, adv_stats=stats, **TALK)
    found = {}
    for kind in ("turn", "episode"):
        run.settings = run.settings.model_copy(
            update={"samples": kind, "invalid_penalty": 1.0, "adv_stats": stats, "reward_scale": 10.0}
        )
        samples = build_samples(played, {}, run.settings)
        counts = run._advantages(samples)
        found[kind] = [value for s in samples for value in s.turn_advantages or (s.advantage,)]
        assert counts["groups"] == 1 and len(samples) == (6 if kind == "turn" else 3)
    run.close()
    assert found["turn"] == found["episode"]
    assert [sample.score for sample in samples] == [9.5, 10.0, 9.0] and samples[0].turn_scores == (10.0, 9.0)
    if stats == "trajectory":  # 9.5, 10, 9: mean 9.5, population std sqrt(1/6)
        assert found["turn"] == pytest.approx([0, 0, 1.224742, 1.224742, -1.224742, -1.224742], abs=1e-5)
    else:
        assert found["turn"][0] != found["turn"][1]  # the turn that was ill-formed, not the other
