"""From values per token to one number, the same however a batch is cut into micro-batches.

Conventions of every function of this package: log-probabilities are in nats, [B, T], float32 or
float64; masks are bool, [B, T], true on the tokens that count. A row is a sequence: one sample of
the trainer. What a mask leaves out reaches neither value nor gradient, whatever it holds.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor

from seed_envs.errors import ConfigError, UnknownName

Mode = Literal["token_mean", "sequence_mean", "sequence_sum", "constant_length"]
MODES: tuple[Mode, ...] = ("token_mean", "sequence_mean", "sequence_sum", "constant_length")

Metrics = dict[str, Tensor]
"""0-d detached tensors: ``tokens`` is a count, every other one a mean over that many tokens."""


def denominator_of(mask: Tensor, mode: Mode = "token_mean", *, length: int | None = None) -> Tensor:
    """Return what a mode divides by for a whole batch, 0-d int64; shares of several devices add up.

    Args:
        mask: [B, T] bool.
        mode: ``token_mean`` counts tokens, ``sequence_mean`` and ``sequence_sum`` count rows that
            have any, ``constant_length`` counts those times ``length``.
        length: The constant of ``constant_length``, e.g. the longest reply allowed.

    Raises:
        UnknownName: when there is no such mode.
        ConfigError: when ``constant_length`` is given no length.
    """
    if mode not in MODES:
        raise UnknownName("reduction", mode, MODES)
    if mode == "token_mean":
        return mask.sum()
    rows = mask.any(dim=-1).sum()
    if mode != "constant_length":
        return rows
    if length is None or length < 1:
        raise ConfigError(f"constant_length divides by rows times a length, got length={length}; expected 1 or more")
    return rows * length


def reduce(
    values: Tensor, mask: Tensor, mode: Mode = "token_mean", denominator: Tensor | float | None = None
) -> Tensor:
    """Return the sum of a batch's share over ``denominator``, a 0-d tensor with a graph.

    With the denominator of the whole batch, the results of its micro-batches add up to the whole
    batch's, and so do their gradients; rows must stay whole. An empty mask gives exactly 0.

    Args:
        values: [B, T].
        mask: [B, T] bool.
        mode: ``token_mean``, ``sequence_sum`` and ``constant_length`` sum tokens (verl's token-mean,
            seq-mean-token-sum and, with the padded width as denominator, seq-mean-token-sum-norm);
            ``sequence_mean`` sums the rows' means (verl's seq-mean-token-mean).
        denominator: By default that of ``mask`` itself.

    Raises:
        UnknownName: when there is no such mode.
        ConfigError: when ``constant_length`` is given no denominator.
    """
    if denominator is None or mode not in MODES:
        denominator = denominator_of(mask, mode)
    (kept,) = clean(mask, values)
    if mode == "sequence_mean":
        kept = kept.sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)
    divisor = torch.as_tensor(denominator, dtype=kept.dtype, device=kept.device)
    return kept.sum() / torch.where(divisor == 0, torch.ones_like(divisor), divisor)


def clean(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors with 0 where ``mask`` is false, so that even NaN there does no harm.

    Raises:
        ValueError: when a shape differs from the mask's; nothing is broadcast silently.
    """
    for tensor in tensors:
        if tensor.shape != mask.shape:
            raise ValueError(f"expected the mask's shape {tuple(mask.shape)}, got {tuple(tensor.shape)}")
    return tuple(torch.where(mask, tensor, 0.0) for tensor in tensors)


def per_token(advantages: Tensor, mask: Tensor) -> Tensor:
    """Return advantages as [B, T]; one per row, [B], is given to each of its tokens."""
    return advantages[:, None].expand(mask.shape) if advantages.dim() == 1 else advantages


def measure(mask: Tensor, **values: Tensor) -> Metrics:
    """Return ``tokens`` and the mean of each [B, T] over them, detached; 0 where there is none."""
    tokens = mask.sum()
    means = {name: clean(mask, value.detach())[0].sum() / tokens.clamp(min=1) for name, value in values.items()}
    return {"tokens": tokens, **means}


def merge_metrics(parts: Iterable[Mapping[str, Tensor | float]]) -> dict[str, float]:
    """Return the metrics of a whole batch from those of its micro-batches (of one loss).

    Without a single token only ``tokens`` is left: a mean over nothing is absent, not 0.
    """
    tokens, sums = 0.0, dict[str, float]()
    for part in parts:
        weight = float(part.get("tokens", 0.0))
        tokens += weight
        for name in sorted(part):
            if name != "tokens" and weight:
                sums[name] = sums.get(name, 0.0) + weight * float(part[name])
    return {"tokens": tokens, **{name: value / tokens for name, value in sums.items()}}
