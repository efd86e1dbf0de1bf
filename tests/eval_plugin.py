"""A small environment and policies to test the harness with; loaded by ``--plugin eval_plugin``.

Spell a word, one letter a turn. What goes wrong, and how slowly, is decided by environment
variables, so that a run with a fault and one without have the same configuration.
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seed_agent.policy import POLICIES, Decision, Player, Situation
from seed_envs.core import AgentEnv, View
from seed_envs.seeding import Draws, sha256_text
from seed_envs.spaces import Utf8
from seed_envs.tasks import Task, TaskSet, resolve_split
from seed_envs.vector import Failure, GroupVectorEnv

SPLITS = ("train", "seen", "unseen")
LETTERS = "abc"


def _word(split: str, i: int) -> str:
    draws = Draws("word", split, i)
    return "".join(draws.choice(LETTERS) for _ in range(2 + i % 3))


class Spell(AgentEnv):
    """Spell a word; a third of the tasks each have 2, 3 and 4 letters."""

    version = "1"

    def __init__(
        self, split: str = "train", size: int = 6, image: bool = False, data: str = "embedded", edition: int = 1
    ) -> None:
        split = resolve_split(split, SPLITS)
        self.image = image
        self.tasks = TaskSet(
            (
                Task(f"{split}/{i:03}", split, f"{2 + i % 3} letters", sha256_text(f"{_word(split, i)} {edition}"))
                for i in range(size)
            ),
            name=f"spell/{split}",
        )
        if os.environ.get("SPELL_LESS"):
            self.tasks = self.tasks[1:]
        if image:
            pixels = spaces.Box(0, 255, (4, 4, 3), np.uint8)
            self.observation_space = spaces.Dict({"text": Utf8(1000), "image": pixels})

    @classmethod
    def split_names(cls, **kwargs: Any) -> tuple[str, ...]:
        return SPLITS

    def notices(self) -> list[str]:
        return ["three words were skipped"] if os.environ.get("SPELL_NOTICE") else []

    def _begin(self, task: Task, seed: int) -> View:
        split, _, number = task.id.partition("/")
        self._left = _word(split, int(number))
        self._length = len(self._left)
        self.instruction = f"Spell {self._left}."
        self._fault("reset")
        return self._view(self.instruction)

    def _act(self, action: str) -> View:
        self._fault("step")
        right = action == self._left[0]
        self._left = self._left[right:]
        return self._view("Yes." if right else "No.", admissible=action in LETTERS, effective=right)

    def _view(self, text: str, **judged: Any) -> View:
        won = not self._left
        pixels = np.full((4, 4, 3), len(self._left), np.uint8) if self.image else None
        score = 1 - len(self._left) / self._length
        return View(
            text, list(LETTERS), pixels, float(won), terminated=won, success=won, score=score, **judged
        )  # fmt: skip

    def _fault(self, where: str) -> None:
        """Raise or die where ``SPELL_FAULT`` (place:task id) says; only once if ``SPELL_ONCE`` names a file."""
        assert self._task is not None
        place, _, task_id = os.environ.get("SPELL_FAULT", "").partition(":")
        once = os.environ.get("SPELL_ONCE")
        if task_id != self._task.id or (once and Path(once).exists()):
            return
        if place == where:
            raise RuntimeError("the alphabet\nis gone")
        if place == "kill" and where == "step":
            Path(str(once)).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def oracle(self) -> list[str]:
        return list(self._left)


class Speller:
    """Plays the plan with a share of random letters, as fast as ``SPELL_SLEEP`` (seconds a turn) lets it."""

    def __init__(self, rest: str) -> None:
        self.name = f"spell:{rest}"
        kind, _, number = rest.partition("=")
        self.kind, self.number = kind, int(number or 0)

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        time.sleep(float(os.environ.get("SPELL_SLEEP", "0")))
        if self.kind == "raises":
            raise ValueError("no idea")
        plans = envs.run((s.row, "oracle", (), {}) for s in situations)
        return [self._one(s, plan) for s, plan in zip(situations, plans, strict=True)]

    def _one(self, situation: Situation, plan: list[str]) -> Decision | Failure:
        draws = Draws(situation.seed, len(situation.turns))
        if self.kind == "first" and int(situation.task_id[-3:]) >= self.number:
            return Decision("z", "z", stop_reason="length")
        if self.kind == "mumbles":
            return Decision("<a>", "", format_ok=False)
        if self.kind == "fails" and situation.task_id.endswith(f"{self.number:03}"):
            return Failure("PolicyError", "this one is too hard")
        letter = draws.choice("abcd") if self.kind == "wavers" and draws.chance(0.6) else plan[0]
        return Decision(letter, letter, stop_reason="scripted")


def make(rest: str) -> Player:
    if rest == "broken":
        raise RuntimeError("no weights")
    return Speller(rest)


class Broken(AgentEnv):
    """Cannot be made."""

    def __init__(self) -> None:
        raise OSError("no such display")


class Plain(gym.Env[Any, Any]):
    """Is no environment of the suite."""

    observation_space = Utf8(10)
    action_space = Utf8(10)


if "evaltoy/Spell-v0" not in gym.registry:
    gym.register("evaltoy/Spell-v0", entry_point="eval_plugin:Spell", max_episode_steps=6)
    gym.register("evaltoy/Broken-v0", entry_point="eval_plugin:Broken")
    gym.register("evaltoy/Plain-v0", entry_point="eval_plugin:Plain")
    POLICIES.add("spell", "eval_plugin:make")
