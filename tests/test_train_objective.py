"""What an update descends: masks, alignment of teacher and student, micro-batches, losses of methods."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from train_kit import FIXTURES, policy_of, small

from seed_agent.backends.hf_model import Network, Row
from seed_agent.methods import METHODS, Distill
from seed_agent.train.samples import Sample, micro_batches
from seed_envs.errors import ConfigError
from seed_envs.seeding import Draws

torch, text_folder, vision_folder = FIXTURES


def _ids(count: int, *parts: object, end: int = 2) -> tuple[int, ...]:
    draws = Draws("test ids", *parts)
    return (*(8 + draws.below(200) for _ in range(count - 1)), end)


def _samples(prompts: tuple[int, ...] = (5, 9, 40, 12, 7), replies: tuple[int, ...] = (2, 10, 3, 5, 1)) -> list[Sample]:
    """Turns of different lengths; all but one have a teacher behind a longer prompt."""
    found = []
    for i, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        said = _ids(reply, "reply", i)
        row = Row(_ids(prompt, "prompt", i) + said, prompt)
        teacher = Row(_ids(prompt + 20 + i, "teacher", i) + said, prompt + 20 + i) if i != 3 else None
        sample = Sample(row, "task", i, 0, 0.0, False, (), teacher=teacher)
        sample.advantage = (-1.0) ** i * (i + 1) / 3
        found.append(sample)
    return found


@pytest.fixture(scope="module")
def double(text_folder: Path) -> Any:
    policy = policy_of(text_folder)
    policy.model.double()
    return policy


def _scored(policy: Any, samples: list[Sample]) -> list[Sample]:
    from seed_agent.train.scoring import score_samples

    for key, shift in (("old", 0.05), ("ref", 0.2), ("teacher", 0.0)):
        chosen = [s for s in samples if key != "teacher" or s.teacher is not None]
        score_samples(policy.network, chosen, key, temperature=1.0, budget=10_000, teacher=key == "teacher")
        for place, sample in enumerate(chosen):  # other weights than now, so that ratios are not 1
            sample.scores[key] += shift * (place - 2)
    return samples


def _gradient(policy: Any, samples: list[Sample], method: Any, settings: Any, budget: int) -> tuple[Any, int]:
    import torch

    from seed_agent.train.objective import Denominators, objective

    policy.model.zero_grad()
    totals, parts = Denominators.of(samples, settings), 0
    for batch in micro_batches(samples, budget):
        objective(batch, policy.network, method, settings, totals, 0).loss.backward()
        parts += 1
    return torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None]), parts


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "sequence_sum"])
@pytest.mark.parametrize("name", ["seed", "skill-sd", "rlsd", "jsd"])
def test_the_gradient_does_not_depend_on_micro_batches(name: str, reduction: str, double: Any) -> None:
    jsd = replace(METHODS.get("opsd"), name="jsd", distill=Distill("jsd", 0.5, inputs="logits"))
    method = jsd if name == "jsd" else METHODS.get(name)
    settings = small(Path("m"), reduction=reduction, entropy=0.01, clip_low=0.9, clip_high=0.9, kl=0.1)
    samples = _scored(double, _samples())
    whole, one = _gradient(double, samples, method, settings, 10_000)
    assert one == 1 and float(whole.norm()) > 0
    for budget in (1, 60):
        split, parts = _gradient(double, samples, method, settings, budget)
        assert parts == (5 if budget == 1 else 3)
        assert float((split - whole).abs().max()) <= 1e-6 * float(whole.abs().max())


def test_lambda_scales_only_the_distillation(double: Any) -> None:
    samples, settings = _scored(double, _samples()), small(Path("m"))
    seed = METHODS.get("seed")
    assert seed.distill is not None

    def at(coefficient: float) -> Any:
        method = replace(seed, distill=replace(seed.distill, coefficient=coefficient))
        return _gradient(double, samples, method, settings, 10_000)[0]

    grpo = _gradient(double, samples, METHODS.get("grpo"), settings, 10_000)[0]
    assert bool((at(0.0) == grpo).all())
    slope = at(1.0) - grpo
    size = float(slope.abs().max())  # Llama's norms compute in float32 whatever the weights are
    assert float((at(2.0) - grpo - 2 * slope).abs().max()) < 1e-5 * size and size > 1e-3


# --- masks and alignment ----------------------------------------------------------------------------------------------


class _Bigram:
    """A model whose next token depends on the last one alone."""

    def __init__(self, torch: Any, table: Any) -> None:
        size = len(table)
        self._torch, self._states = torch, torch.eye(size)
        self._head = SimpleNamespace(weight=table.T.contiguous(), bias=None)
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace())

    def forward(self, input_ids: Any = None) -> Any:
        raise AssertionError("scoring takes hidden states")

    def get_input_embeddings(self) -> Any:
        return SimpleNamespace(weight=self._states)

    def get_output_embeddings(self) -> Any:
        return self._head

    def base_model(self, input_ids: Any, **_: Any) -> Any:
        return SimpleNamespace(last_hidden_state=self._states[input_ids])


def _bigram(torch: Any, table: Any) -> Network:
    network = Network(_Bigram(torch, torch.as_tensor(table, dtype=torch.float32)))  # type: ignore[arg-type]
    return network


def test_a_skill_says_nothing_to_a_bigram_model(torch: Any) -> None:
    """Whatever stands in the teacher's context, an offset by one in any row would show."""
    from seed_agent.train.scoring import score_samples

    network = _bigram(torch, np.random.default_rng(0).normal(size=(300, 300)))
    samples = []
    for i, length in enumerate((1, 2, 3, 17, 64, 255, 500)):
        said, prompt = _ids(1 + 3 * i, "said", i), 4 + 5 * i
        row = Row(_ids(prompt, "plain", i) + said, prompt)
        teacher = Row(_ids(prompt + length, "taught", i) + said, prompt + length)
        samples.append(Sample(row, "t", i, 0, 0.0, False, (), teacher=teacher))
    for key in ("old", "teacher"):
        score_samples(network, samples, key, temperature=0.7, budget=900, teacher=key == "teacher")
    for sample in samples:
        assert bool((sample.scores["teacher"] == sample.scores["old"]).all())
        assert len(sample.scores["old"]) == sample.reply


