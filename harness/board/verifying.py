"""Verifying rows and runs: their numbers from their logs, and their logs from environments played anew."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from harness import protocol as protocols
from harness.board import checks
from harness.board.actions import Logged, read_log
from harness.board.entry import Ceiling, Entry, read_entry
from harness.board.finished import Changed, read_finished
from harness.board.replay import Replayed, Where, replay, seeds
from harness.ceilings import ceilings
from harness.runs import flat
from seed_envs.cli.common import FAILED, OK, USAGE
from seed_envs.errors import DataError
from seed_envs.tasks import TaskSet

MOST = 10
"""Differences that are told of a target; what else differs is counted."""
Progress = Callable[[Replayed], None]


@dataclass
class Verdict:
    """What became of one target."""

    target: str
    problems: list[str] = field(default_factory=list)
    """What is not as it is claimed, one line each, the first first."""
    more: int = 0
    """Differences beyond those in ``problems``."""
    replayed: Replayed = field(default_factory=Replayed)
    absent: str = ""
    """What is missing here without which it cannot be verified."""

    @property
    def sound(self) -> bool:
        """Whether everything was checked and found as it is claimed."""
        return not self.problems and not self.absent


def exit_code(*, wrong: bool, absent: bool) -> int:
    """Return how a command ends that has checked rows: what was read and is wrong outweighs what could not be read."""
    return FAILED if wrong else USAGE if absent else OK


def verify(target: Path, where: Where, progress: Progress = lambda done: None) -> Verdict:
    """Verify a row (a JSON file) or the folder of a run.

    Raises:
        SeedError: when there is neither, or an environment cannot be made here.
    """
    return _verify_run(target, where, progress) if target.is_dir() else _verify_row(target, where, progress)


def _verify_row(path: Path, where: Where, progress: Progress) -> Verdict:
    entry = read_entry(path)
    verdict = Verdict(str(path), list(checks.problems(entry, path.parent)))
    verdict.more = len(verdict.problems[MOST:])
    del verdict.problems[MOST:]
    for run in entry.runs:
        done = Replayed()
        try:
            with read_log(path.parent / run.log.file) as (header, episodes):
                _collect(verdict, replay(header, _watched(episodes, verdict.replayed, progress), where, done))
        except DataError:
            if not verdict.problems:  # else they say already why the log cannot be read
                raise
        _collect(verdict, _drawn(entry, done))
        _collect(verdict, _ceilings(entry, done))
        verdict.replayed.episodes += done.episodes
        verdict.replayed.turns += done.turns
    return verdict


def _verify_run(folder: Path, where: Where, progress: Progress) -> Verdict:
    verdict = Verdict(str(folder))
    try:
        run = read_finished(folder)
    except Changed as error:
        verdict.problems.append(str(error))
        return verdict
    try:
        with run.episodes() as (header, _, episodes):
            verdict.problems += map(str, islice(seeds(header, episodes, int(run.config["seed"])), MOST))
    except DataError as error:
        verdict.problems.append(str(error))
        return verdict
    with run.episodes() as (header, _, episodes):
        played = _watched(episodes, verdict.replayed, progress)
        _collect(verdict, replay(header, played, where, verdict.replayed))
    return verdict


def _drawn(entry: Entry, done: Replayed) -> Iterator[str]:
    """Compare the tasks that were played with those that the row's protocol draws from what is installed."""
    protocol = {"name": entry.protocol.name, **entry.protocol.settings}
    for split, tasks in done.tasks.items():
        if not entry.protocol.draws:
            return
        ids = [task.id for task in tasks if task.split == split]
        try:
            found = protocols.draw(protocol, ids, split=split, seed=entry.protocol.seed) or Counter()
        except (KeyError, TypeError, ValueError):
            yield f"the protocol's settings {entry.protocol.settings} cannot be followed"
            return
        expected = Counter({task: times * entry.protocol.attempts for task, times in found.items()})
        if expected != done.played[split]:
            odd = next(
                task for task in sorted(expected | done.played[split]) if expected[task] != done.played[split][task]
            )
            yield f"split {split}: task {odd} was played {done.played[split][odd]} times; drawn: {expected[odd]}"


@dataclass(frozen=True)
class _Played:
    """A split as ``harness.ceilings`` takes it."""

    name: str
    tasks: TaskSet
    ceilings: Mapping[str, float]
    draws: Mapping[str, int]


def _ceilings(entry: Entry, done: Replayed) -> Iterator[str]:
    """Compare what the row says that the best play would reach with what the installed environment says."""
    for split, tasks in done.tasks.items():
        counts = {task: max(1, count // entry.protocol.attempts) for task, count in done.played[split].items()}
        played = _Played(split, tasks.subset(counts), done.ceilings.get(split, {}), counts)
        stated = entry.environment.splits[split].ceiling
        computed = Ceiling.of(ceilings([played]).get(split))
        if not _same(stated, computed):
            said, here = (best.model_dump_json() if best else "none" for best in (stated, computed))
            yield f"split {split}: the ceiling is {said}; by the environment as it is installed here: {here}"


def _same(one: Ceiling | None, other: Ceiling | None) -> bool:
    if one is None or other is None:
        return one is other
    ours, theirs = flat(one.model_dump()), flat(other.model_dump())
    return all(abs(ours[key] - theirs[key]) < 1e-9 for key in ours)


def _collect(verdict: Verdict, found: Iterable[object]) -> None:
    for one in found:
        if len(verdict.problems) < MOST:
            verdict.problems.append(str(one))
        else:
            verdict.more += 1


def _watched(episodes: Iterable[Logged], done: Replayed, progress: Progress) -> Iterator[Logged]:
    for episode in episodes:
        progress(done)
        yield episode
