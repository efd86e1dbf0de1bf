"""Losses on sampled tokens without a teacher: clipped policy gradient, KL, entropy, likelihood."""

from typing import Literal

import torch
from torch import Tensor

from seed_agent.losses.reduction import Metrics, Mode, clean, measure, per_token, reduce
from seed_envs.errors import UnknownName

Estimator = Literal["k1", "abs", "k2", "k3"]
ESTIMATORS: tuple[Estimator, ...] = ("k1", "abs", "k2", "k3")

LOG_RATIO = 20.0
"""Log-ratios are cut to +-20 before exp, in float32 far from overflow. Source: verl."""


def policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    mode: Mode = "token_mean",
    denominator: Tensor | float | None = None,
) -> tuple[Tensor, Metrics]:
    """Return -E[min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)] with r = exp(logp - old_logp).

    Source: SEED eq. of L_rl (method of PPO, arXiv 1707.06347); asymmetric clipping: DAPO, arXiv
    2503.14476; dual clip: arXiv 1912.09729, 3.0 in the released code.

    Args:
        logp: [B, T], with gradient.
        old_logp: [B, T], of the weights the iteration started from.
        advantages: [B] or [B, T].
        mask: [B, T] bool, sampled tokens.
        clip_low: How far below 1 the ratio counts.
        clip_high: How far above 1 it counts.
        dual_clip: Where A < 0 the token's loss is at most ``dual_clip`` |A|; above 1, None for no bound.
        mode: See `reduce`.
        denominator: See `reduce`.

    Returns:
        The loss; ``ratio``, ``old_kl`` (mean of old_logp - logp), ``clip_fraction`` (tokens without
        gradient by clipping) and ``dual_clip_fraction``.
    """
    new, old, gain = clean(mask, logp, old_logp.detach(), per_token(advantages, mask).detach())
    ratio = torch.exp((new - old).clamp(-LOG_RATIO, LOG_RATIO))
    plain, clipped = -gain * ratio, -gain * ratio.clamp(1 - clip_low, 1 + clip_high)
    losses = torch.maximum(plain, clipped)
    bounded = torch.zeros_like(mask)
    if dual_clip is not None:
        bound = -gain * dual_clip
        bounded = (gain < 0) & (losses > bound)
        losses = torch.where(gain < 0, torch.minimum(bound, losses), losses)
    metrics = measure(mask, ratio=ratio, old_kl=old - new, clip_fraction=clipped > plain, dual_clip_fraction=bounded)
    return reduce(losses, mask, mode, denominator), metrics


def kl_values(logp: Tensor, ref_logp: Tensor, *, estimator: Estimator = "k3", limit: float = 10.0) -> Tensor:
    """Return an estimate of KL(policy || reference) per sampled token, with gradient in ``logp``.

    With d = ref_logp - logp: ``k1`` is -d, ``abs`` |d|, ``k2`` d^2 / 2 and ``k3`` exp(d) - d - 1, cut
    to +-``limit`` as in the released code (no gradient beyond).

    Source: SEED section 1.1 (k3); http://joschu.net/blog/kl-approx.html; verl's names are kl, abs,
    mse and low_var_kl.

    Raises:
        UnknownName: when there is no such estimator.
    """
    difference = ref_logp.detach() - logp
    if estimator == "k1":
        return -difference
    if estimator == "abs":
        return difference.abs()
    if estimator == "k2":
        return 0.5 * difference.square()
    if estimator == "k3":
        difference = difference.clamp(-LOG_RATIO, LOG_RATIO)
        return (torch.exp(difference) - difference - 1).clamp(-limit, limit)
    raise UnknownName("KL estimator", estimator, ESTIMATORS)


def kl_loss(
    logp: Tensor,
    ref_logp: Tensor,
    mask: Tensor,
    *,
    estimator: Estimator = "k3",
    limit: float = 10.0,
    mode: Mode = "token_mean",
    denominator: Tensor | float | None = None,
) -> tuple[Tensor, Metrics]:
    """Return the mean of `kl_values` as a loss, and ``kl``, its mean per token."""
    new, reference = clean(mask, logp, ref_logp)
    values = kl_values(new, reference, estimator=estimator, limit=limit)
    return reduce(values, mask, mode, denominator), measure(mask, kl=values)


def entropy_loss(
    entropy: Tensor, mask: Tensor, *, mode: Mode = "token_mean", denominator: Tensor | float | None = None
) -> tuple[Tensor, Metrics]:
    """Return minus the mean of [B, T] entropies in nats (`token_entropy`): adding it raises entropy.

    The released code adds 0.001 of it, 0 for search (SEED section 1.2).
    """
    (values,) = clean(mask, entropy)
    return -reduce(values, mask, mode, denominator), measure(mask, entropy=values)


def sft_loss(
    logp: Tensor, mask: Tensor, *, mode: Mode = "token_mean", denominator: Tensor | float | None = None
) -> tuple[Tensor, Metrics]:
    """Return the negative log-likelihood of the response tokens, and ``nll``, its mean per token.

    Source: SEED stage 1 (method section 1.5): NLL on response tokens only.
    """
    (values,) = clean(mask, -logp)
    return reduce(values, mask, mode, denominator), measure(mask, nll=values)
