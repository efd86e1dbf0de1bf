"""What the conformance suite checks, and how it plays with it."""

import contextlib
import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np

from seed_envs.errors import SeedError
from seed_envs.seeding import Draws
from seed_envs.tasks import TaskSet
from seed_envs.vector import Failure, GroupVectorEnv

Env = gym.Env[Any, Any]
SEED = 11
USELESS = "xyzzy, no environment offers this"
JUNK = (
    "", " ", "\t \n", "\n\n", "x" * 10_000, "🙂🚪", "冷蔵庫を開ける", "look\x00", "\x00", "\ud800",
    "<action>look</action>", "<action>", "</action>look<action>", "<think>", "look\nlook", "{}", "%s %d {0}",
    "'; drop table tasks; --", USELESS,
)  # fmt: skip
"""Replies gone wrong; none of them may raise, succeed or change a state."""


class NotApplicable(Exception):
    """A check asks for something this environment need not have."""


Step = tuple[Any, Any, Any, Any, Any]


@dataclass(frozen=True)
class Subject:
    """What is checked: a maker of environments and a sample of the tasks."""

    make: Callable[[], Env]
    max_tasks: int = 8

    @contextlib.contextmanager
    def env(self) -> Iterator[Env]:
        """Make an environment for one ``with`` block."""
        env = self.make()
        try:
            yield env
        finally:
            env.close()

    @cached_property
    def task_ids(self) -> tuple[str, ...]:
        """The ids of a stratified sample of the tasks."""
        with self.env() as env:
            tasks = getattr(env.unwrapped, "tasks", None)
            assert isinstance(tasks, TaskSet) and len(tasks), "the environment needs `tasks`, a non-empty TaskSet"
            return tasks.sample(min(self.max_tasks, len(tasks))).ids

    def play(self, task_id: str, *, junk: bool = False, turns: int = 24) -> tuple[list[str], list[Step]]:
        """Play a drawn walk and then the oracle's plan, if there is one; return actions and answers.

        With ``junk`` every third turn of the walk is one of ``JUNK``.
        """
        draws = Draws("walk", task_id, junk)
        with self.env() as env:
            game = env.unwrapped
            free = copy.deepcopy(game.action_space)  # instances may share theirs
            free.seed(SEED)
            answers, actions = [begin(game, task_id)], list[str]()
            while len(actions) < turns and not answers[-1][2]:
                offered = answers[-1][4]["admissible_actions"]
                usual = draws.choice(offered) if offered else str(free.sample())
                actions.append(draws.choice(JUNK) if junk and len(actions) % 3 == 2 else usual)
                answers.append(plain(game.step(actions[-1])))
            with contextlib.suppress(NotApplicable, SeedError):
                rest = [] if answers[-1][2] else plan_of(game)
                answers += [plain(game.step(action)) for action in rest]
                actions += rest
            return actions, answers

    @cached_property
    def abroad(self) -> list[tuple[list[Step], list[Step]]]:
        """Per task, a walk played in this process and the same in a spawned worker."""
        try:
            pickle.dumps(self.make)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise NotApplicable(f"the maker cannot be sent to another process ({error})") from None
        walks = [(task_id, *self.play(task_id)) for task_id in self.task_ids[:2]]
        with contextlib.closing(GroupVectorEnv(self.make, num_tasks=1, workers=1)) as envs:
            pairs = []
            for task_id, actions, here in walks:
                calls: list[Any] = [(0, "reset", (), {"seed": SEED, "options": {"task_id": task_id}})]
                calls += [(0, "step", (action,), {}) for action in actions]
                first, *rest = answers = envs.run(calls)
                broken = next((answer for answer in answers if isinstance(answer, Failure)), None)
                assert broken is None, f"in a worker process task {task_id!r} answered {broken}"
                pairs.append((here, [_first(*first), *(plain(answer) for answer in rest)]))
        return pairs


def begin(env: Env, task_id: str) -> Step:
    """Reset to ``task_id`` and return the answer in the shape of a step's."""
    return _first(*env.reset(seed=SEED, options={"task_id": task_id}))


def _first(observation: Any, info: Any) -> Step:
    return plain(observation), 0.0, False, False, plain(info)


def plan_of(env: Env) -> list[str]:
    """Return the oracle's plan; raises NotApplicable where there is no oracle."""
    try:
        oracle = env.get_wrapper_attr("oracle")
    except AttributeError:
        raise NotApplicable("the environment has no oracle()") from None
    try:
        return list(oracle())
    except NotImplementedError as error:
        raise NotApplicable(str(error) or "the environment has no oracle()") from None


def plain(value: Any) -> Any:
    """Return a copy that compares by content: arrays become type, shape and bytes."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(item) for item in value)
    return value
