"""The one rollout loop, for evaluation and for training."""

import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from pydantic import ValidationError

from seed_agent.policy import Decision, Player, Prompt, Situation
from seed_agent.trajectory import (
    EnvRecord,
    Episode,
    ErrorRecord,
    Image,
    Outcome,
    Seen,
    Turn,
    decide_outcome,
    storable,
    why,
)
from seed_envs.errors import SeedError, WorkerDied
from seed_envs.seeding import derive
from seed_envs.tasks import Task
from seed_envs.vector import EnvMaker, Failure, GroupVectorEnv

ImageSink = Callable[[Any], Image]
"""Stores an RGB array of shape (height, width, 3) and returns its record."""

Watcher = Callable[["Request", int, Decision], None]
"""Told of every decision that was carried out: the episode's request and the turn's index."""


@dataclass(frozen=True, slots=True)
class Request:
    """An episode to play."""

    task: Task
    attempt: int = 0
    run_seed: int = 0

    @property
    def seed(self) -> int:
        """The episode's seed: from run seed, task and attempt alone."""
        return derive("episode", self.run_seed, self.task.id, self.attempt)


@dataclass(slots=True)
class _Playing:
    """An episode in progress in one row."""

    request: Request
    started: float
    observation: Any = None
    info: Any = None
    turns: list[Turn] = field(default_factory=list)
    seen: Seen | None = None
    """The last observation, as it is recorded."""
    asked: Prompt | None = None
    """What a model was asked last."""
    ended: bool = False
    truncated: bool = False


def env_record(maker: EnvMaker, env: gym.Env[Any, Any]) -> EnvRecord:
    """Return what episodes of ``env``, which ``maker`` made, record about it; alike in evaluation and in training.

    Arguments are kept so that the same environment has the same ones however it was asked for: none at its default
    but the kind of data, the split by its own name. Data are known by their hashes, not by where they lie: ``official``
    are those that the release's manifest lists, ``local`` all others.
    """
    identity = env.get_wrapper_attr("identity")()
    limit = env.spec.max_episode_steps if env.spec else None
    record = EnvRecord(id=maker.id, max_turns=limit, **identity)
    defaults = _defaults(maker.id)
    kwargs = {
        key: value
        for key, value in maker.kwargs.items()
        if key != "max_episode_steps" and not (key in defaults and defaults[key] == value)
    }
    if "split" in maker.kwargs:
        kwargs["split"] = env.get_wrapper_attr("tasks")[0].split
    if "data" in defaults or "data" in maker.kwargs:
        embedded = maker.kwargs.get("data", defaults.get("data")) == "embedded"
        kwargs["data"] = "embedded" if embedded else "local" if record.local else "official"
    return record.model_copy(update={"kwargs": kwargs})


def _defaults(env_id: str) -> dict[str, Any]:
    """Return the arguments of an environment's constructor with their defaults."""
    entry: Any = gym.registry[env_id].entry_point
    parameters = inspect.signature(load_env_creator(entry) if isinstance(entry, str) else entry).parameters
    return {name: one.default for name, one in parameters.items()}


def play(
    requests: Iterable[Request],
    player: Player,
    envs: GroupVectorEnv,
    env: EnvRecord,
    *,
    save_image: ImageSink | None = None,
    watch: Watcher | None = None,
) -> Iterator[Episode]:
    """Play ``requests`` and yield each episode as it ends.

    A row that is free takes the next request at once. Environment and policy failures end the
    one episode they happen in, which is yielded with its error; nothing is dropped.
    """
    table = _Table(player, envs, env, save_image, watch)
    waiting = iter(requests)
    while True:
        yield from table.begin(waiting)
        if not table.rows:
            return
        yield from table.take_turn()


def _checked(answer: object) -> Decision | Failure:
    """Return a decision whose parts can be recorded, or a failure in place of anything else."""
    if isinstance(answer, Failure):
        return answer
    if not isinstance(answer, Decision) or not isinstance(answer.action, str) or not isinstance(answer.reply, str):
        return Failure("PolicyError", f"the policy answered a {type(answer).__name__}; expected a Decision with texts")
    decision = replace(answer, action=storable(answer.action), reply=storable(answer.reply))
    try:
        _turn(_Playing(_NOBODY, 0.0, seen=Seen.of("")), decision)
    except (ValueError, TypeError, AttributeError) as error:
        reason = why(error) if isinstance(error, ValidationError) else str(error)
        return Failure("PolicyError", f"the policy's Decision cannot be recorded: {reason}")
    return decision


def _turn(playing: _Playing, decision: Decision, reward: float = 0.0, info: Any = None) -> Turn:
    info = info or {}
    assert playing.seen is not None
    return Turn(
        observation=playing.seen,
        reply=decision.reply,
        token_ids=decision.token_ids,
        logp=decision.logp,
        action=decision.action,
        format_ok=decision.format_ok,
        admissible=info.get("admissible"),
        effective=info.get("effective"),
        reward=reward,
        stop_reason=decision.stop_reason,
        history_dropped=decision.history_dropped,
        reason=storable(info.get("reason", "")),
        format_reason=decision.format_reason,
    )


