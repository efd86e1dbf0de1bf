"""What an update descends: L = L_rl + lambda L_distill + beta KL - c H, of a micro-batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seed_agent.backends.hf_model import Network
from seed_agent.losses import (
    Metrics,
    Scores,
    denominator_of,
    distill,
    entropy_loss,
    kl_loss,
    policy_loss,
)
from seed_agent.methods import Method
from seed_agent.train.samples import Sample
from seed_agent.train.scoring import align, reply_logits, reply_mask, score_rows
from seed_agent.train.settings import Settings


@dataclass(frozen=True)
class Denominators:
    """What the losses of a whole mini-batch are divided by, so that its micro-batches add up."""

    policy: Tensor
    distill: Tensor

    @classmethod
    def of(cls, minibatch: Sequence[Sample], settings: Settings) -> "Denominators":
        """Count the tokens or rows of a mini-batch, all of them and those with a teacher."""
        mask = reply_mask([sample.row for sample in minibatch])
        taught = mask & torch.tensor([sample.teacher is not None for sample in minibatch])[:, None]
        return cls(denominator_of(mask, settings.reduction), denominator_of(taught, settings.reduction))


@dataclass(frozen=True)
class Objective:
    """A micro-batch's share of the loss of its mini-batch."""

    loss: Tensor
    shares: dict[str, float]
    """The terms before weighting: added over micro-batches they are those of the mini-batch."""
    metrics: dict[str, Metrics]
    """Means over tokens, by group of metrics."""


def objective(
    batch: Sequence[Sample],
    network: Network,
    method: Method,
    settings: Settings,
    totals: Denominators,
    iteration: int,
) -> Objective:
    """Score a micro-batch with gradients and return its loss.

    Args:
        batch: Samples with ``old`` and, as the settings need them, ``ref`` and ``teacher`` scores.
        network: The policy being trained.
        method: Its row decides which terms there are.
        settings: The constants.
        totals: Of the mini-batch the samples belong to.
        iteration: From 0; a method's coefficient may depend on it.
    """
    rows, mode = [sample.row for sample in batch], settings.reduction
    scored = score_rows(network, rows, settings.temperature, entropy=True, entropy_graph=settings.entropy > 0)
    logp, mask = scored.logp, reply_mask(rows, network.device)

    def stored(key: str) -> Tensor:
        return align([sample.scores.get(key, ()) for sample in batch], rows, like=logp.detach())

    old, advantages = stored("old"), _advantages(batch, logp.detach())
    has_teacher = torch.tensor([sample.teacher is not None for sample in batch], device=mask.device)
    taught = mask & has_teacher[:, None]
    logits = _both_logits(batch, network, method, settings)
    out = distill(
        Scores(logp, old, stored("teacher"), advantages, taught, iteration, mode, totals.distill, *logits), method
    )
    loss, shares, found = out.weight * out.loss, {}, {}
    if out.metrics:
        shares["opd/loss"], found["opd"] = float(out.loss.detach()), out.metrics
    shared: dict[str, Any] = {"mode": mode, "denominator": totals.policy}
    policy: Metrics = {}
    if method.rl is not None:
        clips: dict[str, Any] = {name: getattr(settings, name) for name in ("clip_low", "clip_high", "dual_clip")}
        term, policy = policy_loss(logp, old, out.advantages, mask, **clips, **shared)
        loss, shares["rl/loss"] = loss + term, float(term.detach())
    if settings.kl:
        term, metrics = kl_loss(logp, stored("ref"), mask, **shared)
        loss, policy = loss + settings.kl * term, policy | metrics
    assert scored.entropy is not None
    term, metrics = entropy_loss(scored.entropy, mask, **shared)
    if settings.entropy:
        loss = loss + settings.entropy * term
    found["rl"] = policy | metrics
    return Objective(loss, {"loss": float(loss.detach()), **shares}, found)


def _advantages(batch: Sequence[Sample], like: Tensor) -> Tensor:
    """Return one advantage per row, [B]; [B, T] where the turns of an episode have their own."""
    if not any(sample.turn_advantages for sample in batch):
        return torch.tensor([sample.advantage for sample in batch], dtype=like.dtype, device=like.device)
    per_token = [
        [value for value, (start, end) in turns for _ in range(start, end)]
        for turns in (
            zip(sample.turn_advantages or (sample.advantage,), sample.row.replies, strict=True) for sample in batch
        )
    ]
    return align(per_token, [sample.row for sample in batch], like=like)


def _both_logits(
    batch: Sequence[Sample], network: Network, method: Method, settings: Settings
) -> tuple[Tensor | None, Tensor | None]:
    """Return the policy's and the teacher's logits where the method compares whole distributions."""
    if method.distill is None or method.distill.inputs != "logits":
        return None, None
    rows = [sample.row for sample in batch]
    with torch.no_grad():
        teacher = reply_logits(network, [s.teacher or s.row for s in batch], settings.temperature)
    return reply_logits(network, rows, settings.temperature), teacher
