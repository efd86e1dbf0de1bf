"""Fitting a model to replies: negative log-likelihood of the reply's tokens, prompts masked out."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seed_agent.backends.hf import HFPolicy
from seed_agent.backends.hf_model import Row
from seed_agent.losses import denominator_of, sft_loss
from seed_agent.policy import Chat
from seed_agent.train import checkpoint
from seed_agent.train.loop import Diverged
from seed_agent.train.samples import Sample, micro_batches
from seed_agent.train.scoring import reply_mask, score_rows
from seed_envs.seeding import Draws

Report = Callable[[dict[str, Any]], None]

_EVERY = 50
"""Steps between reports within an epoch."""


@dataclass(frozen=True)
class FitPlan:
    """How to fit. The defaults are SEED's stage 1.

    Source: SEED at 2cf2fad and its paper: 3 epochs, lr 5e-6 (vision 2e-6), batch 8, AdamW with
    betas 0.9 and 0.95, weight decay 0.01, warm-up 0.1 and cosine, gradients clipped at 1.
    """

    epochs: int = 3
    lr: float = 5e-6
    batch: int = 8
    """Rows per optimiser step."""
    warmup: float = 0.1
    """Share of the steps over which the rate rises linearly; it falls to 0 by a cosine after that."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    prompt_weight: float = 0.0
    """Of the prompts' mean loss beside the replies'. A model from nothing learns to copy names from prompts sooner."""
    micro_tokens: int = 16_384
    """Padded tokens per forward pass; the gradient does not depend on it."""
    seed: int = 0

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of ``step``, counted from 0, of ``steps``."""
        rise = round(self.warmup * steps)
        if step < rise:
            return self.lr * (step + 1) / rise
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1)))


@dataclass(frozen=True)
class Companions:
    """What a model folder needs beside the weights: tokenizer and, for a vision model, image processor."""

    policy: HFPolicy

    def save_pretrained(self, folder: Path) -> None:
        """Write them into ``folder``."""
        self.policy.tokenizer.save_pretrained(folder)
        if self.policy.network.vision is not None:
            self.policy.network.vision.processor.save_pretrained(folder)


def encode(policy: HFPolicy, chat: Chat, reply: str) -> Row:
    """Return prompt and reply as tokens: the chat by the model's template, the reply with its end token."""
    ids = policy.prompt(chat).ids or ()
    told: list[int] = policy.tokenizer(reply, add_special_tokens=False)["input_ids"]
    images = tuple(image for message in chat for image in message.images)
    return Row((*ids, *told, policy.tokenizer.eos_token_id), len(ids), images)


def fit(
    policy: HFPolicy,
    rows: Sequence[Row],
    plan: FitPlan,
    *,
    validation: Sequence[Row] = (),
    folder: Path | None = None,
    report: Report = lambda metrics: None,
) -> list[dict[str, Any]]:
    """Fit ``policy`` in place and return the metrics of every epoch.

    Args:
        policy: The model.
        rows: What it learns; the order is drawn anew for every epoch.
        plan: How.
        validation: Rows whose loss is measured after every epoch.
        folder: Where a checkpoint is written after every epoch and taken up again.
        report: Told the metrics of every epoch, and the loss now and then within one.

    Raises:
        Diverged: when the loss is no finite number; the last checkpoint is whole.
        DataError: when the checkpoint in ``folder`` is of another model.
    """
    samples = _samples(rows)
    steps_per_epoch = math.ceil(len(samples) / plan.batch)
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=plan.lr, betas=plan.betas, weight_decay=plan.weight_decay
    )
    history: list[dict[str, Any]] = []
    found = checkpoint.latest(folder) if folder is not None else None
    if found is not None:
        history = checkpoint.restore(found, policy.model, optimizer)["history"]
    for epoch in range(len(history), plan.epochs):
        order = Draws("fit", plan.seed, epoch).shuffled(samples)
        policy.model.train()
        losses = []
        for number in range(steps_per_epoch):
            rate = plan.rate(epoch * steps_per_epoch + number, plan.epochs * steps_per_epoch)
            batch = order[number * plan.batch : (number + 1) * plan.batch]
            losses.append(_step(policy, batch, optimizer, rate, plan))
            if number % _EVERY == _EVERY - 1:
                report({"epoch": epoch + number / steps_per_epoch, "loss": sum(losses[-_EVERY:]) / _EVERY})
        policy.model.eval()
        metrics: dict[str, Any] = {"epoch": epoch + 1, "loss": sum(losses) / len(losses)}
        if validation:
            metrics["validation_loss"] = mean_loss(policy, validation, plan.micro_tokens)
        history.append(metrics)
        if folder is not None:
            target = folder / f"iteration_{epoch + 1:06d}"
            checkpoint.save(target, policy.model, Companions(policy), {"history": history}, optimizer=optimizer)
            checkpoint.prune(folder, 1)
        report(metrics)
    return history


def mean_loss(policy: HFPolicy, rows: Sequence[Row], micro_tokens: int) -> float:
    """Return the mean loss in nats per reply token."""
    total, tokens = 0.0, 0
    with torch.no_grad():
        for batch in micro_batches(_samples(rows), micro_tokens):
            mask = reply_mask([sample.row for sample in batch], policy.network.device)
            logp = score_rows(policy.network, [sample.row for sample in batch], 1.0).logp
            total -= float(logp[mask].double().sum())
            tokens += int(mask.sum())
    return total / max(tokens, 1)


def _samples(rows: Iterable[Row]) -> list[Sample]:
    return [Sample(row, "", number, 0, 0.0, False, ()) for number, row in enumerate(rows)]


def _step(policy: HFPolicy, batch: Sequence[Sample], optimizer: Any, rate: float, plan: FitPlan) -> float:
    """Take one optimiser step and return the mean loss of its tokens."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    image = policy.network.vision.image_token_id if policy.network.vision is not None else None
    whole = {id(sample): _whole(sample.row, image) for sample in batch} if plan.prompt_weight else {}
    replies = denominator_of(reply_mask([sample.row for sample in batch]))
    prompts = denominator_of(reply_mask(list(whole.values()))) - replies if whole else replies
    total = 0.0
    for part in micro_batches(batch, plan.micro_tokens):
        rows = [whole.get(id(sample), sample.row) for sample in part]
        logp = score_rows(policy.network, rows, 1.0).logp
        scored = reply_mask(rows, logp.device)
        reply = scored & _last_columns([sample.reply for sample in part], scored.shape[1]).to(scored.device)
        loss, _ = sft_loss(logp, reply, denominator=replies)
        total += float(loss.detach())
        if whole:
            loss = loss + plan.prompt_weight * sft_loss(logp, scored & ~reply, denominator=prompts)[0]
        loss.backward()
    if not math.isfinite(total):
        raise Diverged(f"the loss of a fit is {total}", batch)
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), plan.grad_clip)
    optimizer.step()
    return total


def _whole(row: Row, image: int | None) -> Row:
    """Return the row with all behind its first token, or its last image, as what is to be learnt."""
    last = max((i for i, token in enumerate(row.ids[: row.prompt]) if token == image), default=0)
    return Row(row.ids, last + 1, row.images)


def _last_columns(lengths: Sequence[int], width: int) -> torch.Tensor:
    """Return [B, width] bool, true on the last so many columns of each row."""
    return torch.arange(width)[None, :] >= width - torch.tensor(lengths)[:, None]
