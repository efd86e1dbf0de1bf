"""The action log of a run: what was done and the hashes of what was seen, without any text of an observation.

A gzip file of JSON lines. The first is a `Header`; then one `Logged` per episode, in the order of
split, task and attempt, so that a run has one log however it was played. Replies are left out.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import Field, ValidationError, model_validator

from harness.board.fields import Hash, Part
from harness.summary import Key, Row, merge
from seed_agent.trajectory import ERRORS, EnvRecord, Episode, ErrorRecord, Outcome, Seen, Turn, read_line, why
from seed_envs.errors import DataError
from seed_envs.seeding import canonical

LOG_VERSION = 1
MOST = 1 << 26
"""Bytes of a line, at most: an episode of 64 MiB is none."""
StopReason = Literal["stop", "length", "scripted"]
STOPS: dict[StopReason, str] = {"stop": "s", "length": "l", "scripted": "x"}
"""How a reply ended, as a letter."""
_REASONS = {letter: reason for reason, letter in STOPS.items()}
_FLAGS = {None: "-", False: "0", True: "1"}
_KNOWN = {letter: flag for flag, letter in _FLAGS.items()}


class Header(Part):
    """What all episodes of a log share."""

    schema_version: int = LOG_VERSION
    policy: str
    splits: dict[str, EnvRecord]
    """The environment of every split, as the records have it."""


class Logged(Part):
    """An episode without its texts. Lists and flags have an item per turn, oldest first."""

    split: str
    task_id: str
    task_sha256: Hash
    category: str
    attempt: int
    seed: int
    actions: tuple[str, ...]
    """What the environment received; empty where a reply could not be parsed."""
    observations: tuple[Hash, ...]
    """Of the text before each action and, where no error ended the episode, after the last."""
    pixels: tuple[Hash, ...] = ()
    """Of the pictures seen with ``observations``; none in environments of text."""
    rewards: tuple[float, ...]
    format_ok: str = Field(pattern=r"^[01]*$")
    admissible: str = Field(pattern=r"^[01-]*$")
    effective: str = Field(pattern=r"^[01-]*$")
    stops: str = Field(pattern=r"^[slx]*$")
    dropped: tuple[int, ...] = ()
    """Turns left out of each prompt; empty where none was."""
    outcome: Outcome
    success: bool
    score: float = Field(ge=0, le=1)
    error: ErrorRecord | None = None
    record_sha256: Hash
    """Of the whole record, replies and texts included."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> "Logged":
        turns, seen = len(self.actions), len(self.observations)
        lengths = [len(x) for x in (self.rewards, self.format_ok, self.admissible, self.effective, self.stops)]
        if {*lengths, len(self.dropped) or turns} != {turns}:
            raise ValueError(f"{turns} actions, but rewards and flags of {lengths} turns")
        if seen != turns + (not self.broke):
            raise ValueError(f"{turns} actions and {seen} observations in an episode that ended in {self.outcome}")
        if self.pixels and len(self.pixels) != seen:
            raise ValueError(f"{len(self.pixels)} pictures and {seen} observations")
        if self.broke and (self.score or self.success):
            raise ValueError("an episode that broke has a score")
        return self

    @property
    def key(self) -> Key:
        """Split, task id, attempt."""
        return (self.split, self.task_id, self.attempt)

    @property
    def broke(self) -> bool:
        """Whether an error of the environment or the policy ended it."""
        return self.outcome in ERRORS

    def flag(self, name: str, turn: int) -> bool | None:
        """Return ``admissible`` or ``effective`` of a turn."""
        return _KNOWN[getattr(self, name)[turn]]

    @classmethod
    def of(cls, episode: Episode) -> "Logged":
        """Reduce a record."""
        turns = episode.turns
        seen = [turn.observation for turn in turns] + ([episode.final] if episode.final is not None else [])
        dropped = tuple(turn.history_dropped for turn in turns)
        return cls(
            split=episode.split,
            task_id=episode.task_id,
            task_sha256=episode.task_sha256,
            category=episode.category,
            attempt=episode.attempt,
            seed=episode.seed,
            actions=tuple(turn.action for turn in turns),
            observations=tuple(one.sha256 for one in seen),
            pixels=tuple(image.pixels_sha256 for one in seen for image in one.images),
            rewards=tuple(turn.reward for turn in turns),
            format_ok="".join(_FLAGS[turn.format_ok] for turn in turns),
            admissible="".join(_FLAGS[turn.admissible] for turn in turns),
            effective="".join(_FLAGS[turn.effective] for turn in turns),
            stops="".join(STOPS[turn.stop_reason] for turn in turns),
            dropped=dropped if any(dropped) else (),
            outcome=episode.outcome,
            success=episode.success,
            score=0.0 if episode.failed_to_finish else episode.score,
            error=episode.error,
            record_sha256=episode.sha256,
        )

    def turn(self, i: int) -> Turn:
        """Return a turn without its texts, counted from 0."""
        return Turn(
            observation=Seen(text="", sha256=self.observations[i]),
            reply="",
            action=self.actions[i],
            format_ok=self.format_ok[i] == "1",
            admissible=self.flag("admissible", i),
            effective=self.flag("effective", i),
            reward=self.rewards[i],
            stop_reason=_REASONS[self.stops[i]],
            history_dropped=self.dropped[i] if self.dropped else 0,
        )

    def row(self, header: Header) -> Row:
        """Return what the numbers need: the row of a record with these turns and no texts.

        Raises:
            DataError: when the header does not know the split, or the parts cannot be of one record.
        """
        if self.split not in header.splits:
            raise DataError(f"{describe(self.key)} is of a split that the log's header does not have")
        try:
            episode = Episode(
                **self.model_dump(include=set(_SHARED)),
                policy=header.policy,
                env=header.splits[self.split],
                turns=tuple(map(self.turn, range(len(self.actions)))),
                final=None,
                error=self.error,
            )
        except ValidationError as error:
            raise DataError(f"{describe(self.key)} cannot be: {why(error)}") from None
        return replace(Row.of(episode), sha256=self.record_sha256)


