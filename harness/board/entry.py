"""A measured row of a leaderboard: its schema, and its file.

A row is a JSON file, ``measured/ID.json``; beside it lie the action logs of its runs
(``harness.board.actions``), from which every number of the row can be computed again.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from harness.board.fields import (
    Command,
    Commit,
    Count,
    Facts,
    Hash,
    Line,
    Name,
    Note,
    Part,
    Share,
    Some,
    Tag,
    Time,
)
from harness.board.measures import Aggregate, Summary
from seed_agent.trajectory import why
from seed_envs.errors import UPDATE, DataError
from seed_envs.files import write_atomically

ROW_VERSION = 1
MEASURED = "measured"
"""The folder of a leaderboard that holds its measured rows."""
LOG = ".jsonl.gz"
"""How the names of action logs end."""


class Best(Part):
    """The best possible means."""

    success: Share
    score: Share


class Ceiling(Best):
    """What the best play would reach, in a split where not every task can be solved."""

    n: Some
    """Tasks."""
    below: Count
    """Of them those whose best score is below 1."""
    macro: Best
    """Mean over categories."""

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> "Ceiling | None":
        """Return what a row keeps of a split's entry of ``harness.ceilings``; None where there is none."""
        return None if found is None else cls.model_validate({key: found[key] for key in Ceiling.model_fields})

    @model_validator(mode="after")
    def _a_part(self) -> "Ceiling":
        if self.below > self.n:
            raise ValueError(f"{self.below} of {self.n} tasks are below 1")
        return self


class SplitData(Part):
    """Which tasks of a split were played."""

    manifest: Line
    """Name of the split's manifest, for example ``alfworld-official/valid_seen``."""
    manifest_sha256: Hash
    """Of the whole split."""
    data_sha256: Line | None = None
    """Of the catalogue, corpus or index beside the tasks."""
    n_tasks: Some
    tasks_sha256: Hash
    """Of the tasks that were played; equal to ``manifest_sha256`` when all were."""
    ceiling: Ceiling | None = None
    """None where a score of 1 can be reached in every task."""

    @property
    def whole(self) -> bool:
        """Whether every task of the split was played."""
        return self.tasks_sha256 == self.manifest_sha256


class Environment(Part):
    """What was played."""

    id: Line
    version: Line
    kwargs: Facts
    """Construction arguments beside ``split`` and ``data``."""
    data: Literal["embedded", "official", "local"]
    """``local``: data that no manifest of the suite lists."""
    max_turns: Some | None
    splits: dict[Line, SplitData] = Field(min_length=1, max_length=100)


class Protocol(Part):
    """Which episodes were played."""

    name: Tag
    """``full``: every task the given number of times; others as docs/results.md defines them."""
    attempts: Some
    seed: Count
    """Of the evaluation; the seeds of all episodes follow from it."""
    settings: Facts = Field(default_factory=dict)
    """What else the run's configuration says about the protocol: how many draws, with replacement or not."""

    @property
    def draws(self) -> bool:
        """Whether the tasks are drawn, and not all played alike."""
        return self.settings.get("draws") is not None


class Method(Part):
    """What made the agent, as a row of the table of methods."""

    name: Tag
    label: Line
    trained: bool
    fields: Facts = Field(default_factory=dict)
    """The row of the table: init, rl, distill, skill_source, gate, ..."""


class Stage1(Part):
    """The budget of stage 1."""

    tasks: Count
    rollouts: Count
    episodes: Count
    temperature: Annotated[float, Field(ge=0, le=100)]
    annotator: Line
    epochs: Count


class Training(Part):
    """How the model was trained: what all runs of a row share."""

    digest: Hash
    """The sha256 of the settings without the seed and without the folder of the first model."""
    preset: Name
    """Empty where none was named."""
    model: Line
    """What stage 2 (or, where there was one, stage 1) began with."""
    env: Line
    iterations: Count
    """Carried out before these weights were saved; 0 where there was stage 1 alone."""
    planned: Count
    """Of the whole schedule, which ``fraction`` 1 is."""
    tasks: Count
    """Per iteration."""
    group: Count
    episodes: Count
    """Of stage 2."""
    fraction: Share
    """Of the schedule (``budget``: ``iterations`` of ``planned``) or of the training tasks (``subset``)."""
    fraction_mode: Literal["budget", "subset"]
    stage1: Stage1 | None = None
    settings: Facts
    """All settings without the seed, as ``train.json`` has them."""


class Policy(Part):
    """What played a run."""

    name: Line
    kind: Line
    """``scripted``, ``hf``, ``vllm``, ``openai`` or a plug-in's."""
    model: Line | None = None
    weights_sha256: Hash | None = None
    dtype: Line | None = None
    chat_template_sha256: Hash | None = None
    versions: dict[Line, Line] = Field(default_factory=dict, max_length=100)
    """Of the libraries that ran the model."""
    language: Facts | None = None
    """Prompt, parser and decoding (temperature, top_p, max_reply_tokens, stop); None for scripted policies."""
    builtin_prompt: bool = True
    """Whether the prompt's template is one of the suite's own."""
    facts: Facts = Field(default_factory=dict)
    """What else the run recorded: device, batch, threads, context, ..."""


