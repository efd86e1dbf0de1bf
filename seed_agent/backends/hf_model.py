"""Batches of token sequences through a transformers model: sampling and log-probabilities.

Padding is on the left and changes nothing: positions and attention masks are given, not guessed.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from seed_agent.backends.hf_load import load
from seed_agent.backends.hf_vision import Grid, Vision
from seed_agent.policy import Pixels, Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A sequence of tokens: a prompt, with its images, and what follows it."""

    ids: tuple[int, ...]
    prompt: int
    """How many of ``ids`` are the prompt, at least 1."""
    images: tuple[Pixels, ...] = ()


class Writer(Protocol):
    """What takes the tokens sampled for one row."""

    def draw(self) -> float:
        """Return the row's next number in [0, 1)."""

    def add(self, token: int, logp: float) -> bool:
        """Take a token and return whether the row goes on."""


@dataclass(slots=True)
class _Batch:
    """Rows as tensors. B rows of T columns; positions are (B, T), for vision (3, B, T)."""

    inputs: dict[str, Any]
    ids: Any
    mask: Any
    positions: Any


class Network:
    """A transformers model as a function from token rows to logits.

    ``logprobs`` keeps the graph, so a trainer differentiates through the very computation that
    evaluation scores with; ``sample`` does not.
    """

    def __init__(self, model: Any, vision: Vision | None = None) -> None:
        """Take a model in memory and, if it sees, its image side."""
        self.model, self.vision = model, vision
        self.torch = load("torch")
        self._cache_type = load("transformers").DynamicCache
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        # transformers 5.24 renamed the argument; the old name warns there
        self._cache_name = "cache" if "cache" in self._accepts else "past_key_values"

    @property
    def device(self) -> Any:
        """Where the model's inputs go."""
        return self.model.get_input_embeddings().weight.device

    def logprobs(self, rows: Sequence[Row], temperature: float = 1.0) -> Any:
        """Return the log-probabilities of what follows the prompts, with gradients.

        Args:
            rows: At least one of which goes on after its prompt.
            temperature: Logits are divided by it, above 0.

        Returns:
            A float32 tensor of shape (rows, C) in nats, C tokens of the longest continuation;
            a row with c tokens has them in its last c columns, the others mean nothing. Logits
            exist for C + 1 positions only, never for the whole prompts.
        """
        width = max(len(row.ids) - row.prompt for row in rows)
        batch = self._batch(rows)
        logits = self._logits(batch, keep=width + 1)[:, :-1].float() / temperature
        chosen = logits.gather(-1, batch.ids[:, -width:, None])[..., 0]
        return chosen - logits.logsumexp(-1)

    def sample(self, rows: Sequence[Row], writers: Sequence[Writer], sampling: Sampling) -> None:
        """Continue every row, token by token, until its writer has enough.

        The log-probabilities given to the writers are those of the whole softmax at the sampling
        temperature (at 1 when it is 0): ``top_p`` limits what is drawn, not what is reported.
        """
        torch = self.torch
        with torch.inference_mode():
            batch = self._batch(rows)
            cache = self._cache_type(config=self.model.config)
            logits = self._logits(batch, keep=1, cache=cache)[:, -1]
            last = batch.positions[..., -1:]
            batch.positions = last if self.vision is None else last.amax(0, keepdim=True).expand(3, -1, -1)
            active = list(writers)
            while True:
                drawn = [writer.draw() for writer in active] if sampling.temperature else []
                tokens, logp = pick(torch, logits.float(), sampling, drawn)
                told = zip(active, tokens.tolist(), logp.tolist(), strict=True)
                going = [slot for slot, (writer, token, nats) in enumerate(told) if writer.add(token, nats)]
                if not going:
                    return
                if len(going) < len(active):  # finished rows leave the batch
                    kept = torch.tensor(going, device=tokens.device)
                    cache.batch_select_indices(kept)
                    tokens, batch.mask, batch.positions = tokens[kept], batch.mask[kept], batch.positions[..., kept, :]
                    active = [active[slot] for slot in going]
                batch.inputs = {"input_ids": tokens[:, None]}
                batch.mask = torch.cat([batch.mask, batch.mask.new_ones(len(active), 1)], dim=1)
                batch.positions = batch.positions + 1
                logits = self._logits(batch, keep=1, cache=cache)[:, -1]

    def _logits(self, batch: _Batch, *, keep: int, cache: Any = None) -> Any:
        """Return the logits of the last ``keep`` columns, (B, keep, vocabulary)."""
        given = {
            "attention_mask": batch.mask,
            "position_ids": batch.positions,
            "logits_to_keep": keep,
            "use_cache": cache is not None,
            self._cache_name: cache,
        }
        given = {key: value for key, value in given.items() if key in self._accepts}
        return self.model(**batch.inputs, **given).logits[:, -keep:]

    def _batch(self, rows: Sequence[Row]) -> _Batch:
        torch, device = self.torch, self.device
        length = max(len(row.ids) for row in rows)
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        mask = torch.zeros(len(rows), length, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, length - len(row.ids) :] = torch.tensor(row.ids)
            mask[i, length - len(row.ids) :] = 1
        if self.vision is None:
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
            inputs = {"input_ids": ids.to(device)}
        else:
            patches, grids = self._patches(rows, self.vision)
            positions = torch.zeros(3, len(rows), length, dtype=torch.long)
            for i, row in enumerate(rows):
                found = self.vision.positions(row.ids, row.prompt, grids[i])
                positions[:, i, length - len(row.ids) :] = torch.from_numpy(found)
            inputs = {"inputs_embeds": self._embed(rows, ids.to(device), patches, grids)}
        return _Batch(inputs, ids.to(device), mask.to(device), positions.to(device))

    def _patches(self, rows: Sequence[Row], vision: Vision) -> tuple[Any, list[list[Grid]]]:
        """Return the patches of all images of all rows, and each row's grids."""
        images = [image for row in rows for image in row.images]
        patches, grids = vision.patches(images) if images else (None, [])
        left = iter(grids)
        return patches, [[next(left) for _ in row.images] for row in rows]

    def _embed(self, rows: Sequence[Row], ids: Any, patches: Any, grids: Sequence[Sequence[Grid]]) -> Any:
        """Return embeddings with the images in place.

        Done here because the model would take an image token that it sampled itself for another
        image.
        """
        embedded = self.model.get_input_embeddings()(ids)
        if patches is None or self.vision is None:
            return embedded
        torch, length = self.torch, ids.shape[1]
        places = ids == self.vision.image_token_id
        for i, row in enumerate(rows):
            places[i, length - len(row.ids) + row.prompt :] = False
            places[i, : length - len(row.ids)] = False
        grid = torch.tensor([grid for row in grids for grid in row], device=ids.device)
        features = self.model.get_image_features(patches.to(ids.device), grid, return_dict=True).pooler_output
        return embedded.masked_scatter(places[..., None], torch.cat(list(features)).to(embedded.dtype))


def pick(torch: Any, logits: Any, sampling: Sampling, drawn: Sequence[float]) -> tuple[Any, Any]:
    """Choose a token per row.

    Args:
        torch: The module.
        logits: float32 of shape (rows, vocabulary).
        sampling: Temperature 0 takes the most probable token.
        drawn: A number in [0, 1) per row, where it falls in the cumulated probabilities decides.

    Returns:
        Tokens and their log-probabilities in nats, each of shape (rows,).
    """
    if sampling.temperature == 0:
        tokens = logits.argmax(-1)
    else:
        logits = logits / sampling.temperature
        weights = logits.softmax(-1).double()
        if sampling.top_p < 1:
            ordered, order = weights.sort(dim=-1, descending=True, stable=True)
            weights = weights.scatter(-1, order, ordered * (ordered.cumsum(-1) - ordered < sampling.top_p))
        cumulated = weights.cumsum(-1)
        points = torch.tensor(drawn, dtype=torch.float64, device=logits.device)[:, None] * cumulated[:, -1:]
        tokens = torch.searchsorted(cumulated, points, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    return tokens, logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(-1)
