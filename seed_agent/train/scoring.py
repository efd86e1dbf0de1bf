"""Log-probabilities and entropies of replies, from hidden states, without the whole logits."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seed_agent.backends.hf_model import Network, Row
from seed_agent.losses import TokenScores, head_logprobs, token_entropy, token_logprobs
from seed_agent.train.samples import Sample, micro_batches

_SHAPED = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of models whose logits are not the output layer's product alone."""


def reply_mask(rows: Sequence[Row], device: Any = "cpu") -> Tensor:
    """Return [B, T] bool, true on the replies' tokens: the last columns of each row, of an episode's some of them."""
    lengths = torch.tensor([len(row.ids) - row.prompt for row in rows], device=device)
    width = int(lengths.max())
    mask = torch.arange(width, device=device)[None, :] >= width - lengths[:, None]
    for i, row in enumerate(rows):
        if row.spans:
            mask[i] = False
            for columns in columns_of(row, width):
                mask[i, columns] = True
    return mask


def columns_of(row: Row, width: int) -> list[slice]:
    """Return where the replies of a row stand among the last ``width`` columns of a batch, oldest first."""
    shift = width - len(row.ids)
    return [slice(start + shift, end + shift) for start, end in row.replies]


def align(values: Sequence[Any], rows: Sequence[Row], *, like: Tensor) -> Tensor:
    """Return 1-d values of replies' tokens in the shape of ``like``, [B, T], where they stand; 0 elsewhere."""
    out = torch.zeros_like(like)
    for i, (value, row) in enumerate(zip(values, rows, strict=True)):
        if len(value):
            columns = columns_of(row, out.shape[1])
            told = torch.as_tensor(value, dtype=like.dtype, device=like.device)
            for place, part in zip(columns, told.split([c.stop - c.start for c in columns]), strict=True):
                out[i, place] = part
    return out


def score_rows(
    network: Network, rows: Sequence[Row], temperature: float, *, entropy: bool = False, entropy_graph: bool = True
) -> TokenScores:
    """Return log-probabilities and, if asked, entropies of the replies, [B, T], with gradients.

    Entropies have none where ``entropy_graph`` is false. Logits exist for the replies' positions only,
    and in float32 only for a chunk of them.
    """
    mask = reply_mask(rows, network.device)
    config = network.model.config.get_text_config()
    if any(getattr(config, name, None) not in (None, 1, 1.0) for name in _SHAPED):
        width = mask.shape[1]
        logits, ids = network.logits(rows, width + 1)[:, :-1], network.last(rows, width)
        measured = logits if entropy_graph else logits.detach()
        found = token_entropy(measured, temperature=temperature) if entropy else None
        return TokenScores(token_logprobs(logits, ids, temperature=temperature), found)
    head = network.model.get_output_embeddings()
    states, ids = network.states(rows)
    bias = getattr(head, "bias", None)
    how: dict[str, Any] = {"temperature": temperature, "entropy": entropy, "entropy_graph": entropy_graph}
    scores = head_logprobs(states[None], head.weight, ids[None], bias=bias, **how)
    return TokenScores(*(None if found is None else _spread(found[0], mask) for found in scores))


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """Return values of tokens end to end as [B, T], 0 where the mask is false."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)


def reply_logits(network: Network, rows: Sequence[Row], temperature: float) -> Tensor:
    """Return the logits over ``temperature`` that predict the replies' tokens, [B, T, V], with gradients."""
    width = max(len(row.ids) - row.prompt for row in rows)
    logits: Tensor = network.logits(rows, width + 1)[:, :-1]
    return logits / temperature


def score_samples(
    network: Network, samples: Sequence[Sample], key: str, *, temperature: float, budget: int, teacher: bool = False
) -> None:
    """Store the log-probabilities of every sample under ``network`` in ``scores[key]``, without graph."""
    with torch.no_grad():
        for batch in micro_batches(samples, budget, teacher=teacher):
            rows = [sample.teacher if teacher and sample.teacher else sample.row for sample in batch]
            logp = score_rows(network, rows, temperature).logp
            for sample, row, line in zip(batch, rows, logp, strict=True):
                sample.scores[key] = torch.cat([line[columns] for columns in columns_of(row, len(line))])
