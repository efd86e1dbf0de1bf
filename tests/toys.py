"""The toy package's environments, and broken ones that the conformance suite must catch."""

import os
import random
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from seed_agent.methods import METHODS
from seed_agent.policy import POLICIES
from seed_envs.core import View
from seed_envs.registry import _LOADED
from seed_envs.vector import EnvMaker

TOY_PLUGIN = Path(__file__).with_name("toy_plugin")
sys.path.insert(0, str(TOY_PLUGIN))  # spawned workers inherit the path

import toy_suite  # noqa: E402
from toy_suite.counter import Counter  # noqa: E402

TURNS = 12


class TextSpace(Counter):
    observation_space = spaces.Dict({"text": spaces.Text(1000)})


class Anonymous(Counter):
    def identity(self) -> dict[str, Any]:
        return {"version": "1"}


class MissingSplit(Counter):
    splits = ("train", "unseen", "test")


class OneSplitTwice(Counter):
    def __init__(self, split: str = "train") -> None:
        super().__init__("train")


class IgnoresTaskId(Counter):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        for key in options or {}:
            self.tasks.get(options[key]) if key == "task_id" else super().reset(options=options)
        return super().reset(seed=seed)


class AcceptsAnyOption(Counter):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options={k: v for k, v in (options or {}).items() if k == "task_id"})


class NumpyFlags(Counter):
    def step(self, action: str) -> Any:
        observation, reward, terminated, *rest = super().step(action)
        return observation, np.float32(reward), np.bool_(terminated), *rest


class MissingKey(Counter):
    def _info(self, view: View) -> dict[str, Any]:
        return {key: value for key, value in super()._info(view).items() if key != "reason"}


class LateExtra(Counter):
    def _info(self, view: View) -> dict[str, Any]:
        info = super()._info(view)
        return {**info, "extra": {**info["extra"], "late": 1}} if self._turn else info


class FreeJunk(Counter):
    def _act(self, action: str) -> View:
        view = super()._act(action)
        self._turn -= not view.admissible
        return view


class SuccessGoesOn(Counter):
    def _view(self, *args: Any, **kwargs: Any) -> View:
        return replace(super()._view(*args, **kwargs), terminated=False)


class RemembersEpisodes(Counter):
    played = 0

    def _begin(self, task: Any, seed: int) -> View:
        self.played += 1
        return super()._begin(task, self.played)


class ReseedsEachReset(Counter):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed or 7, options=options)


class GlobalRng(Counter):
    def _begin(self, task: Any, seed: int) -> View:
        random.seed(seed)
        return super()._begin(task, random.randrange(1000))


class SharedState(Counter):
    shared: dict[str, int] = {}  # noqa: RUF012

    def _act(self, action: str) -> View:
        self._count = self.shared.get("count", self._count)
        view = super()._act(action)
        self.shared["count"] = self._count
        return view

    def _begin(self, task: Any, seed: int) -> View:
        self.shared.clear()
        return super()._begin(task, seed)


class JunkRaises(Counter):
    def _act(self, action: str) -> View:
        if action not in ("add 1", "add 3", "take 1"):
            raise ValueError(action)
        return super()._act(action)


class JunkWins(Counter):
    def _act(self, action: str) -> View:
        self._count = self._goal if "look" in action else self._count
        return super()._act(action)


class JunkMoves(Counter):
    def _act(self, action: str) -> View:
        view = super()._act(action)
        self._count += not view.admissible
        return view if view.admissible else self._view(f"Still {self._count}.", admissible=False, effective=False)


class TruncatesItself(Counter):
    def step(self, action: str) -> Any:
        *rest, truncated, info = super().step(action)
        return *rest, truncated or self._turn >= TURNS, info


class DoneIsSuccess(Counter):
    def _view(self, *args: Any, **kwargs: Any) -> View:
        if self._turn >= TURNS:
            self._count = self._goal
        return super()._view(*args, **kwargs)


