"""What the best play would reach, for tables of tasks of which some cannot be solved."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from harness import stats
from seed_envs.tasks import TaskSet


class Split(Protocol):
    """Tasks, and the best possible score of those whose is below 1."""

    @property
    def name(self) -> str:
        """The split."""

    @property
    def tasks(self) -> TaskSet:
        """The tasks that are played."""

    @property
    def ceilings(self) -> Mapping[str, float]:
        """Best score by task id."""

    @property
    def draws(self) -> Mapping[str, int]:
        """How often a task is played, by id; once where it says nothing."""


def ceilings(splits: Iterable[Split]) -> dict[str, Any]:
    """Return the ceilings of every split that has tasks below 1, shaped as a summary's splits.

    Per split: ``n`` tasks, ``below`` of them without a score of 1; the best ``success`` and ``score``
    over the episodes, pooled, in ``macro`` and per category in ``categories``; both from 0 to 1.
    """
    return {split.name: _ceilings(split) for split in splits if any(task.id in split.ceilings for task in split.tasks)}


def _ceilings(split: Split) -> dict[str, Any]:
    groups: dict[str, list[float]] = {}
    for task in split.tasks:
        best = split.ceilings.get(task.id, 1.0)
        groups.setdefault(task.category, []).extend([best] * split.draws.get(task.id, 1))
    values = [value for group in groups.values() for value in group]
    categories = {name: _best(group) for name, group in sorted(groups.items())}
    return {
        "n": len(split.tasks),
        "below": sum(task.id in split.ceilings for task in split.tasks),
        **_best(values),
        "macro": {key: stats.mean(found[key] for found in categories.values()) for key in ("success", "score")},
        "categories": categories,
    }


def _best(values: Sequence[float]) -> dict[str, Any]:
    return {"success": stats.mean(value >= 1 for value in values), "score": stats.mean(values)}
