"""Advantages: of a trajectory within its group, and how a teacher re-weighs or shifts them per token."""

from collections.abc import Hashable, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from seed_agent.losses.reduction import Metrics, clean, measure, per_token

Stats = Literal["trajectory", "first_row", "step_rows"]
Std = Literal["population", "sample", "none"]
Singleton = Literal["zero", "raw"]
Ids: TypeAlias = Tensor | Sequence[Hashable]


def group_advantage(
    returns: Tensor,
    groups: Ids,
    trajectories: Ids | None = None,
    *,
    mask: Tensor | None = None,
    stats: Stats = "trajectory",
    std: Std = "population",
    eps: float = 1e-6,
    singleton: Singleton = "zero",
) -> tuple[Tensor, dict[str, float]]:
    """Return A = (R - mean) / (std + eps) of every row within its group, and what was found.

    Mean and std are taken in float64 over sorted values, so neither the order of rows nor a
    cancellation can be seen in the result. A group whose values all tie gets exactly 0.

    Source: SEED section 4 (population std over trajectories); the released code is
    ``stats="step_rows", std="sample", singleton="raw"``, and with one value per trajectory
    ``stats="first_row"``. GRPO is arXiv 2402.03300; ``std="none"`` is A = R - mean.

    Args:
        returns: [B], the return (or penalised score) of each row.
        groups: [B] ids; rows of one id are a group, wherever they stand.
        trajectories: [B] ids within the group, one per episode; by default every row is its own.
        mask: [B] bool, false on rejected rows: they get 0 and their siblings do not notice them.
        stats: What mean and std are of. ``trajectory``: one value per trajectory, the mean of its
            rows, all of which get its advantage. ``first_row``: one value, that of the first row,
            while each row keeps its own score. ``step_rows``: every row.
        std: ``population`` divides by n, ``sample`` by n - 1, ``none`` does not scale.
        eps: Added to the std.
        singleton: A group of one value: ``zero`` gives 0, ``raw`` takes mean 0 and std 1.

    Returns:
        [B] in the dtype of ``returns``, without graph; and counts: ``groups`` with any row left,
        ``tied`` ones among them (singletons included), ``singletons``, ``rejected`` rows.

    Raises:
        ValueError: when ids or mask are not one per row.
    """
    values = returns.detach().to("cpu", torch.float64)
    kept = [True] * len(values) if mask is None else mask.tolist()
    names = list(range(len(values))) if trajectories is None else _list(trajectories)
    if not len(values) == len(kept) == len(names) == len(_list(groups)):
        raise ValueError("expected one group, trajectory and mask value per row")
    members = _members(_list(groups), kept)
    advantages = torch.zeros_like(values)
    found = {"groups": len(members), "tied": 0, "singletons": 0, "rejected": kept.count(False)}
    for rows in members:
        scores, sample = _scores(values[rows], [names[row] for row in rows], stats)
        tied, single = bool(sample[0] == sample[-1]), len(sample) == 1
        found["tied"] += tied
        found["singletons"] += single
        if single and singleton == "raw":
            advantages[rows] = scores if std == "none" else scores / (1 + eps)
        elif std == "none":
            advantages[rows] = scores - _mean(sample)
        elif not tied:
            advantages[rows] = (scores - _mean(sample)) / (sample.std(correction=int(std == "sample")) + eps)
    return advantages.to(returns), {name: float(count) for name, count in found.items()}


def _list(ids: Ids) -> list[Hashable]:
    return list(ids.tolist() if isinstance(ids, Tensor) else ids)


def _members(groups: Sequence[Hashable], kept: Sequence[bool]) -> list[list[int]]:
    """Return the rows of each group that has any left."""
    members: dict[Hashable, list[int]] = {}
    for row, (group, keep) in enumerate(zip(groups, kept, strict=True)):
        if keep:
            members.setdefault(group, []).append(row)
    return list(members.values())


def _scores(scores: Tensor, names: Sequence[Hashable], stats: Stats) -> tuple[Tensor, Tensor]:
    """Return the score of each row of a group and, sorted, the values that mean and std are of."""
    if stats == "step_rows":
        return scores, scores.sort().values
    own: dict[Hashable, list[int]] = {}
    for row, name in enumerate(names):
        own.setdefault(name, []).append(row)
    if stats == "trajectory":
        for rows in own.values():
            scores[rows] = _mean(scores[rows].sort().values)
    return scores, scores[[rows[0] for rows in own.values()]].sort().values


def _mean(sample: Tensor) -> Tensor:
    """Return the mean of sorted values; of equal ones exactly their value."""
    return sample[0] + (sample - sample[0]).mean()


def rlsd_advantage(
    advantages: Tensor,
    old_logp: Tensor,
    teacher_logp: Tensor,
    mask: Tensor,
    *,
    mix: float = 0.5,
    low: float = 0.8,
    high: float = 1.2,
) -> tuple[Tensor, Metrics]:
    """Return A_t = A [(1 - mix) + mix clip(exp(sign(A) (l_teacher - l_old)), low, high)], [B, T].

    The reward keeps the direction, the teacher sets the magnitude. ``mix`` falls from 0.5 to 0 over
    the first 100 iterations: `seed_agent.methods.Distill.weight`.

    Source: RLSD, arXiv 2604.03128, constants as run in SDAR, arXiv 2605.15155.

    Args:
        advantages: [B] or [B, T].
        old_logp: [B, T], of the policy that sampled.
        teacher_logp: [B, T], of the same policy and tokens, with the skill in context.
        mask: [B, T] bool; elsewhere A is left as it is.
        mix: Share of the teacher, 0 to 1.
        low: Least weight of a token.
        high: Largest weight of a token.
    """
    spread = per_token(advantages, mask).detach()
    shift, signs = clean(mask, (teacher_logp - old_logp).detach(), spread.sign())
    ratio = torch.exp(signs * shift)
    weight = 1 + mix * (ratio.clamp(low, high) - 1)  # exactly 1 where the mask is false or the shift 0
    clipped = (ratio < low) | (ratio > high)
    return spread * weight, measure(mask, weight=weight, weight_clipped=clipped)


def opid_advantage(
    advantages: Tensor, old_logp: Tensor, teacher_logp: Tensor, mask: Tensor, *, coefficient: float = 0.001
) -> tuple[Tensor, Metrics]:
    """Return A_t = A + coefficient (l_teacher - l_old), unclipped, [B, T].

    At the weights that sampled, the added part has the gradient of coefficient KL(policy || teacher).

    Source: OPID, arXiv 2606.26790. Arguments as of `rlsd_advantage`.
    """
    spread = per_token(advantages, mask).detach()
    (shift,) = clean(mask, (teacher_logp - old_logp).detach())
    return spread + coefficient * shift, measure(mask, teacher_gap=shift)
