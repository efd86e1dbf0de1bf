"""Llama and Qwen on a CPU, without padding and without what nobody asked for.

The weights and layers are those of the transformers model, and so are the numbers, up to rounding.
What differs is the walk through them: the tokens of all rows stand end to end, so no layer computes
padding; the last layer answers for the wanted positions alone; and sampling writes into a cache that
has room, where transformers copies the whole cache for every token.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seed_agent.backends.hf_load import load

KNOWN = (
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
)
"""Classes of transformers whose layers are what `Decoder` takes them for."""

_ROOM = 64
"""Columns a cache grows by."""

Attend = Callable[[int, Any, Any, Any], Any]
"""From a layer's number, queries (M, heads, D), keys and values (N, kv heads, D) to (M, heads x D)."""


def decoder_of(model: Any) -> "Decoder | None":
    """Return a decoder of ``model``, None where the model must walk by itself.

    That is: an architecture not in `KNOWN`, an accelerator (where one large call beats many small
    ones), attention that is windowed, drops out or was chosen by hand.
    """
    if type(model).__name__ not in KNOWN or model.get_input_embeddings().weight.device.type != "cpu":
        return None
    text = getattr(model.base_model, "language_model", model.base_model)
    config = text.config
    if config._attn_implementation != "sdpa" or getattr(config, "attention_dropout", 0.0):
        return None
    if any(getattr(layer.self_attn, "sliding_window", None) is not None for layer in text.layers):
        return None
    decoder = Decoder(text)
    nothing = decoder.torch.zeros(3, 1, 1, dtype=decoder.torch.long)
    several = hasattr(model.base_model, "language_model")
    cos, _ = text.rotary_emb(model.get_input_embeddings().weight[:1, None], nothing if several else nothing[0])
    return decoder if cos.dim() == 3 else None  # older releases leave the three axes of images apart


@dataclass(slots=True)
class Cache:
    """Keys and values of rows in play, flush right in columns ``starts`` to ``used``."""

    keys: list[Any]
    """Per layer (B, kv heads, columns, D); columns from ``used`` on are free."""
    values: list[Any]
    mask: Any
    """(B, 1, 1, columns) bool, false on the columns before a row's start."""
    used: int

    def select(self, rows: Any) -> None:
        """Keep the rows of an index, in its order."""
        self.keys = [key[rows] for key in self.keys]
        self.values = [value[rows] for value in self.values]
        self.mask = self.mask[rows]

    def advance(self, torch: Any) -> None:
        """Take the next column into use, making room where there is none."""
        if self.used == self.mask.shape[-1]:
            pad = torch.nn.functional.pad
            self.keys = [pad(key, (0, 0, 0, _ROOM)) for key in self.keys]
            self.values = [pad(value, (0, 0, 0, _ROOM)) for value in self.values]
            self.mask = pad(self.mask, (0, _ROOM), value=True)
        self.used += 1


