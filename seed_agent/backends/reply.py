"""What the backends that sample here share: when a reply ends, its text, what can be asked, options.

Knows tokenizers by their methods only and imports neither torch nor transformers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from seed_agent.policy import COLDEST, Completion, Sampling
from seed_envs.errors import ConfigError
from seed_envs.seeding import Draws
from seed_envs.vector import Failure


def check_sampling(sampling: Sampling) -> None:
    """Refuse values that sampling has no meaning for.

    Raises:
        ConfigError: naming the value.
    """
    if not (sampling.temperature == 0 or COLDEST <= sampling.temperature < math.inf):
        heat = sampling.temperature
        raise ConfigError(f"temperature {heat} cannot be used; expected 0 (greedy) or {COLDEST} and above")
    if not 0 < sampling.top_p <= 1:
        raise ConfigError(f"top_p {sampling.top_p} cannot be used; expected above 0, at most 1")
    if sampling.max_tokens < 1 or "" in sampling.stop:
        raise ConfigError("max_tokens must be 1 or more, and no stop string empty")


def too_long(tokens: int, context: int | None) -> Failure | None:
    """Return the failure of a prompt that leaves no room for a reply, None where there is room."""
    if context is None or tokens < context:
        return None
    return Failure("PromptTooLong", f"a prompt of {tokens} tokens leaves no room in a context of {context}")


def end_tokens(generation_config: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a reply, by the model's generation settings and by its tokenizer."""
    ends = [tokenizer.eos_token_id, getattr(generation_config, "eos_token_id", None)]
    flat = [token for end in ends for token in (end if isinstance(end, list) else [end])]
    return frozenset(token for token in flat if token is not None)


class Writer:
    """One reply in the making: takes tokens until it is complete."""

    def __init__(
        self, tokenizer: Any, opening: str, stop: tuple[str, ...], ends: frozenset[int], room: int, seed: int
    ) -> None:
        """Begin a reply.

        Args:
            tokenizer: Turns ids into text.
            opening: What the prompt has begun of the reply; the text starts with it.
            stop: Strings behind the first of which the reply ends.
            ends: Tokens that end it.
            room: Tokens it may have.
            seed: Of its own stream of numbers.
        """
        self.tokenizer, self.opening, self.stop, self.ends, self.room = tokenizer, opening, stop, ends, room
        self.ids: list[int] = []
        self.logp: list[float] = []
        self.stopped = False
        self._stream = Draws("reply-tokens", seed)
        # Every token of a stop string but special ones carries at least a byte of it.
        self._window = 8 + max((len(text.encode()) for text in stop), default=0)

    def draw(self) -> float:
        """Return the next number in [0, 1), of 53 bits."""
        return (self._stream.random_raw() >> 11) / (1 << 53)

    def add(self, token: int, logp: float) -> bool:
        """Take a token; return whether the reply goes on."""
        self.ids.append(token)
        self.logp.append(logp)
        recent = self._decode(self.ids[-self._window :])
        complete = any(stop in recent for stop in self.stop) and self._stop_end(self._decode(self.ids)) is not None
        self.stopped = token in self.ends or complete
        return not self.stopped and len(self.ids) < self.room and math.isfinite(logp)

    def answer(self) -> Completion | Failure:
        """Return what was written, at least one token."""
        if not math.isfinite(self.logp[-1]):
            return Failure("BadLogits", "the model's logits are not finite numbers; try dtype=float32 or other weights")
        text = self._decode(self.ids[:-1] if self.ids[-1] in self.ends else self.ids)
        text = self.opening + text[: self._stop_end(text)]
        return Completion(text, "stop" if self.stopped else "length", tuple(self.ids), tuple(self.logp))

    def _stop_end(self, text: str) -> int | None:
        """Return where the first stop string in ``text`` ends, None when there is none."""
        return min((text.find(stop) + len(stop) for stop in self.stop if stop in text), default=None)

    def _decode(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


class SpecOptions:
    """The options behind the question mark of a policy's name, ``kind:NAME?a=1&b=2``."""

    def __init__(self, kind: str, query: str, known: Mapping[str, str], example: str) -> None:
        """Read ``query``.

        Args:
            kind: The policy's kind, for messages.
            query: What stands behind the question mark.
            known: Option names, and what each may be.
            example: A whole name with an option, for messages.

        Raises:
            ConfigError: when an option is not known.
        """
        self.kind, self.known = kind, known
        self.given = dict(parse_qsl(query, keep_blank_values=True))
        for name in self.given:
            if name not in known:
                raise ConfigError(f"{kind}: unknown option {name!r}; known: {', '.join(known)}, as in {example}")

    def text(self, name: str) -> str:
        """Return an option as it was given, "" where it was not."""
        return self.given.get(name, "")

    def choice(self, name: str, known: Sequence[str]) -> str:
        """Return one of ``known``, "" where nothing was given.

        Raises:
            ConfigError: saying what is expected.
        """
        text = self.text(name)
        if name in self.given and text not in known:
            raise self.refusal(name)
        return text

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number within limits.

        Raises:
            ConfigError: saying what is expected.
        """
        text = self.given.get(name, str(default))
        if not text.isdecimal() or not least <= int(text) <= most:
            raise self.refusal(name)
        return int(text)

    def share(self, name: str, default: float) -> float:
        """Return a number above 0 and below 1.

        Raises:
            ConfigError: saying what is expected.
        """
        try:
            value = float(self.given.get(name, default))
        except ValueError:
            raise self.refusal(name) from None
        if not 0 < value < 1:
            raise self.refusal(name)
        return value

    def refusal(self, name: str) -> ConfigError:
        """Return the error of an option whose value cannot be used."""
        return ConfigError(f"{self.kind}: {name}={self.given[name]!r} cannot be used; expected {self.known[name]}")
