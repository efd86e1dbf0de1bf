"""What every place that questions come from offers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from seed_envs.searchqa.asking import Question
from seed_envs.tasks import Task, TaskSet

TEST = "test"
"""The split that is ``seen`` and ``unseen`` together."""


class QuestionSource(ABC):
    """A named collection of questions in splits."""

    splits: Sequence[str]
    """The splits there are; ``test`` is accepted beside them."""

    @abstractmethod
    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split, sorted by id."""

    @abstractmethod
    def load(self, task: Task) -> Question:
        """Return a question."""

    def differences(self, split: str) -> list[str]:
        """Return how a split differs from what was released, a text per difference."""
        return []
