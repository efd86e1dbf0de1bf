"""Boxoban's level files on disk, in a stable order, parsed when a level is asked for."""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path

from seed_envs.errors import DataError
from seed_envs.seeding import canonical, sha256_text
from seed_envs.sokoban.engine import XSB, parse
from seed_envs.sokoban.generator import Level
from seed_envs.sokoban.sources import LazyTasks, content_sha256
from seed_envs.tasks import Task, TaskSet, resolve_split

FOLDERS = {
    "hard": "hard",
    "medium-train": "medium/train",
    "medium-valid": "medium/valid",
    "unfiltered-train": "unfiltered/train",
    "unfiltered-valid": "unfiltered/valid",
    "unfiltered-test": "unfiltered/test",
}
"""Where the files of a split are below the root."""
RELEASED = {
    "hard": 3_332,
    "medium-train": 450_000,
    "medium-valid": 50_000,
    "unfiltered-train": 900_000,
    "unfiltered-valid": 100_000,
    "unfiltered-test": 1_000,
}
"""How many levels a split has, a thousand to a file. Source: README of google-deepmind/boxoban-levels."""
SIDE = 10
HELP = (
    "type: python -m seed_envs fetch sokoban, or give as data the folder that holds hard, medium and "
    "unfiltered of https://github.com/google-deepmind/boxoban-levels"
)


class BoxobanLevels:
    """The levels below a root: the folder of ``hard``, ``medium`` and ``unfiltered``, or one above."""

    def __init__(self, root: Path) -> None:
        """Look at ``root``.

        Raises:
            DataError: when no level file is below it.
        """
        self.root = _levels_folder(root)
        self._opened: dict[str, TaskSet] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have files."""
        return tuple(split for split, folder in FOLDERS.items() if _files(self.root / folder))

    def tasks(self, split: str) -> TaskSet:
        """Return the levels of a split in the order of files and numbers."""
        split = resolve_split(split, self.splits)
        if split not in self._opened:
            self._opened[split] = _FileTasks(self.root / FOLDERS[split], split)
        return self._opened[split]

    def load(self, task: Task) -> Level:
        """Read one level; how hard it is, nobody knows.

        Raises:
            DataError: when it is not there any more, torn or another one.
        """
        folder, stem, number = task.id.removeprefix("boxoban/").rsplit("/", 2)
        level = read_level(self.root / folder / f"{stem}.txt", int(number))
        if content_sha256(level.room, level.start) != task.sha256:
            raise DataError(f"{task.id} changed since its split was opened; start again, or get the levels anew")
        return level

    def canvas(self, split: str) -> tuple[int, int]:
        """Return the size all levels have."""
        return SIDE, SIDE


class _FileTasks(LazyTasks):
    """The levels in the files of one folder."""

    def __init__(self, folder: Path, split: str) -> None:
        files = _files(folder)
        self._folder, self._split = folder, split
        self._stems = [path.stem for path in files]
        self._ends = list(accumulate(path.read_text(encoding="utf-8", errors="replace").count(";") for path in files))
        if not self._ends[-1]:
            raise DataError(f"the files in {folder} hold no levels; {HELP}")
        release = "boxoban" if self._ends[-1] == RELEASED[split] else "boxoban-local"
        super().__init__(name=f"{release}/{split}", size=self._ends[-1], category=split.partition("-")[0])

    def _place(self, index: int) -> tuple[str, int]:
        file = bisect_right(self._ends, index)
        return self._stems[file], index - (self._ends[file - 1] if file else 0)

    def _id(self, index: int) -> str:
        stem, number = self._place(index)
        return f"boxoban/{FOLDERS[self._split]}/{stem}/{number:03d}"

    def _index(self, task_id: str) -> int | None:
        stem, _, number = task_id.removeprefix(f"boxoban/{FOLDERS[self._split]}/").partition("/")
        if stem not in self._stems or not re.fullmatch("[0-9]{3,9}", number):
            return None
        file = self._stems.index(stem)
        index = int(number) + (self._ends[file - 1] if file else 0)
        return index if index < self._ends[file] and self._id(index) == task_id else None

    def _make(self, index: int) -> Task:
        stem, number = self._place(index)
        level = read_level(self._folder / f"{stem}.txt", number)
        return Task(self._id(index), self._split, self._category, content_sha256(level.room, level.start))

    @cached_property
    def sha256(self) -> str:
        """The identity of the split: over the names of its files and their rows, blank lines aside."""
        texts = ((stem, (self._folder / f"{stem}.txt").read_text(encoding="utf-8")) for stem in self._stems)
        return sha256_text(canonical([[stem, _rows_sha256(text)] for stem, text in texts]))


def _rows_sha256(text: str) -> str:
    rows = "\n".join(line for line in text.split("\n") if line)
    return hashlib.sha256(rows.encode()).hexdigest()


def read_level(path: Path, number: int) -> Level:
    """Read the level ``; number`` of a file.

    Raises:
        DataError: when it is not there or no 10x10 room with as many boxes as targets.
    """
    levels = _levels(path)
    if number not in levels:
        raise DataError(f"{path} has no level {number}; {HELP}")
    try:
        room, start = parse(levels[number], XSB)
    except DataError as error:
        raise DataError(f"{path}, level {number}: {error}") from None
    if (room.height, room.width) != (SIDE, SIDE):
        raise DataError(f"{path}, level {number} is {room.height}x{room.width}; expected {SIDE}x{SIDE}")
    return Level(room, start, None, "unknown")


@lru_cache(maxsize=8)
def _levels(path: Path) -> dict[int, tuple[str, ...]]:
    """Return the rows of every level of a file by number."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} ({error}); {HELP}") from None
    return dict(_split(path, text))


def _split(path: Path, text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    for expected, part in enumerate(text.split(";")[1:]):
        number, *lines = part.split("\n")
        if number.strip() != str(expected):
            raise DataError(f"{path}: after ';' expected level number {expected}, got {number.strip()[:20]!r}; {HELP}")
        yield expected, tuple(line.rstrip("\r") for line in lines if line.rstrip("\r"))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.txt")) if folder.is_dir() else []


def _levels_folder(root: Path) -> Path:
    for folder in (root, root / "boxoban", *sorted(root.glob("boxoban-levels*"))):
        if any(_files(folder / name) for name in FOLDERS.values()):
            return folder
    state = "holds no Boxoban levels" if root.is_dir() else "does not exist"
    raise DataError(f"{root} {state}; expected {', '.join(FOLDERS.values())} with files 000.txt …; {HELP}")
