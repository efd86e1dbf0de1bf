"""Batches of token sequences through a transformers model: sampling and log-probabilities.

Where rows are padded, padding is on the left and changes nothing: positions and attention masks are
given, not guessed. Architectures known to `hf_decoder` are computed there, without padding.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from seed_agent.backends.hf_decoder import Decoder, decoder_of
from seed_agent.backends.hf_load import load
from seed_agent.backends.hf_vision import Vision
from seed_agent.policy import Pixels, Prompt, Sampling, Spans


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A sequence of tokens: a prompt, with its images, and what follows it."""

    ids: tuple[int, ...]
    prompt: int
    """How many of ``ids`` are the prompt, at least 1; in a row of a whole episode, its first one."""
    images: tuple[Pixels, ...] = ()
    spans: Spans = ()
    """Where replies stand; () for one, behind the prompt. What they hold is text, and those from
    ``prompt`` on are scored."""

    @property
    def replies(self) -> Spans:
        """The spans that are scored."""
        return tuple(s for s in self.spans if s[0] >= self.prompt) or ((self.prompt, len(self.ids)),)


def join(prompt: Prompt, reply: tuple[int, ...], *, episode: bool = False) -> Row:
    """Return a prompt and the reply to it as one row; the ids are never made from text again.

    Args:
        prompt: With ids.
        reply: The token ids that were sampled, () before there are any.
        episode: Whether earlier replies of the conversation are scored too.

    Raises:
        ValueError: when the prompt has no ids.
    """
    if prompt.ids is None:
        raise ValueError("a row needs token ids; the policy rendered none")
    start = len(prompt.ids)
    if not prompt.replies:
        return Row(prompt.ids + reply, start, prompt.images)
    spans = (*prompt.replies, (start, start + len(reply)))
    return Row(prompt.ids + reply, spans[0][0] if episode else start, prompt.images, spans)


class Writer(Protocol):
    """What takes the tokens sampled for one row."""

    def draw(self) -> float:
        """Return the row's next number in [0, 1)."""

    def add(self, token: int, logp: float) -> bool:
        """Take a token and return whether the row goes on."""


