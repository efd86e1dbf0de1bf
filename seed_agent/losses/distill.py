"""Losses that learn from a teacher: the same policy, on the same tokens, with a skill in context.

l_T is the teacher's log-probability of a sampled token, l the policy's in the plain context, and
sg[.] lets no gradient through. Teachers and gates never receive any.
"""

import math

import torch
from torch import Tensor

from seed_agent.losses.policy import LOG_RATIO
from seed_agent.losses.reduction import Metrics, Mode, clean, measure, reduce
from seed_agent.methods import GateKind
from seed_envs.errors import UnknownName


def skill_shift(teacher_logp: Tensor, logp: Tensor) -> Tensor:
    """Return sg[l_T - l], [B, T] in nats: positive where the skill favours the token. Source: SEED eq. 3."""
    return teacher_logp.detach() - logp.detach()


def gate(delta: Tensor, *, kind: GateKind = "sigmoid", beta: float = 5.0) -> Tensor:
    """Return how much of the distillation term each token gets, [B, T] in [0, 1], detached.

    Args:
        delta: [B, T], see `skill_shift`.
        kind: ``sigmoid`` is sigma(beta delta), 1/2 at 0; ``hard`` is 1 where delta > 0, else 0; ``none`` is 1.
        beta: Per nat; 0 makes the sigmoid 1/2 everywhere (GRPO+OPSD as released).

    Source: SEED eq. 3 and SDAR, arXiv 2605.15155 (sigmoid, beta 5).

    Raises:
        UnknownName: when there is no such kind.
    """
    delta = delta.detach()
    if kind == "sigmoid":
        return torch.sigmoid(beta * delta)
    if kind == "hard":
        return (delta > 0).to(delta.dtype)
    if kind == "none":
        return torch.ones_like(delta)
    raise UnknownName("gate", kind, ("none", "sigmoid", "hard"))


def opd_loss(
    logp: Tensor,
    teacher_logp: Tensor,
    gates: Tensor,
    mask: Tensor,
    *,
    mode: Mode = "token_mean",
    denominator: Tensor | float | None = None,
) -> tuple[Tensor, Metrics]:
    """Return E[g (sg[l_T] - l)], whose gradient is -E[g dl]: a likelihood weighted by the gate.

    The value may be negative and is not what is optimised. Source: SEED eq. 4 and SDAR's loss; OPSD
    and GRPO+OPSD as released are the same with their gates.

    Args:
        logp: [B, T], with gradient.
        teacher_logp: [B, T].
        gates: [B, T], of `gate`.
        mask: [B, T] bool, sampled tokens of trajectories with a usable skill.
        mode: See `reduce`.
        denominator: See `reduce`.

    Returns:
        The loss; ``teacher_gap`` (mean of l_T - l), ``gate`` and ``gate_active`` (share above 1/2).
    """
    new, teacher, weight = clean(mask, logp, teacher_logp.detach(), gates.detach())
    gap = teacher - new
    metrics = measure(mask, teacher_gap=gap, gate=weight, gate_active=weight > 0.5)
    return reduce(weight * gap, mask, mode, denominator), metrics


def signed_opd_loss(
    logp: Tensor,
    delta: Tensor,
    mask: Tensor,
    *,
    mode: Mode = "token_mean",
    denominator: Tensor | float | None = None,
) -> tuple[Tensor, Metrics]:
    """Return -E[sg[delta] l]: tokens the teacher disfavours are pushed down.

    On tokens of the current policy its gradient is that of KL(policy || teacher). Source: the
    sampled-token form of OPSD, arXiv 2601.18734. ``delta`` is of `skill_shift`.
    """
    new, shift = clean(mask, logp, delta.detach())
    return reduce(-shift * new, mask, mode, denominator), measure(mask, teacher_gap=shift)


def skill_sd_loss(
    logp: Tensor,
    old_logp: Tensor,
    teacher_logp: Tensor,
    mask: Tensor,
    *,
    log_limit: float = LOG_RATIO,
    ratio_log_limit: float = 10.0,
    mode: Mode = "token_mean",
    denominator: Tensor | float | None = None,
) -> tuple[Tensor, Metrics]:
    """Return E[rho k3], k3 = exp(-u) - 1 + u with u = l - l_T, rho = exp(l - l_old); both have gradient.

    In expectation over the policy that sampled it is KL(policy || teacher), value and gradient.

    Source: Skill-SD, arXiv 2604.10674, limits as run in SDAR, arXiv 2605.15155 (weight 0.001).

    Args:
        logp: [B, T], with gradient.
        old_logp: [B, T], of the policy that sampled.
        teacher_logp: [B, T].
        mask: [B, T] bool, sampled tokens of trajectories with a usable skill.
        log_limit: Largest -u put into exp.
        ratio_log_limit: Largest l - l_old put into exp.
        mode: See `reduce`.
        denominator: See `reduce`.

    Returns:
        The loss; ``teacher_gap``, ``k3`` and ``ratio``.
    """
    new, old, teacher = clean(mask, logp, old_logp.detach(), teacher_logp.detach())
    gap = new - teacher
    k3 = torch.exp((-gap).clamp(max=log_limit)) - 1 + gap
    ratio = torch.exp((new - old).clamp(max=ratio_log_limit))
    return reduce(ratio * k3, mask, mode, denominator), measure(mask, teacher_gap=-gap, k3=k3, ratio=ratio)


def jsd_values(logits: Tensor, teacher_logits: Tensor, *, mixture: float = 0.5, temperature: float = 1.0) -> Tensor:
    """Return mixture KL(T || M) + (1 - mixture) KL(S || M), M = mixture T + (1 - mixture) S, over the vocabulary.

    Mixture 0 stands for KL(T || S) and 1 for KL(S || T), the limits up to scale.

    Source: generalised JSD of GKD, arXiv 2306.13649, as OPSD uses it, arXiv 2601.18734 (mixture 0.5).

    Args:
        logits: [..., V] of the policy S, with gradient; computed in float32 at least.
        teacher_logits: [..., V] of the teacher T.
        mixture: 0 to 1.
        temperature: Both logits are divided by it (1.1 in OPSD), above 0.

    Returns:
        [...], in nats, 0 or more.
    """
    student, teacher = (_log_softmax(both, temperature) for both in (logits, teacher_logits.detach()))
    if mixture == 0:
        return _kl(teacher, student)
    if mixture == 1:
        return _kl(student, teacher)
    mixed = torch.logaddexp(teacher + math.log(mixture), student + math.log1p(-mixture))
    return mixture * _kl(teacher, mixed) + (1 - mixture) * _kl(student, mixed)


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """Return log-probabilities in float32 at least, from -10,000 on: a token that is ruled out costs much, not inf."""
    scaled = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    return torch.log_softmax(scaled, dim=-1).clamp(min=-1e4)


def _kl(left: Tensor, right: Tensor) -> Tensor:
    """Return KL(left || right) of log-probabilities over the last dimension."""
    return (left.exp() * (left - right)).sum(dim=-1)


def jsd_loss(
    values: Tensor, mask: Tensor, *, mode: Mode = "token_mean", denominator: Tensor | float | None = None
) -> tuple[Tensor, Metrics]:
    """Return the mean of [B, T] divergences (`token_jsd` in chunks, or `jsd_values`), and ``jsd`` per token."""
    (kept,) = clean(mask, values)
    return reduce(kept, mask, mode, denominator), measure(mask, jsd=kept)
