"""What a comparison is between: finished runs, and the runs of one method with several training seeds as one side."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from harness.board.finished import read_finished
from harness.board.lineage import lineage, training
from harness.html.training_reading import FINAL, is_training, last_evaluation, read_training
from harness.paired import Array
from harness.protocol import FULL
from harness.runs import arguments, once
from harness.summary import Row, merge, read_records, summarise_rows
from seed_envs.errors import ConfigError, DataError, UnknownName
from seed_envs.seeding import canonical
from seed_envs.tasks import resolve_split

Contest = Mapping[str, Any]
"""What two runs must have in common in a split, by the words that a refusal uses."""


@dataclass(frozen=True)
class Played:
    """A finished run."""

    folder: Path
    policy: str
    identity: str
    """Equal for runs that differ by their training seed alone."""
    seed: int | None
    """Of the training; None where nothing was trained, or nobody recorded how."""
    protocol: Mapping[str, Any]
    rows: tuple[Row, ...]
    summary: Mapping[str, Any]
    ceilings: Mapping[str, Any] = field(default_factory=dict)
    """Of ``harness.ceilings``, where tasks cannot be solved and the run says so."""
    hint: str = ""
    """What to do where its tasks are not those of another run."""

    @property
    def env(self) -> str:
        """The environment's id."""
        return str(self.summary["env"]["id"])

    def contest(self, split: str) -> Contest:
        """Return what another run must share to be compared with this one."""
        env, of = self.summary["env"], self.summary["splits"][split]
        return {
            "environment version": env["version"],
            "environment arguments": arguments(env["kwargs"]),
            "turn limit": env["max_turns"],
            "data": env["data_sha256"],
            "protocol": self.protocol,
            "manifest": of["manifest_sha256"],
            "tasks": of["tasks_sha256"],
        }

    def values(self, split: str, metric: str) -> dict[str, float]:
        """Return success or score of everything that was drawn, by name: a task's mean over its attempts.

        A draw with replacement is drawn for itself, so each of a task's stands alone.
        """
        found: dict[str, list[float]] = {}
        for name, row in self._drawn(split):
            found.setdefault(name, []).append(float(getattr(row, metric)))
        return {name: sum(values) / len(values) for name, values in sorted(found.items())}

    def kinds(self, split: str) -> list[str]:
        """Return the category of everything that was drawn, in the order of ``values``."""
        return [category for _, category in sorted({name: row.category for name, row in self._drawn(split)}.items())]

    def _drawn(self, split: str) -> Iterator[tuple[str, Row]]:
        for row in self.rows:
            of_split, task, attempt = row.key
            if of_split == split:
                yield f"{task} #{attempt}" if self.protocol.get("replacement") else task, row


@dataclass(frozen=True)
class Side:
    """One method: a run, or a run per training seed."""

    name: str
    runs: tuple[Played, ...]
    names: tuple[str, ...] = field(default=())
    """What else it may be called: the folders as they were typed."""

    @property
    def first(self) -> Played:
        """A run to speak for all."""
        return self.runs[0]

    @cached_property
    def seeds(self) -> tuple[str, ...]:
        """The training seeds as text; numbers in brackets where they are not known."""
        return tuple(f"({i})" if run.seed is None else str(run.seed) for i, run in enumerate(self.runs))

    def matrix(self, split: str, metric: str) -> Array:
        """Return values of shape (training seeds, tasks), tasks in the order of their names."""
        return np.array([list(run.values(split, metric).values()) for run in self.runs], dtype=float)

    def groups(self, splits: Sequence[str]) -> list[list[int]]:
        """Return the places of each category's tasks in the matrices of ``splits`` side by side."""
        kinds = [(split, kind) for split in splits for kind in self.first.kinds(split)]
        return [[i for i, kind in enumerate(kinds) if kind == one] for one in dict.fromkeys(kinds)]

    def macro(self, split: str, metric: str) -> float:
        """Return the mean over categories, then over seeds."""
        return float(np.mean(self.categories(split, metric).mean(axis=1)))

    def categories(self, split: str, metric: str) -> Array:
        """Return the mean of every category: (training seeds, categories)."""
        found = [run.summary["splits"][split]["categories"].values() for run in self.runs]
        return np.array(
            [[c["success"]["rate"] if metric == "success" else c["score"] for c in kinds] for kinds in found]
        )


def read_played(folder: Path) -> Played:
    """Read a finished evaluation, or the last evaluation of a finished training run.

    Raises:
        SeedError: when there is none, it is not finished, or its records cannot be read.
    """
    return _trained(folder) if is_training(folder) else _evaluated(folder)


def _evaluated(folder: Path) -> Played:
    run = read_finished(folder)
    with run.episodes() as (_, rows, _):
        ordered = tuple(rows[key] for key in sorted(rows))
    config, ceilings, found = run.config, run.state.get("ceilings", {}), run.starts[-1].get("training")
    policy, identity, seed = config["policy"], str(folder.absolute()), None
    if found is not None and "seed" in found:
        left = {key: value for key, value in config.items() if key not in ("policy", "model", "seed")}
        model = {k: v for k, v in config.get("model", {}).items() if k not in ("model", "weights_sha256")}
        said = training(found)
        policy, seed = said["settings"]["method"], found["seed"]
        identity = canonical([left, model, said["digest"]])
    return Played(folder, policy, identity, seed, config["protocol"], ordered, run.summary, ceilings)