_WORTH = 0.75
"""Finished rows are taken out of a batch where so many are left: taking them out copies the cache."""


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
        self.decoder = decoder_of(model)
        """Computes the model's layers faster than the model, None where the model must do so itself."""

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
        logits = self.logits(rows, width + 1)[:, :-1].float() / temperature
        chosen = logits.gather(-1, self.last(rows, width)[..., None])[..., 0]
        return chosen - logits.logsumexp(-1)

    def logits(self, rows: Sequence[Row], keep: int) -> Any:
        """Return the logits at the last ``keep`` tokens of each row, (rows, keep, vocabulary), with gradients.

        Those at places before a row's first token mean nothing.
        """
        if self.decoder is None:
            return self._forward(self._batch(rows), keep=keep)
        wanted = [min(keep, len(row.ids)) for row in rows]
        states = self._states(self.decoder, rows, wanted)
        parts = [self.torch.nn.functional.pad(part, (0, 0, keep - len(part), 0)) for part in states.split(wanted)]
        return self.model.get_output_embeddings()(self.torch.stack(parts))

    def states(self, rows: Sequence[Row]) -> tuple[Any, Any]:
        """Return the last hidden states that predict the tokens of the replies, and these tokens.

        Returns:
            (M, hidden), with gradients, and (M,): the scored tokens of all rows end to end.
        """
        torch, spans = self.torch, [row.replies for row in rows]
        tails = [len(row.ids) - found[0][0] + 1 for row, found in zip(rows, spans, strict=True)]
        if self.decoder is not None:
            states = self._states(self.decoder, rows, tails)
        else:
            batch = self._batch(rows)
            found = self.model.base_model(
                **batch.inputs, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
            ).last_hidden_state
            states = torch.cat([row[-tail:] for row, tail in zip(found, tails, strict=True)])
        first = [sum(tails[:i]) for i in range(len(tails))]
        places = [
            range(at + start - s[0][0], at + end - s[0][0])
            for at, s in zip(first, spans, strict=True)
            for start, end in s
        ]
        told = [t for row, s in zip(rows, spans, strict=True) for start, end in s for t in row.ids[start:end]]
        wanted = [place for span in places for place in span]
        return states[torch.tensor(wanted, device=states.device)], torch.tensor(told, device=states.device)

    def sample(self, rows: Sequence[Row], writers: Sequence[Writer], sampling: Sampling) -> None:
        """Continue every row, token by token, until its writer has enough.

        The log-probabilities given to the writers are those of the whole softmax at the sampling
        temperature (at 1 when it is 0): ``top_p`` limits what is drawn, not what is reported.
        """
        torch = self.torch
        with torch.inference_mode():
            walk = _Padded(self, rows) if self.decoder is None else _Packed(self, self.decoder, rows)
            active: list[Writer | None] = list(writers)
            while True:
                drawn = [writer.draw() if writer else 0.0 for writer in active] if sampling.temperature else []
                tokens, logp = pick(torch, walk.logits.float(), sampling, drawn)
                for slot, (token, nats) in enumerate(zip(tokens.tolist(), logp.tolist(), strict=True)):
                    writer = active[slot]
                    if writer is not None and not writer.add(token, nats):
                        active[slot] = None
                going = [slot for slot, writer in enumerate(active) if writer is not None]
                if not going:
                    return
                if len(going) <= _WORTH * len(active):  # finished rows leave the batch
                    kept = torch.tensor(going, device=tokens.device)
                    walk.select(kept)
                    tokens, active = tokens[kept], [active[slot] for slot in going]
                walk.go_on(tokens)

    def _forward(self, batch: _Batch, *, keep: int, cache: Any = None) -> Any:
        """Return the logits of the last ``keep`` columns, (B, keep, vocabulary), by the model itself."""
        given = {
            "attention_mask": batch.mask,
            "position_ids": batch.positions,
            "logits_to_keep": keep,
            "use_cache": cache is not None,
            self._cache_name: cache,
        }
        given = {key: value for key, value in given.items() if key in self._accepts}
        return self.model(**batch.inputs, **given).logits[:, -keep:]

    def last(self, rows: Sequence[Row], width: int) -> Any:
        """Return the last ``width`` tokens of each row, (rows, width), 0 before its first."""
        ids = [(0,) * (width - len(row.ids)) + row.ids[-width:] for row in rows]
        return self.torch.tensor(ids, device=self.device)

    def _states(self, decoder: Decoder, rows: Sequence[Row], wanted: Sequence[int]) -> Any:
        """Return the last hidden states of the last ``wanted[i]`` tokens of each row, end to end."""
        embedded, positions = self._packed(rows)
        return decoder.states(embedded, positions, [len(row.ids) for row in rows], wanted)

    def _packed(self, rows: Sequence[Row]) -> tuple[Any, Any]:
        """Return embeddings (N, hidden) and positions (1, N), for vision (3, 1, N), of the rows end to end."""
        torch = self.torch
        ids = torch.tensor([token for row in rows for token in row.ids])
        if self.vision is None:
            positions = torch.cat([torch.arange(len(row.ids)) for row in rows])[None]
            return self.model.get_input_embeddings()(ids), positions
        images = [[self.vision.look(image) for image in row.images] for row in rows]
        found = [self._axes(row, shown, self.vision) for row, shown in zip(rows, images, strict=True)]
        places = torch.cat([self._pictured(row, self.vision) for row in rows])
        return self._embed(ids, places, [image for shown in images for image in shown]), torch.cat(found, dim=1)[
            :, None
        ]

    def _axes(self, row: Row, images: Sequence[Any], vision: Vision) -> Any:
        """Return a row's positions in time, height and width, (3, n)."""
        found = vision.positions(row.ids, row.prompt, [grid for _, grid in images], row.spans)
        return self.torch.from_numpy(found)

    def _pictured(self, row: Row, vision: Vision) -> Any:
        """Return (n,) bool, true where a token stands for a part of an image and was not sampled."""
        places = self.torch.tensor(row.ids) == vision.image_token_id
        for start, end in row.spans or ((row.prompt, len(row.ids)),):
            places[start:end] = False
        return places

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
            images = [[self.vision.look(image) for image in row.images] for row in rows]
            positions = torch.zeros(3, len(rows), length, dtype=torch.long)
            places = torch.zeros(len(rows), length, dtype=torch.bool)
            for i, (row, shown) in enumerate(zip(rows, images, strict=True)):
                positions[:, i, length - len(row.ids) :] = self._axes(row, shown, self.vision)
                places[i, length - len(row.ids) :] = self._pictured(row, self.vision)
            inputs = {
                "inputs_embeds": self._embed(
                    ids.to(device), places.to(device), [image for shown in images for image in shown]
                )
            }
        return _Batch(inputs, ids.to(device), mask.to(device), positions.to(device))

    def _embed(self, ids: Any, places: Any, images: Sequence[Any]) -> Any:
        """Return embeddings of ``ids`` with the images, patches and grid each, at ``places``.

        Done here because the model would take an image token that it sampled itself for another
        image. Equal images are looked at once.
        """
        embedded = self.model.get_input_embeddings()(ids)
        if not images:
            return embedded
        torch = self.torch
        different = list({id(patches): (patches, grid) for patches, grid in images}.values())
        patches = torch.cat([torch.from_numpy(patches) for patches, _ in different])
        grids = torch.tensor([grid for _, grid in different], device=ids.device)
        looked = self.model.get_image_features(patches.to(ids.device), grids, return_dict=True).pooler_output
        features = dict(zip([id(patches) for patches, _ in different], looked, strict=True))
        told = torch.cat([features[id(patches)] for patches, _ in images]).to(embedded.dtype)
        return embedded.masked_scatter(places[..., None], told)


