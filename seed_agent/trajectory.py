"""The episode record: one schema for evaluation, training and the leaderboards."""

import hashlib
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from seed_envs.errors import UPDATE, DataError
from seed_envs.seeding import canonical, sha256_text
from seed_envs.visible import escaped

SCHEMA_VERSION = 1
Outcome = Literal[
    "env_error", "policy_error", "success", "generation_truncated", "invalid_format", "step_limit", "failure"
]
"""How an episode ended; the first that applies, in this order."""
OUTCOMES: tuple[Outcome, ...] = Outcome.__args__  # type: ignore[attr-defined]
ERRORS = frozenset({"env_error", "policy_error"})


def storable(text: str) -> str:
    """Return ``text`` with lone surrogates, which UTF-8 cannot hold, replaced by ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Image(_Record):
    """An image shown to the agent, kept as ``images/<file_sha256>.png``."""

    file_sha256: str
    pixels_sha256: str
    """Over the raw RGB bytes, so that another PNG encoder changes nothing that matters."""


class Seen(_Record):
    """One observation: its text, the text's sha256 and its images."""

    text: str
    sha256: str
    images: tuple[Image, ...] = ()

    @classmethod
    def of(cls, text: str, images: tuple[Image, ...] = ()) -> "Seen":
        """Hash ``text`` and keep both."""
        text = storable(text)
        return cls(text=text, sha256=sha256_text(text), images=images)


class Turn(_Record):
    """One turn: what was seen, what was replied, what was done and what came of it."""

    observation: Seen
    """Before the action."""
    reply: str
    """The policy's raw text; for scripted policies the action itself."""
    token_ids: tuple[int, ...] | None = None
    logp: tuple[float, ...] | None = None
    """Log-probability in nats of each of ``token_ids`` when it was sampled."""
    action: str
    """What the environment received: the parsed reply, empty where nothing could be parsed."""
    format_ok: bool
    admissible: bool | None = None
    effective: bool | None = None
    reward: float = 0.0
    stop_reason: Literal["stop", "length", "scripted"] = "stop"
    history_dropped: int = 0
    """Whole turns left out of the prompt's history window because it was too long."""
    reason: str = ""
    """Why the environment refused the action."""
    format_reason: str = ""
    """What is wrong with the reply's form."""


class EnvRecord(_Record):
    """Which environment an episode was played in."""

    id: str
    version: str
    kwargs: dict[str, Any] = Field(default_factory=dict)
    max_turns: int | None
    manifest: str
    manifest_sha256: str
    """Of the whole split the task belongs to."""
    data_sha256: str | None = None
    """Of the catalogue, corpus or index the environment reads beside its tasks."""

    @property
    def local(self) -> bool:
        """Whether its data are none that a manifest of the suite lists; the manifest's name says so."""
        return "-local-" in f"{self.manifest.partition('/')[0]}-"


class ErrorRecord(_Record):
    """What went wrong in an episode that could not be finished."""

    type: str
    message: str


class Episode(_Record):
    """One attempt at one task. ``timing`` is never hashed."""

    schema_version: int = SCHEMA_VERSION
    task_id: str
    task_sha256: str
    split: str
    category: str
    instruction: str = ""
    """The goal as the agent was told it; empty when the episode never began."""
    attempt: int
    seed: int
    policy: str
    env: EnvRecord
    turns: tuple[Turn, ...]
    final: Seen | None
    """The observation after the last action; None when there is none because of an error."""
    outcome: Outcome
    success: bool
    score: float = Field(ge=0, le=1)
    error: ErrorRecord | None = None
    timing: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> "Episode":
        if self.success != (self.outcome == "success"):
            raise ValueError(f"success is {self.success} but the outcome is {self.outcome}")
        if self.failed_to_finish != (self.error is not None):
            raise ValueError(f"the outcome is {self.outcome} and error is {self.error!r:.60}")
        return self

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes an episode the same one in another run: split, task id, attempt."""
        return (self.split, self.task_id, self.attempt)

    @property
    def failed_to_finish(self) -> bool:
        """Whether the environment or the policy broke; such an episode is owed again."""
        return self.outcome in ERRORS

    @property
    def sha256(self) -> str:
        """Hash of the canonical JSON without timing."""
        return sha256_text(canonical(self.model_dump(mode="json", exclude={"timing"})))

    def to_line(self) -> str:
        """Return the record as one line of JSON without the newline."""
        return canonical(self.model_dump(mode="json"))


def why(error: ValidationError) -> str:
    """Return in one line the first thing that is wrong with a record, with its place where it has one."""
    wrong = error.errors(include_url=False, include_input=False)[0]
    where, text = ".".join(map(str, wrong["loc"])), " ".join(wrong["msg"].removeprefix("Value error, ").split())
    if wrong["type"] == "string_unicode":
        text = "it holds what UTF-8 cannot hold"
    return escaped(f"{where[:200]}: {text[:200]}" if where else text[:200])


def read_line(line: str) -> Episode:
    """Read one line of ``trajectories.jsonl``.

    Raises:
        DataError: when it is no record, or one of a newer schema.
    """
    try:
        episode = Episode.model_validate_json(line)
    except ValidationError as error:
        raise DataError(f"not an episode record: {why(error)}") from None
    if episode.schema_version > SCHEMA_VERSION:
        raise DataError(
            f"the record has schema version {episode.schema_version}; this version reads up to {SCHEMA_VERSION}: "
            f"{UPDATE}"
        )
    return episode


def records_sha256(hashes: Iterable[str]) -> str:
    """Return the hash of a set of episodes: sha256 over their sorted hashes."""
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()


def decide_outcome(*, error: Outcome | None, success: bool, truncated: bool, last_turn: Turn | None) -> Outcome:
    """Return the outcome class; the order of the tests is the definition."""
    if error is not None:
        return error
    if success:
        return "success"
    if last_turn is not None and last_turn.stop_reason == "length":
        return "generation_truncated"
    if last_turn is not None and not last_turn.format_ok:
        return "invalid_format"
    return "step_limit" if truncated else "failure"
