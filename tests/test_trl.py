"""Our GRPO against TRL's: the same tiny model, the same batch, the same loss and gradients.

    pip install trl==1.16.0

TRL's names of what is ours: ``loss_type`` grpo = sequence_mean, bnpo and dapo = token_mean, dr_grpo =
constant_length; ``scale_rewards="group"`` = std "sample" with eps 1e-4, "none" = "none"; ``epsilon``,
``epsilon_high`` = clip_low, clip_high; ``beta`` with ``use_bias_correction_kl=False`` = kl, estimator k3.
"""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from train_kit import FIXTURES, policy_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the warnings are TRL's own

torch, text_folder, vision_folder = FIXTURES
MODES = {"grpo": "sequence_mean", "bnpo": "token_mean", "dapo": "token_mean", "dr_grpo": "constant_length"}
PROMPTS = ("go to desk 1", "look", "take the lamp from the desk and switch it on", "examine shelf 2")
GROUP, LONGEST, LOW, HIGH, BETA = 4, 12, 0.2, 0.3, 0.04


class Graded:
    """Rewards that differ within most groups and tie in one; remembers what it gave and for what."""

    __name__ = "graded"

    def __init__(self) -> None:
        self.rewards: list[float] = []

    def __call__(self, completion_ids: list[list[int]], **_: Any) -> list[float]:
        tied = range(GROUP, 2 * GROUP)
        self.rewards = [1.0 if i in tied else float((7 * i) % 5) + 0.1 * len(c) for i, c in enumerate(completion_ids)]
        return self.rewards


def trl_trainer(folder: Path, tmp_path: Path, reward: Graded, **changes: Any) -> Any:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("needs trl: pip install trl==1.16.0")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    values = {
        "per_device_train_batch_size": GROUP * len(PROMPTS),
        "num_generations": GROUP,
        "max_completion_length": LONGEST,
        "epsilon": LOW,
        "epsilon_high": HIGH,
        "beta": BETA,
        "use_bias_correction_kl": False,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "output_dir": str(tmp_path),
        **changes,
    }
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        reward_funcs=reward,
        args=GRPOConfig(**values),
        train_dataset=Dataset.from_dict({"prompt": list(PROMPTS)}),
        processing_class=AutoTokenizer.from_pretrained(folder, padding_side="left"),
    )


def noisy(torch: Any, like: Any, seed: int) -> Any:
    """Log-probabilities some way off ``like``: far enough for ratios to be clipped on both sides."""
    return like + 0.4 * torch.randn(like.shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("loss_type", MODES)
@pytest.mark.parametrize("scale", ["group", "none"])
def test_loss_and_gradients_equal_those_of_trl(
    torch: Any, text_folder: Path, tmp_path: Path, loss_type: str, scale: str
) -> None:
    from seed_agent.backends.hf_model import Row
    from seed_agent.losses import group_advantage, kl_loss, policy_loss
    from seed_agent.train.scoring import align, reply_mask, score_rows

    reward = Graded()
    trainer = trl_trainer(text_folder, tmp_path, reward, loss_type=loss_type, scale_rewards=scale)
    trainer.model.eval()  # neither splits nor accumulates the batch, as nothing does here
    torch.manual_seed(3)
    batch = trainer._generate_and_score_completions([{"prompt": p} for p in PROMPTS for _ in range(GROUP)])
    lengths = [1 + (5 * i) % LONGEST for i in range(len(PROMPTS) * GROUP)]  # a random model never ends by itself
    batch["completion_mask"] *= torch.arange(LONGEST)[None] < torch.tensor(lengths)[:, None]
    batch["num_items_in_batch"] = batch["completion_mask"].sum()
    rows = [
        Row(tuple(p[m.bool()].tolist()) + tuple(c[:n].tolist()), int(m.sum()))
        for p, m, c, n in zip(
            *(batch[k] for k in ("prompt_ids", "prompt_mask", "completion_ids")), lengths, strict=True
        )
    ]
    policy = policy_of(text_folder)
    logp, mask = score_rows(policy.network, rows, 1.0).logp, reply_mask(rows)
    told = [line[-n:] for line, n in zip(logp.detach(), lengths, strict=True)]
    old = [noisy(torch, line, i) for i, line in enumerate(told)]
    ref = [noisy(torch, line, 100 + i) for i, line in enumerate(told)]

    # theirs: completions are flush left, ours flush right
    for key, lines in (("old_per_token_logps", old), ("ref_per_token_logps", ref)):
        batch[key] = torch.stack([torch.nn.functional.pad(line, (0, LONGEST - len(line))) for line in lines])
    theirs = trainer._compute_loss(trainer.model, batch)
    theirs.backward()

    # ours
    std = {"group": "sample", "none": "none"}[scale]
    groups = [i // GROUP for i in range(len(rows))]
    advantages, found = group_advantage(torch.tensor(reward.rewards), groups, std=std, eps=1e-4)  # type: ignore[arg-type]
    assert found["tied"] == 1 and torch.allclose(advantages, batch["advantages"], atol=1e-5)
    shared: dict[str, Any] = {"mode": MODES[loss_type]}
    if loss_type == "dr_grpo":
        shared["denominator"] = len(rows) * LONGEST
    placed = [align(lines, rows, like=logp.detach()) for lines in (old, ref)]
    loss, metrics = policy_loss(logp, placed[0], advantages, mask, clip_low=LOW, clip_high=HIGH, **shared)
    ours = loss + BETA * kl_loss(logp, placed[1], mask, **shared)[0]
    ours.backward()

    assert 0.1 < float(metrics["clip_fraction"]) < 0.9  # a batch on which the limits matter
    assert float(ours) == pytest.approx(float(theirs), rel=1e-5)
    expected = {name: p.grad for name, p in trainer.model.named_parameters()}
    for name, parameter in policy.model.named_parameters():
        size = float(expected[name].norm())
        assert float((parameter.grad - expected[name]).norm()) <= 1e-5 * size and size > 0, name