class Decoder:
    """The layers of a text model as functions of packed rows.

    Packed means: N tokens of all rows end to end. Embeddings are (N, hidden) and positions (1, N), of
    models that see (3, 1, N).
    """

    def __init__(self, text: Any) -> None:
        """Take the part of a model that holds ``layers``, ``norm`` and ``rotary_emb``."""
        self.text, self.torch = text, load("torch")

    def states(self, embedded: Any, positions: Any, lengths: Sequence[int], wanted: Sequence[int]) -> Any:
        """Return the last hidden states of the last ``wanted[i]`` tokens of each row, end to end."""
        return self._walk(embedded, positions, lengths, wanted, lambda layer, keys, values: None)

    def prefill(self, embedded: Any, positions: Any, lengths: Sequence[int]) -> tuple[Any, Cache]:
        """Return the hidden state of each row's last token, (B, hidden), and the rows' cache."""
        keys, values = list[Any](), list[Any]()

        def keep(layer: int, key: Any, value: Any) -> None:
            keys.append(self._columns(key, lengths))
            values.append(self._columns(value, lengths))

        states = self._walk(embedded, positions, lengths, [1] * len(lengths), keep)
        used = max(lengths)
        starts = self.torch.tensor([used - length for length in lengths])
        mask = self.torch.arange(used + _ROOM)[None] >= starts[:, None]
        return states, Cache(keys, values, mask[:, None, None], used)

    def step(self, embedded: Any, positions: Any, cache: Cache) -> Any:
        """Take one token of every row into the cache and return its hidden states, (B, hidden)."""
        cache.advance(self.torch)
        used = cache.used
        mask = cache.mask[..., :used]

        def attend(layer: int, query: Any, key: Any, value: Any) -> Any:
            keys, values = cache.keys[layer], cache.values[layer]
            keys[:, :, used - 1], values[:, :, used - 1] = key, value
            # the heads that share a key stand beside each other: no key is copied for them
            grouped = query.unflatten(1, (key.shape[1], -1))
            return self._attention(layer, grouped, keys[:, :, :used], values[:, :, :used], attn_mask=mask).flatten(1)

        return self._layers(embedded, positions, attend)

    def _walk(
        self,
        embedded: Any,
        positions: Any,
        lengths: Sequence[int],
        wanted: Sequence[int],
        keep: Callable[[int, Any, Any], None],
    ) -> Any:
        torch, last = self.torch, len(self.text.layers) - 1
        lengths, wanted = list(lengths), list(wanted)
        ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
        asked = torch.cat([torch.arange(end - count, end) for end, count in zip(ends, wanted, strict=True)])

        def attend(layer: int, query: Any, key: Any, value: Any) -> Any:
            keep(layer, key, value)
            counts = wanted if layer == last else lengths
            runs = [(*run, len(list(rows))) for run, rows in itertools.groupby(zip(lengths, counts, strict=True))]
            queries = query.split([count * rows for _, count, rows in runs])
            sizes = [length * rows for length, _, rows in runs]
            parts = zip(runs, queries, key.split(sizes), value.split(sizes), strict=True)
            return torch.cat([self._run(layer, run[-1], *part) for run, *part in parts])

        return self._layers(embedded, positions, attend, asked if len(asked) < len(embedded) else None)

    def _run(self, layer: int, rows: int, query: Any, key: Any, value: Any) -> Any:
        """Return what the last tokens of rows of one length attend to, each to itself and all before it."""
        asked, length = len(query) // rows, len(key) // rows
        how: dict[str, Any] = {"is_causal": asked == length}
        if 1 < asked < length:
            how = {"attn_mask": self.torch.ones(asked, length, dtype=self.torch.bool).tril(length - asked)}
        query, key, value = (x.unflatten(0, (rows, -1)).transpose(1, 2) for x in (query, key, value))
        found = self._attention(layer, query, key, value, enable_gqa=True, **how)
        return found.transpose(1, 2).flatten(0, 1).flatten(1)

    def _attention(self, layer: int, query: Any, key: Any, value: Any, **how: Any) -> Any:
        scale = self.text.layers[layer].self_attn.scaling
        return self.torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scale, **how)

    def _layers(self, states: Any, positions: Any, attend: Attend, asked: Any = None) -> Any:
        """Walk through all layers; the last one answers for the tokens ``asked`` alone, None for all."""
        torch, layers = self.torch, self.text.layers
        cos, sin = (part[0, :, None] for part in self.text.rotary_emb(states, positions))
        for number, layer in enumerate(layers):
            given = (number, states, cos, sin, attend, asked if number == len(layers) - 1 else None)
            if getattr(layer, "gradient_checkpointing", False) and layer.training and torch.is_grad_enabled():
                states = torch.utils.checkpoint.checkpoint(self._layer, *given, use_reentrant=False)
            else:
                states = self._layer(*given)
        return self.text.norm(states)

    def _layer(self, number: int, states: Any, cos: Any, sin: Any, attend: Attend, asked: Any) -> Any:
        layer = self.text.layers[number]
        attention, normed = layer.self_attn, layer.input_layernorm(states)
        size = (-1, attention.head_dim)
        key = attention.k_proj(normed).unflatten(-1, size)
        value = attention.v_proj(normed).unflatten(-1, size)
        if hasattr(attention, "k_norm"):
            key = attention.k_norm(key)
        key = _rotated(self.torch, key, cos, sin)
        if asked is not None:
            states, normed, cos, sin = states[asked], normed[asked], cos[asked], sin[asked]
        query = attention.q_proj(normed).unflatten(-1, size)
        if hasattr(attention, "q_norm"):
            query = attention.q_norm(query)
        states = states + attention.o_proj(attend(number, _rotated(self.torch, query, cos, sin), key, value))
        return states + layer.mlp(layer.post_attention_layernorm(states))

    def _columns(self, packed: Any, lengths: Sequence[int]) -> Any:
        """Return packed keys or values (N, kv heads, D) as a cache holds them, with room to go on."""
        width, (_, heads, size) = max(lengths), packed.shape
        cache = packed.new_zeros(len(lengths), heads, width + _ROOM, size)
        for row, part in zip(cache, packed.split(list(lengths)), strict=True):
            row[:, width - len(part) : width] = part.transpose(0, 1)
        return cache


def _rotated(torch: Any, heads: Any, cos: Any, sin: Any) -> Any:
    """Return queries or keys (N, heads, D) turned by their positions."""
    half = heads.shape[-1] // 2
    return heads * cos + torch.cat((-heads[..., half:], heads[..., :half]), dim=-1) * sin
