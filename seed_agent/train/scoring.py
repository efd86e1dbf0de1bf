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
    """Return [B, T] bool, true on the reply's tokens: the last columns of each row."""
    lengths = torch.tensor([len(row.ids) - row.prompt for row in rows], device=device)
    width = int(lengths.max())
    return torch.arange(width, device=device)[None, :] >= width - lengths[:, None]


def align(values: Sequence[Any], width: int, *, like: Tensor) -> Tensor:
    """Return 1-d tensors as [B, T], each in its last columns, 0 elsewhere."""
    out = like.new_zeros(len(values), width)
    for i, value in enumerate(values):
        if len(value):
            out[i, width - len(value) :] = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    return out


def score_rows(network: Network, rows: Sequence[Row], temperature: float, *, entropy: bool = False) -> TokenScores:
    """Return log-probabilities and, if asked, entropies of the replies, [B, T], with gradients.

    Logits exist for the replies' positions only, and in float32 only for a chunk of them.
    """
    mask = reply_mask(rows, network.device)
    width = mask.shape[1]
    batch = network._batch(rows)
    ids = batch.ids[:, -width:]
    head = network.model.get_output_embeddings()
    config = network.model.config.get_text_config()
    if any(getattr(config, name, None) not in (None, 1, 1.0) for name in _SHAPED):
        logits = network._logits(batch, keep=width + 1)[:, :-1]
        found = token_entropy(logits, temperature=temperature) if entropy else None
        return TokenScores(token_logprobs(logits, ids, temperature=temperature), found)
    states = network.model.base_model(
        **batch.inputs, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
    ).last_hidden_state[:, -(width + 1) : -1]
    return head_logprobs(
        states, head.weight, ids, bias=getattr(head, "bias", None), mask=mask, temperature=temperature, entropy=entropy
    )


def reply_logits(network: Network, rows: Sequence[Row], temperature: float) -> Tensor:
    """Return the logits over ``temperature`` that predict the replies' tokens, [B, T, V], with gradients."""
    width = max(len(row.ids) - row.prompt for row in rows)
    logits: Tensor = network._logits(network._batch(rows), keep=width + 1)[:, :-1]
    return logits / temperature


def score_samples(
    network: Network, samples: Sequence[Sample], key: str, *, temperature: float, budget: int, teacher: bool = False
) -> None:
    """Store the log-probabilities of every sample under ``network`` in ``scores[key]``, without graph."""
    with torch.no_grad():
        for batch in micro_batches(samples, budget, teacher=teacher):
            rows = [sample.teacher if teacher and sample.teacher else sample.row for sample in batch]
            logp = score_rows(network, rows, temperature).logp
            for sample, line in zip(batch, logp, strict=True):
                sample.scores[key] = line[len(line) - sample.reply :].clone()
