"""``hf:``: options, loading, sampling and scoring, with tiny random models."""

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_models import FIXTURES, KINDS, chat, one_line, prompts_for

from seed_agent.backends.hf import HFPolicy
from seed_agent.policy import MODELS, Prompt, Sampling
from seed_envs.errors import ConfigError, DataError, MissingDependency
from seed_envs.vector import Failure

torch, folders, policies, text_model, copy = FIXTURES

# --- without torch ----------------------------------------------------------------------------------------------------


def test_without_torch_the_message_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependency, match=r"'train' \(no torch here\): pip install 'seed-suite\[train\]'"):
        MODELS.get("hf")("some/model")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("m?colour=red", "unknown option 'colour'"),
        ("m?batch=0", "batch='0'"),
        ("m?batch=", "batch=''"),
        ("m?batch=x", "whole number"),
        ("m?min_pixels=-1", "min_pixels='-1'"),
        ("?batch=2", "names no model"),
    ],
)
def test_bad_options_are_refused_before_anything_is_loaded(rest: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        MODELS.get("hf")(rest)


# --- loading ----------------------------------------------------------------------------------------------------------


def test_where_it_runs_is_said_once_and_recorded(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    policy: Any = MODELS.get("hf")(f"{folders['text']}?device=cpu&dtype=bfloat16&batch=7")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and "cpu (as asked), bfloat16 (as asked)" in err and "0.1 M parameters" in err
    facts = policy.facts()
    assert (facts["device"], facts["dtype"], facts["batch"]) == ("cpu", "bfloat16", 7)
    assert facts["placement"] in err
    assert facts["architecture"] == "LlamaForCausalLM" and facts["parameters"] == policy.parameters
    assert sorted(facts["versions"]) == ["tokenizers", "torch", "transformers"]
    assert json.loads(json.dumps(facts)) == facts


def test_the_default_is_the_gpu_in_half_precision_or_the_cpu_in_full(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seed_agent.backends.hf_load import place

    def machine(gpus: int, bf16: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Card {device}")

    machine(0)
    assert (place().device, place().dtype) == ("cpu", "float32")
    assert place("cpu", "float16").dtype == "float16"
    for device in ("cuda", "cuda:0", "tpu", "cpu:x"):
        with pytest.raises(ConfigError, match="no CUDA device"):
            place(device)
    with pytest.raises(ConfigError, match="float64"):
        place("cpu", "float64")
    machine(2)
    assert (place().device, place().dtype) == ("cuda:0", "bfloat16")
    assert place("cuda:1").reason == "cuda:1 (as asked; Card cuda:1), bfloat16 (the device has it)"
    with pytest.raises(ConfigError, match="2 CUDA"):
        place("cuda:2")
    machine(1, bf16=False)
    assert place().dtype == "float16"


def test_the_weights_hash_is_of_the_values(torch: Any, folders: dict[str, Path], copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    def sha256(folder: Path, options: str = "") -> str:
        return str(MODELS.get("hf")(f"{folder}{options}").facts()["weights_sha256"])

    first = sha256(folders["text"])
    assert sha256(copy) == first
    assert sha256(copy, "?dtype=bfloat16") != first
    weights = load_file(copy / "model.safetensors")
    weights["model.norm.weight"][3] += 1e-6
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert sha256(copy) != first


def test_a_folder_that_is_not_there_or_holds_no_model(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for rest, said in [
        (tmp_path / "none", "there is no folder"),
        (tmp_path, "holds no config.json"),
        ("./none", "there is no folder"),
        ("models/none", "there is no folder"),
    ]:
        with pytest.raises(DataError, match=said) as caught:
            MODELS.get("hf")(str(rest))
        assert "expected" in one_line(caught.value)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="is a file"):
        MODELS.get("hf")(str(tmp_path / "file"))


def test_torn_and_incomplete_models_are_one_line(torch: Any, copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = copy / "model.safetensors"
    whole = load_file(weights)
    save_file({k: v for k, v in whole.items() if k != "model.norm.weight"}, weights, metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"lacks 1 of the model's weights, such as model\.norm\.weight"):
        MODELS.get("hf")(str(copy))
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot be loaded") as caught:
        MODELS.get("hf")(str(copy))
    one_line(caught.value)
    weights.unlink()
    with pytest.raises(DataError, match="cannot be loaded") as caught:
        MODELS.get("hf")(str(copy))
    one_line(caught.value)
    (copy / "config.json").write_text("{")
    with pytest.raises(DataError, match="cannot be loaded") as caught:
        MODELS.get("hf")(str(copy))
    one_line(caught.value)


def test_a_hub_model_without_a_network_is_one_line(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="no folder here and cannot be had from the Hugging Face hub") as caught:
        MODELS.get("hf")("nobody/no-such-model")
    assert "hf download nobody/no-such-model" in one_line(caught.value)


def test_vision_models_of_other_families_are_refused(torch: Any, tmp_path: Path) -> None:
    import transformers

    transformers.LlavaConfig().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="of type llava; supported are qwen2_5_vl, qwen2_vl"):
        MODELS.get("hf")(str(tmp_path))


# --- sampling and scoring ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_log_probabilities_of_generation_equal_a_separate_pass(
    policies: dict[str, Any], kind: str, temperature: float
) -> None:
    policy = policies[kind]
    prompts = prompts_for(policy, kind)
    sampling = Sampling(temperature=temperature, max_tokens=12, top_p=0.9)
    replies = policy.generate(prompts, sampling, range(5))
    assert all(len(reply.token_ids) == len(reply.logp) for reply in replies)
    scores = policy.score(prompts, [reply.token_ids for reply in replies], temperature=temperature)
    for reply, score in zip(replies, scores, strict=True):
        assert np.allclose(reply.logp, score, atol=1e-4)
    elsewhere = policy.score(prompts, [reply.token_ids for reply in replies], temperature=1.7)
    assert not np.allclose(replies[0].logp, elsewhere[0], atol=1e-2)


def test_greedy_replies_carry_log_probabilities_at_temperature_1(text_model: Any) -> None:
    prompts = prompts_for(text_model, "text", 2)
    replies = text_model.generate(prompts, Sampling(temperature=0, max_tokens=8), [1, 2])
    scores = text_model.score(prompts, [reply.token_ids for reply in replies])
    assert np.allclose(replies[0].logp, scores[0], atol=1e-4) and np.allclose(replies[1].logp, scores[1], atol=1e-4)
    again = text_model.generate(prompts, Sampling(temperature=0, max_tokens=8), [3, 4])
    assert [reply.token_ids for reply in again] == [reply.token_ids for reply in replies]
    with pytest.raises(ConfigError, match="expected a number above 0"):
        text_model.score(prompts, [reply.token_ids for reply in replies], temperature=0)


def test_left_padding_changes_nothing(text_model: Any) -> None:
    ids = list(itertools.islice(itertools.cycle(range(300, 700, 7)), 40))
    prompts = [Prompt((), tuple(ids[:length])) for length in (5, 9, 40)]
    replies = [(400, 401, 402), (500,), (600, 601, 602, 603, 604)]
    together = text_model.score(prompts, replies)
    for prompt, reply, scores in zip(prompts, replies, together, strict=True):
        assert np.allclose(text_model.score([prompt], [reply])[0], scores, atol=1e-5)
        assert len(scores) == len(reply)


def test_left_padding_changes_nothing_where_positions_are_absolute(torch: Any, text_model: Any) -> None:
    """Rotary models see differences of positions only and would forgive a shift."""
    import transformers

    config = transformers.GPT2Config(
        vocab_size=1024, n_positions=128, n_embd=32, n_layer=2, n_head=2, initializer_range=0.3,
        bos_token_id=0, eos_token_id=3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).eval()
    policy = HFPolicy("gpt2", model, text_model.tokenizer)
    prompts = [Prompt((), tuple(range(300, 300 + length))) for length in (5, 9, 40)]
    replies = policy.generate(prompts, Sampling(max_tokens=6), [1, 2, 3])
    scores = policy.score(prompts, [reply.token_ids for reply in replies])
    for prompt, reply, seed, score in zip(prompts, replies, (1, 2, 3), scores, strict=True):
        (alone,) = policy.generate([prompt], Sampling(max_tokens=6), [seed])
        assert alone.token_ids == reply.token_ids
        assert np.allclose(reply.logp, alone.logp, atol=1e-5) and np.allclose(reply.logp, score, atol=1e-5)


def test_prompts_of_like_length_share_a_batch(text_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    sample = text_model.network.sample

    def watch(rows: Sequence[Any], *rest: Any) -> None:
        seen.append([row.prompt for row in rows])
        sample(rows, *rest)

    monkeypatch.setattr(text_model.network, "sample", watch)
    prompts = [Prompt((), (400,) * length) for length in (3, 30, 4, 29, 5)]
    assert len(text_model.generate(prompts, Sampling(max_tokens=1), range(5))) == 5
    assert seen == [[30, 29, 5], [4, 3]]


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_reply_depends_on_its_seed_not_on_its_neighbours(policies: dict[str, Any], kind: str) -> None:
    policy = policies[kind]
    prompts = prompts_for(policy, kind)
    sampling, seeds = Sampling(max_tokens=10), [11, 12, 13, 14, 15]
    together = policy.generate(prompts, sampling, seeds)
    alone = [policy.generate([p], sampling, [s])[0] for p, s in zip(prompts, seeds, strict=True)]
    backwards = policy.generate(prompts[::-1], sampling, seeds[::-1])[::-1]
    ids = [reply.token_ids for reply in together]
    assert ids == [reply.token_ids for reply in alone] == [reply.token_ids for reply in backwards]
    for one, other in zip(together, alone, strict=True):
        assert np.allclose(one.logp, other.logp, atol=1e-5)
    same_prompt = policy.generate([prompts[0]] * 3, sampling, [1, 2, 1])
    assert same_prompt[0].token_ids == same_prompt[2].token_ids != same_prompt[1].token_ids


def test_rows_that_finish_early_leave_the_others_as_they_were(text_model: Any) -> None:
    prompts = [text_model.prompt(chat("go to desk 1"))] * 3
    sampling = Sampling(max_tokens=24, stop=())
    whole = text_model.generate(prompts, sampling, [5, 6, 7])
    stop = text_model.tokenizer.decode(whole[1].token_ids[6:8])
    assert stop not in whole[0].text and stop not in whole[2].text
    stopped = text_model.generate(prompts, Sampling(max_tokens=24, stop=(stop,)), [5, 6, 7])
    assert stopped[1].stop_reason == "stop" and len(stopped[1].token_ids) == 8
    assert [stopped[i].token_ids for i in (0, 2)] == [whole[i].token_ids for i in (0, 2)]


def test_temperature_and_nucleus_vectors(torch: Any) -> None:
    from seed_agent.backends.hf_model import pick

    logits = torch.tensor([[2.0, 1.0, 0.0]])

    def draw(number: float, **how: float) -> tuple[int, float]:
        token, logp = pick(torch, logits, Sampling(**how), [number])  # type: ignore[arg-type]
        return int(token), float(logp)

    assert draw(0.0, temperature=1.0) == (0, pytest.approx(-0.40761, abs=1e-5))
    assert draw(0.0, temperature=0.5) == (0, pytest.approx(-0.14293, abs=1e-5))
    assert draw(0.0, temperature=0) == (0, pytest.approx(-0.40761, abs=1e-5))
    numbers = (np.arange(10_000) + 0.5) / 10_000
    drawn, _ = pick(torch, logits.expand(10_000, 3), Sampling(), numbers.tolist())
    shares = np.bincount(drawn.numpy(), minlength=3) / 10_000
    assert np.allclose(shares, [0.66524, 0.24473, 0.09003], atol=2e-4)
    assert [draw(0.999999, top_p=p)[0] for p in (0.66, 0.67, 0.90, 0.92, 1.0)] == [0, 1, 1, 2, 2]
    assert draw(0.999999, top_p=0.67)[1] == pytest.approx(-1.40761, abs=1e-5)
    assert draw(1 - 2**-53)[0] == 2


@pytest.mark.parametrize(
    "how", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"max_tokens": 0}, {"stop": ("",)}]
)
def test_sampling_that_has_no_meaning_is_refused(text_model: Any, how: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"cannot be used|must be"):
        text_model.generate([text_model.prompt(chat("hi"))], Sampling(**how), [0])


def test_scoring_never_makes_logits_for_the_prompt(torch: Any, text_model: Any) -> None:
    shapes = []
    head = text_model.model.get_output_embeddings()
    hook = head.register_forward_hook(lambda module, given, made: shapes.append(tuple(made.shape)))
    try:
        text_model.score([text_model.prompt(chat("desk " * 50))] * 2, [(400, 401), (400, 401, 402)])
        text_model.generate([text_model.prompt(chat("desk " * 50))], Sampling(max_tokens=2), [0])
    finally:
        hook.remove()
    assert shapes == [(2, 4, 1024), (1, 1, 1024), (1, 1, 1024)]


def test_empty_batches_and_empty_completions(text_model: Any) -> None:
    prompt = text_model.prompt(chat("hi"))
    assert text_model.generate([], Sampling(), []) == [] and text_model.score([], []) == []
    first, empty, last = text_model.score([prompt] * 3, [(400,), (), (400,)])
    assert empty == () and first == pytest.approx(last, abs=1e-6)


# --- what cannot be answered ------------------------------------------------------------------------------------------


def test_a_prompt_that_fills_the_context_fails_alone(text_model: Any) -> None:
    long = Prompt(chat("x"), (400,) * 4096)
    nearly = Prompt(chat("x"), (400,) * 4093)
    fine = text_model.prompt(chat("hi"))
    answers = text_model.generate([long, nearly, fine], Sampling(max_tokens=5, stop=()), [0, 1, 2])
    assert isinstance(answers[0], Failure) and answers[0].type == "PromptTooLong" and "4096" in answers[0].message
    assert [(len(a.token_ids), a.stop_reason) for a in answers[1:]] == [(3, "length"), (5, "length")]
    with pytest.raises(ConfigError, match="context of 4096"):
        text_model.score([long], [(400,)])


def test_logits_that_are_no_numbers_fail_one_row(torch: Any, text_model: Any) -> None:
    weight = text_model.model.get_input_embeddings().weight
    kept = weight[400].clone()
    try:
        with torch.no_grad():
            weight[400] = torch.nan  # tied: poisons the logit of token 400 everywhere
        for temperature in (0.0, 1.0):
            (answer,) = text_model.generate(
                [text_model.prompt(chat("hi"))], Sampling(temperature=temperature, max_tokens=3), [0]
            )
            assert isinstance(answer, Failure) and answer.type == "BadLogits"
    finally:
        with torch.no_grad():
            weight[400] = kept


def test_where_memory_is_short_the_batch_is_halved(
    torch: Any, text_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = prompts_for(text_model, "text", 3)
    sampling, seeds = Sampling(max_tokens=4), [1, 2, 3]
    expected = text_model.generate(prompts, sampling, seeds)
    scores = text_model.score(prompts, [reply.token_ids for reply in expected])
    longest = max(len(prompt.ids) for prompt in prompts)
    network, sizes = text_model.network, []

    def short(method: Callable[..., Any], rows: Sequence[Any], *rest: Any) -> Any:
        sizes.append(len(rows))
        if len(rows) > 1 or row_limit <= rows[0].prompt:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
        return method(rows, *rest)

    sample, logprobs, row_limit = network.sample, network.logprobs, 10_000
    monkeypatch.setattr(network, "sample", lambda *a: short(sample, *a))
    monkeypatch.setattr(network, "logprobs", lambda *a: short(logprobs, *a))
    assert [r.token_ids for r in text_model.generate(prompts, sampling, seeds)] == [r.token_ids for r in expected]
    assert sizes == [3, 1, 2, 1, 1]
    again = text_model.score(prompts, [reply.token_ids for reply in expected])
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(again, scores, strict=True))
    row_limit = longest
    answers = text_model.generate(prompts, sampling, seeds)
    failed = [answer for answer in answers if isinstance(answer, Failure)]
    assert [f.type for f in failed] == ["OutOfMemory"] and "Tried" not in failed[0].message
    with pytest.raises(ConfigError, match="does not fit"):
        text_model.score(prompts, [(400,)] * 3)


# --- gradients, for the trainer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS[:2])
def test_log_probabilities_can_be_differentiated(torch: Any, policies: dict[str, Any], kind: str) -> None:
    from seed_agent.backends.hf_model import Row

    policy = policies[kind]
    prompts = prompts_for(policy, kind, 3)
    rows = [Row(p.ids + (400, 401)[:n], len(p.ids), p.images) for p, n in zip(prompts, (2, 1, 2), strict=True)]
    found = policy.network.logprobs(rows, 0.7)
    assert found.shape == (3, 2) and found.dtype == torch.float32
    loss = found[:, 1].sum() + found[0, 0] + found[2, 0]
    loss.backward()
    grads = {name: p.grad for name, p in policy.model.named_parameters()}
    policy.model.zero_grad()
    missing = [name for name, grad in grads.items() if grad is None or not grad.isfinite().all()]
    assert not missing
    assert sum(float(grad.abs().sum()) for grad in grads.values()) > 0
    assert policy.model.model.layers[0].self_attn.q_proj.weight.requires_grad if kind == "text" else True