_SHARED = "task_id task_sha256 split category attempt seed outcome success score".split()


def describe(key: Key) -> str:
    """Return a key as messages name it."""
    split, task_id, attempt = key
    return f"the episode ({split}, {task_id}, attempt {attempt})"


@contextmanager
def of_run(path: Path) -> Iterator[tuple[Header, dict[Key, Row], Iterator[Logged]]]:
    """Open a ``trajectories.jsonl``: header, rows, and its episodes in order, each the last of its attempts.

    Memory holds the rows alone. Texts are checked against the hashes beside them.

    Raises:
        DataError: naming the line that is no record or is there twice; or when there is no file, or no record.
    """
    rows: dict[Key, Row] = {}
    places: dict[Key, int] = {}
    splits: dict[str, EnvRecord] = {}
    policy = None
    with _records(path) as file:
        place = 0
        for number, line in enumerate(file, 1):
            try:
                episode = read_line(line.decode())
                _check_texts(episode)
                row = Row.of(episode)
                merge(rows, row)
            except (DataError, UnicodeDecodeError) as error:
                raise DataError(f"{path}:{number}: {error}") from None
            places[row.key], place = place, place + len(line)
            splits.setdefault(episode.split, episode.env)
            policy = episode.policy
        if policy is None:
            raise DataError(f"{path} holds no episodes; expected the records of a finished run")
        header = Header(policy=policy, splits=dict(sorted(splits.items())))
        yield header, rows, (_at(file, places[key]) for key in sorted(places))


def _records(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; expected the records of a finished run") from None


def _at(file: IO[bytes], place: int) -> Logged:
    file.seek(place)
    return Logged.of(read_line(file.readline().decode()))


def _check_texts(episode: Episode) -> None:
    for seen in [*(turn.observation for turn in episode.turns), *filter(None, [episode.final])]:
        if seen != Seen.of(seen.text, seen.images):
            raise DataError(f"{describe(episode.key)}: the sha256 of an observation is not that of its text")


def write_log(path: Path, header: Header, episodes: Iterable[Logged]) -> int:
    """Write a log, episode by episode, and return how many there are; equal episodes give equal bytes.

    Raises:
        OSError: when it cannot be written.
    """
    count = 0
    with path.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=9, fileobj=raw, mtime=0) as file:
        file.write(_line(header))
        for episode in episodes:
            file.write(_line(episode))
            count += 1
    return count


def _line(part: Part) -> bytes:
    return f"{canonical(part.model_dump(mode='json', exclude_defaults=True))}\n".encode()


@contextmanager
def read_log(path: Path) -> Iterator[tuple[Header, Iterator[Logged]]]:
    """Open a log: its header, and its episodes in order.

    Raises:
        DataError: when it is missing or torn, or naming the line that is not what a log has.
    """
    try:
        with gzip.open(path, "rb") as file:
            lines = enumerate(iter(partial(file.readline, MOST), b""), 1)
            first = next(lines, (1, b"{}"))
            version = _version(first[1])
            if version > LOG_VERSION:
                raise DataError(f"{path} has schema version {version}; this version reads up to {LOG_VERSION}")
            yield _read(path, Header, *first), (_read(path, Logged, *line) for line in lines)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "not a whole gzip file"
        raise DataError(f"cannot read {path}: {reason}; expected the action log of a row") from None


def _version(line: bytes) -> int:
    try:
        found = json.loads(line).get("schema_version", LOG_VERSION)
    except (ValueError, AttributeError, RecursionError):
        return LOG_VERSION
    return found if isinstance(found, int) else LOG_VERSION


def _read(path: Path, kind: type[Any], number: int, line: bytes) -> Any:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise DataError(f"{path}:{number}: cannot be: {why(error)}") from None


def rows_of(header: Header, episodes: Iterable[Logged]) -> dict[Key, Row]:
    """Return the rows of a log's episodes.

    Raises:
        DataError: when an episode is there twice, or cannot be.
    """
    rows: dict[Key, Row] = {}
    for episode in episodes:
        if episode.key in rows:
            raise DataError(f"{describe(episode.key)} is logged twice")
        rows[episode.key] = episode.row(header)
    return rows


def successes(path: Path) -> dict[str, dict[str, float]]:
    """Return the success of every task, the mean over its attempts, by split and task id; both sorted.

    Raises:
        DataError: as ``read_log``.
    """
    found: dict[str, dict[str, list[bool]]] = {}
    with read_log(path) as (_, episodes):
        for episode in episodes:
            found.setdefault(episode.split, {}).setdefault(episode.task_id, []).append(episode.success)
    return {
        split: {task: sum(wins) / len(wins) for task, wins in sorted(tasks.items())}
        for split, tasks in sorted(found.items())
    }
