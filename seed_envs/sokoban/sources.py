"""Where rooms come from: the committed splits, any seed, or Boxoban's files."""

import hashlib
import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import NamedTuple, Protocol, overload

from seed_envs import paths
from seed_envs.errors import ConfigError, DataError, UnknownName
from seed_envs.seeding import canonical, sha256_text
from seed_envs.sokoban.engine import Room, State, rows
from seed_envs.sokoban.generator import VERSION, Level, check_size, generate
from seed_envs.tasks import Task, TaskSet, read_manifest, resolve_split

NAME = "sokoban-embedded"
SPLITS = ("train", "seen", "unseen")
RANDOM = "random"
RANDOM_ROOMS = 10_000
BANDS = (("short", 4), ("medium", 8), ("long", 12))
"""Categories of the committed rooms, by the largest number of moves of the shortest solution."""
_ID = re.compile(r"sokoban/(\d+)x(\d+)-(\d+)box/(\d{6})")


class RoomSource(Protocol):
    """A named collection of rooms in splits."""

    @property
    def splits(self) -> Sequence[str]:
        """The splits there are."""

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split, sorted by id."""

    def load(self, task: Task) -> Level:
        """Return a room."""

    def canvas(self, split: str) -> tuple[int, int]:
        """Return the rows and columns that hold every room of a split."""


def content_sha256(room: Room, start: State) -> str:
    """Return the identity of a room: the sha256 of its rows in the symbols of the engine."""
    return sha256_text(canonical(rows(room, start)))


class RoomId(NamedTuple):
    """What the id of a generated room says: everything needed to make it."""

    height: int
    width: int
    boxes: int
    seed: int

    def __str__(self) -> str:
        """Write the id: ``sokoban/6x6-1box/000123``."""
        return f"sokoban/{self.height}x{self.width}-{self.boxes}box/{self.seed:06d}"

    @classmethod
    def read(cls, task_id: str) -> "RoomId":
        """Read an id.

        Raises:
            DataError: when it is none of a generated room.
        """
        found = _ID.fullmatch(task_id)
        if found is None:
            raise DataError(f"{task_id!r} is no id of a generated room; expected one like {cls(6, 6, 1, 123)}")
        return cls(*map(int, found.groups()))


def band(moves: int) -> str:
    """Return the category of a shortest solution of so many moves."""
    return next(name for name, most in BANDS if moves <= most)


class EmbeddedRooms:
    """The rooms of the committed manifest, made from their ids and checked when they are played."""

    splits = SPLITS

    def tasks(self, split: str) -> TaskSet:
        """Return a split; rows are read once per process."""
        return _manifest()[resolve_split(split, SPLITS)]

    def load(self, task: Task) -> Level:
        """Make a room.

        Raises:
            DataError: when it is not the room of the manifest.
        """
        level = generate(*RoomId.read(task.id))
        if content_sha256(level.room, level.start) != task.sha256:
            raise DataError(f"{task.id} is not the room its manifest lists; install the package anew")
        return level

    def canvas(self, split: str) -> tuple[int, int]:
        """Return the largest rows and columns of a split."""
        return _largest(resolve_split(split, SPLITS))


@cache
def _manifest() -> dict[str, TaskSet]:
    return read_manifest(paths.manifest_path(NAME))


@cache
def _largest(split: str) -> tuple[int, int]:
    found = [RoomId.read(task.id) for task in _manifest()[split]]
    return max(room.height for room in found), max(room.width for room in found)


class RandomRooms:
    """Rooms of one size and box count, made from seeds 0 to 9,999 when asked for."""

    splits = (RANDOM,)

    def __init__(self, height: int = 6, width: int = 6, boxes: int = 1) -> None:
        """Take a size.

        Raises:
            ConfigError: when no room of that kind can be made.
        """
        check_size(height, width, boxes)
        self.height, self.width, self.boxes = height, width, boxes

    def tasks(self, split: str) -> TaskSet:
        """Return all seeds as tasks."""
        resolve_split(split, self.splits)
        return _SeededTasks(self.height, self.width, self.boxes)

    def load(self, task: Task) -> Level:
        """Make a room."""
        return generate(*RoomId.read(task.id))

    def canvas(self, split: str) -> tuple[int, int]:
        """Return the size."""
        return self.height, self.width


class LazyTasks(TaskSet):
    """A task set that makes its tasks when asked, for splits too large to hold or to hash up front.

    Subclasses say how many tasks there are, their ids in sorted order and how to make one; all
    tasks have one category.
    """

    def __init__(self, *, name: str, size: int, category: str) -> None:
        """Describe ``size`` tasks."""
        super().__init__((), name=name)
        self._size = size
        self._category = category

    def _id(self, index: int) -> str:
        raise NotImplementedError

    def _index(self, task_id: str) -> int | None:
        raise NotImplementedError

    def _make(self, index: int) -> Task:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> TaskSet: ...
    def __getitem__(self, index: int | slice) -> Task | TaskSet:
        """Return one task, or the task set of a slice."""
        if isinstance(index, slice):
            return TaskSet((self._make(i) for i in range(self._size)[index]), name=self.name)
        return self._make(range(self._size)[index])

    def __len__(self) -> int:
        """Return the number of tasks."""
        return self._size

    def __iter__(self) -> Iterator[Task]:
        """Make every task in order."""
        return map(self._make, range(self._size))

    def get(self, task_id: str) -> Task:
        """Return the task with this id.

        Raises:
            UnknownName: naming the range of ids.
        """
        index = self._index(task_id) if isinstance(task_id, str) else None
        if index is None:
            raise UnknownName("task id", task_id, [f"{self._id(0)} to {self._id(self._size - 1)}"])
        return self._make(index)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids in order."""
        return tuple(map(self._id, range(self._size)))

    @property
    def categories(self) -> dict[str, int]:
        """The one category there is."""
        return {self._category: self._size}

    def subset(self, ids: Iterable[str]) -> TaskSet:
        """Return the tasks named by ``ids``, in this set's own order.

        Raises:
            UnknownName: when an id is not in the set.
        """
        return TaskSet((self.get(task_id) for task_id in sorted(set(ids))), name=self.name)

    def sample(self, count: int, *, seed: int = 0) -> TaskSet:
        """Return ``count`` tasks by the rank of the general rule, making no others.

        Raises:
            ConfigError: when ``count`` is not in 1..len(self).
        """
        if not 1 <= count <= len(self):
            raise ConfigError(f"cannot take {count} of {len(self)} tasks; expected 1 to {len(self)}")
        ranked = heapq.nsmallest(count, self.ids, key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())
        return self.subset(ranked)


class _SeededTasks(LazyTasks):
    def __init__(self, height: int, width: int, boxes: int) -> None:
        category = f"{height}x{width}-{boxes}box"
        super().__init__(name=f"sokoban-{category}/{RANDOM}", size=RANDOM_ROOMS, category=category)
        self._kind = (height, width, boxes)

    def _id(self, index: int) -> str:
        return str(RoomId(*self._kind, index))

    def _index(self, task_id: str) -> int | None:
        found = _ID.fullmatch(task_id)
        seed = int(found.group(4)) if found else self._size
        return seed if seed < self._size and task_id == self._id(seed) else None

    def _make(self, index: int) -> Task:
        level = generate(*self._kind, index)
        return Task(self._id(index), RANDOM, self._category, content_sha256(level.room, level.start))

    @cached_property
    def sha256(self) -> str:
        """The identity of the set: what the rooms are made from, since all rooms follow from it."""
        return sha256_text(canonical(["sokoban", VERSION, *self._kind, self._size]))
