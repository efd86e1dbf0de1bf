"""``vllm:`` and training on it with a real vLLM, of a GPU or of the CPU (``tox -e vllm``)."""

import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_models import chat, prompts_for
from train_kit import FIXTURES, policy_of, small, vary_returns, write_skills

from seed_agent.policy import MODELS, Prompt, Sampling
from seed_envs.errors import ConfigError

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]  # vLLM and what it imports warn a lot

torch, _, _ = FIXTURES
HIDDEN = 128
"""Wide enough for heads of 32, the least that vLLM's CPU kernels take."""


@pytest.fixture(scope="module")
def folder(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("vllm", reason="needs vLLM: pip install 'seed-suite[vllm]'")
    from seed_agent import tiny

    return tiny.build_text_model(tmp_path_factory.mktemp("models") / "text", std=0.15, hidden=HIDDEN)


@pytest.fixture(scope="module")
def untied(torch: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 model whose output layer has weights of its own."""
    import transformers

    config = transformers.Qwen2Config(
        vocab_size=1024, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, initializer_range=0.15, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=3, pad_token_id=1,
    )  # fmt: skip
    root = Path(shutil.copytree(folder, tmp_path_factory.mktemp("models") / "untied"))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        transformers.Qwen2ForCausalLM(config).save_pretrained(root)
    return root


Opened = Callable[..., Any]


@pytest.fixture
def opened(torch: Any) -> Iterator[Opened]:
    """Return a function that makes a policy on vLLM; each ends with its test."""
    policies: list[Any] = []

    def make(folder: Path, options: str = "context=2048&batch=16&memory=0.1&dtype=float32") -> Any:
        policies.append(MODELS.get("vllm")(f"{folder}?{options}"))
        return policies[-1]

    yield make
    for policy in policies:
        policy.close()


def _gap(policy: Any, reference: Any, **how: Any) -> float:
    """Return how far sampled log-probabilities are from those of transformers."""
    sampling = Sampling(**{"max_tokens": 16, "stop": (), **how})
    prompts = prompts_for(policy, "text", 4)
    replies = policy.generate(prompts, sampling, [11, 12, 13, 14])
    scores = reference.score(prompts, [r.token_ids for r in replies], temperature=sampling.temperature or 1.0)
    assert all(len(reply.token_ids) == len(reply.logp) for reply in replies)
    return max(abs(a - b) for r, line in zip(replies, scores, strict=True) for a, b in zip(r.logp, line, strict=True))


def _changed(torch: Any, policy: Any) -> Any:
    """Return a transformers policy of the same model with every weight changed."""
    from seed_agent.backends.hf import HFPolicy

    model = deepcopy(policy.model)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return HFPolicy("changed", model, policy.tokenizer)


@pytest.mark.parametrize("which", ["folder", "untied"])
def test_log_probabilities_before_and_after_new_weights(
    torch: Any, which: str, request: pytest.FixtureRequest, opened: Opened
) -> None:
    root = request.getfixturevalue(which)
    policy, reference = opened(root), policy_of(root)
    other = _changed(torch, reference)
    for temperature in (0.0, 0.4, 1.0):
        gap = _gap(policy, reference, temperature=temperature)
        print(f"{which} T={temperature}: {gap:.1e}")
        assert gap < 1e-4
    assert _gap(policy, other) > 0.1
    for expected, odd in ((other, reference), (reference, other), (other, reference)):
        policy.sync(expected.model)
        gap = _gap(policy, expected)
        print(f"{which} synced: {gap:.1e}")
        assert gap < 1e-4 and _gap(policy, odd) > 0.1
    prompts = prompts_for(policy, "text", 3)
    given = [(400, 401, 402), (), (600,)]
    for one, line in zip(policy.score(prompts, given), other.score(prompts, given), strict=True):
        assert len(one) == len(line) and np.allclose(one, line, atol=1e-4)
    with torch.no_grad():  # vLLM holds copies: what training changes comes with the next sync only
        for parameter in other.model.parameters():
            parameter.mul_(1.5)
    assert _gap(policy, other) > 0.1


def test_replies_are_those_of_transformers(folder: Path, opened: Opened) -> None:
    """Greedy ones in every part; sampled ones by the rules: seeds, stop strings, end tokens, lengths."""
    policy, reference = opened(folder, "context=256&memory=0.1&dtype=float32"), policy_of(folder)
    prompts = prompts_for(policy, "text", 3)
    for stop in ((), ("e",), ("desk", " t")):
        greedy = Sampling(temperature=0, max_tokens=16, stop=stop)
        ours, theirs = (p.generate(prompts, greedy, [1, 2, 3]) for p in (policy, reference))
        for one, other in zip(ours, theirs, strict=True):
            assert (one.text, one.token_ids, one.stop_reason) == (other.text, other.token_ids, other.stop_reason)
    prompt = policy.prompt(chat("go to desk 1"))
    first, second, again = policy.generate([prompt] * 3, Sampling(max_tokens=12, stop=()), [1, 2, 1])
    assert first == again and first.token_ids != second.token_ids and first.stop_reason == "length"
    stop = policy.tokenizer.decode(first.token_ids[5:8])[:-1]  # the token that completes it carries more
    (reply,) = policy.generate([prompt], Sampling(max_tokens=12, stop=(stop,)), [1])
    assert reply.stop_reason == "stop" and reply.text.endswith(stop) and reply.token_ids == first.token_ids[:8]
    policy._ends = frozenset({first.token_ids[6]})
    (ended,) = policy.generate([prompt], Sampling(max_tokens=12, stop=()), [1])
    assert ended.token_ids == first.token_ids[:7] and ended.stop_reason == "stop" and len(ended.logp) == 7
    cut = policy.generate([prompt], Sampling(top_p=0.5, max_tokens=4), [1])[0]
    assert cut.logp is None and cut.token_ids
    full = Prompt(chat("x"), (400,) * 254)
    (last,) = policy.generate([full], Sampling(max_tokens=9, stop=()), [1])
    assert len(last.token_ids) == 2 and last.stop_reason == "length"


def test_what_vllm_refuses_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)  # which would win over memory=
    with pytest.raises(ConfigError, match=r"vLLM cannot run .* memory=0\.999") as caught:
        MODELS.get("vllm")(f"{folder}?memory=0.999")
    assert "\n" not in str(caught.value)


def test_iterations_of_seed_on_alfworld(torch: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two whole ones: the second is played by the weights that the first one's updates left."""
    from seed_agent.train.loop import Trainer

    vary_returns(monkeypatch)
    how = {"rollout_backend": "vllm", "rollout_memory": 0.1, "method": "seed", "lr": 1e-2, "tasks": 2, "group": 4}
    run = Trainer(small(folder, **how, max_reply_tokens=32, analyzer_reply_tokens=32), policy_of(folder))
    try:
        asked = write_skills(run.copy, monkeypatch, every=2)
        start = deepcopy(run.policy.model.state_dict())
        for number in range(2):
            found = run.iteration(number)
            shown = {key: value for key, value in found.items() if key.startswith(("time/", "rl/logp", "rl/grad"))}
            print({key: f"{value:.3g}" for key, value in shown.items()})
            assert found["rl/logp_drift_max"] < 1e-4 and found["env/errors"] == 0
            assert found["rl/grad_norm"] > 0 and 0.3 < found["opd/active_ratio"] < 0.7
        moved = max(float((tensor - start[name]).abs().max()) for name, tensor in run.policy.model.state_dict().items())
        assert len(asked) == 16 and moved > 1e-2
    finally:
        run.close()
