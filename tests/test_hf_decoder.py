"""The walk of ``hf_decoder`` against transformers' own forward pass: numbers, gradients, samples, fallbacks."""

from collections.abc import Iterator
from typing import Any

import pytest
from hf_models import FIXTURES, KINDS, prompts_for

from seed_agent.policy import Sampling

torch, folders, policies, text_model, copy = FIXTURES

FAMILIES = ("Llama", "Qwen2", "Qwen3")


@pytest.fixture(params=[*KINDS, *FAMILIES])
def network(request: pytest.FixtureRequest, torch: Any, policies: dict[str, Any]) -> Iterator[Any]:
    """A network of every known architecture, with rows of several lengths, some of them equal."""
    from seed_agent.backends.hf_model import Network, Row

    if request.param in KINDS:
        policy = policies[request.param]
        found, prompts = policy.network, prompts_for(policy, request.param)
    else:
        found, prompts = Network(family(torch, request.param)), prompts_for(policies["text"], "text")
    rows = [
        Row(p.ids + tuple(range(300, 300 + n)), len(p.ids), p.images)
        for p, n in zip(prompts, (4, 1, 3, 6, 2), strict=True)
    ]
    yield found, [*rows, rows[0], rows[3]]
    found.model.zero_grad()


def family(torch: Any, name: str, **changes: Any) -> Any:
    import transformers

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 1024, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.15, "use_cache": True}
    config = getattr(transformers, f"{name}Config")(**sizes, **heads, **changes)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def both(network: Any, ask: Any) -> tuple[Any, Any]:
    """Return an answer of the decoder's and of the model's own forward pass."""
    decoder = network.decoder
    assert decoder is not None
    ours = ask()
    network.decoder = None
    try:
        return ours, ask()
    finally:
        network.decoder = decoder


def gradients(network: Any) -> dict[str, Any]:
    found = {name: p.grad.clone() for name, p in network.model.named_parameters() if p.grad is not None}
    network.model.zero_grad()
    return found


def test_states_logits_and_log_probabilities_equal_the_models_own(torch: Any, network: Any) -> None:
    net, rows = network
    ours, own = both(net, lambda: net.states(rows)[0])
    assert ours.shape == own.shape == (sum(len(row.ids) - row.prompt for row in rows), own.shape[1])
    assert torch.allclose(ours, own, atol=1e-5) and own.abs().max() > 0.1
    ours, own = both(net, lambda: net.logprobs(rows, 0.7))
    mask = torch.tensor([[column >= 6 - (len(row.ids) - row.prompt) for column in range(6)] for row in rows])
    assert torch.allclose(ours[mask], own[mask], atol=1e-5) and own[mask].abs().max() > 1
    ours, own = both(net, lambda: net.logits(rows, 3))
    assert torch.allclose(ours, own, atol=1e-4)
    told = net.states(rows)[1].tolist()
    assert told == [token for row in rows for token in row.ids[row.prompt :]]


def test_gradients_equal_the_models_own(torch: Any, network: Any) -> None:
    net, rows = network

    def ask() -> dict[str, Any]:
        states, _ = net.states(rows)
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
        return gradients(net)

    ours, own = both(net, ask)
    assert ours.keys() == own.keys() and len(own) > 10
    for name, grad in own.items():
        assert torch.allclose(ours[name], grad, atol=1e-5 * max(1.0, float(grad.abs().max()))), name


def test_checkpointed_layers_give_the_same_gradients(torch: Any) -> None:
    from seed_agent.backends.hf_model import Network, Row

    rows = [Row((5, 6, 7, 8, 9), 2), Row((5, 6, 7, 8), 3)]
    found = []
    for checkpointing in (False, True):
        net = Network(family(torch, "Llama").train())
        if checkpointing:
            for layer in net.model.model.layers:
                layer.gradient_checkpointing = True
        runs = []
        net.model.model.layers[0].self_attn.o_proj.register_forward_hook(lambda *_, runs=runs: runs.append(1))
        net.logprobs(rows)[:, -1].sum().backward()
        found.append((len(runs), gradients(net)))
    (once, plain), (twice, again) = found
    assert (once, twice) == (1, 2)
    assert all(torch.equal(plain[name], again[name]) for name in plain)