def _number(value: Any, what: str, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a finite number in a range.

    Raises:
        ValueError: saying what it is instead.
    """
    number = float(value)
    if not math.isfinite(number) or not least <= number <= most:
        limits = "" if least == -math.inf else f" from {least:g} to {most:g}"
        raise ValueError(f"the {what} is {number}; expected a finite number{limits}")
    return number


_NOBODY = Request(Task("", "", "", ""))


class _Table:
    """The rows in play and the two things that happen to them: an episode begins, a turn passes."""

    def __init__(
        self,
        player: Player,
        envs: GroupVectorEnv,
        env: EnvRecord,
        save_image: ImageSink | None,
        watch: Watcher | None,
    ) -> None:
        self.player, self.envs, self.env, self.save_image, self.watch = player, envs, env, save_image, watch
        self.rows: dict[int, _Playing] = {}

    def begin(self, waiting: Iterator[Request]) -> Iterator[Episode]:
        """Fill the free rows; an environment that fails at reset gives its row to the next request."""
        while free := [row for row in range(self.envs.num_envs) if row not in self.rows]:
            fresh = {row: _Playing(request, time.monotonic()) for row, request in zip(free, waiting, strict=False)}
            if not fresh:
                return
            answers = self.envs.run(
                (row, "reset", (), {"seed": p.request.seed, "options": {"task_id": p.request.task.id}})
                for row, p in fresh.items()
            )
            for (row, playing), answer in zip(fresh.items(), answers, strict=True):
                failure = answer if isinstance(answer, Failure) else self._guarded(self._arrive, playing, answer)
                if failure is not None:
                    yield self._episode(playing, error=("env_error", failure))
                else:
                    self.rows[row] = playing

    def take_turn(self) -> Iterator[Episode]:
        """Ask the player about every row, act, and yield the episodes that ended."""
        chosen: dict[int, Decision] = {}
        for row, decision in zip(list(self.rows), self._decide(), strict=True):
            if isinstance(decision, Failure):
                lost = decision.type == WorkerDied.__name__  # while a scripted policy asked the environment
                yield self._episode(self.rows.pop(row), error=("env_error" if lost else "policy_error", decision))
            else:
                chosen[row] = decision
        answers = self.envs.run((row, "step", (decision.action,), {}) for row, decision in chosen.items())
        for (row, decision), answer in zip(chosen.items(), answers, strict=True):
            playing = self.rows[row]
            if self.watch is not None:
                self.watch(playing.request, len(playing.turns), decision)
            failure = answer if isinstance(answer, Failure) else self._guarded(self._pass, playing, answer, decision)
            if failure is not None:
                playing.turns.append(_turn(playing, decision))
                yield self._episode(self.rows.pop(row), error=("env_error", failure))
            elif playing.ended:
                yield self._episode(self.rows.pop(row))

    @staticmethod
    def _guarded(take: Callable[..., None], *arguments: Any) -> Failure | None:
        """Take in what an environment gave; what cannot be a record is that environment's failure.

        Raises:
            SeedError: when an image cannot be stored, which is not the environment's doing.
        """
        try:
            take(*arguments)
        except SeedError:
            raise
        except Exception as error:
            return Failure.of(error)
        return None

    def _arrive(self, playing: _Playing, answer: Any) -> None:
        """Take in an observation with its info."""
        observation, info = answer
        _number(info.get("score", 0.0), "score", least=0.0, most=1.0)
        if not isinstance(info.get("instruction", ""), str):
            raise TypeError(f"the instruction is {info['instruction']!r:.80}; expected a text")
        playing.seen = self._seen(observation)
        playing.observation, playing.info = observation, info

    def _pass(self, playing: _Playing, answer: Any, decision: Decision) -> None:
        """Take in what came of a turn; nothing of the episode is changed when it cannot be taken."""
        observation, reward, terminated, truncated, info = answer
        turn = _turn(playing, decision, _number(reward, "reward"), info)
        self._arrive(playing, (observation, info))
        playing.turns.append(turn)
        playing.asked = decision.prompt
        playing.ended, playing.truncated = bool(terminated or truncated), bool(truncated)

    def _decide(self) -> Sequence[Decision | Failure]:
        situations = [
            Situation(
                row,
                p.request.task.id,
                p.request.attempt,
                p.request.seed,
                p.observation,
                p.info,
                tuple(p.turns),
                p.asked,
            )
            for row, p in self.rows.items()
        ]
        try:
            answers = list(self.player.act(situations, self.envs))
        except (Exception, SystemExit) as error:  # the one boundary between a policy and the run
            return [Failure.of(error)] * len(situations)
        if len(answers) != len(situations):
            wrong = Failure("PolicyError", f"the policy answered {len(answers)} of {len(situations)} situations")
            return [wrong] * len(situations)
        return [_checked(answer) for answer in answers]

    def _seen(self, observation: Any) -> Seen:
        images: tuple[Image, ...] = ()
        if "image" in observation and self.save_image is not None:
            images = (self.save_image(observation["image"]),)
        if not isinstance(observation["text"], str):
            raise TypeError(f"the observation's text is {observation['text']!r:.80}; expected a text")
        return Seen.of(observation["text"], images)

    def _episode(self, playing: _Playing, *, error: tuple[Outcome, Failure] | None = None) -> Episode:
        request, info, turns = playing.request, playing.info or {}, playing.turns
        success = error is None and bool(info.get("success"))
        return Episode(
            task_id=request.task.id,
            task_sha256=request.task.sha256,
            split=request.task.split,
            category=request.task.category,
            instruction=storable(info.get("instruction", "")),
            attempt=request.attempt,
            seed=request.seed,
            policy=self.player.name,
            env=self.env,
            turns=tuple(turns),
            final=None if error else playing.seen,
            outcome=decide_outcome(
                error=error[0] if error else None,
                success=success,
                truncated=playing.truncated,
                last_turn=turns[-1] if turns else None,
            ),
            success=success,
            score=0.0 if error else float(info.get("score", 0.0)),
            error=ErrorRecord(type=error[1].type, message=storable(error[1].message)) if error else None,
            timing={"seconds": round(time.monotonic() - playing.started, 6)},
        )
