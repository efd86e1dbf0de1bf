"""``toy/Parrot-v0``: a plain ``gymnasium.Env`` that keeps the contract without ``AgentEnv``."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from seed_envs.spaces import Utf8
from seed_envs.tasks import Task, TaskSet

WORDS = ("apple", "bread", "cheese", "dates")


class Parrot(gym.Env[dict[str, Any], str]):
    """Say the word back. There is no list of admissible actions: any text may be said."""

    observation_space = spaces.Dict({"text": Utf8(200)})
    action_space = Utf8(100_000)
    tasks = TaskSet((Task(word, "train", "food", f"{i:064x}") for i, word in enumerate(WORDS)), name="toy_parrot")

    _task: Task | None = None
    _turn = 0
    _over = False

    def identity(self) -> dict[str, Any]:
        """Return version and manifest."""
        return {"version": "1", "manifest": self.tasks.name, "manifest_sha256": self.tasks.sha256}

    def oracle(self) -> list[str]:
        """Return the word."""
        assert self._task is not None
        return [self._task.id]

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin; raises ValueError for an unknown option or task."""
        super().reset(seed=seed)
        options = dict(options or {})
        chosen = options.pop("task_id", None)
        if options:
            raise ValueError(f"unknown options {sorted(options)}; expected task_id")
        drawn = int(self.np_random.bit_generator.random_raw()) % len(self.tasks)  # type: ignore[attr-defined]
        self._task = self.tasks[drawn] if chosen is None else self.tasks.get(chosen)
        self._turn, self._over = 0, False
        return {"text": f"Say: {self._task.id}"}, self._info(None)

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Say something."""
        if self._task is None or self._over:
            raise gym.error.ResetNeeded("call reset() first")
        self._turn += 1
        self._over = action == self._task.id
        text = "Well said." if self._over else "That is not the word."
        return {"text": text}, float(self._over), self._over, False, self._info(self._over)

    def _info(self, right: bool | None) -> dict[str, Any]:
        assert self._task is not None
        return {
            "task_id": self._task.id,
            "split": self._task.split,
            "category": self._task.category,
            "instruction": f"Say: {self._task.id}",
            "turn": self._turn,
            "success": bool(right),
            "score": float(bool(right)),
            "admissible": right,
            "effective": right,
            "admissible_actions": None,
            "reason": "" if right in (None, True) else "another word was asked for",
            "extra": {},
        }