class Provenance(Part):
    """Where a run came from."""

    command: Command
    commits: tuple[Commit, ...] = Field(min_length=1, max_length=1000)
    """Of the suite, one for every start that was not of the same."""
    dirty: bool
    """Whether files differed from the commit at any start."""
    starts: Some
    """How often the command was begun, resumptions included."""
    started: Time
    finished: Time
    python: Line
    platform: Line
    packages: dict[Line, Line] = Field(min_length=1, max_length=1000)


class ActionLog(Part):
    """The file that lists every action of a run."""

    file: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,200}\.jsonl\.gz$")
    """Beside the row, and named after it."""
    sha256: Hash
    bytes: Count
    episodes: Count


class CurvePoint(Part):
    """An iteration of training."""

    iteration: Annotated[int, Field(ge=0, lt=10**9)]
    values: dict[Line, float] = Field(max_length=1000)
    """Of ``metrics.jsonl``, by its keys: ``env/success``, ``env/turns``, ``eval/SPLIT/success``, ..."""


class Run(Part):
    """One evaluation: one training seed of a row."""

    training_seed: Count | None
    """None where nothing was trained."""
    digest: Hash
    """Of the run's configuration."""
    policy: Policy
    provenance: Provenance
    summary: Summary
    log: ActionLog
    curve: tuple[CurvePoint, ...] = Field(default=(), max_length=10_000)

    @model_validator(mode="after")
    def _in_order(self) -> "Run":
        places = [point.iteration for point in self.curve]
        if places != sorted({*places}):
            raise ValueError("the iterations of its curve are not in order")
        return self


class Entry(Part):
    """A measured row: one method in one environment, with one run per training seed."""

    schema_version: Some = ROW_VERSION
    id: Tag
    """Also the name of its file."""
    submitted: Time
    """When the row was made."""
    submitter: Name = ""
    note: Note = ""
    environment: Environment
    protocol: Protocol
    method: Method
    training: Training | None
    runs: tuple[Run, ...] = Field(min_length=1, max_length=1000)
    aggregate: dict[Line, Aggregate]
    """By split."""
    flags: tuple[Tag, ...] = Field(max_length=100)

    @model_validator(mode="after")
    def _one_split_list(self) -> "Entry":
        splits = sorted(self.environment.splits)
        for run in self.runs:
            if sorted(run.summary.splits) != splits:
                raise ValueError(f"a run has the splits {sorted(run.summary.splits)} and the environment {splits}")
        if sorted(self.aggregate) != splits:
            raise ValueError(f"the aggregate has the splits {sorted(self.aggregate)} and the environment {splits}")
        return self

    @model_validator(mode="after")
    def _trained_or_not(self) -> "Entry":
        trained = self.training is not None
        if self.method.trained != trained:
            raise ValueError(
                f"method.trained is {self.method.trained}, and training is {'' if trained else 'not '}there"
            )
        if any((run.training_seed is not None) != trained for run in self.runs):
            raise ValueError("a training seed belongs to every run of a method that was trained, and to no other")
        means = [mean for part in self.aggregate.values() for mean in (part.macro, part.pooled, part.score)]
        if any(len(mean.values) != len(self.runs) for mean in means):
            raise ValueError(f"the aggregate is not of {len(self.runs)} runs")
        return self

    @property
    def model(self) -> str:
        """What the agent is made of: the model that was trained, else the policy's own name."""
        return self.training.model if self.training else self.runs[0].policy.name

    def to_bytes(self) -> bytes:
        """Return the content of the row's file."""
        value = self.model_dump(mode="json")
        return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_entry(path: Path) -> Entry:
    """Read a row.

    Raises:
        DataError: when it is missing, torn, of a newer version or not what a row is.
    """
    try:
        content = path.read_bytes()
        version = json.loads(content)["schema_version"]
        if isinstance(version, int) and version > ROW_VERSION:
            raise DataError(f"{path} has schema version {version}; this version reads up to {ROW_VERSION}: {UPDATE}")
        entry = Entry.model_validate_json(content)
    except ValidationError as error:
        raise DataError(f"{path} is no row of a leaderboard: {why(error)}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise DataError(f"{path} cannot be read as a row ({reason}); expected a file that `add` wrote") from None
    if path.name != f"{entry.id}.json":
        raise DataError(f"{path} holds the row {entry.id}; expected it in {entry.id}.json")
    return entry


def rows(directory: Path) -> list[Path]:
    """Return the files of the measured rows of a leaderboard, or of its folder ``measured``, by name."""
    folder = directory if directory.name == MEASURED else directory / MEASURED
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def write_entry(folder: Path, entry: Entry) -> Path:
    """Write a row into a folder of rows and return its path.

    Raises:
        OSError: when it cannot be written.
    """
    path = folder / f"{entry.id}.json"
    write_atomically(path, entry.to_bytes())
    return path
