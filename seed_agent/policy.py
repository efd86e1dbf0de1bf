"""What plays: the interface between the rollout loop and every kind of policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from seed_agent.trajectory import Turn
from seed_envs.core import Info, Obs
from seed_envs.errors import ConfigError
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


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy answers: its raw reply and the action parsed from it."""

    reply: str
    action: str
    format_ok: bool = True
    stop_reason: Literal["stop", "length", "scripted"] = "stop"
    token_ids: tuple[int, ...] | None = None
    logp: tuple[float, ...] | None = None


class Player(Protocol):
    """Anything that can play. A broken decision is a ``Failure`` in its place, never a guess."""

    name: str

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        """Decide for every situation, in order."""


PlayerFactory = Callable[[str], Player]
POLICIES: Registry[PlayerFactory] = Registry("policy")
"""Policy kinds by the part of the specification before the first colon."""
POLICIES.add("scripted", "seed_agent.scripted:make")


def make_player(spec: str) -> Player:
    """Make the policy that ``spec`` names, ``kind:rest``, for example ``scripted:oracle``.

    Raises:
        ConfigError: when the specification is malformed.
        UnknownName: when its kind or name is not known.
    """
    kind, colon, rest = spec.partition(":")
    if not colon or not rest:
        raise ConfigError(f"{spec!r} is no policy; expected kind:name, for example scripted:oracle")
    return POLICIES.get(kind)(rest)