class _Padded:
    """Rows in play, by the model itself; ``logits`` (B, vocabulary) are those after the last tokens."""

    def __init__(self, network: Network, rows: Sequence[Row]) -> None:
        self.network, self.batch = network, network._batch(rows)
        self.cache = network._cache_type(config=network.model.config)
        self.logits = network._forward(self.batch, keep=1, cache=self.cache)[:, -1]
        last = self.batch.positions[..., -1:]
        self.batch.positions = last if network.vision is None else last.amax(0, keepdim=True).expand(3, -1, -1)

    def select(self, rows: Any) -> None:
        self.cache.batch_select_indices(rows)
        self.batch.mask, self.batch.positions = self.batch.mask[rows], self.batch.positions[..., rows, :]

    def go_on(self, tokens: Any) -> None:
        batch, torch = self.batch, self.network.torch
        batch.inputs = {"input_ids": tokens[:, None]}
        batch.mask = torch.cat([batch.mask, batch.mask.new_ones(len(tokens), 1)], dim=1)
        batch.positions = batch.positions + 1
        self.logits = self.network._forward(batch, keep=1, cache=self.cache)[:, -1]


class _Packed:
    """The same by a `Decoder`. Equal prompts without images are read once."""

    def __init__(self, network: Network, decoder: Decoder, rows: Sequence[Row]) -> None:
        torch = network.torch
        self.network, self.decoder = network, decoder
        first: dict[Any, int] = {}
        places = [first.setdefault(i if row.images else row.ids, len(first)) for i, row in enumerate(rows)]
        read = [rows[places.index(place)] for place in range(len(first))]
        lengths = [len(row.ids) for row in read]
        embedded, positions = network._packed(read)
        states, self.cache = decoder.prefill(embedded, positions, lengths)
        ends = torch.tensor(lengths).cumsum(0) - 1
        # behind an image the text goes on after its longest side
        self.positions = positions[..., ends].amax(0, keepdim=True).expand_as(positions[..., ends])
        self.logits = self._head(states)
        if len(first) < len(rows):
            self.select(torch.tensor(places))
            self.logits = self.logits[places]

    def _head(self, states: Any) -> Any:
        return self.network.model.get_output_embeddings()(states[:, None])[:, 0]

    def select(self, rows: Any) -> None:
        self.cache.select(rows)
        self.positions = self.positions[..., rows]

    def go_on(self, tokens: Any) -> None:
        self.positions = self.positions + 1
        embedded = self.network.model.get_input_embeddings()(tokens)
        self.logits = self._head(self.decoder.step(embedded, self.positions, self.cache))


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
