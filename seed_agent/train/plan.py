"""What a run will do, checked and counted before any weights are read. Needs no torch."""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seed_agent.methods import METHODS, Method
from seed_agent.skills.annotators import ANNOTATORS
from seed_agent.skills.library import LIBRARIES
from seed_agent.train.actor import check_backend
from seed_agent.train.model import check_stage1_backend, missing
from seed_agent.train.rollouts import Stage, language_of, method_of, pool_of
from seed_agent.train.settings import Settings
from seed_envs.errors import ConfigError
from seed_envs.presets import preset_for

_BYTES = {"weights": 4, "gradients": 4, "Adam": 8}
"""Per parameter, in float32."""


@dataclass(frozen=True)
class Plan:
    """The size of a run. Tokens and samples are upper bounds: every episode to its last turn, every reply full."""

    iterations: int
    pool: int
    episodes: int
    turns: int
    """Per episode, at most."""
    samples: int
    """Of all iterations: turns, or episodes where each is one sample."""
    updates: int
    generated: int
    """Tokens sampled, skills included."""
    processed: int
    """Tokens through the model: prompts of rollouts, scoring passes and updates, forward only counted once each."""
    eval_episodes: int
    memory_gib: float | None
    """Weights, gradients, optimiser, copies (frozen, on vLLM); what a batch takes comes on top. None where the model's
    size is unknown."""
    needs: str
    """What has to be done first, "" for nothing."""


def make_plan(settings: Settings, *, parameters: float | None = None) -> Plan:
    """Check everything that can be checked without the model, and count.

    Args:
        settings: Of the run.
        parameters: Millions, where the model is not a folder here.

    Raises:
        SeedError: when the run cannot be made as asked.
    """
    method = method_of(settings)
    _check_language(settings)
    _check_skills(settings, method)
    check_backend(settings)
    pool, turns, tested = _tasks(settings)
    language = language_of(settings, method, temperature=settings.temperature)
    _check_sizes(settings, method, turns)
    iterations, per_iteration = settings.planned, settings.tasks * settings.group
    most = _samples(settings, turns)
    episodes, samples = iterations * per_iteration, iterations * most
    said = episodes * turns
    reply, prompt = language.sampling.max_tokens, language.preset.max_prompt_tokens
    own = method.distill is not None and method.skill_source in ("self", "frozen")
    passes = 2 + (settings.old == "rescored") + (settings.kl > 0) + (method.distill is not None)
    analyses = episodes * (settings.analyzer_prompt_tokens + settings.analyzer_reply_tokens) if own else 0
    evaluations = 2 + ((iterations - 1) // settings.eval_every if settings.eval_every else 0)
    updates = math.ceil(most / settings.minibatch) if settings.minibatch else 1
    return Plan(
        iterations=iterations,
        pool=pool,
        episodes=episodes,
        turns=turns,
        samples=samples,
        updates=iterations * updates,
        generated=said * reply + (episodes * settings.analyzer_reply_tokens if own else 0),
        processed=(said + samples * (passes - 1)) * (prompt + reply) + analyses,
        eval_episodes=tested * evaluations,
        memory_gib=_memory(settings, method, parameters),
        needs=missing(settings),
    )


def check_stage1(settings: Settings, *, tasks: int, temperature: float, annotator: str) -> None:
    """Refuse what stage 1 would refuse before its first episode; no weights are read.

    Args:
        settings: Of the run.
        tasks: Training tasks it plays.
        temperature: Of play.
        annotator: Who writes the skills.

    Raises:
        SeedError: when it cannot be run as asked.
    """
    _check_language(settings)
    check_stage1_backend(settings)
    ANNOTATORS.get(annotator.partition(":")[0])
    language_of(settings, METHODS.get("vanilla"), temperature=temperature)
    stage = Stage(settings, "train", 1)
    try:
        stage.tasks.sample(tasks, seed=settings.seed)
    finally:
        stage.close()


def _check_language(settings: Settings) -> None:
    """Refuse a language made for another environment, and a split where none is chosen."""
    if "split" in settings.env_args:
        raise ConfigError("env_args= cannot choose a split: training plays the training tasks; see eval_splits=")
    own, kind = preset_for(settings.env), settings.language.partition("/")[0]
    if kind not in (own.kind, "generic"):
        raise ConfigError(f"language={settings.language} is for {kind}; {settings.env} takes {own.name} and its kin")


def _check_skills(settings: Settings, method: Method) -> None:
    """Refuse sources of skills that do not exist; none is asked for anything."""
    if method.skill_source == "static":
        LIBRARIES.get(preset_for(settings.env).kind)
    if method.distill is not None and method.skill_source in ("external", "bank"):
        ANNOTATORS.get(settings.annotator.partition(":")[0])


def _tasks(settings: Settings) -> tuple[int, int, int]:
    """Return the size of the pool, the turns of an episode, and how many tasks an evaluation plays."""
    stage = Stage(settings, "train", 1)
    try:
        pool, turns = len(pool_of(stage.tasks, settings)), stage.limit
    finally:
        stage.close()
    tested = 0
    for split in settings.eval_splits:
        stage = Stage(settings, split, 1)
        tested += min(len(stage.tasks), settings.eval_limit or len(stage.tasks))
        stage.close()
    return pool, turns, tested


def _check_sizes(settings: Settings, method: Method, turns: int) -> None:
    """Refuse batches that cannot be filled or teach nothing, and milestones that are never reached."""
    most = _samples(settings, turns)
    for number in settings.milestones:
        if not 1 <= number <= settings.planned:
            raise ConfigError(f"milestones={number} is never reached; the run has iterations 1 to {settings.planned}")
    if settings.minibatch > most:
        each = "" if settings.samples == "episode" else f" x {turns} turns"
        raise ConfigError(
            f"minibatch={settings.minibatch} can never be filled: an iteration has at most {settings.tasks} tasks x "
            f"{settings.group} episodes{each} = {most} samples; give minibatch={most} or less, or 0 for all"
        )
    if settings.group == 1 and method.rl is not None and settings.adv_singleton == "zero":
        raise ConfigError(f"group=1 gives every episode advantage 0; method {method.name} needs group=2 or more")


def _samples(settings: Settings, turns: int) -> int:
    """Return the samples of an iteration, at most."""
    return settings.tasks * settings.group * (1 if settings.samples == "episode" else turns)


def _memory(settings: Settings, method: Method, parameters: float | None) -> float | None:
    known = None if parameters is None else parameters * 1e6
    count = _parameters(settings.model) or known
    if count is None:
        return None
    copies = _BYTES["weights"] * (settings.kl > 0 or method.skill_source == "frozen")
    half = settings.dtype == "bfloat16"
    copies += (2 if half else 4) * (settings.rollout_backend == "vllm")
    casts = 2 * half
    wide = 2 if settings.dtype == "float64" else 1
    return float(count * ((sum(_BYTES.values()) + copies) * wide + casts) / 2**30)


def _parameters(model: str) -> int | None:
    """Count the parameters of a model folder by the headers of its files; None where there is none."""
    total = 0
    for path in sorted(Path(model).expanduser().glob("*.safetensors")) if model else []:
        try:
            with path.open("rb") as file:
                header: dict[str, Any] = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        except (OSError, ValueError, struct.error, MemoryError):
            return None
        total += sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return total or None