class Forced:
    """A writer that samples by given numbers and stops after some tokens."""

    def __init__(self, numbers: list[float], room: int) -> None:
        self.numbers, self.room = iter(numbers), room
        self.ids: list[int] = []
        self.logp: list[float] = []

    def draw(self) -> float:
        return next(self.numbers)

    def add(self, token: int, logp: float) -> bool:
        self.ids.append(token)
        self.logp.append(logp)
        return len(self.ids) < self.room


def test_samples_and_their_log_probabilities_equal_the_models_own(torch: Any, network: Any) -> None:
    """70 tokens: the cache grows once; rows end at different times: it loses rows too."""
    from seed_agent.backends.hf_model import Row

    net, rows = network
    prompts = [Row(row.ids[: row.prompt], row.prompt, row.images) for row in rows]

    def ask() -> list[Forced]:
        rooms = (70, 3, 12, 1, 66, 70, 9)
        writers = [Forced([(0.37 * (i + 1) + 0.61 * k) % 1 for k in range(80)], room) for i, room in enumerate(rooms)]
        net.sample(prompts, writers, Sampling(1.0, 1.0, 100))
        return writers

    ours, own = both(net, ask)
    for one, other in zip(ours, own, strict=True):
        assert one.ids == other.ids and len(one.ids) == one.room
        assert torch.allclose(torch.tensor(one.logp), torch.tensor(other.logp), atol=1e-4)
    scored = net.logprobs([Row(p.ids + tuple(w.ids), p.prompt, p.images) for p, w in zip(prompts, ours, strict=True)])
    assert all(
        torch.allclose(line[-w.room :], torch.tensor(w.logp), atol=1e-4) for line, w in zip(scored, ours, strict=True)
    )


def test_equal_prompts_are_read_once(torch: Any, text_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from seed_agent.backends.hf_model import Row

    net, read = text_model.network, []
    prefill = net.decoder.prefill
    monkeypatch.setattr(net.decoder, "prefill", lambda e, p, lengths: read.append(lengths) or prefill(e, p, lengths))
    writers = [Forced([0.1 * i] * 4, 4) for i in range(4)]
    prompts = [Row((300, 301), 2), Row((302,), 1), Row((300, 301), 2), Row((302,), 1)]
    net.sample(prompts, writers, Sampling())
    assert read == [[2, 1]]
    for prompt, writer in zip(prompts, writers, strict=True):
        score = net.logprobs([Row(prompt.ids + tuple(writer.ids), prompt.prompt)])[0]
        assert torch.allclose(score, torch.tensor(writer.logp), atol=1e-5)


def test_what_the_decoder_does_not_know_is_left_to_the_model(torch: Any) -> None:
    from seed_agent.backends.hf_decoder import decoder_of

    assert decoder_of(family(torch, "Llama")) is not None
    eager = family(torch, "Llama")
    eager.set_attn_implementation("eager")
    windowed = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    for model in (
        eager,
        family(torch, "Llama", attention_dropout=0.1),
        family(torch, "Qwen2", **windowed),
        family(torch, "Gemma"),
    ):
        assert decoder_of(model) is None


def test_rope_that_depends_on_the_length_and_logits_with_a_bias(torch: Any) -> None:
    """Scaled rotary embeddings come from the model's own module; they must not be lost."""
    from seed_agent.backends.hf_model import Network, Row

    rope = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
    scaled = Network(family(torch, "Llama", rope_parameters=rope))
    plain = Network(family(torch, "Llama"))
    rows = [Row(tuple(range(300, 340)), 20)]
    ours, own = both(scaled, lambda: scaled.logprobs(rows))
    assert torch.allclose(ours, own, atol=1e-5) and not torch.allclose(ours, plain.logprobs(rows), atol=1e-3)


def test_pictures_are_made_into_patches_once(policies: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_models import chat, picture

    vision, made = policies["qwen2_5_vl"].network.vision, []
    look = type(vision.processor).__call__
    monkeypatch.setattr(type(vision.processor), "__call__", lambda *a, **k: made.append(1) or look(*a, **k))
    for _ in range(3):
        policies["qwen2_5_vl"].prompt(chat("<image> <image>", picture(91), picture(92)))
    assert len(made) == 2
    assert vision.look(picture(91))[0] is vision.look(picture(91).copy())[0]
    assert vision.look(picture(91))[0] is not vision.look(picture(92))[0]
    monkeypatch.setattr("seed_agent.backends.hf_vision._REMEMBERED", 1)
    vision.look(picture(93))
    assert len(vision._seen) == 1
