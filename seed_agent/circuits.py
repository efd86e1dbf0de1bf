"""Initial weights that copy: what a tiny model of two layers would need most of its training to find.

    wire_copying(model)     # a Llama with random weights, before it is fitted

Three heads are set so that, before any fitting, layer 0 looks at the token before and at the same token
earlier, and layer 1 looks behind earlier occurrences of the present token and says what followed there
(an induction head). All else stays random, and everything is fitted afterwards like any weight.

Source: induction heads, Olsson et al., arXiv 2209.11895; structured initial attention helps small
transformers, Trockman and Kolter, arXiv 2305.09828. Measured: benchmarks/copying.py.
"""

from typing import Any

from seed_agent.backends.hf_load import load
from seed_envs.errors import ConfigError

HEAD = 64
"""Dimensions of a head that has room for matching tokens."""
THETA = 1e6
"""Base of the rotary frequencies: the slow half of a head's pairs hardly turns within a prompt."""

_LOUD = 5
"""Times the usual size of embeddings; below it, what is copied would hardly show in the predictions."""
_CONSTANT, _PREVIOUS, _MATCH = 0.27, 2.2, 2.6
_CARRY, _COPY, _RECALL, _QUIET = 0.1, 0.5, 1.0, 0.1
_FAST = 6
"""Pairs of dimensions that tell neighbours apart."""


def wire_copying(model: Any, *, seed: int = 0, recall: bool = False) -> None:
    """Set the copying heads of a Llama with random weights in place.

    The width is laid out as one constant, the token's identity and, in the last dimensions, room for
    the identity of the token before.

    Args:
        model: A ``LlamaForCausalLM`` of two layers and two key heads or more, heads of ``HEAD`` dimensions.
        seed: Of the projections; torch's own random state is left as it is.
        recall: Whether the second key head of layer 1 says what stood before the place it looks at. Where it
            looks stays random: a fit finds out soon, for example to say after "click" what a thought ended with.

    Raises:
        ConfigError: when the model has fewer.
    """
    torch, config = load("torch"), model.config
    width, size, keys = config.hidden_size, config.head_dim, config.num_key_value_heads
    if config.num_hidden_layers < 2 or keys < 2:
        got = f"{config.num_hidden_layers} and {keys}"
        raise ConfigError(f"copying heads need 2 layers and 2 key heads; the model has {got}")
    room = min(size, width - 1) // 2
    names, before = slice(1, width - room), slice(width - room, width)
    count = width - room - 1
    drawn = torch.randn(count, count, generator=torch.Generator().manual_seed(seed))
    basis = torch.linalg.qr(drawn)[0]  # orthonormal directions of the token's identity
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        embedding *= _LOUD
        embedding[:, 0] = _CONSTANT
        embedding[:, before] *= _QUIET
        first, second = (layer.self_attn for layer in model.model.layers[:2])
        _hush(first.o_proj.weight, second.o_proj.weight)  # what random heads say would drown the wired ones
        _look_back(torch, first, size, model.model.rotary_emb.inv_freq)
        first.v_proj.weight[:room, names] += basis[:room]
        first.o_proj.weight[before, :room] += _CARRY * torch.eye(room)
        same = slice(size, 2 * size)  # the second key head and the first query head that asks it
        asking = config.num_attention_heads // keys * size
        _hush(first.k_proj.weight[same], first.q_proj.weight[asking : asking + size])
        slow = _slow(torch, size, room)
        first.k_proj.weight[size + slow, names] += _MATCH * basis[:room]
        first.q_proj.weight[asking + slow, names] += _MATCH * basis[:room]
        _hush(second.k_proj.weight[:size], second.q_proj.weight[:size], second.v_proj.weight[:size])
        second.k_proj.weight[slow, before] += _MATCH * torch.eye(room)
        second.q_proj.weight[slow, names] += _MATCH * basis[:room]
        said = basis[-min(size, count) :]
        second.v_proj.weight[: len(said), names] += said
        second.o_proj.weight[names, : len(said)] += _COPY * said.T
        if recall:
            _hush(second.v_proj.weight[same])
            second.v_proj.weight[size : size + room, before] += _RECALL * torch.eye(room)
            second.o_proj.weight[names, asking : asking + room] += _RECALL * basis[:room].T


def _look_back(torch: Any, attention: Any, size: int, frequencies: Any) -> None:
    """Let the first head's score be highest one token back: constant keys, queries turned by one position."""
    _hush(attention.k_proj.weight[:size], attention.q_proj.weight[:size], attention.v_proj.weight[:size])
    fast, half = torch.arange(min(_FAST, size // 2)), size // 2
    turn = -frequencies[fast].float()
    attention.k_proj.weight[fast, 0] += _PREVIOUS
    attention.q_proj.weight[fast, 0] += _PREVIOUS * turn.cos()
    attention.q_proj.weight[fast + half, 0] += _PREVIOUS * turn.sin()


def _slow(torch: Any, size: int, count: int) -> Any:
    """Return the ``count`` dimensions of a head that turn slowest, by pairs."""
    return torch.arange(size).view(2, -1).flip(1).T.flatten()[:count]


def _hush(*weights: Any) -> None:
    """Make random weights small beside the wired ones."""
    for weight in weights:
        weight *= _QUIET
