"""What plays: the interface between the rollout loop and every kind of policy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from seed_agent.trajectory import Turn
from seed_envs.core import Info, Obs
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.registry import Registry
from seed_envs.vector import Failure, GroupVectorEnv


@dataclass(frozen=True, slots=True)
class Situation:
    """What a policy is asked about: one active row of the batch."""

    row: int
    task_id: str
    attempt: int
    seed: int
    """The episode's seed; derive a seed per turn from it with ``turn_seed``."""
    observation: Obs
    info: Info
    turns: Sequence[Turn]
    """The turns so far, oldest first."""
    asked: "Prompt | None" = None
    """What a model was asked last in this episode: a conversation goes on from it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy answers: its raw reply and the action parsed from it."""

    reply: str
    action: str
    format_ok: bool = True
    stop_reason: Literal["stop", "length", "scripted"] = "stop"
    format_reason: str = ""
    token_ids: tuple[int, ...] | None = None
    logp: tuple[float, ...] | None = None
    history_dropped: int = 0
    """Whole turns left out of the history window because the prompt was too long."""
    prompt: "Prompt | None" = None
    """What a model was asked, for a trainer that scores the very same tokens; not recorded."""


class Player(Protocol):
    """Anything that can play. A broken decision is a ``Failure`` in its place, never a guess."""

    name: str

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        """Decide for every situation, in order."""


Pixels = np.ndarray[Any, Any]
"""An RGB image: uint8 of shape (height, width, 3)."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One chat message; its images stand where the text says ``<image>``, in order."""

    role: Literal["system", "user", "assistant"]
    text: str
    images: tuple[Pixels, ...] = ()


Chat = tuple[Message, ...]
Spans = tuple[tuple[int, int], ...]
"""Places in a sequence, [start, stop) each, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A chat ready for generation. ``ids`` is None where a server does the rendering."""

    chat: Chat
    ids: tuple[int, ...] | None = None
    replies: "Spans" = ()
    """Where ``ids`` hold replies as they were sampled, in a conversation."""

    @property
    def images(self) -> tuple[Pixels, ...]:
        """The images of all messages, in order."""
        return tuple(image for message in self.chat for image in message.images)


COLDEST = 1e-4
"""The lowest temperature above greedy decoding: below it, scaled logits overflow."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. ``temperature`` 0 is greedy; ``stop`` strings are kept in the text."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512
    stop: tuple[str, ...] = ("</action>",)


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote. ``logp`` is in nats, of ``token_ids`` at the sampling temperature."""

    text: str
    stop_reason: Literal["stop", "length"]
    token_ids: tuple[int, ...] | None = None
    logp: tuple[float, ...] | None = None


class Policy(Protocol):
    """A language model, here or behind a server.

    Three optional attributes: ``context``, how many tokens prompt and reply may have together;
    ``sees``, false for a model that takes no images; and ``extend(prompt, reply, chat)``, the prompt
    of ``chat``, which goes on from ``prompt`` with a reply of these token ids and another message.
    """

    name: str

    def prompt(self, chat: Chat) -> Prompt:
        """Render ``chat`` with the model's own template, generation prompt added."""

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]
    ) -> list[Completion | Failure]:
        """Complete every prompt; a request that fails for good is a ``Failure`` in its place."""

    def score(
        self, prompts: Sequence[Prompt], completions: Sequence[Sequence[int]], *, temperature: float = 1.0
    ) -> list[tuple[float, ...]]:
        """Return the log-probability in nats of every token of every completion.

        Raises:
            ConfigError: where the policy cannot score.
        """

    def facts(self) -> Mapping[str, Any]:
        """Return what a run records of the model: device, dtype, template hash, versions."""


POLICIES: Registry[Callable[[str], Player]] = Registry("policy")
"""Players by the part of the specification before the first colon."""
POLICIES.add("scripted", "seed_agent.scripted:make")

MODELS: Registry[Callable[[str], Policy]] = Registry("model policy")
"""Language models by the same; they play through a ``Language`` (see ``seed_agent.chat``)."""


def split_spec(spec: str) -> tuple[str, str]:
    """Return kind and rest of a policy specification ``kind:rest``.

    Raises:
        ConfigError: when it is malformed.
    """
    kind, colon, rest = spec.partition(":")
    if not colon or not rest:
        raise ConfigError(f"{spec!r} is no policy; expected kind:name, for example scripted:oracle")
    return kind, rest


def make_player(spec: str) -> Player:
    """Make the player that ``spec`` names, ``kind:rest``, for example ``scripted:oracle``.

    Raises:
        ConfigError: when the specification is malformed or names a model.
        UnknownName: when its kind or name is not known.
    """
    kind, rest = split_spec(spec)
    if kind in MODELS:
        raise ConfigError(f"{spec!r} is a language model; it plays through seed_agent.chat.ChatPlayer")
    if kind not in POLICIES:
        raise UnknownName("policy", kind, [*POLICIES, *MODELS])
    return POLICIES.get(kind)(rest)


MODELS.add("openai", "seed_agent.backends.openai:make")
MODELS.add("hf", "seed_agent.backends.hf:make")
MODELS.add("vllm", "seed_agent.backends.vllm:make")
