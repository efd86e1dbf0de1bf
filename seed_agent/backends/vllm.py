"""``vllm:NAME_OR_PATH``: a text model on vLLM, in this process.

vLLM, torch and transformers are imported when a model is made, never before.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seed_agent.backends.hf_load import DTYPES, Placement, complaint, load, place, quiet, source_of
from seed_agent.backends.hf_render import Renderer, Rendering
from seed_agent.backends.reply import SpecOptions, Writer, check_sampling, end_tokens, too_long
from seed_agent.backends.vllm_engine import MEMORY, EngineOptions, files_sha256, library, shut_down, start, sync
from seed_agent.policy import Completion, Prompt, Sampling
from seed_envs.errors import ConfigError, DataError, SeedError
from seed_envs.vector import Failure

EXAMPLE = "vllm:Qwen/Qwen2.5-3B-Instruct?context=4096&memory=0.8"
OPTIONS = {
    "dtype": ", ".join(DTYPES),
    "batch": "a whole number from 1 to 4096",
    "context": "a whole number of tokens from 16 to 16777216",
    "memory": "a share of the device's memory, above 0 and below 1",
    "eager": "0 (vLLM compiles the model first) or 1 (the default on a CPU)",
}
_COLDEST = 0.01
"""vLLM silently raises temperatures between 0 and this one to it."""


def make(rest: str) -> "VLLMPolicy":
    """Load the model of ``NAME_OR_PATH[?dtype=T&batch=N&context=N&memory=F&eager=0|1]``.

    Raises:
        ConfigError: when an option cannot be used, or vLLM cannot run the model.
        DataError: when there is no such model.
        MissingDependency: when vLLM is not installed.
    """
    name, _, query = rest.partition("?")
    if not name:
        raise ConfigError(f"vllm:{rest} names no model; expected vllm:NAME_OR_PATH, such as {EXAMPLE}")
    options = SpecOptions("vllm", query, OPTIONS, EXAMPLE)
    batch, memory = options.whole("batch", 64, 1, 4096), options.share("memory", MEMORY)
    context = options.whole("context", 1 << 24, 16, 1 << 24)
    dtype, eager = options.choice("dtype", DTYPES), options.choice("eager", ("0", "1"))
    library()
    placement = place("", dtype)
    eager = eager or str(int(placement.device == "cpu"))
    source, config, tokenizer, generation = _files(name)
    longest = getattr(config.get_text_config(), "max_position_embeddings", None) or context
    engine = EngineOptions(placement.dtype, min(context, longest), batch, memory, eager == "1")
    policy = VLLMPolicy(
        name,
        start(source, engine),
        tokenizer,
        generation,
        engine,
        placement=placement,
        architecture=(config.architectures or [""])[0],
        source=source,
    )
    sys.stderr.write(f"{policy.name}: vLLM {library().__version__} on {placement.reason}, context {engine.context}\n")
    return policy


def _files(name: str) -> tuple[str, Any, Any, Any]:
    """Return what to load, its configuration, tokenizer and generation settings.

    Raises:
        DataError: when there is no such model.
        ConfigError: when it is a vision model.
    """
    transformers = load("transformers")
    source = source_of(name, "vllm")
    try:
        with quiet():
            config = transformers.AutoConfig.from_pretrained(source)
            if getattr(config, "vision_config", None) is not None:
                raise ConfigError(f"vllm:{name} is a vision model; this backend takes text models only, take hf:{name}")
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            try:
                generation = transformers.GenerationConfig.from_pretrained(source)
            except OSError:  # has none
                generation = config
    except ConfigError:
        raise
    except Exception as error:  # the one boundary to files and hubs of any state
        raise DataError(complaint(name, error, "vllm")) from error
    return source, config, tokenizer, generation


class VLLMPolicy(Rendering):
    """A text model on vLLM that plays and scores.

    **Text and tokens** are those of ``HFPolicy``: the very ids sampled with the token that ended the
    reply, and their decoding, cut behind the first stop string. vLLM's own text is not used.

    **Log-probabilities** are vLLM's, of the whole softmax at the sampling temperature (at 1 for
    greedy decoding); a transformers model of the same weights gives them up to rounding. With
    ``top_p`` below 1 vLLM reports those of the cut distribution, so replies then carry none.

    **Seeds.** Each request draws from its own stream of vLLM's; the replies are not those of ``hf:``.
    """

    sees = False

    def __init__(
        self,
        name: str,
        llm: Any,
        tokenizer: Any,
        generation_config: Any,
        options: EngineOptions,
        *,
        placement: Placement | None = None,
        architecture: str = "",
        source: str | None = None,
    ) -> None:
        """Take an engine from ``start``; ``make`` starts one.

        Args:
            name: What records call it, without ``vllm:``.
            llm: The engine.
            tokenizer: The model's, of transformers.
            generation_config: Names the model's end tokens.
            options: What the engine was started with.
            placement: Why it is where it is, for the record.
            architecture: The model's class, for the record.
            source: Whose files ``facts`` hashes; None where the weights come from a model in training.
        """
        self.name = f"vllm:{name}"
        self.llm, self.tokenizer, self.options = llm, tokenizer, options
        self.context: int | None = options.context
        self.renderer = Renderer(name, tokenizer, kind="vllm")
        self._ends = end_tokens(generation_config, tokenizer)
        self._placement, self._architecture, self._source = placement, architecture, source

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]
    ) -> list[Completion | Failure]:
        """Complete every prompt, in order.

        A reply ends as one of ``HFPolicy`` does. A ``Failure`` stands in the place of a prompt that
        fills the context, of logits that are no numbers, and of a reply of which vLLM does not
        return what a trainer must know: every token, every log-probability, why it ended.

        Raises:
            ConfigError: when ``sampling`` has a value that cannot be used.
            SeedError: when vLLM answers something else than what it was asked.
        """
        check_sampling(sampling)
        if 0 < sampling.temperature < _COLDEST:
            heat = sampling.temperature
            raise ConfigError(f"temperature {heat} cannot be used on vLLM; expected 0 (greedy) or {_COLDEST} and above")
        rows = [self._ids(prompt) for prompt in prompts]
        answers = [too_long(len(ids), self.context) for ids in rows]
        asked = [i for i, refused in enumerate(answers) if refused is None]
        writers = {i: self._writer(rows[i], sampling, seeds[i]) for i in asked}
        params = [self._params(sampling, seeds[i], writers[i].room) for i in asked]
        outputs = dict(zip(asked, self._run([rows[i] for i in asked], params), strict=True))
        known = sampling.top_p == 1 or sampling.temperature == 0
        return [
            refused if refused is not None else read_reply(outputs[i], writers[i], logp=known)
            for i, refused in enumerate(answers)
        ]

    def score(
        self, prompts: Sequence[Prompt], completions: Sequence[Sequence[int]], *, temperature: float = 1.0
    ) -> list[tuple[float, ...]]:
        """Return the log-probability in nats of every token of every completion, at temperature 1.

        Raises:
            ConfigError: at any other temperature, which vLLM does not apply to given tokens, or when
                a sequence fills the model's context.
            SeedError: when vLLM does not return them.
        """
        if temperature != 1:
            raise ConfigError(
                f"vLLM scores given tokens at temperature 1 only, not at {temperature}; take hf: for that"
            )
        rows = [self._ids(p) + tuple(c) for p, c in zip(prompts, completions, strict=True)]
        for row in rows:
            if self.context is not None and len(row) >= self.context:  # vLLM always samples one more
                raise ConfigError(
                    f"cannot score {len(row)} tokens on vLLM in a context of {self.context}, which needs room for one "
                    "more; shorten the prompt"
                )
        wanted = [i for i, completion in enumerate(completions) if len(completion)]
        params = library().SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
        outputs = self._run([rows[i] for i in wanted], [params] * len(wanted))
        scores: list[tuple[float, ...]] = [()] * len(rows)
        for i, output in zip(wanted, outputs, strict=True):
            first, found = len(rows[i]) - len(completions[i]), output.prompt_logprobs or ()
            lines = list(found)[first:] if len(found) == len(rows[i]) else []
            nats = [number_of(line, token) for line, token in zip(lines, completions[i], strict=False)]
            known = tuple(x for x in nats if x is not None and math.isfinite(x))
            if len(known) != len(completions[i]):
                raise SeedError(
                    f"vLLM scored {len(known)} of {len(completions[i])} tokens; expected a finite number each"
                )
            scores[i] = known
        return scores

    def sync(self, model: Any) -> None:
        """Give vLLM the weights of ``model`` as they are now, and forget what it computed with others.

        Args:
            model: The transformers model of the same configuration.

        Raises:
            SeedError: when vLLM cannot take them.
        """
        sync(self.llm, model, self.options.dtype)

    def facts(self) -> dict[str, Any]:
        """Return what a run records of the model; the files are hashed on the first call."""
        versions = {name: str(load(name).__version__) for name in ("torch", "transformers", "tokenizers")}
        found = {
            "kind": "vllm",
            "model": self.name.removeprefix("vllm:"),
            "architecture": self._architecture,
            "dtype": self.options.dtype,
            "device": self._placement.device if self._placement else "",
            "placement": self._placement.reason if self._placement else "",
            "batch": self.options.batch,
            "context": self.context,
            "versions": {"vllm": str(library().__version__), **versions},
            **self.renderer.facts(),
        }
        return found if self._source is None else found | {"weights_sha256": self._files_sha256(self._source)}

    _hash: str | None = None

    def _files_sha256(self, source: str) -> str:
        self._hash = self._hash or files_sha256(source)
        return self._hash

    def close(self) -> None:
        """End the engine and free its memory."""
        llm, self.llm = self.llm, None
        shut_down(llm)

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        return self.renderer.ids(prompt.chat) if prompt.ids is None else prompt.ids

    def _writer(self, ids: Sequence[int], sampling: Sampling, seed: int) -> Writer:
        assert self.context is not None
        room = min(sampling.max_tokens, self.context - len(ids))
        return Writer(self.tokenizer, self.renderer.opening(ids), sampling.stop, self._ends, room, seed)

    def _params(self, sampling: Sampling, seed: int, room: int) -> Any:
        return library().SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p if sampling.temperature else 1.0,
            max_tokens=room,
            seed=seed,
            stop=list(sampling.stop) or None,
            stop_token_ids=sorted(self._ends),
            include_stop_str_in_output=True,
            logprobs=0,
        )

    def _run(self, rows: Sequence[Sequence[int]], params: Sequence[Any]) -> list[Any]:
        """Return vLLM's output for every row of token ids, in their order.

        Raises:
            SeedError: when they are not the outputs of these rows.
        """
        if not rows:
            return []
        torch = load("torch")
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        with torch.autocast(kind, enabled=False):  # a trainer may compute in another format around this
            prompts = [{"prompt_token_ids": list(row)} for row in rows]
            found = list(self.llm.generate(prompts, list(params), use_tqdm=False))
        if all(str(output.request_id).isdecimal() for output in found):  # counted in the order of asking
            found.sort(key=lambda output: int(output.request_id))
        if [tuple(output.prompt_token_ids) for output in found] != [tuple(row) for row in rows]:
            raise SeedError(f"vLLM gave {len(found)} answers to {len(rows)} prompts, not one to each in their order")
        return found


def read_reply(output: Any, writer: Writer, *, logp: bool) -> Completion | Failure:
    """Return what one ``RequestOutput`` of vLLM holds, as ``Writer`` cuts and decodes it.

    What vLLM sampled behind the end of the reply is left out: the reply is the same without it.

    Args:
        output: With one sequence.
        writer: Of this request, with nothing in it yet.
        logp: Whether the log-probabilities are those that a completion carries.
    """
    reply = output.outputs[0]
    ids = list(reply.token_ids)
    if reply.finish_reason not in ("stop", "length") or not ids:
        return Failure("Unfinished", f"vLLM ended a reply of {len(ids)} tokens for the reason {reply.finish_reason!r}")
    lines = list(reply.logprobs or ())
    going = True
    for at, token in enumerate(ids):
        nats = number_of(lines[at], token) if len(lines) == len(ids) else None
        if nats is None and logp:
            return Failure("NoLogProbs", f"vLLM gave no log-probability of token {at + 1} of {len(ids)}")
        going = writer.add(token, 0.0 if nats is None or not logp else nats)
        if not going:
            break
    if going and reply.finish_reason == "stop":
        why = "an end token" if reply.stop_reason is None else repr(reply.stop_reason)
        return Failure("LostTokens", f"vLLM stopped at {why}, which is not in the {len(ids)} tokens it returned")
    answer = writer.answer()
    return answer if logp or isinstance(answer, Failure) else replace(answer, logp=None)


def number_of(line: Any, token: int) -> float | None:
    """Return the log-probability of ``token`` in vLLM's entry for a position, None where there is none."""
    found = line.get(token) if line else None
    return None if found is None else float(found.logprob)
