"""Tasks with stable identities, ordered sets of them, and their committed manifests."""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import overload

from seed_envs.errors import ConfigError, DataError, UnknownName
from seed_envs.seeding import canonical, sha256_text

SPLIT_ALIASES = {"seen": "valid_seen", "unseen": "valid_unseen"}


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """What is to be done: one row of a manifest.

    ``sha256`` is over the task's canonical content (what the world and the goal are), never
    over file bytes, so a re-packed release of the same tasks keeps its identity.
    """

    id: str
    split: str
    category: str
    sha256: str


class TaskSet(Sequence[Task]):
    """An ordered, immutable set of tasks with distinct ids; slices are task sets too."""

    def __init__(self, tasks: Iterable[Task], *, name: str = "") -> None:
        """Keep ``tasks`` in the order given.

        Raises:
            DataError: when an id occurs twice.
        """
        self.name = name
        self._tasks = tuple(tasks)
        self._by_id = {task.id: task for task in self._tasks}
        if len(self._by_id) != len(self._tasks):
            seen: set[str] = set()
            twice = next(t.id for t in self._tasks if t.id in seen or seen.add(t.id))  # type: ignore[func-returns-value]
            raise DataError(f"task id {twice!r} occurs twice in {name or 'a task set'}")

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> "TaskSet": ...
    def __getitem__(self, index: int | slice) -> "Task | TaskSet":
        """Return one task, or the task set of a slice."""
        if isinstance(index, slice):
            return TaskSet(self._tasks[index], name=self.name)
        return self._tasks[index]

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        """Iterate in order."""
        return iter(self._tasks)

    def __repr__(self) -> str:
        """Show name and size, never all rows."""
        return f"TaskSet({self.name!r}, n={len(self)})"

    def get(self, task_id: str) -> Task:
        """Return the task with this id.

        Raises:
            UnknownName: naming near ids or the range of ids.
        """
        if not isinstance(task_id, str) or task_id not in self._by_id:
            raise UnknownName("task id", task_id, self._by_id)
        return self._by_id[task_id]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids in order."""
        return tuple(self._by_id)

    @property
    def categories(self) -> dict[str, int]:
        """Number of tasks per category, by name."""
        counts: dict[str, int] = {}
        for task in self._tasks:
            counts[task.category] = counts.get(task.category, 0) + 1
        return dict(sorted(counts.items()))

    @property
    def sha256(self) -> str:
        """The manifest hash: over the rows sorted by id, so it does not depend on order."""
        rows = sorted([t.id, t.split, t.category, t.sha256] for t in self._tasks)
        return sha256_text(canonical(rows))

    def subset(self, ids: Iterable[str]) -> "TaskSet":
        """Return the tasks named by ``ids``, in this set's own order.

        Raises:
            UnknownName: when an id is not in the set.
        """
        wanted = {self.get(task_id).id for task_id in ids}
        return TaskSet((t for t in self._tasks if t.id in wanted), name=self.name)

    def sample(self, count: int, *, seed: int = 0) -> "TaskSet":
        """Return ``count`` tasks, stratified by category, nested in every larger count.

        Tasks are ranked by sha256 of (seed, id) inside their category and the categories are
        interleaved in proportion to their sizes; the first ``count`` of that order are taken
        and put back into this set's order. Neither file order nor numpy matters.

        Raises:
            ConfigError: when ``count`` is not in 1..len(self).
        """
        if not 1 <= count <= len(self):
            raise ConfigError(f"cannot take {count} of {len(self)} tasks; expected 1 to {len(self)}")
        groups: dict[str, list[Task]] = {}
        for task in self._tasks:
            groups.setdefault(task.category, []).append(task)
        order: list[tuple[Fraction, str, str]] = []
        for category, members in groups.items():
            ranked = sorted(members, key=lambda t: hashlib.sha256(f"{seed}:{t.id}".encode()).digest())
            order += [(Fraction(2 * i + 1, 2 * len(ranked)), category, t.id) for i, t in enumerate(ranked)]
        return self.subset(task_id for _, _, task_id in sorted(order)[:count])

    def fraction(self, share: float | str | Fraction, *, seed: int = 0) -> "TaskSet":
        """Return the first ``ceil(share * n)`` tasks of ``sample``'s order.

        ``share`` is in (0, 1]; decimal numbers count as written (0.07 of 100 is 7, not 8).

        Raises:
            ConfigError: when ``share`` is not a number in (0, 1].
        """
        exact = exact_fraction(share)
        return self.sample(math.ceil(exact * len(self)), seed=seed)

    def limit(self, amount: int | float | str, *, seed: int = 0) -> "TaskSet":
        """Return ``amount`` tasks: an integer counts tasks, anything with a point is a share.

        ``1`` is one task and ``1.0`` is all of them. A count above the size means all.

        Raises:
            ConfigError: when the amount is not positive, or is a share above 1.
        """
        text = str(amount).strip()
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            return self.fraction(text, seed=seed)
        if len(text) > 18:
            return self.sample(len(self), seed=seed) if text[0] != "-" else self.fraction(text, seed=seed)
        if int(text) <= 0:
            raise ConfigError(f"a limit of {text} tasks makes no run; expected a positive number")
        return self.sample(min(int(text), len(self)), seed=seed)


def exact_fraction(share: float | str | Fraction) -> Fraction:
    """Return ``share`` as the exact decimal it was written as.

    Raises:
        ConfigError: when it is not a number in (0, 1].
    """
    try:
        number = Decimal(str(share)) if not isinstance(share, Fraction) else Decimal(1)
        plain = number.is_finite() and 0 < number <= 1 and number.adjusted() > -30  # else its fraction is enormous
        exact = share if isinstance(share, Fraction) else Fraction(number) if plain else Fraction(0)
    except (InvalidOperation, ValueError, OverflowError):
        exact = Fraction(0)
    if not 0 < exact <= 1:
        raise ConfigError(f"{share!r} is no share of a task set; expected a number above 0 and at most 1.0")
    return exact


def resolve_split(name: str, known: Sequence[str]) -> str:
    """Return the split ``name`` means; ``seen`` and ``unseen`` are aliases.

    Raises:
        UnknownName: when it is none of ``known``.
    """
    if name in known:
        return name
    alias = SPLIT_ALIASES.get(name, name)
    if name == "seen" and alias not in known and "test" in known:
        alias = "test"
    if alias not in known:
        raise UnknownName("split", name, known)
    return alias


def write_manifest(path: Path, tasks: Iterable[Task], *, title: str) -> None:
    """Write a manifest: a title line, then one tab-separated row per task, sorted by id."""
    rows = sorted(tasks)
    lines = [f"# {title}", *(f"{t.id}\t{t.split}\t{t.category}\t{t.sha256}" for t in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_manifest(path: Path) -> dict[str, TaskSet]:
    """Read a manifest into one task set per split, each sorted by id; columns after the fourth are for people.

    Raises:
        DataError: when a row has fewer than four fields.
    """
    splits: dict[str, list[Task]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.startswith("#") or not line:
            continue
        fields = line.split("\t")
        if len(fields) < 4:
            raise DataError(f"{path}:{number}: expected id, split, category and sha256 separated by tabs")
        splits.setdefault(fields[1], []).append(Task(*fields[:4]))
    return {split: TaskSet(rows, name=f"{path.stem}/{split}") for split, rows in splits.items()}


def compare_manifests(found: Mapping[str, Task], listed: Mapping[str, Task]) -> dict[str, list[str]]:
    """Return the ids that are missing from, added to or changed against ``listed``."""
    return {
        "missing": sorted(listed.keys() - found.keys()),
        "added": sorted(found.keys() - listed.keys()),
        "changed": sorted(i for i in found.keys() & listed.keys() if found[i] != listed[i]),
    }
