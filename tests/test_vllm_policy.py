"""``vllm:`` over a stand-in for vLLM (``fake_vllm``): options, replies, scores, weights, samplers that misbehave."""

import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_vllm
import numpy as np
import pytest
from hf_models import chat, one_line, prompts_for
from test_conversation import language, played
from train_kit import FIXTURES, policy_of

from seed_agent.policy import MODELS, Message, Prompt, Sampling
from seed_envs.errors import ConfigError, DataError, MissingDependency, SeedError
from seed_envs.vector import Failure

torch, text_folder, _ = FIXTURES
Made = Callable[..., Any]


@pytest.fixture(scope="module")
def text_model(text_folder: Path) -> Any:
    """The transformers policy of the same model."""
    return policy_of(text_folder, batch=3)


@pytest.fixture
def copy(text_folder: Path, tmp_path: Path) -> Path:
    """A copy of the model's folder, to break."""
    return Path(shutil.copytree(text_folder, tmp_path / "model"))


@pytest.fixture
def made(torch: Any, text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return a function that makes the policy of the text model over a stand-in with faults."""
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")

    def make(*faults: str, options: str = "") -> Any:
        fake_vllm.install(monkeypatch, *faults)
        return MODELS.get("vllm")(f"{text_folder}{options}")

    return make


def _generate(policy: Any, count: int = 3, **how: Any) -> list[Any]:
    prompts = prompts_for(policy, "text", count)
    return list(policy.generate(prompts, Sampling(**{"max_tokens": 12, **how}), range(7, 7 + count)))


# --- making one -------------------------------------------------------------------------------------------------------


def test_without_vllm_the_message_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingDependency, match=r"'vllm' \(no vllm here\): pip install 'seed-suite\[vllm\]'"):
        MODELS.get("vllm")("some/model")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("m?device=cuda", "unknown option 'device'"),
        ("m?batch=0", "batch='0'"),
        ("m?context=8", "context='8'"),
        ("m?memory=1.5", "memory='1.5'"),
        ("m?memory=much", "share of the device's memory"),
        ("m?dtype=float64", "dtype='float64'"),
        ("m?eager=yes", "eager='yes'"),
        ("?batch=2", "names no model"),
    ],
)
def test_bad_options_are_refused_before_anything_is_loaded(rest: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        MODELS.get("vllm")(rest)


def test_bad_paths_and_vision_models_are_one_line(made: Made, copy: Path, tmp_path: Path) -> None:
    import transformers

    made()
    transformers.Qwen2VLConfig().save_pretrained(tmp_path / "vision")
    for rest, kind, said in [
        (tmp_path / "none", DataError, "there is no folder .*; expected vllm:FOLDER"),
        (tmp_path, DataError, "holds no config.json"),
        (tmp_path / "vision", ConfigError, "is a vision model; .* take hf:"),
    ]:
        with pytest.raises(kind, match=said) as caught:
            MODELS.get("vllm")(str(rest))
        one_line(caught.value)
    (copy / "config.json").write_text("{")
    with pytest.raises(DataError, match="cannot be loaded") as caught:
        MODELS.get("vllm")(str(copy))
    one_line(caught.value)


def test_an_engine_that_does_not_start_is_one_line(
    torch: Any, text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = fake_vllm.install(monkeypatch)
    module.start_error = ValueError("Free memory is less than desired\nand more lines")
    with pytest.raises(ConfigError, match=r"Free memory is less than desired; .* context=4096 or change memory=0\.5"):
        MODELS.get("vllm")(str(text_folder))


def test_how_the_engine_is_started(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    policy = made(options="?context=300&batch=5&memory=0.2")
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "vLLM 0.99.0 on cpu" in err and "context 300" in err
    options = policy.llm.options
    assert (options["max_model_len"], options["max_num_seqs"], options["gpu_memory_utilization"]) == (300, 5, 0.2)
    assert options["dtype"] == "float32"
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0" and os.environ["VLLM_LOGGING_LEVEL"] == "ERROR"
    assert (
        made().llm.options["enforce_eager"] is True and made(options="?eager=0").llm.options["enforce_eager"] is False
    )
    assert made(options="?context=9999").context == 4096  # never above the model's own


def test_what_is_recorded(made: Made, copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    facts = made().facts()
    assert facts["kind"] == "vllm" and facts["versions"]["vllm"] == "0.99.0" and facts["dtype"] == "float32"
    assert facts["architecture"] == "LlamaForCausalLM" and facts["chat_template_sha256"]
    assert MODELS.get("vllm")(str(copy)).facts()["weights_sha256"] == facts["weights_sha256"]
    weights = load_file(copy / "model.safetensors")
    weights["model.norm.weight"][3] += 1e-6
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert MODELS.get("vllm")(str(copy)).facts()["weights_sha256"] != facts["weights_sha256"]


# --- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0])
def test_log_probabilities_are_those_of_transformers(made: Made, text_model: Any, temperature: float) -> None:
    policy = made()
    prompts = prompts_for(policy, "text", 3)
    assert [p.ids for p in prompts] == [p.ids for p in prompts_for(text_model, "text", 3)]
    replies = _generate(policy, temperature=temperature)
    scores = text_model.score(prompts, [r.token_ids for r in replies], temperature=temperature or 1.0)
    for reply, score in zip(replies, scores, strict=True):
        assert np.allclose(reply.logp, score, atol=1e-4)


def test_below_top_p_1_replies_carry_no_log_probabilities(made: Made) -> None:
    policy = made()
    assert [r.logp for r in _generate(policy, top_p=0.6)] == [None] * 3
    greedy = _generate(policy, top_p=0.6, temperature=0.0)  # takes the most probable token whatever top_p is
    assert greedy == _generate(policy, temperature=0.0) and all(r.logp for r in greedy)


def test_a_reply_depends_on_its_seed_alone(made: Made) -> None:
    policy = made()
    prompt = policy.prompt(chat("go to desk 1"))
    first, second, again = policy.generate([prompt] * 3, Sampling(max_tokens=8), [1, 2, 1])
    assert first == again and first.token_ids != second.token_ids


def test_stop_strings_end_tokens_and_lengths(made: Made, text_folder: Path) -> None:
    policy = made()
    decode = policy.tokenizer.decode
    whole = _generate(policy, 1, max_tokens=24, stop=())[0]
    assert whole.stop_reason == "length" and len(whole.token_ids) == 24
    stop = decode(whole.token_ids[5:8])
    half = stop[: len(stop) - 1]  # the token that completes it carries more text
    for given in (stop, half):
        reply = _generate(policy, 1, max_tokens=24, stop=(given,))[0]
        assert reply.stop_reason == "stop" and reply.token_ids == whole.token_ids[: len(reply.token_ids)]
        assert reply.text == whole.text[: whole.text.find(given) + len(given)]
        assert len(reply.logp) == len(reply.token_ids) <= 8
    policy._ends = frozenset({whole.token_ids[6]})
    ended = _generate(policy, 1, max_tokens=24, stop=())[0]
    assert ended.token_ids == whole.token_ids[:7] and ended.stop_reason == "stop"  # with the end token
    assert ended.text == decode(whole.token_ids[:6])


def test_texts_are_cut_as_transformers_replies_are(made: Made, text_model: Any) -> None:
    """Greedy replies of both are the same completion in every part."""
    policy = made()
    prompts = prompts_for(policy, "text", 3)
    for stop in ((), ("e",), ("desk", " t")):
        sampling = Sampling(temperature=0, max_tokens=16, stop=stop)
        ours, theirs = (p.generate(prompts, sampling, [1, 2, 3]) for p in (policy, text_model))
        for one, other in zip(ours, theirs, strict=True):
            assert (one.text, one.token_ids, one.stop_reason) == (other.text, other.token_ids, other.stop_reason)
            assert np.allclose(one.logp, other.logp, atol=1e-4)


def test_prompts_that_fill_the_context_fail_alone(made: Made) -> None:
    policy = made(options="?context=64")
    long, nearly, fine = (Prompt(chat("x"), (400,) * n) for n in (64, 61, 20))
    answers = policy.generate([long, nearly, fine], Sampling(max_tokens=5, stop=()), [0, 1, 2])
    assert (
        isinstance(answers[0], Failure) and answers[0].type == "PromptTooLong" and "context of 64" in answers[0].message
    )
    assert [(len(a.token_ids), a.stop_reason) for a in answers[1:]] == [(3, "length"), (5, "length")]
    assert policy.generate([long], Sampling(), [0]) == answers[:1] and policy.generate([], Sampling(), []) == []
    assert policy.llm.sizes == [2]


def test_values_that_cannot_be_sampled_by_are_refused(made: Made) -> None:
    policy = made()
    for how in ({"temperature": -1.0}, {"top_p": 0.0}, {"max_tokens": 0}, {"temperature": 0.005}):
        with pytest.raises(ConfigError, match=r"cannot be used|must be"):
            _generate(policy, **how)  # vLLM would turn the last one into 0.01


def test_images_are_refused(made: Made) -> None:
    policy = made()
    assert policy.sees is False
    with pytest.raises(ConfigError, match=r"vllm:.* is a text model, and the prompt holds 1 image"):
        policy.prompt(chat("<image>", np.zeros((8, 8, 3), np.uint8)))


# --- conversations ----------------------------------------------------------------------------------------------------


def test_a_conversation_goes_on_behind_the_very_tokens_that_were_sampled(made: Made, text_model: Any) -> None:
    policy = made()
    begun = policy.prompt((Message("user", "Your task is to: win"),))
    (reply,) = policy.generate([begun], Sampling(max_tokens=6), [3])
    said, end = reply.token_ids, text_model.tokenizer.eos_token_id
    chat = (*begun.chat, Message("assistant", reply.text), Message("user", "You see a lamp."))
    after = policy.extend(begun, said, chat)
    assert (after.chat, after.ids) == (chat, text_model.extend(begun, said, chat).ids)
    start = len(begun.ids)
    assert after.ids[: start + len(said)] == begun.ids + said and after.replies == ((start, start + len(said)),)
    ended = policy.extend(begun, (*said, end), chat)  # the template's own end of a reply is not written twice
    assert ended.ids == after.ids and ended.replies == ((start, start + len(said) + 1),)
    (again,) = policy.generate([after], Sampling(max_tokens=6), [4])
    (scores,) = text_model.score([after], [again.token_ids])
    assert np.allclose(again.logp, scores, atol=1e-4)


def test_it_plays_a_conversation_whose_prompts_only_grow(made: Made) -> None:
    policy, asked = made(), list[Prompt]()
    real = policy.generate

    def generate(prompts: Any, *how: Any) -> Any:
        asked.extend(prompts)
        return real(prompts, *how)

    policy.generate = generate
    first, second = played(policy, language(), turns=2)
    for episode, (before, after) in ((first, asked[::2]), (second, asked[1::2])):
        assert after.ids[: len(before.ids)] == before.ids and before.replies == ()
        assert [after.ids[a:b] for a, b in after.replies] == [episode.turns[0].token_ids]


# --- scores -----------------------------------------------------------------------------------------------------------


def test_scores_are_those_of_transformers(made: Made, text_model: Any) -> None:
    policy = made()
    prompts = prompts_for(policy, "text", 3)
    replies = [(400, 401, 402), (), (600,)]
    for one, other in zip(policy.score(prompts, replies), text_model.score(prompts, replies), strict=True):
        assert len(one) == len(other) and np.allclose(one, other, atol=1e-4)
    with pytest.raises(ConfigError, match=r"at temperature 1 only, not at 0\.4"):
        policy.score(prompts, replies, temperature=0.4)


def test_scores_that_cannot_be_had_are_refused(made: Made) -> None:
    policy = made("no_prompt_logprobs", options="?context=64")
    with pytest.raises(SeedError, match="scored 0 of 2 tokens"):
        policy.score([Prompt(chat("x"), (400,) * 5)], [(1, 2)])
    with pytest.raises(ConfigError, match="needs room for one more"):
        policy.score([Prompt(chat("x"), (400,) * 62)], [(1, 2)])


# --- samplers that misbehave ------------------------------------------------------------------------------------------


def test_tokens_behind_the_end_are_left_out(made: Made) -> None:
    """One more after the length limit, one more after a stop string."""
    good, bad = made(), made("extra_token")
    assert _generate(bad, stop=()) == _generate(good, stop=())
    stop = good.tokenizer.decode(_generate(good, 1, stop=())[0].token_ids[5:8])
    assert _generate(bad, 1, stop=(stop,)) == _generate(good, 1, stop=(stop,))


def test_answers_out_of_order_are_put_in_order(made: Made) -> None:
    assert _generate(made("shuffle")) == _generate(made())


@pytest.mark.parametrize("faults", [("lose_one",), ("other_prompts",), ("anonymous", "shuffle")])
def test_answers_to_something_else_are_refused(made: Made, faults: tuple[str, ...]) -> None:
    with pytest.raises(SeedError, match=r"vLLM gave \d answers to 3 prompts, not one to each") as caught:
        _generate(made(*faults))
    one_line(caught.value)


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("no_logprobs", "NoLogProbs", "no log-probability of token 1 of 12"),
        ("short_logprobs", "NoLogProbs", "no log-probability of token 1 of 12"),
        ("nan", "BadLogits", "not finite numbers"),
        ("abort", "Unfinished", "for the reason 'abort'"),
    ],
)
def test_replies_a_trainer_could_not_use_fail(made: Made, fault: str, kind: str, said: str) -> None:
    for answer in _generate(made(fault), stop=()):
        assert isinstance(answer, Failure) and answer.type == kind and said in answer.message


def test_a_reply_without_the_token_that_ended_it_fails(made: Made) -> None:
    good = made()
    whole = _generate(good, 1, stop=())[0]
    policy = made("drop_end")
    stop = policy.tokenizer.decode(whole.token_ids[5:8])
    (answer,) = _generate(policy, 1, stop=(stop,))
    assert isinstance(answer, Failure) and answer.type == "LostTokens" and repr(stop) in answer.message
    policy._ends = frozenset({whole.token_ids[6]})
    (answer,) = _generate(policy, 1, stop=())
    assert isinstance(answer, Failure) and "stopped at an end token, which is not in the 6 tokens" in answer.message


# --- weights ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def other(torch: Any, text_model: Any) -> Any:
    """A transformers policy of the same model with other weights."""
    from copy import deepcopy

    from seed_agent.backends.hf import HFPolicy

    model = deepcopy(text_model.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    return HFPolicy("other", model, text_model.tokenizer)


def _gap(policy: Any, reference: Any) -> float:
    """Return how far sampled log-probabilities are from a transformers model's."""
    prompts = prompts_for(policy, "text", 3)
    replies = policy.generate(prompts, Sampling(max_tokens=6, stop=()), [1, 2, 3])
    scores = reference.score(prompts, [reply.token_ids for reply in replies])
    return max(abs(a - b) for r, line in zip(replies, scores, strict=True) for a, b in zip(r.logp, line, strict=True))


def test_new_weights_leave_nothing_of_the_old(made: Made, text_model: Any, other: Any) -> None:
    policy = made()
    assert _gap(policy, text_model) < 1e-4 < 1e-2 < _gap(policy, other)
    policy.sync(other.model)
    assert _gap(policy, other) < 1e-4
    policy.sync(text_model.model)
    assert _gap(policy, text_model) < 1e-4
    assert policy.llm.calls == ["reload_weights", "reset_prefix_cache"] * 2


def test_a_prefix_cache_that_is_kept_would_show(made: Made, text_model: Any, other: Any) -> None:
    """What the tests above and ``rl/logp_drift_max`` rest on."""
    policy = made("keep_cache")
    assert _gap(policy, text_model) < 1e-4
    policy.sync(other.model)
    assert _gap(policy, other) > 1e-2


def test_the_weights_are_handed_over_as_they_are_now(torch: Any, made: Made, text_model: Any, other: Any) -> None:
    policy = made(options="?dtype=bfloat16")
    policy.sync(other.model)
    held = policy.llm.model.model.norm.weight.detach().clone()
    assert held.dtype == torch.bfloat16
    with torch.no_grad():
        other.model.model.norm.weight.zero_()
    assert torch.equal(policy.llm.model.model.norm.weight, held) and float(held.abs().sum()) > 0


@pytest.mark.parametrize(
    ("fault", "said"),
    [("refuse_weights", r"cannot take over .* \(?ValueError: There is no module"), ("refuse_reset", "prefix cache")],
)
def test_weights_that_do_not_arrive_stop_the_run(made: Made, text_model: Any, fault: str, said: str) -> None:
    with pytest.raises(SeedError, match=said) as caught:
        made(fault).sync(text_model.model)
    one_line(caught.value)


def test_closing_ends_the_engine(made: Made) -> None:
    policy = made()
    calls = policy.llm.calls
    policy.close()
    policy.close()
    assert calls == ["shutdown"]


def test_numbers_in_vllms_entries() -> None:
    from seed_agent.backends.vllm import number_of

    line = {5: fake_vllm.Logprob(-0.25)}
    assert number_of(line, 5) == -0.25 and number_of(line, 4) is None and number_of(None, 5) is None
    assert math.isnan(number_of({5: fake_vllm.Logprob(math.nan)}, 5) or 0.0)


# --- playing ----------------------------------------------------------------------------------------------------------


def test_it_plays_from_the_command_line(
    torch: Any, text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.eval import main

    fake_vllm.install(monkeypatch)
    out = tmp_path / "run"
    args = ["--env", "seed_envs/ALFWorld-v0", "--policy", f"vllm:{text_folder}", "--limit", "2", "--out", str(out)]
    assert main([*args, "--split", "valid_seen", "--max-turns", "2", "--max-reply-tokens", "6"]) == 0
    episodes = [json.loads(line) for line in (out / "trajectories.jsonl").read_text().splitlines()]
    assert len(episodes) == 2 and all(e["policy"].startswith("vllm:") and not e["error"] for e in episodes)
    assert all(len(turn["token_ids"]) == len(turn["logp"]) > 0 for e in episodes for turn in e["turns"])
