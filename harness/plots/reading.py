"""What figures are drawn from: folders of harness.train and harness.eval, and whose they are."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.html.reading import read
from harness.html.training_reading import TrainingFiles, is_training, last_evaluation, read_training
from harness.plots.look import in_order, label_of
from harness.runs import RECORDS, SUMMARY, arguments
from harness.stats import Group
from harness.summary import Row, merge, read_records
from seed_agent.trajectory import Episode
from seed_envs.errors import ConfigError, DataError

TRAIN = "train.json"
CELL = "cell.json"
"""Beside an evaluation of a sweep: whose it is."""


@dataclass(frozen=True)
class Whose:
    """What a run trained or played."""

    folder: Path
    env: str
    method: str
    """A method's name, what the user calls the run, or the policy's name."""
    model: str
    """What the model is called; runs of one column of a grid share it."""
    seed: int | None = None
    """Of training; None where nothing was trained, or nobody knows."""
    fraction: float = 1.0
    """Share of the training budget or tasks, above 0 and at most 1."""
    mode: str = "budget"
    commits: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How the method is printed."""
        return label_of(self.method)


@dataclass(frozen=True)
class Training:
    """A run of stage 2 and its metrics."""

    whose: Whose
    files: TrainingFiles

    @property
    def episodes(self) -> int:
        """Episodes of an iteration."""
        return int(self.files.settings.get("tasks", 0)) * int(self.files.settings.get("group", 0))


@dataclass(frozen=True)
class Result:
    """How a policy did on a split: every episode, reduced."""

    whose: Whose
    split: str
    rows: tuple[Row, ...]

    @cached_property
    def categories(self) -> dict[str, list[Row]]:
        """The episodes by category, in alphabetical order."""
        names = sorted({row.category for row in self.rows})
        return {name: [row for row in self.rows if row.category == name] for name in names}

    @cached_property
    def setting(self) -> dict[str, Any]:
        """What results of one panel have to share, as messages call it."""
        env = json.loads(self.rows[0].played)["env"]
        return {
            "version": env["version"],
            "arguments": arguments(env["kwargs"]),
            "turn limit": env["max_turns"],
            "manifest": env["manifest_sha256"],
            "data": env["data_sha256"],
            "tasks": {row.key[1] for row in self.rows},
        }


def groups_of(rows: Iterable[Row]) -> list[Group]:
    """Return (successes, attempts) of every task."""
    tasks: dict[str, list[bool]] = {}
    for row in rows:
        tasks.setdefault(row.key[1], []).append(row.success)
    return [(sum(wins), len(wins)) for wins in tasks.values()]


# --- folders ----------------------------------------------------------------------------------------------------------


def named(text: str) -> tuple[str, Path]:
    """Return the name, if any, and the folder of ``[NAME=]RUN``.

    Raises:
        ConfigError: when one of the two is empty.
    """
    name, equals, folder = text.partition("=")
    if not text or (equals and not Path(text).exists() and not (name.strip() and folder)):
        raise ConfigError(f"{text!r} names no run; expected RUN or NAME=RUN, the folder of a run")
    if equals and "/" not in name and not Path(text).exists():
        return name.strip(), Path(folder)
    return "", Path(text)


def trainings(runs: Sequence[str]) -> list[Training]:
    """Read training runs.

    Raises:
        SeedError: when a folder holds none, or one without a single iteration.
    """
    found = []
    for text in runs:
        name, folder = named(text)
        files = read_training(folder)
        if not any(at > 0 for at in files.rows):
            raise ConfigError(f"{folder} has no metrics yet; expected a run that has done an iteration")
        found.append(Training(_of_training(folder, files, name), files))
    _once(found, lambda one: (one.whose.env, one.whose.model, one.whose.method, one.whose.seed))
    return found


def results(runs: Sequence[str]) -> list[Result]:
    """Read evaluations, and the last evaluation of training runs.

    Raises:
        SeedError: when a folder holds neither, or results of one split are of different tasks, data or turn limits.
    """
    found = []
    for text in runs:
        name, folder = named(text)
        found += _evaluated(folder, name) if is_training(folder) else _played(folder, name)
    _once(found, lambda one: (one.whose.env, one.split, one.whose.method, one.whose.fraction, one.whose.seed))
    known: dict[tuple[str, str], Result] = {}
    for one in found:
        other = known.setdefault((one.whose.env, one.split), one)
        if odd := [name for name, value in one.setting.items() if other.setting[name] != value]:
            raise ConfigError(
                f"{one.whose.folder} and {other.whose.folder} were not played alike on {one.whose.env} {one.split}: "
                f"they differ in {' and '.join(odd)}; name runs of the same tasks under the same rules"
            )
    return found


def _once(found: Sequence[Any], key: Callable[[Any], tuple[Any, ...]]) -> None:
    """Refuse two runs that would be one dot."""
    known: dict[tuple[Any, ...], Any] = {}
    for one in found:
        other = known.setdefault(key(one), one)
        if other is not one:
            seed = "" if one.whose.seed is None else f" with seed {one.whose.seed}"
            raise ConfigError(
                f"{other.whose.folder} and {one.whose.folder} are both {one.whose.label}{seed}; "
                "leave one out or give it another name, NAME=RUN"
            )


