"""``hf:NAME_OR_PATH``: a language model that runs here, by the transformers library.

Torch and transformers are imported when a model is made, never before.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from seed_agent.backends.hf_load import Placement, load, load_model, place, weights_sha256
from seed_agent.backends.hf_model import Network, Row, join
from seed_agent.backends.hf_render import Renderer, Rendering
from seed_agent.backends.hf_vision import MIN_PIXELS, Vision, vision_of
from seed_agent.backends.reply import SpecOptions, Writer, check_sampling, end_tokens, too_long
from seed_agent.policy import Completion, Prompt, Sampling
from seed_envs.errors import ConfigError
from seed_envs.vector import Failure

T = TypeVar("T")

EXAMPLE = "hf:Qwen/Qwen3-0.6B?device=cpu&batch=4"
OPTIONS = {
    "device": "cpu, cuda or cuda:N",
    "dtype": "float32, bfloat16 or float16",
    "batch": "a whole number from 1 to 4096",
    "min_pixels": "a whole number from 0 to 16777216",
}

_LOGITS = 1 << 28
"""At most so many logits are in memory while scoring: 1 GiB in float32."""


def make(rest: str) -> "HFPolicy":
    """Load the model of ``NAME_OR_PATH[?device=D&dtype=T&batch=N&min_pixels=N]``.

    Where it runs, and why, is said in one line on stderr.

    Raises:
        ConfigError: when an option is not known or cannot be used.
        DataError: when there is no such model.
        MissingDependency: when torch or transformers is not installed.
    """
    name, _, query = rest.partition("?")
    if not name:
        raise ConfigError(f"hf:{rest} names no model; expected hf:NAME_OR_PATH, such as {EXAMPLE}")
    options = SpecOptions("hf", query, OPTIONS, EXAMPLE)
    batch, min_pixels = options.whole("batch", 16, 1, 4096), options.whole("min_pixels", MIN_PIXELS, 0, 1 << 24)
    placement = place(options.text("device"), options.text("dtype"))
    loaded = load_model(name, placement)
    vision = None
    if loaded.images is not None:
        vision = vision_of(loaded.model.config, loaded.images, loaded.tokenizer, min_pixels)
    policy = HFPolicy(name, loaded.model, loaded.tokenizer, vision, batch=batch, placement=placement)
    sys.stderr.write(f"{policy.name}: {policy.parameters / 1e6:.1f} M parameters on {placement.reason}\n")
    return policy


class HFPolicy(Rendering):
    """A transformers model that plays and scores.

    **Text and tokens.** ``token_ids`` are exactly what was sampled, the end-of-sequence token
    included; they are never encoded again from text. ``text`` is their decoding without special
    tokens, cut behind the first stop string: the token that completes it may carry more text.
    Where the template's generation prompt has opened a think tag, ``text`` begins with that tag.

    **Log-probabilities** are of the whole softmax in float32 at the sampling temperature (at 1
    for greedy decoding), so ``score`` at that temperature gives them again.

    **Seeds.** Each request draws from its own stream, one number a token, so its reply depends
    neither on its place in the batch nor on its neighbours, up to the rounding of sums that a
    batch of another shape may change.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        vision: Vision | None = None,
        *,
        batch: int = 16,
        placement: Placement | None = None,
    ) -> None:
        """Take a model in memory; ``make`` loads one.

        Args:
            name: What records call it, without ``hf:``.
            model: A causal language model of transformers.
            tokenizer: Its tokenizer.
            vision: Its image side, None for a text model.
            batch: Sequences computed together, at most.
            placement: Why the model is where it is, for the record.
        """
        self.name = f"hf:{name}"
        self.model, self.tokenizer, self.batch, self.placement = model, tokenizer, batch, placement
        self.network = Network(model, vision)
        self.renderer = Renderer(name, tokenizer, vision)
        self.context: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._ends = end_tokens(getattr(model, "generation_config", None), tokenizer)

    @property
    def sees(self) -> bool:
        """Whether the model takes images."""
        return self.network.vision is not None

    @property
    def parameters(self) -> int:
        """How many parameters the model has."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]
    ) -> list[Completion | Failure]:
        """Complete every prompt, in order.

        A reply ends behind a stop string or at an end-of-sequence token (``stop``), else after
        ``max_tokens`` or at the end of the model's context (``length``). A ``Failure`` stands in
        the place of a prompt that fills the context (PromptTooLong), that does not fit into
        memory even alone (OutOfMemory) or whose logits are not numbers (BadLogits).

        Raises:
            ConfigError: when ``sampling`` has a value that cannot be used.
        """
        check_sampling(sampling)
        asked = [(self._row(prompt), seed) for prompt, seed in zip(prompts, seeds, strict=True)]
        rows = [row for row, _ in asked]
        answers: list[Completion | Failure | None] = [too_long(len(row.ids), self.context) for row in rows]

        def write(chosen: Sequence[int]) -> list[Completion | Failure]:
            writers = [self._writer(asked[i][0], sampling, asked[i][1]) for i in chosen]
            self.network.sample([rows[i] for i in chosen], writers, sampling)
            return [writer.answer() for writer in writers]

        for chosen in self._batches([i for i, answer in enumerate(answers) if answer is None], rows):
            for i, answer in zip(chosen, self._halving(write, chosen), strict=True):
                answers[i] = answer
        return [answer for answer in answers if answer is not None]

    def score(
        self, prompts: Sequence[Prompt], completions: Sequence[Sequence[int]], *, temperature: float = 1.0
    ) -> list[tuple[float, ...]]:
        """Return the log-probability in nats of every token of every completion.

        A separate pass over prompt and completion, with the prompt's images.

        Raises:
            ConfigError: when the temperature is not above 0 (greedy decoding gives probability 1
                to one token, so there is nothing to score; its replies carry log-probabilities at
                temperature 1), or when a sequence exceeds the model's context or the memory.
        """
        if not 0 < temperature < math.inf:
            raise ConfigError(
                f"cannot score at temperature {temperature}; expected a number above 0, 1 for greedy replies"
            )
        rows = [self._row(p, tuple(c)) for p, c in zip(prompts, completions, strict=True)]
        scores: list[tuple[float, ...]] = [()] * len(rows)
        for row in rows:
            if self.context is not None and len(row.ids) > self.context:
                raise ConfigError(
                    f"cannot score {len(row.ids)} tokens in a context of {self.context}; shorten the prompt"
                )

        def read(chosen: Sequence[int]) -> list[tuple[float, ...]]:
            with self.network.torch.inference_mode():
                found = self.network.logprobs([rows[i] for i in chosen], temperature).tolist()
            return [tuple(line[len(line) - len(completions[i]) :]) for i, line in zip(chosen, found, strict=True)]

        wanted = [i for i, completion in enumerate(completions) if len(completion)]
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        longest = max((len(completions[i]) for i in wanted), default=0)
        fitting = max(1, _LOGITS // (vocabulary * (longest + 1)))
        for chosen in self._batches(wanted, rows, fitting):
            for i, line in zip(chosen, self._halving(read, chosen), strict=True):
                if isinstance(line, Failure):
                    raise ConfigError(f"cannot score a sequence of {len(rows[i].ids)} tokens: {line.message}")
                scores[i] = line
        return scores

    def facts(self) -> dict[str, Any]:
        """Return what a run records of the model; the weights are hashed on the first call."""
        versions = {name: str(load(name).__version__) for name in ("torch", "transformers", "tokenizers")}
        return {
            "kind": "hf",
            "model": self.name.removeprefix("hf:"),
            "architecture": type(self.model).__name__,
            "parameters": self.parameters,
            "weights_sha256": self._weights_sha256(),
            "device": str(self.network.device),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "placement": self.placement.reason if self.placement else "",
            "batch": self.batch,
            "threads": self.network.torch.get_num_threads(),
            "context": self.context,
            "min_pixels": self.network.vision.min_pixels if self.network.vision else None,
            "versions": versions,
            **self.renderer.facts(),
        }

    _hash: str | None = None

    def _weights_sha256(self) -> str:
        self._hash = self._hash or weights_sha256(self.model)
        return self._hash

    def _row(self, prompt: Prompt, completion: tuple[int, ...] = ()) -> Row:
        return join(self.prompt(prompt.chat) if prompt.ids is None else prompt, completion)

    def _writer(self, row: Row, sampling: Sampling, seed: int) -> Writer:
        room = sampling.max_tokens if self.context is None else min(sampling.max_tokens, self.context - len(row.ids))
        return Writer(self.tokenizer, self.renderer.opening(row.ids), sampling.stop, self._ends, room, seed)

    def _batches(self, chosen: Sequence[int], rows: Sequence[Row], most: int = 4096) -> Iterator[list[int]]:
        """Yield batches of rows of like length, the longest first."""
        order = sorted(chosen, key=lambda i: (-len(rows[i].ids), i))
        size = min(self.batch, most)
        return (order[start : start + size] for start in range(0, len(order), size))

    def _halving(self, work: Callable[[Sequence[int]], Sequence[T]], chosen: Sequence[int]) -> list[T | Failure]:
        """Do ``work`` on a batch; where memory is too small, on its halves."""
        torch = self.network.torch
        try:
            return list(work(chosen))
        except torch.OutOfMemoryError as error:
            if len(chosen) == 1:
                first = str(error).partition(". ")[0]
                return [Failure("OutOfMemory", f"one sequence does not fit: {first}; take a smaller model or dtype")]
        torch.cuda.empty_cache()
        half = len(chosen) // 2
        return [*self._halving(work, chosen[:half]), *self._halving(work, chosen[half:])]
