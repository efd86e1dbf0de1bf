"""The contract every environment of the suite keeps: tasks in, text out, one kind of info."""

import contextlib
import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seed_envs.errors import UnknownName
from seed_envs.seeding import below
from seed_envs.spaces import Utf8
from seed_envs.tasks import Task, TaskSet

Obs = dict[str, Any]
MAX_TEXT = 1_000_000
MAX_ACTION = 1_000_000


class Info(TypedDict):
    """What ``reset`` and ``step`` tell beside the observation; every key is always there."""

    task_id: str
    split: str
    category: str
    instruction: str
    """The goal as the agent is told it."""
    turn: int
    """Actions taken so far in this episode."""
    success: bool
    """Whether the goal has been reached; running out of turns is never a success."""
    score: float
    """The benchmark's own score of the episode so far, 0 to 1."""
    admissible: bool | None
    """Whether the environment offered the last action; None after ``reset``."""
    effective: bool | None
    """Whether the last action changed the state; None after ``reset``."""
    admissible_actions: list[str] | None
    """The actions offered now, sorted; None where the environment has no such list."""
    reason: str
    """Why the last action was refused, for people and logs; never part of the observation."""
    extra: dict[str, Any]
    """Fields of this environment, the same keys in every info."""


@dataclass(frozen=True, slots=True)
class View:
    """What an engine shows after it began a task or took an action."""

    text: str
    admissible_actions: Sequence[str] | None = None
    image: np.ndarray[Any, Any] | None = None
    reward: float = 0.0
    terminated: bool = False
    success: bool = False
    score: float = 0.0
    admissible: bool | None = None
    effective: bool | None = None
    reason: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


class AgentEnv(gym.Env[Obs, str]):
    """A Gymnasium environment with string actions and ``Dict(text[, image])`` observations.

    Subclasses set ``tasks`` and write ``_begin``, ``_act`` and, where they can, ``oracle``.
    An episode depends on (task id, seed, actions) alone. Only the ``TimeLimit`` wrapper that
    ``gymnasium.make`` adds truncates; an action is never refused with an exception.
    """

    version: str = "0"
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    split_groups: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names for several splits together, which evaluations play one by one."""
    tasks: TaskSet
    instruction: str = ""
    observation_space: spaces.Space[Any] = spaces.Dict({"text": Utf8(MAX_TEXT)})
    action_space: spaces.Space[Any] = Utf8(MAX_ACTION)

    _task: Task | None = None
    _turn: int = 0
    _over: bool = False

    def __new__(cls, *args: Any, **kwargs: Any) -> "AgentEnv":
        """Give every instance its own spaces, since a space holds a random generator."""
        env = super().__new__(cls)
        env.observation_space = copy.deepcopy(cls.observation_space)
        env.action_space = copy.deepcopy(cls.action_space)
        return env

    @abstractmethod
    def _begin(self, task: Task, seed: int) -> View:
        """Set up ``task``; ``seed`` is all the randomness there is. Sets ``instruction``."""

    @abstractmethod
    def _act(self, action: str) -> View:
        """Take ``action`` verbatim and return what is seen then."""

    def oracle(self) -> list[str]:
        """Return actions that reach the goal from the current state.

        Raises:
            NotImplementedError: where the environment has no oracle.
            SeedError: when the goal cannot be reached any more.
        """
        raise NotImplementedError(f"{type(self).__name__} has no oracle")

    def suggestions(self) -> list[str]:
        """Return some actions that make sense now, for random policies where actions cannot be listed.

        Raises:
            NotImplementedError: where there is a list, or nothing to suggest.
        """
        raise NotImplementedError(f"{type(self).__name__} has no suggestions")

    def ceiling(self, task: Task) -> float:
        """Return the best score of ``task`` that is possible; below 1 where even the right way falls short."""
        return 1.0

    @classmethod
    def prepare_steps(cls, steps: Sequence[tuple[Any, str]]) -> None:
        """Do at once what the coming actions of several environments share, such as their searches.

        It must change no episode: an environment acts the same without it, and what goes wrong here
        goes wrong again in the step that it concerns.
        """

    @classmethod
    def split_names(cls, **kwargs: Any) -> tuple[str, ...]:
        """Return the splits there are for these constructor arguments."""
        return cls.splits

    def notices(self) -> list[str]:
        """Return what a user should know about the data in use, one line each."""
        return []

    def identity(self) -> dict[str, Any]:
        """Return what a record needs to name this environment: version and data hashes."""
        return {"version": self.version, "manifest": self.tasks.name, "manifest_sha256": self.tasks.sha256}

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: a non-negative integer re-seeds the environment's own generator; ``None``
                goes on with it, so episodes differ.
            options: ``{"task_id": id}`` chooses the task; without it one is drawn.

        Raises:
            UnknownName: for an id that is not in ``tasks`` or an option that does not exist.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        for key in options:
            if key != "task_id":
                raise UnknownName("reset option", key, ["task_id"])
        bits = self.np_random.bit_generator
        if "task_id" in options:
            task = self.tasks.get(options["task_id"])
        else:
            task = self.tasks[below(bits, len(self.tasks))]
        if seed is None:
            seed = below(bits, 1 << 32)
        self._task, self._turn, self._over = task, 0, True
        view = self._begin(task, seed)
        self._over = False
        return self._observation(view), self._info(view)

    def step(self, action: str) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Take one turn. ``action`` reaches the engine as it is, without any clean-up.

        Raises:
            gymnasium.error.ResetNeeded: before ``reset`` and after the world has ended.
            TypeError: when ``action`` is not a string.
        """
        if self._task is None or self._over:
            raise gym.error.ResetNeeded("the episode is over; call reset() before step()")
        if not isinstance(action, str):
            raise TypeError(f"an action is a str; got {type(action).__name__}")
        self._turn += 1
        view = self._act(action)
        self._over = view.terminated
        return self._observation(view), float(view.reward), view.terminated, False, self._info(view)

    def _observation(self, view: View) -> Obs:
        return {"text": view.text} if view.image is None else {"text": view.text, "image": view.image}

    def _info(self, view: View) -> dict[str, Any]:
        assert self._task is not None
        actions = view.admissible_actions
        info = Info(
            task_id=self._task.id,
            split=self._task.split,
            category=self._task.category,
            instruction=self.instruction,
            turn=self._turn,
            success=view.success,
            score=float(view.score),
            admissible=view.admissible,
            effective=view.effective,
            admissible_actions=None if actions is None else list(actions),
            reason=view.reason,
            extra=dict(view.extra),
        )
        return dict(info)


def prepare_steps(steps: Iterable[tuple[gym.Env[Any, Any] | None, Any]]) -> None:
    """Call ``AgentEnv.prepare_steps`` once per class with the (environment, action) pairs of that class."""
    groups: dict[type[AgentEnv], list[tuple[AgentEnv, str]]] = {}
    for env, action in steps:
        game = None if env is None else env.unwrapped
        if isinstance(game, AgentEnv) and isinstance(action, str):
            groups.setdefault(type(game), []).append((game, action))
    for cls, pairs in groups.items():
        with contextlib.suppress(Exception):  # the step itself will say it
            cls.prepare_steps(pairs)