def one_env(found: Sequence[Training] | Sequence[Result], figure: str) -> str:
    """Return the environment of all runs.

    Raises:
        ConfigError: when there are several.
    """
    for one in found:
        if one.whose.env != found[0].whose.env:
            raise ConfigError(
                f"{figure} is of one environment, and {found[0].whose.folder} is of {found[0].whose.env}, "
                f"{one.whose.folder} of {one.whose.env}; draw them apart"
            )
    return found[0].whose.env


def by_method(found: Iterable[Any]) -> dict[str, list[Any]]:
    """Return trainings or results by method, in the order of the table, their seeds in order."""
    several: dict[str, list[Any]] = {}
    for one in found:
        several.setdefault(one.whose.method, []).append(one)
    seeds = {name: sorted(runs, key=lambda one: (one.whose.seed is None, one.whose.seed or 0)) for name, runs in
             several.items()}  # fmt: skip
    return {name: seeds[name] for name in in_order(seeds)}


# --- whose ------------------------------------------------------------------------------------------------------------


def _of_training(folder: Path, files: TrainingFiles, name: str) -> Whose:
    settings, model = files.settings, files.state.get("model")
    preset = str(settings.get("preset") or "").split("/")
    size = model.get("parameters") if isinstance(model, Mapping) else None
    called = preset[1] if len(preset) == 3 else f"{size:,} parameters" if isinstance(size, int) else "?"
    try:
        return Whose(
            folder,
            env=short(str(settings["env"])),
            method=name or str(settings["method"]),
            model=called,
            seed=int(settings["seed"]),
            fraction=float(settings.get("fraction", 1.0)),
            mode=str(settings.get("fraction_mode", "budget")),
            commits=_commits(files.starts),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder / TRAIN} is damaged ({error!r}); choose another run") from None


def short(env: str) -> str:
    """Return an environment's id without the suite's name."""
    return env.removeprefix("seed_envs/")


def _commits(starts: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(start["git_commit"])[:7] for start in starts if start.get("git_commit")))


def _evaluated(folder: Path, name: str) -> list[Result]:
    """Return the last evaluation of a training run."""
    files = read_training(folder)
    whose = _of_training(folder, files, name)
    found = []
    for split, path in last_evaluation(folder, files).items():
        rows = _rows(read_records(path))
        found += [Result(whose, split, rows)] if rows else []
    if not found:
        raise ConfigError(f"{folder} has no evaluation; evaluate its final model with python -m harness.eval")
    return found


def _rows(episodes: Iterable[Episode]) -> tuple[Row, ...]:
    rows: dict[Any, Row] = {}
    for episode in episodes:
        merge(rows, Row.of(episode))
    return tuple(rows[key] for key in sorted(rows))


def _played(folder: Path, name: str) -> list[Result]:
    """Return the results of an evaluation, split by split.

    Raises:
        ConfigError: when it is not finished: a part of the tasks is no result.
        DataError: when its records do not give its summary.
    """
    run = read(folder)
    if not run.complete:
        raise ConfigError(
            f"{folder} is not finished: {len(run.rows)} of {sum(run.planned.values())} episodes are there"
        )
    if run.altered:
        raise DataError(f"{folder / SUMMARY} is not what {RECORDS} gives; one of the two was changed since the run")
    whose = _of_evaluation(folder, run.state, name)
    splits = dict.fromkeys(row.key[0] for row in run.rows)
    return [Result(whose, split, tuple(row for row in run.rows if row.key[0] == split)) for split in splits]


def _of_evaluation(folder: Path, state: Mapping[str, Any], name: str) -> Whose:
    config = state["config"]
    env, policy, method = short(config["env"]["id"]), str(config["policy"]), str(config.get("method", ""))
    about = _cell(folder) or _trained(policy)
    acts = method if method and method != "vanilla" else ""
    return Whose(
        folder,
        env=env,
        method=name or acts or str(about.get("method") or method or policy),
        model=str(about.get("model", policy)),
        seed=about.get("seed"),
        fraction=float(about.get("fraction") or 1.0),
        mode=str(about.get("fraction_mode") or "budget"),
        commits=_commits(state["provenance"]),
    )


def _cell(folder: Path) -> dict[str, Any]:
    """Return what a sweep says about the evaluation it has made; nothing where there is no sweep."""
    config = _json(folder.absolute().parent / CELL).get("config")
    return config if isinstance(config, dict) else {}


def _trained(policy: str) -> dict[str, Any]:
    """Return what the folder of a trained model says about it; nothing where it is not here."""
    kind, _, model = policy.partition(":")
    if kind not in ("hf", "vllm"):
        return {}
    path = Path(model).expanduser()
    for parent in list(path.parents)[:2]:  # RUN/final, RUN/milestones/iteration_N
        settings = _json(parent / TRAIN).get("settings")
        if isinstance(settings, dict):
            spent = _json(path / "state.json").get("iteration")
            planned = settings.get("iterations")
            part = settings.get("fraction", 1.0)
            if settings.get("fraction_mode", "budget") == "budget" and isinstance(spent, int) and planned:
                part = spent / planned
            return {**settings, "model": model, "fraction": part}
    return {}


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- episodes ---------------------------------------------------------------------------------------------------------


def records(folder: Path) -> Iterator[Episode]:
    """Yield the episodes of an evaluation, or of a training run's last one.

    Raises:
        SeedError: when there are none, or a line cannot be read.
    """
    paths: Iterable[Path] = [folder / RECORDS]
    if is_training(folder):
        paths = last_evaluation(folder, read_training(folder)).values()
    else:
        read(folder)  # refuses what is no run
    for path in paths:
        yield from read_records(path)
