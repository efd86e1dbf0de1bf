"""Playing logged actions again in fresh environments, and comparing everything that comes of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from harness.board.actions import Header, Logged
from seed_agent.images import pixels_hash
from seed_agent.rollout import Request
from seed_agent.trajectory import ERRORS, EnvRecord, decide_outcome, storable
from seed_envs.cli.foreign import call
from seed_envs.errors import ConfigError
from seed_envs.seeding import sha256_text
from seed_envs.tasks import Task, TaskSet
from seed_envs.vector import EnvMaker, Failure, GroupVectorEnv

ROWS = 16
"""Episodes side by side per process; no result depends on it."""


@dataclass(frozen=True)
class Where:
    """How the environments of a log are made here."""

    data: str | None = None
    """A folder, for data that no manifest lists; None for what the log says."""
    plugins: tuple[str, ...] = ()
    workers: int = 0


@dataclass(frozen=True)
class Difference:
    """The first thing in an episode (or in a split) that is not as it was logged."""

    split: str
    what: str
    expected: object
    """What the log says."""
    got: object
    """What was found here."""
    task_id: str = ""
    attempt: int | None = None
    turn: int | None = None
    """From 1 on: the turn whose action brought it about; 0 is the beginning of the episode."""

    def __str__(self) -> str:
        """Say it in one line."""
        where = f"split {self.split}"
        if self.task_id:
            where = f"task {self.task_id}, attempt {self.attempt}"
        if self.turn is not None:
            where += f", turn {self.turn}" if self.turn else ", at its beginning"
        return f"{where}: {self.what}: expected {_short(self.expected)}, got {_short(self.got)}"


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass
class Replayed:
    """What was played again, as it grows."""

    episodes: int = 0
    turns: int = 0
    tasks: dict[str, TaskSet] = field(default_factory=dict)
    """By split, the tasks as they are installed here."""
    played: dict[str, Counter[str]] = field(default_factory=dict)
    """By split, how often each task was played."""
    ceilings: dict[str, dict[str, float]] = field(default_factory=dict)
    """By split, the best score of each task that was played and cannot reach 1, as the environment says here."""


def replay(header: Header, episodes: Iterable[Logged], where: Where, done: Replayed) -> Iterator[Difference]:
    """Play the episodes of a log again, split by split, and yield what differs: one thing per episode.

    Episodes that an error ended are played up to it; the error itself stands as it was logged.

    Raises:
        SeedError: when an environment cannot be made here, data or an index being absent for instance.
    """
    for split, members in groupby(episodes, key=lambda episode: episode.split):
        record = header.splits.get(split)
        if record is None:
            yield Difference(split, "the split", sorted(header.splits), split)
            continue
        maker = _maker(record, where)
        waiting = iter(members)
        rows = ROWS * max(1, where.workers)
        envs: GroupVectorEnv = call(record.id, lambda: GroupVectorEnv(maker, num_tasks=rows, workers=where.workers))  # noqa: B023
        try:
            yield from _compare_identity(split, record, envs)
            yield from _Table(envs, done).play(waiting)
        finally:
            envs.close()


def _maker(record: EnvRecord, where: Where) -> EnvMaker:
    kwargs = dict(record.kwargs)
    if kwargs.get("data") == "local":
        if where.data is None:
            raise ConfigError(
                f"{record.manifest} is of data that no manifest of the suite lists; give their folder with --data DIR"
            )
        kwargs["data"] = where.data
    if record.max_turns is not None:
        kwargs["max_episode_steps"] = record.max_turns
    return EnvMaker(record.id, kwargs, where.plugins)


def _compare_identity(split: str, record: EnvRecord, envs: GroupVectorEnv) -> Iterator[Difference]:
    """Compare what the record says about the environment with the one that is installed."""
    found: Mapping[str, Any] = call(record.id, envs.prototype.get_wrapper_attr("identity"))
    for name in ("version", "manifest", "manifest_sha256", "data_sha256"):
        expected, got = getattr(record, name), found.get(name)
        if expected != got:
            yield Difference(split, f"{name} of {record.id} as it is installed here", expected, got)


def _best(ceiling: Callable[[Task], float], task: Task) -> float:
    return call(f"the ceiling of task {task.id}", lambda: float(ceiling(task)), problem="cannot be computed")


@dataclass
class _Playing:
    logged: Logged
    turn: int = 0


class _Table:
    """The rows in play: an episode begins, a turn passes, everything is compared."""

    def __init__(self, envs: GroupVectorEnv, done: Replayed) -> None:
        self.envs, self.done = envs, done
        self.rows: dict[int, _Playing] = {}

    def play(self, waiting: Iterator[Logged]) -> Iterator[Difference]:
        while True:
            yield from self._begin(waiting)
            if not self.rows:
                return
            yield from self._take_turn()

    def _begin(self, waiting: Iterator[Logged]) -> Iterator[Difference]:
        while free := [row for row in range(self.envs.num_envs) if row not in self.rows]:
            fresh = {row: _Playing(logged) for row, logged in zip(free, waiting, strict=False)}
            if not fresh:
                return
            for row, playing in list(fresh.items()):
                self.done.episodes += 1
                if odd := self._known(playing.logged):
                    del fresh[row]
                    yield odd
            answers = self.envs.run(
                (row, "reset", (), {"seed": p.logged.seed, "options": {"task_id": p.logged.task_id}})
                for row, p in fresh.items()
            )
            for (row, playing), answer in zip(fresh.items(), answers, strict=True):
                if not playing.logged.observations:
                    continue  # it broke at its beginning
                odd = _failed(playing, answer) or _compare_seen(playing.logged, 0, answer[0])
                if odd is not None:
                    yield odd
                elif _last(playing.logged):
                    self.rows[row] = playing
                elif not playing.logged.actions and playing.logged.outcome not in ERRORS:
                    yield _differs(playing.logged, 0, "an end without a turn", playing.logged.outcome, "a beginning")

    def _known(self, logged: Logged) -> Difference | None:
        """Compare the task with the one that is installed."""
        tasks = self.envs.prototype.get_wrapper_attr("tasks")
        at = (logged.split, "the task as it is installed here")
        try:
            task = tasks.get(logged.task_id)
        except (KeyError, ValueError):
            return _differs(logged, None, "the task", logged.task_id, "no such task in what is installed here")
        expected = Task(logged.task_id, logged.split, logged.category, logged.task_sha256)
        if task != expected:
            name = next(n for n in ("split", "category", "sha256") if getattr(task, n) != getattr(expected, n))
            return _differs(logged, None, f"{name} of {at[1]}", getattr(expected, name), getattr(task, name))
        self.done.tasks[logged.split] = tasks
        self.done.played.setdefault(logged.split, Counter())[task.id] += 1
        ceiling = getattr(self.envs.prototype.unwrapped, "ceiling", None)
        if ceiling is not None and (best := _best(ceiling, task)) < 1:
            self.done.ceilings.setdefault(logged.split, {})[task.id] = best
        return None

    def _take_turn(self) -> Iterator[Difference]:
        playing = list(self.rows.items())
        answers = self.envs.run((row, "step", (p.logged.actions[p.turn],), {}) for row, p in playing)
        for (row, now), answer in zip(playing, answers, strict=True):
            now.turn += 1
            self.done.turns += 1
            odd = _failed(now, answer) or _compare_turn(now.logged, now.turn, answer)
            if odd is not None or now.turn == _last(now.logged):
                del self.rows[row]
            if odd is not None:
                yield odd


def _last(logged: Logged) -> int:
    """Return how many turns can be played again: where the environment broke, all but the last."""
    turns = len(logged.actions)
    return max(0, turns - 1) if logged.outcome == "env_error" else turns


def _differs(logged: Logged, turn: int | None, what: str, expected: object, got: object) -> Difference:
    return Difference(logged.split, what, expected, got, logged.task_id, logged.attempt, turn)


def _failed(playing: _Playing, answer: Any) -> Difference | None:
    if not isinstance(answer, Failure):
        return None
    got = f"{answer.type}: {answer.message}"
    return _differs(playing.logged, playing.turn, "the environment", "to go on", got)


def _compare_seen(logged: Logged, place: int, observation: Mapping[str, Any]) -> Difference | None:
    """Compare the observation number ``place``, its text and its picture."""
    got = sha256_text(storable(observation["text"]))
    if got != logged.observations[place]:
        return _differs(logged, place, "sha256 of the observation", logged.observations[place], got)
    if "image" in observation:
        expected = logged.pixels[place] if logged.pixels else "no picture"
        if (pixels := pixels_hash(observation["image"])) != expected:
            return _differs(logged, place, "sha256 of the pixels", expected, pixels)
    elif logged.pixels:
        return _differs(logged, place, "sha256 of the pixels", logged.pixels[place], "no picture")
    return None


def _compare_turn(logged: Logged, turn: int, answer: Any) -> Difference | None:
    """Compare what came of action number ``turn``, counted from 1, and how the episode ended if it did."""
    observation, reward, terminated, truncated, info = answer
    i = turn - 1
    pairs = [
        ("reward", logged.rewards[i], float(reward)),
        ("admissible", logged.flag("admissible", i), info.get("admissible")),
        ("effective", logged.flag("effective", i), info.get("effective")),
    ]
    for what, expected, got in pairs:
        if expected != got:
            return _differs(logged, turn, what, expected, got)
    if turn < len(logged.observations) and (odd := _compare_seen(logged, turn, observation)):
        return odd
    ended = bool(terminated or truncated)
    whole = turn == len(logged.actions) and not logged.broke
    if ended != whole:
        words = {True: "the end of the episode", False: "the episode to go on"}
        return _differs(logged, turn, "the environment", words[whole], words[ended])
    return _compare_end(logged, bool(truncated), info) if whole else None


def _compare_end(logged: Logged, truncated: bool, info: Mapping[str, Any]) -> Difference | None:
    success, turn = bool(info.get("success")), len(logged.actions)
    last = logged.turn(turn - 1)
    outcome = decide_outcome(error=None, success=success, truncated=truncated, last_turn=last)
    pairs = [
        ("success", logged.success, success),
        ("score", logged.score, float(info.get("score", 0.0))),
        ("outcome", logged.outcome, outcome),
    ]
    for what, expected, got in pairs:
        if expected != got:
            return _differs(logged, turn, what, expected, got)
    return None


def seeds(header: Header, episodes: Iterable[Logged], run_seed: int) -> Iterator[Difference]:
    """Yield the episodes whose seed is not the one that the evaluation's seed gives them."""
    for logged in episodes:
        task = Task(logged.task_id, logged.split, logged.category, logged.task_sha256)
        expected = Request(task, logged.attempt, run_seed).seed
        if logged.seed != expected:
            yield _differs(logged, None, "seed", logged.seed, expected)
