"""The append-only records of a run: ``trajectories.jsonl``, safe against kills and full disks."""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.config import RunPlan
from harness.summary import Key, Row, merge
from seed_agent.trajectory import Episode, read_line
from seed_envs.errors import DataError, SeedError
from seed_envs.locks import claim

ELSEWHERE = "choose another --out"


class WriteFailed(SeedError):
    """A file of a run could not be written; what was written before is intact."""

    def __init__(self, path: Path, error: OSError, kept: str = "finished episodes are kept: ") -> None:
        """Name the file, the reason, what is not lost and the way on."""
        way_on = f"make room or {ELSEWHERE}, then repeat the command"
        super().__init__(f"cannot write {path}: {error.strerror}; {kept}{way_on}")


class Records:
    """The append-only ``trajectories.jsonl``, locked for one writer until it is closed or dies."""

    def __init__(self, path: Path) -> None:
        """Open and lock the file, making it when it is not there.

        Raises:
            WriteFailed: when it cannot be opened for writing.
            ConfigError: when another process is writing it.
        """
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise WriteFailed(path, error) from None
        claim(self._fd, f"another process is writing {path.parent}; wait for it, or {ELSEWHERE}")
        self._size = os.fstat(self._fd).st_size

    def cut(self, size: int) -> None:
        """Drop everything after the first ``size`` bytes."""
        if size < self._size:
            os.ftruncate(self._fd, size)
            self._size = size

    def append(self, line: str) -> None:
        """Add a line; a line that cannot be written whole is taken back.

        Raises:
            WriteFailed: when the disk is full or the device fails.
        """
        data = memoryview(f"{line}\n".encode())
        left = data
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except BaseException as error:
            with contextlib.suppress(OSError):  # else the next start cuts the torn line
                os.ftruncate(self._fd, self._size)
            if isinstance(error, OSError):
                raise WriteFailed(self.path, error) from None
            raise
        self._size += len(data)

    def sync(self) -> None:
        """Wait until the records are on the disk.

        Raises:
            WriteFailed: when they cannot be.
        """
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise WriteFailed(self.path, error) from None

    def close(self) -> None:
        """Unlock and close."""
        os.close(self._fd)


@dataclass
class Loaded:
    """What an existing ``trajectories.jsonl`` holds."""

    rows: dict[Key, Row] = field(default_factory=dict)
    broke: Counter[Key] = field(default_factory=Counter)
    """How often each episode ended in an error."""
    size: int = 0
    """Bytes up to the end of the last whole line."""


def load(path: Path, plan: RunPlan) -> Loaded:
    """Read the records of ``plan``, leaving out a torn last line.

    Raises:
        DataError: naming a line that is no record, is there twice or is not of this run.
    """
    found = Loaded()
    if not path.exists():
        return found
    with path.open("rb") as file:
        for number, (line, last) in enumerate(_with_last(file), 1):
            if last and _torn(line):
                break
            try:
                episode = read_line(line.decode())
                _expect(episode, plan)
                row = Row.of(episode)
                merge(found.rows, row)
            except (DataError, UnicodeDecodeError) as error:
                raise DataError(f"{path}:{number}: {advised(str(error))}") from None
            if row.failed_to_finish:
                found.broke[row.key] += 1
            found.size += len(line)
    return found


def advised(message: str, otherwise: str = "start over with --fresh") -> str:
    """Return what is wrong with a line of records and what to do about it: once, and no loss where an update helps."""
    if "pip install" in message:
        return message
    return f"{message.partition('; remove')[0]}; remove the line or {otherwise}"


def _with_last(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield every line and whether it is the last one."""
    before = None
    for line in lines:
        if before is not None:
            yield before, False
        before = line
    if before is not None:
        yield before, True


def _torn(line: bytes) -> bool:
    """Whether the last line was not written whole."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return not line.endswith(b"\n")


def _expect(episode: Episode, plan: RunPlan) -> None:
    """Raise ``DataError`` for an episode that ``plan`` does not have."""
    where = f"the episode ({episode.split}, {episode.task_id}, attempt {episode.attempt})"
    if episode.key not in plan.episodes:
        raise DataError(f"{where} is not one of this run's {plan.total}")
    split, request = plan.episodes[episode.key]
    expected = (request.task.sha256, request.seed, plan.policy, split.env)
    if (episode.task_sha256, episode.seed, episode.policy, episode.env) != expected:
        raise DataError(f"{where} was played with another task content, seed, policy or environment")
