"""Heads that copy before any training: where they look."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; install 'seed-suite[train]'")

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from seed_agent.circuits import HEAD, THETA, wire_copying
from seed_envs.errors import ConfigError


def llama(**changes: Any) -> LlamaForCausalLM:
    sizes: dict[str, Any] = {
        "vocab_size": 300,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": HEAD,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "tie_word_embeddings": True,
        "attn_implementation": "eager",
    }
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**sizes | changes)).eval()


@torch.no_grad()
def looks(model: LlamaForCausalLM, ids: torch.Tensor) -> list[torch.Tensor]:
    """Return the attention of every layer, (heads, T, T)."""
    return [layer[0] for layer in model(ids[None], output_attentions=True).attentions]


def test_heads_look_back_at_the_same_and_behind_it() -> None:
    model, length = llama(), 150
    once = torch.randperm(300, generator=torch.Generator().manual_seed(1))[:length]
    ids, again = torch.cat([once, once]), torch.arange(length, 2 * length - 1)
    places = torch.arange(2, 2 * length)
    by_chance = looks(model, ids)
    assert all(float(one[:, again, again - length + 1].mean()) < 0.02 for one in by_chance)
    wire_copying(model)
    first, second = looks(model, ids)
    assert float(first[0, places, places - 1].mean()) > 0.8  # the token before
    same = first[2, again]  # the same token: itself now or a round ago
    assert float((same[range(len(again)), again] + same[range(len(again)), again - length]).mean()) > 0.9
    assert float(second[0, again, again - length + 1].mean()) > 0.6  # what followed the same token


def test_wiring_depends_on_its_seed_alone() -> None:
    models = [llama(), llama(), llama()]
    state = torch.random.get_rng_state()
    for model, seed in zip(models, (0, 0, 1), strict=True):
        wire_copying(model, seed=seed)
    assert torch.equal(torch.random.get_rng_state(), state)
    one, same, other = ([*model.parameters()] for model in models)
    assert all(torch.equal(p, q) for p, q in zip(one, same, strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(one, other, strict=True))


def test_recall_says_what_stood_before_the_place_looked_at() -> None:
    plain, recalling = llama(), llama()
    for model in (plain, recalling):
        wire_copying(model, recall=model is recalling)
    apart = [name for name, p in plain.named_parameters() if not torch.equal(p, recalling.get_parameter(name))]
    assert apart == [f"model.layers.1.self_attn.{part}_proj.weight" for part in ("v", "o")]
    ids = torch.randperm(300, generator=torch.Generator().manual_seed(1))[:60]
    before = ids[torch.arange(1, 60) - 1]

    def said(model: LlamaForCausalLM) -> torch.Tensor:  # by the second key head alone, its look fixed on itself
        attention, found = model.model.layers[1].self_attn, []
        with torch.no_grad():
            attention.o_proj.register_forward_pre_hook(lambda _, given: found.append(given[0]))
            attention.o_proj.register_forward_hook(lambda _, given, out: found.append(out))
            value: list[torch.Tensor] = []
            attention.v_proj.register_forward_hook(lambda _, given, out: value.append(out))
            model(ids[None])
            heads = torch.zeros_like(found[0][0])
            heads[:, 2 * HEAD : 3 * HEAD] = value[0][0][:, HEAD:]
            return model.lm_head(heads @ attention.o_proj.weight.T)[1:]

    hit = [
        float((said(model)[range(59), before][:, None] >= said(model)).float().mean()) for model in (plain, recalling)
    ]
    assert hit[1] > 0.95 > 0.8 > hit[0]


@pytest.mark.parametrize("changes", [{"num_hidden_layers": 1}, {"num_key_value_heads": 1}])
def test_a_model_with_too_few_heads_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"2 layers and 2 key heads; the model has [12] and [12]"):
        wire_copying(llama(**changes))
