"""What every place that ALFWorld games come from offers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seed_envs.alfworld.grammar import Grammar
from seed_envs.tasks import Task, TaskSet


@dataclass(frozen=True, slots=True)
class GameText:
    """One game before it is compiled."""

    problem: str
    """The PDDL problem."""
    instruction: str
    """The goal sentence as the agent is told it."""
    grammar: Grammar
    path: Path | None = None
    """The official game file, where the game has one."""


class GameSource(Protocol):
    """A named collection of games in splits."""

    name: str

    @property
    def splits(self) -> Sequence[str]:
        """The splits there are."""

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split, sorted by id."""

    def load(self, task: Task) -> GameText:
        """Return the text of a game."""

    def describe(self, split: str) -> dict[str, Any]:
        """Return facts about the split for people: counts, what was skipped and why."""