def test_log_probabilities_belong_to_the_reply_alone(torch: Any) -> None:
    """Sure of each reply token from the token before it: 0 nats there; unsure of everything else."""
    from seed_agent.train.scoring import reply_mask, score_rows

    replies = ((11, 12, 13), (14, 15))
    rows = [Row((1, 2, 3, 4, 5, *replies[0]), 5), Row((6, 7, 11, 9, *replies[1]), 4)]  # 11 in a prompt is no reply
    table = np.zeros((20, 20))
    for before, token in ((5, 11), (11, 12), (12, 13), (9, 14), (14, 15)):
        table[before, token] = 1_000.0
    network = _bigram(torch, table)
    scores, mask = score_rows(network, rows, 1.0).logp, reply_mask(rows)
    assert mask.tolist() == [[True, True, True], [False, True, True]]
    assert scores[mask].abs().max() == 0
    for row, place in ((0, 4), (0, 6), (1, 3)):  # the token before a reply token, changed
        ids = list(rows[row].ids)
        ids[place] = 19
        changed = [Row(tuple(ids), r.prompt) if i == row else r for i, r in enumerate(rows)]
        assert score_rows(network, changed, 1.0).logp[mask].min() < -1
    other = [Row((8, 8, 8, 8, 5, *replies[0]), 5), Row((8, 8, 8, 9, *replies[1]), 4)]
    assert bool((score_rows(network, other, 1.0).logp[mask] == 0).all())


def test_padding_changes_nothing(torch: Any, text_folder: Path, vision_folder: Path) -> None:
    from seed_agent.train.scoring import score_rows

    for folder in (text_folder, vision_folder):
        network = policy_of(folder).network
        rows = [sample.row for sample in _samples()]
        together = score_rows(network, rows, 1.0).logp.detach()
        for row, line in zip(rows, together, strict=True):
            alone = score_rows(network, [row], 1.0).logp[0].detach()
            assert float((line[len(line) - len(alone) :] - alone).abs().max()) < 1e-5


def test_an_empty_skill_gives_no_shift_at_all(text_folder: Path) -> None:
    from seed_agent.losses import skill_shift
    from seed_agent.train.scoring import score_samples

    samples = _samples()
    for sample in samples:
        sample.teacher = sample.row
    network = policy_of(text_folder).network
    score_samples(network, samples, "old", temperature=1.0, budget=100)
    score_samples(network, samples, "teacher", temperature=1.0, budget=100, teacher=True)
    for sample in samples:
        assert not skill_shift(sample.scores["teacher"], sample.scores["old"]).any()


@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_unchanged_weights_give_the_sampled_log_probabilities(temperature: float, text_folder: Path) -> None:
    from seed_agent.policy import Message, Sampling
    from seed_agent.train.scoring import score_rows

    policy = policy_of(text_folder)
    prompts = [policy.prompt((Message("user", "go to the desk " * n),)) for n in (1, 4, 9)]
    done = policy.generate(prompts, Sampling(temperature, 1.0, 12), [1, 2, 3])
    rows = [Row(p.ids + c.token_ids, len(p.ids)) for p, c in zip(prompts, done, strict=True)]
    scores = score_rows(policy.network, rows, temperature).logp
    for completion, line in zip(done, scores.tolist(), strict=True):
        assert line[len(line) - len(completion.logp) :] == pytest.approx(completion.logp, abs=1e-4)


def test_whole_distributions_need_a_teacher_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from seed_agent.train.rollouts import method_of

    row = replace(METHODS.get("opsd"), name="jsd-row", distill=Distill("jsd", 0.5, inputs="logits"))
    monkeypatch.setitem(METHODS._entries, "jsd-row", row)
    with pytest.raises(ConfigError, match="teacher=current"):
        method_of(small(Path("m"), method="jsd-row"))
    assert method_of(small(Path("m"), method="jsd-row", teacher="current")) == row
