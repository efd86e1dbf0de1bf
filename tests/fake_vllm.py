"""A stand-in for the package ``vllm`` of the same signatures, over a tiny transformers model.

It samples by its own means, one request after another, keeps a prefix cache as vLLM does, and can be
told to misbehave as real samplers have: ``faults`` of the installed module.
"""

import importlib.machinery
import inspect
import sys
import types
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import pytest

from seed_agent.backends.hf_load import quiet

FAULTS = (
    *("drop_end", "no_logprobs", "short_logprobs", "nan", "extra_token", "shuffle", "lose_one"),
    *("other_prompts", "abort", "keep_cache", "refuse_reset", "refuse_weights", "no_prompt_logprobs", "anonymous"),
)


@dataclass
class SamplingParams:
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int | None = 16
    seed: int | None = None
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        if 0 < self.temperature < 1e-2:  # as vLLM does, with a warning only
            self.temperature = 1e-2


@dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: int | str | None = None
    index: int = 0


@dataclass
class RequestOutput:
    request_id: str
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None


class FakeModule(types.ModuleType):
    """What ``install`` puts in vLLM's place."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("vllm")
        self.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
        self.__version__ = "0.99.0"
        self.SamplingParams = SamplingParams
        self.faults = set(faults)
        self.engines: list[LLM] = []
        self.start_error: Exception | None = None

    def LLM(self, model: str, **options: Any) -> "LLM":
        if self.start_error is not None:
            raise self.start_error
        self.engines.append(LLM(self, model, options))
        return self.engines[-1]


def install(monkeypatch: pytest.MonkeyPatch, *faults: str) -> FakeModule:
    """Have ``import vllm`` give the stand-in until the test ends."""
    assert set(faults) <= set(FAULTS)
    module = FakeModule(faults)
    monkeypatch.setitem(sys.modules, "vllm", module)
    return module


class LLM:
    """``vllm.LLM`` in one process: a prefix is computed once and kept until ``reset_prefix_cache``."""

    def __init__(self, module: FakeModule, model: str, options: dict[str, Any]) -> None:
        import torch
        import transformers

        assert options["logprobs_mode"] == "processed_logprobs" and options["generation_config"] == "vllm"
        self.module, self.options, self.torch = module, options, torch
        dtype = getattr(torch, options["dtype"])
        with quiet():
            self.model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
        accepted = inspect.signature(self.model.forward).parameters
        self.cache_type, self.cache_name = (
            transformers.DynamicCache,
            "cache" if "cache" in accepted else "past_key_values",
        )
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        self.prefixes: dict[tuple[int, ...], Any] = {}
        self.calls: list[str] = []
        self.sizes: list[int] = []
        self.autocast: list[bool] = []
        self._asked = 0
        self.llm_engine = types.SimpleNamespace(engine_core=types.SimpleNamespace(shutdown=self._end))

    def _end(self) -> None:
        self.calls.append("shutdown")

    # --- weights ---

    def collective_rpc(
        self, method: str, timeout: float | None = None, args: Any = (), kwargs: Any = None
    ) -> list[Any]:
        self.calls.append(method)
        if "refuse_weights" in self.module.faults:
            raise ValueError("There is no module or parameter named 'lm_head'\nin LlamaForCausalLM")
        assert method == "reload_weights" and list(kwargs) == ["weights_iterator"]
        found = {}
        for name, tensor in kwargs["weights_iterator"]:
            assert tensor.dtype == self.model.dtype and not tensor.requires_grad
            found[name] = tensor.clone()
        report = self.model.load_state_dict(found, strict=True, assign=False)  # tied names have to be there too
        assert not report.missing_keys
        return [None]

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        self.calls.append("reset_prefix_cache")
        if "refuse_reset" in self.module.faults:
            return False
        if "keep_cache" not in self.module.faults:
            self.prefixes.clear()
        return True

    # --- generation ---

    def generate(self, prompts: Sequence[Any], sampling_params: Any, *, use_tqdm: Any = True) -> list[RequestOutput]:
        assert use_tqdm is False, "bars belong to the suite"
        self.sizes.append(len(prompts))
        self.autocast.append(self.torch.is_autocast_enabled("cpu"))
        outputs = []
        with self.torch.inference_mode():
            for prompt, params in zip(prompts, sampling_params, strict=True):
                ids = prompt["prompt_token_ids"]
                if len(ids) >= self.options["max_model_len"]:
                    raise ValueError(f"The decoder prompt (length {len(ids)}) is longer than the maximum model length")
                outputs.append(self._request(list(ids), params))
        return _broken(outputs, self.module.faults)

    def _request(self, ids: list[int], params: SamplingParams) -> RequestOutput:
        name, self._asked = str(self._asked), self._asked + 1
        told = None
        if params.prompt_logprobs is not None and "no_prompt_logprobs" not in self.module.faults:
            logits = self.model(self.torch.tensor([ids])).logits[0].float().log_softmax(-1)
            told = [None, *({t: Logprob(float(logits[i, t]))} for i, t in enumerate(ids[1:]))]
        return RequestOutput(name, ids, [self._reply(ids, params)], told)

    def _steps(self, ids: list[int]) -> Iterator[Any]:
        """Yield the logits after the prompt, then after each token sent in."""
        key = tuple(ids)
        if key not in self.prefixes:
            cache = self.cache_type(config=self.model.config)
            self.prefixes[key] = (self._forward(ids, cache), cache)
        logits, cache = self.prefixes[key]
        cache = deepcopy(cache)
        while True:
            token = yield logits
            logits = self._forward([token], cache)

    def _forward(self, ids: list[int], cache: Any) -> Any:
        found = self.model(self.torch.tensor([ids]), use_cache=True, **{self.cache_name: cache})
        return found.logits[0, -1].float()

    def _reply(self, ids: list[int], params: SamplingParams) -> CompletionOutput:
        torch, faults = self.torch, self.module.faults
        stream = torch.Generator().manual_seed(params.seed or 0)
        steps = self._steps(ids)
        logits = next(steps)
        written: list[int] = []
        lines: list[dict[int, Logprob]] = []
        room = min(params.max_tokens or 16, self.options["max_model_len"] - len(ids))
        while True:
            token, nats = _draw(torch, logits, params, stream)
            written.append(token)
            lines.append({token: Logprob(float("nan") if "nan" in faults else nats, 1, self.tokenizer.decode([token]))})
            text = self.tokenizer.decode(written, skip_special_tokens=True)
            hit = next((stop for stop in params.stop or () if stop in text), None)
            ended = token in (params.stop_token_ids or ())
            if ended or hit is not None or len(written) == room:
                break
            logits = steps.send(token)
        if hit is not None and not params.include_stop_str_in_output:
            text = text[: text.find(hit)]  # the token ids keep it
        reason = "stop" if ended or hit is not None else "length"
        return CompletionOutput(text, written, lines if params.logprobs is not None else None, reason, hit)


def _draw(torch: Any, logits: Any, params: SamplingParams, stream: Any) -> tuple[int, float]:
    """Return a token and its log-probability in the distribution it was drawn from."""
    if params.temperature == 0:
        token = int(logits.argmax())
        return token, float(logits.log_softmax(-1)[token])
    logits = logits / params.temperature
    if params.top_p < 1:
        ordered, order = logits.softmax(-1).sort(descending=True)
        logits = logits.clone()
        logits[order[ordered.cumsum(-1) - ordered >= params.top_p]] = -torch.inf
    token = int(torch.multinomial(logits.softmax(-1), 1, generator=stream))
    return token, float(logits.log_softmax(-1)[token])


def _broken(outputs: list[RequestOutput], faults: set[str]) -> list[RequestOutput]:
    """Return the outputs with the faults that are asked for."""
    for output in outputs:
        _break(output.outputs[0], faults)
    if "anonymous" in faults:
        outputs = [replace(output, request_id=f"r-{i}") for i, output in enumerate(outputs)]
    if "shuffle" in faults:
        outputs = outputs[::-1]
    if "lose_one" in faults:
        outputs = outputs[1:]
    if "other_prompts" in faults:
        outputs = [replace(output, prompt_token_ids=[1, 2, 3]) for output in outputs]
    return outputs


def _break(reply: CompletionOutput, faults: set[str]) -> None:
    if "abort" in faults:
        reply.finish_reason = "abort"
    if "drop_end" in faults and reply.finish_reason == "stop":
        reply.token_ids, reply.logprobs = reply.token_ids[:-1], (reply.logprobs or [])[:-1]
    if "extra_token" in faults:
        last = reply.token_ids[-1]
        reply.token_ids, reply.logprobs = [*reply.token_ids, last], [*(reply.logprobs or []), {last: Logprob(-0.5)}]
    if "no_logprobs" in faults:
        reply.logprobs = None
    if "short_logprobs" in faults and reply.logprobs:
        reply.logprobs = reply.logprobs[:-1]
