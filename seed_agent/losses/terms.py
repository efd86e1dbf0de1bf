"""The kinds of distillation a method's row may name, behind one signature.

A kind is a function ``(scores, method, weight) -> Distilled`` registered in
`seed_agent.methods.DISTILL`; ``weight`` is the row's coefficient at this iteration. The trainer's
whole loss is ``policy_loss(..., out.advantages, ...) + out.weight * out.loss + beta * kl``.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seed_agent.losses.advantages import opid_advantage, rlsd_advantage
from seed_agent.losses.distill import gate, jsd_loss, opd_loss, signed_opd_loss, skill_sd_loss, skill_shift
from seed_agent.losses.logprobs import token_jsd
from seed_agent.losses.reduction import Metrics, Mode, reduce
from seed_agent.methods import DISTILL, Method
from seed_envs.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Scores:
    """What a kind may look at: one micro-batch of sampled tokens, [B, T], in nats."""

    logp: Tensor
    """Of the policy being trained, with gradient."""
    old_logp: Tensor
    """Of the policy that sampled."""
    teacher_logp: Tensor
    """Of the teacher, the skill in its context; anything where ``mask`` is false."""
    advantages: Tensor
    """[B] or [B, T]."""
    mask: Tensor
    """[B, T] bool: sampled tokens of trajectories with a usable skill."""
    iteration: int = 0
    """Counted from 0."""
    mode: Mode = "token_mean"
    denominator: Tensor | float | None = None
    """Of the distillation mask of the whole batch; see `reduce`."""
    logits: Tensor | None = None
    """[B, T, V], where the row's ``inputs`` are logits; with gradient."""
    teacher_logits: Tensor | None = None


class Distilled(NamedTuple):
    """What a kind gives: a loss, advantages for the policy loss, or both."""

    weight: float
    loss: Tensor
    """Before weighting; exactly 0 where the kind changes advantages only."""
    advantages: Tensor
    """[B] or [B, T]."""
    metrics: Metrics


def distill(scores: Scores, method: Method) -> Distilled:
    """Return the distillation of ``method``; without one, or at weight 0, nothing is changed.

    Raises:
        UnknownName: when the row names no registered kind.
    """
    weight = method.distill.weight(scores.iteration) if method.distill else 0.0
    if method.distill is None or weight == 0:
        return Distilled(0.0, _nothing(scores), scores.advantages, {})
    return DISTILL.get(method.distill.kind)(scores, method, weight)


def opd(scores: Scores, method: Method, weight: float) -> Distilled:
    """SEED and SDAR; OPSD and GRPO+OPSD as released: `opd_loss` under the row's gate."""
    delta = skill_shift(scores.teacher_logp, scores.logp)
    gates = gate(delta, kind=method.gate.kind, beta=method.gate.beta)
    loss, metrics = opd_loss(
        scores.logp, scores.teacher_logp, gates, scores.mask, mode=scores.mode, denominator=scores.denominator
    )
    return Distilled(weight, loss, scores.advantages, metrics)


def signed(scores: Scores, method: Method, weight: float) -> Distilled:
    """OPSD on sampled tokens with the sign kept: `signed_opd_loss`."""
    delta = skill_shift(scores.teacher_logp, scores.logp)
    loss, metrics = signed_opd_loss(scores.logp, delta, scores.mask, mode=scores.mode, denominator=scores.denominator)
    return Distilled(weight, loss, scores.advantages, metrics)


def jsd(scores: Scores, method: Method, weight: float) -> Distilled:
    """OPSD over the whole vocabulary: `token_jsd` at mixture 0.5.

    Raises:
        ConfigError: when the trainer was not told to score the whole vocabulary.
    """
    if scores.logits is None or scores.teacher_logits is None:
        raise ConfigError("distillation 'jsd' compares whole distributions; give its row Distill(inputs='logits')")
    values = token_jsd(scores.logits, scores.teacher_logits)
    loss, metrics = jsd_loss(values, scores.mask, mode=scores.mode, denominator=scores.denominator)
    return Distilled(weight, loss, scores.advantages, metrics)


def skill_sd(scores: Scores, method: Method, weight: float) -> Distilled:
    """Skill-SD: `skill_sd_loss`."""
    loss, metrics = skill_sd_loss(
        scores.logp,
        scores.old_logp,
        scores.teacher_logp,
        scores.mask,
        mode=scores.mode,
        denominator=scores.denominator,
    )
    return Distilled(weight, loss, scores.advantages, metrics)


def rlsd(scores: Scores, method: Method, weight: float) -> Distilled:
    """RLSD: `rlsd_advantage` with the weight as its mix; no loss of its own."""
    changed, metrics = rlsd_advantage(scores.advantages, scores.old_logp, scores.teacher_logp, scores.mask, mix=weight)
    return Distilled(weight, _nothing(scores), changed, metrics)


def opid(scores: Scores, method: Method, weight: float) -> Distilled:
    """OPID: `opid_advantage` with the weight as its coefficient; no loss of its own."""
    changed, metrics = opid_advantage(
        scores.advantages, scores.old_logp, scores.teacher_logp, scores.mask, coefficient=weight
    )
    return Distilled(weight, _nothing(scores), changed, metrics)


def _nothing(scores: Scores) -> Tensor:
    """Return exactly 0 with a graph, so that a batch without any signal can still be stepped through."""
    return reduce(scores.logp, torch.zeros_like(scores.mask))
