"""Episodes as a summary needs them, packed into 76 bytes each, so that a million fit in little memory."""

import hashlib
import math
import struct
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.stats import Group
from seed_agent.trajectory import OUTCOMES
from seed_envs.errors import DataError

if TYPE_CHECKING:
    from harness.summary import Row

Mask = np.ndarray[Any, np.dtype[np.bool_]]
_COUNTS = (
    "turns", "ill_formed", "admissible_known", "inadmissible", "effective_known", "ineffective", "cut_replies",
)  # fmt: skip
"""Each at most the number of turns, of which 65,535 can be counted."""
_PACKER = struct.Struct(f"<4I2Bd{len(_COUNTS)}HI32s")
_LAYOUT = np.dtype(
    [(name, "<u4") for name in ("task", "attempt", "error", "played")]
    + [("outcome", "u1"), ("success", "u1"), ("score", "<f8")]
    + [(name, "<u2") for name in _COUNTS]
    + [("history_dropped", "<u4"), ("sha256", "S32")]
)
_AT_ONCE = 512


class TaskOf(NamedTuple):
    """What a task is, as its episodes say."""

    split: str
    id: str
    category: str
    sha256: str


class Columns:
    """A table of episodes that grows; tasks, errors and settings are kept once each."""

    def __init__(self) -> None:
        """Start empty."""
        self._data = bytearray()
        self._tasks: dict[TaskOf, int] = {}
        self._errors: dict[str, int] = {"": 0}
        self._played: dict[str, int] = {}

    def add(self, row: "Row") -> None:
        """Take up an episode.

        Raises:
            DataError: when its hash is none.
        """
        split, task_id, attempt = row.key
        task = TaskOf(sys.intern(split), task_id, sys.intern(row.category), row.task_sha256)
        kind = row.error.partition(":")[0] or row.error
        try:
            self._data += _PACKER.pack(
                self._tasks.setdefault(task, len(self._tasks)),
                attempt,
                self._errors.setdefault(kind, len(self._errors)),
                self._played.setdefault(row.played, len(self._played)),
                OUTCOMES.index(row.outcome),
                row.success,
                row.score,
                *(getattr(row, name) for name in _COUNTS),
                row.history_dropped,
                bytes.fromhex(row.sha256),
            )
        except (struct.error, ValueError) as error:
            raise DataError(f"the episode {row.key} cannot be counted ({error})") from None

    def settled(self) -> "Part":
        """Return all episodes, of each the last record; one more than that is for an episode that broke.

        Raises:
            DataError: when a finished episode is recorded twice.
        """
        table = np.frombuffer(self._data, _LAYOUT) if self._data else np.empty(0, _LAYOUT)
        kept = np.ones(len(table), np.bool_)
        order = np.lexsort((table["attempt"], table["task"]))  # stable: the later record of an episode comes later
        again = (np.diff(table["task"][order]) == 0) & (np.diff(table["attempt"][order]) == 0)
        wrong = np.flatnonzero(again & (table["error"][order[:-1]] == 0)) if len(order) else order
        if len(wrong):
            at = table[order[wrong[0]]]
            task = list(self._tasks)[int(at["task"])]
            raise recorded_twice(task.split, task.id, int(at["attempt"]))
        kept[order[:-1][again]] = False
        return Part(table, kept, list(self._tasks), list(self._errors), list(self._played))


class Part:
    """Some episodes of a table. Masks and single columns are all that is ever copied."""

    def __init__(self, table: Any, mask: Mask, tasks: list[TaskOf], errors: list[str], played: list[str]) -> None:
        """Look at the rows of a table that ``mask`` names."""
        self._table, self._mask = table, mask
        self.tasks, self._errors, self._played = tasks, errors, played

    def __len__(self) -> int:
        """Return the number of episodes."""
        return int(self._mask.sum())

    def _where(self, mask: Mask) -> "Part":
        return Part(self._table, self._mask & mask, self.tasks, self._errors, self._played)

    def column(self, name: str) -> Any:
        """Return one field of all episodes."""
        return self._table[name][self._mask]

    def total(self, name: str) -> int:
        """Return the sum of a field that counts."""
        return int(self.column(name).sum(dtype=np.int64))

    def mean(self, name: str) -> float | None:
        """Return the mean of a field, summed exactly; None of nothing."""
        return math.fsum(self.column(name)) / len(self) if len(self) else None

    def by(self, field: str) -> Iterator[tuple[str, "Part"]]:
        """Yield the parts by ``split`` or ``category``, sorted by name."""
        names = sorted(dict.fromkeys(getattr(task, field) for task in self.tasks))
        number = {name: i for i, name in enumerate(names)}
        of_task = np.array([number[getattr(task, field)] for task in self.tasks], dtype=np.uint32)
        of_row = of_task[self._table["task"]] if len(self.tasks) else np.empty(0, np.uint32)
        for i, name in enumerate(names):
            if len(part := self._where(of_row == i)):
                yield name, part

    def successes(self) -> "Part":
        """Return the successful episodes."""
        return self._where(self._table["success"] == 1)

    def groups(self) -> list[Group]:
        """Return wins and attempts of every task that is there."""
        attempts, wins = (
            np.bincount(part.column("task"), minlength=len(self.tasks)) for part in (self, self.successes())
        )
        there = attempts > 0
        return list(zip(wins[there].tolist(), attempts[there].tolist(), strict=True))

    def played_tasks(self) -> list[TaskOf]:
        """Return the tasks that are there."""
        return [self.tasks[i] for i in np.unique(self.column("task"))]

    def count(self, field: str) -> dict[str, int]:
        """Return how many episodes there are of each ``outcome``, kind of ``error`` or setting (``played``)."""
        names = list(OUTCOMES) if field == "outcome" else self._errors if field == "error" else self._played
        counts = np.bincount(self.column(field), minlength=len(names)).tolist()
        return {name: count for name, count in zip(names, counts, strict=True) if count}

    def records_sha256(self) -> str:
        """Return ``seed_agent.trajectory.records_sha256`` of the episodes, in little memory."""
        hashes, digest = self.column("sha256"), hashlib.sha256()
        hashes.sort()
        for start in range(0, len(hashes), _AT_ONCE):
            raw = hashes[start : start + _AT_ONCE].tobytes()  # not one by one, which would drop trailing zeros
            digest.update(("\n" if start else "").encode() + raw.hex("\n", -32).encode())
        return digest.hexdigest()


def recorded_twice(split: str, task_id: str, attempt: int) -> DataError:
    """Return the error for a finished episode that is there again."""
    return DataError(f"the episode ({split}, {task_id}, attempt {attempt}) is recorded twice; remove one of its lines")
