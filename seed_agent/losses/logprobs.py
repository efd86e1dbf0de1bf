"""What a model gives each token: log-probability, entropy, divergence from a teacher; in chunks.

The vocabulary is large (150,000 entries), so [B, T, V] in float32 is never held: positions are
scored a chunk at a time and recomputed for the gradient. Logits are divided by the temperature
before the softmax; log-probabilities never are.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from seed_agent.losses.distill import jsd_values

CHUNK = 2**26
"""Logits per chunk unless told otherwise: 256 MiB in float32."""


class TokenScores(NamedTuple):
    """Scores of given tokens, both [B, T] in nats, 0 where the mask is false."""

    logp: Tensor
    entropy: Tensor | None


def align(states: Tensor, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pair what a model says at a position with the token that follows it.

    Args:
        states: [B, L, H or V], hidden states or logits at each position of ``ids``.
        ids: [B, L], prompt and reply as the model read them.
        mask: [B, L] bool, true on the sampled tokens themselves.

    Returns:
        ``states`` [B, L - 1, ...], targets [B, L - 1] and their mask [B, L - 1].
    """
    return states[:, :-1], ids[:, 1:], mask[:, 1:]


def token_logprobs(logits: Tensor, ids: Tensor, *, temperature: float = 1.0, chunk: int | None = None) -> Tensor:
    """Return log softmax(logits / temperature) of ``ids``, [B, T], in float32 at least.

    Args:
        logits: [B, T, V], that of a position predicting the token of the same index in ``ids`` (see `align`).
        ids: [B, T].
        temperature: That of sampling, above 0.
        chunk: Positions of a row scored at once; by default as many as `CHUNK` allows.

    Raises:
        ValueError: when the temperature is not above 0.
    """
    score = functools.partial(_score, temperature=_positive(temperature), entropy=False)
    return _in_chunks(lambda part, wanted: score(part, wanted)[0], chunk, logits, ids)


def token_entropy(logits: Tensor, *, temperature: float = 1.0, chunk: int | None = None) -> Tensor:
    """Return the entropy of softmax(logits / temperature), [B, T] in nats. Arguments as of `token_logprobs`."""
    score = functools.partial(_entropy, temperature=_positive(temperature))
    return _in_chunks(score, chunk, logits)


def token_jsd(
    logits: Tensor,
    teacher_logits: Tensor,
    *,
    mixture: float = 0.5,
    temperature: float = 1.0,
    chunk: int | None = None,
) -> Tensor:
    """Return `jsd_values`, [B, T], a chunk of positions at a time. Both logits are [B, T, V]."""
    values = functools.partial(jsd_values, mixture=mixture, temperature=_positive(temperature))
    return _in_chunks(values, chunk, logits, teacher_logits)


def head_logprobs(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    *,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    entropy: bool = False,
    entropy_graph: bool = True,
    chunk: int | None = None,
) -> TokenScores:
    """Return the scores of ``ids`` under softmax((hidden weight' + bias) / temperature), in float32 at least.

    Only tokens of the mask are computed. Logits exist for one chunk of tokens at a time, backward
    too; when everything fits into one chunk nothing is recomputed.

    Args:
        hidden: [B, T, H], the last hidden state of the position before each token (see `align`).
        weight: [V, H], of the output layer.
        ids: [B, T].
        bias: [V].
        mask: [B, T] bool; by default all tokens.
        temperature: That of sampling, above 0.
        entropy: Whether to return the entropy too.
        entropy_graph: Whether it can be differentiated; a mere measurement keeps no [B, T, V] for that.
        chunk: Tokens scored at once; by default as many as `CHUNK` allows.

    Raises:
        ValueError: when the temperature is not above 0.
    """
    project = functools.partial(_project, temperature=_positive(temperature), entropy=entropy, graph=entropy_graph)
    size = chunk or max(1, CHUNK // len(weight))
    used, tokens = (hidden.flatten(0, 1), ids.flatten()) if mask is None else (hidden[mask], ids[mask])
    states, wanted = torch.split(used, size), torch.split(tokens, size)
    several = len(states) > 1
    parts = [_run(project, several, s, weight, bias, w) for s, w in zip(states, wanted, strict=True)]
    found = [torch.cat(kind) for kind in zip(*parts, strict=True)]
    logp, *rest = found if mask is None else [kind.new_zeros(ids.shape).masked_scatter(mask, kind) for kind in found]
    return TokenScores(logp.view(ids.shape), rest[0].view(ids.shape) if entropy else None)


def _project(
    states: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, *, temperature: float, entropy: bool, graph: bool
) -> tuple[Tensor, ...]:
    logits = torch.nn.functional.linear(states, weight, bias)
    return _score(logits, ids, temperature=temperature, entropy=entropy, graph=graph)


def _score(logits: Tensor, ids: Tensor, *, temperature: float, entropy: bool, graph: bool = True) -> tuple[Tensor, ...]:
    """Return the log-probability of ``ids``, [...], and the entropy where asked for."""
    logp = _log_softmax(logits, temperature)
    chosen = logp.gather(-1, ids[..., None])[..., 0]
    return (chosen, _spread(logp if graph else logp.detach())) if entropy else (chosen,)


def _entropy(logits: Tensor, *, temperature: float) -> Tensor:
    return _spread(_log_softmax(logits, temperature))


def _spread(logp: Tensor) -> Tensor:
    """Return the entropy; entries of probability 0, -inf among them, count 0 and get no gradient."""
    p = logp.exp()
    return -(p * torch.where(p > 0, logp, 0.0)).sum(dim=-1)


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(wide if temperature == 1 else wide / temperature, dim=-1)


def _positive(temperature: float) -> float:
    if not temperature > 0:
        raise ValueError(f"temperature {temperature} cannot be used; expected above 0 (score greedy replies at 1)")
    return temperature


def _in_chunks(function: Callable[..., Tensor], chunk: int | None, *tensors: Tensor) -> Tensor:
    """Return a function of [B, T, ...] tensors, computed over pieces of T."""
    rows, _, vocabulary = tensors[0].shape
    width = chunk or max(1, CHUNK // max(1, rows * vocabulary))
    # split, not slices: the gradient of a slice is as large as the whole, one for every piece
    pieces = list(zip(*(torch.split(tensor, width, dim=1) for tensor in tensors), strict=True))
    return torch.cat([_run(function, len(pieces) > 1, *piece) for piece in pieces], dim=1)


def _run(function: Callable[..., Any], forget: bool, *arguments: Any) -> Any:
    """Call a function; where ``forget``, its inner results are computed again for the gradient."""
    if forget and torch.is_grad_enabled():
        return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
    return function(*arguments)