class OffersTooMuch(Counter):
    def _view(self, *args: Any, **kwargs: Any) -> View:
        return replace(super()._view(*args, **kwargs), admissible_actions=["add 1", "add 2"])


class Unsorted(Counter):
    def _view(self, *args: Any, **kwargs: Any) -> View:
        return replace(super()._view(*args, **kwargs), admissible_actions=["take 1", "add 1", "add 3"])


class BadPlan(Counter):
    def oracle(self) -> list[str]:
        return super().oracle()[:-1]


class SlowPlan(Counter):
    def oracle(self) -> list[str]:
        return [*["add 1", "take 1"] * TURNS, *super().oracle()]


class OracleRaises(Counter):
    def oracle(self) -> list[str]:
        return self.no_such_attribute  # type: ignore[attr-defined,no-any-return]


class PlanInInfo(Counter):
    def _info(self, view: View) -> dict[str, Any]:
        return {**super()._info(view), "extra": {"expert": self.oracle()[:1]}} | {
            "extra": {"next": self.oracle() or ""}
        }


class NeverOver(Counter):
    def step(self, action: str) -> Any:
        self._over = False
        return super().step(action)


class HoldsALock(Counter):
    def __init__(self, split: str = "train") -> None:
        super().__init__(split)
        self.lock = threading.Lock()


class KnowsItsProcess(Counter):
    def _act(self, action: str) -> View:
        return super()._act(action) if parent_process() is None else self._view("Hello from a worker.")


class PidInInfo(Counter):
    def _info(self, view: View) -> dict[str, Any]:
        return {**super()._info(view), "extra": {"pid": os.getpid()}}


class FolderInInfo(Counter):
    def _info(self, view: View) -> dict[str, Any]:
        return {**super()._info(view), "extra": {"game": str(Path.home() / "games" / "1.json")}}


class ClosesOnce(Counter):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


BROKEN: dict[type[Counter], str] = {
    TextSpace: "gymnasium",
    Anonymous: "tasks",
    MissingSplit: "splits",
    OneSplitTwice: "splits",
    IgnoresTaskId: "task_id",
    AcceptsAnyOption: "task_id",
    NumpyFlags: "spaces",
    MissingKey: "info",
    LateExtra: "info",
    FreeJunk: "info",
    SuccessGoesOn: "info",
    RemembersEpisodes: "deterministic",
    ReseedsEachReset: "seeds",
    GlobalRng: "global_rng",
    SharedState: "interleaved",
    JunkRaises: "junk",
    JunkWins: "junk",
    JunkMoves: "junk",
    TruncatesItself: "turn_limit",
    DoneIsSuccess: "turn_limit",
    OffersTooMuch: "admissible",
    Unsorted: "admissible",
    BadPlan: "oracle",
    SlowPlan: "oracle",
    OracleRaises: "oracle",
    PlanInInfo: "oracle",
    NeverOver: "reset_needed",
    HoldsALock: "pickles",
    KnowsItsProcess: "worker",
    PidInInfo: "portable_info",
    FolderInInfo: "portable_info",
    ClosesOnce: "close",
}
"""Broken environments and the check that must catch each."""


def register() -> None:
    """Register the toy package and the broken environments as ``broken/NAME-v0``."""
    toy_suite.register()
    for cls in BROKEN:
        if f"broken/{cls.__name__}-v0" not in gym.registry:
            gym.register(f"broken/{cls.__name__}-v0", entry_point=f"toys:{cls.__name__}", max_episode_steps=TURNS)


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """Register everything for one test module, which imports this; other modules never see it."""
    register()
    yield
    for env_id in [env_id for env_id in gym.registry if env_id.startswith(("toy/", "broken/"))]:
        del gym.registry[env_id]
    POLICIES._entries.pop("toy", None)
    METHODS._entries.pop("toy-method", None)
    for plugin in ("toys:register", "toy_suite:register"):
        _LOADED.discard(plugin)  # so that loading it again registers it again


toy = partial(EnvMaker, plugins=("toys:register",))
COUNTER, PARROT = toy("toy/Counter-v0"), toy("toy/Parrot-v0")