def _trained(folder: Path) -> Played:
    files = read_training(folder)
    if not (folder / FINAL).exists():
        raise DataError(f"the training in {folder} is not finished ({files.done} iterations); repeat its command")
    rows: dict[tuple[str, str, int], Row] = {}
    for split, path in last_evaluation(folder, files).items():
        for episode in read_records(path):
            if episode.split != _meant(split, [episode.split]):
                raise DataError(f"{path} holds episodes of {episode.split}; expected those of {split}")
            merge(rows, Row.of(episode))
    if not rows:
        raise DataError(f"the training in {folder} has no evaluation; evaluate {folder / 'final'} with harness.eval")
    found = lineage(str(folder / "final"))
    if found is None:
        raise DataError(f"{folder / 'final'} is not what {folder / 'train.json'} describes; train it again")
    ordered, said = tuple(rows[key] for key in sorted(rows)), training(found)
    summary, identity = summarise_rows(ordered), canonical(["training", said["digest"]])
    if summary["env"]["id"] != said["env"]:
        raise DataError(f"the evaluations in {folder} are of {summary['env']['id']}; it trained in {said['env']}")
    hint, limit = "", said["settings"]["eval_limit"]
    if limit is not None:
        hint = (
            f"the evaluations in {folder} are of {limit} drawn tasks: play {folder / 'final'} "
            "with harness.eval, or train with eval_limit=none"
        )
    played = said["settings"]["method"], identity, found["seed"], {"name": FULL}, ordered, summary
    return Played(folder, *played, hint=hint)


def make_sides(runs: Sequence[Path], groups: Mapping[str, Sequence[Path]]) -> list[Side]:
    """Read runs and make sides of them: the groups as named, then the rest by what they are, in the order given.

    Raises:
        SeedError: when a run cannot be read, is named twice, or two of a side are the same.
    """
    once([*chain.from_iterable(groups.values()), *runs])
    sides = [_side(name, [read_played(folder) for folder in folders]) for name, folders in groups.items()]
    by_identity: dict[str, list[Played]] = {}
    for played in map(read_played, runs):
        by_identity.setdefault(f"{played.env} {played.identity}", []).append(played)
    found = list(by_identity.values())
    taken = [side.name for side in sides]
    names = [members[0].policy for members in found]
    for members, name in zip(found, names, strict=True):
        unique = names.count(name) == 1 and name not in taken
        sides.append(_side(name if unique else str(members[0].folder), members))
    return sides


def _side(name: str, runs: Sequence[Played]) -> Side:
    known = [run.seed for run in runs if run.seed is not None]
    twice = next((seed for seed in known if known.count(seed) > 1), None)
    if twice is not None:
        raise ConfigError(f"{name} has two runs of training seed {twice}; expected one run per training seed")
    records = [run.summary["records_sha256"] for run in runs]
    if len(runs) > 1 and len(dict.fromkeys(records)) < len(records):
        raise ConfigError(f"{name} has two runs with equal records; expected one run per training seed")
    if len(dict.fromkeys(run.env for run in runs)) > 1:
        raise ConfigError(f"{name} has runs of several environments; name a group per environment")
    ordered = sorted(runs, key=lambda run: -1 if run.seed is None else run.seed)
    return Side(name, tuple(ordered), tuple(str(run.folder) for run in ordered))


def shared_splits(sides: Sequence[Side], wanted: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the splits that every side played, and those that only some did; ``wanted`` limits both.

    Raises:
        ConfigError: when there is none to compare, or runs in one of them did not play the same.
    """
    names = list(dict.fromkeys(chain.from_iterable(run.summary["splits"] for side in sides for run in side.runs)))
    means = {_meant(name, names) for name in wanted}
    names = [name for name in names if name in means or not means]
    shared = [name for name in names if all(name in run.summary["splits"] for side in sides for run in side.runs)]
    if not shared:
        raise ConfigError(f"the runs share no split of {sides[0].first.env}; expected one that all have played")
    for name in shared:
        _check(name, [run for side in sides for run in side.runs])
    return shared, [name for name in names if name not in shared]


def _meant(name: str, known: list[str]) -> str:
    try:
        return resolve_split(name, known)
    except UnknownName:  # of another environment of the comparison
        return name


def _check(split: str, runs: Sequence[Played]) -> None:
    first, names = runs[0], list(runs[0].values(split, "success"))
    for run in runs[1:]:
        odd = list(_odd(first.contest(split), run.contest(split)))
        if not odd and names != list(run.values(split, "success")):
            odd = ["draws"]
        if odd:
            hint = next((one.hint for one in (first, run) if one.hint and "other tasks" in odd), "")
            raise ConfigError(
                f"{first.folder} and {run.folder} cannot be compared in {split}: {', '.join(odd)}; "
                f"{hint or 'expected the same environment, tasks, protocol and turn limit'}"
            )


def _odd(one: Contest, other: Contest) -> Iterator[str]:
    for key, value in one.items():
        if value != other[key]:
            said = [canonical(x)[:60] for x in (value, other[key])]
            yield f"other {key}" if key in ("manifest", "tasks", "data") else f"{key} {said[0]} and {said[1]}"
