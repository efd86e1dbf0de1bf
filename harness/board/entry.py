"""A measured row of a leaderboard: its schema, and its file.

A row is a JSON file, ``measured/ID.json``; beside it lie the action logs of its runs
(``harness.board.actions``), from which every number of the row can be computed again.
"""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from seed_envs.errors import DataError
from seed_envs.files import write_atomically

ROW_VERSION = 1
MEASURED = "measured"
"""The folder of a leaderboard that holds its measured rows."""
TAG = r"^[a-z0-9][a-z0-9._-]{0,150}$"
SHA256 = r"^[0-9a-f]{64}$"


class Part(BaseModel):
    """What every part of a row is: immutable, and without a field that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Open(BaseModel):
    """A part of a summary: what else ``summary.json`` has is kept."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class Ceiling(Part):
    """What the best play would reach, in a split where not every task can be solved."""

    n: int
    """Tasks."""
    below: int
    """Of them those whose best score is below 1."""
    success: float
    score: float
    macro: dict[str, float]
    """``success`` and ``score``, mean over categories."""


class SplitData(Part):
    """Which tasks of a split were played."""

    manifest: str
    """Name of the split's manifest, for example ``alfworld-official/valid_seen``."""
    manifest_sha256: str = Field(pattern=SHA256)
    """Of the whole split."""
    data_sha256: str | None = None
    """Of the catalogue, corpus or index beside the tasks."""
    n_tasks: int = Field(ge=1)
    tasks_sha256: str = Field(pattern=SHA256)
    """Of the tasks that were played; equal to ``manifest_sha256`` when all were."""
    ceiling: Ceiling | None = None
    """None where a score of 1 can be reached in every task."""

    @property
    def whole(self) -> bool:
        """Whether every task of the split was played."""
        return self.tasks_sha256 == self.manifest_sha256


class Environment(Part):
    """What was played."""

    id: str
    version: str
    kwargs: dict[str, Any]
    """Construction arguments beside ``split`` and ``data``."""
    data: Literal["embedded", "official", "local"]
    """``local``: data that no manifest of the suite lists."""
    max_turns: int | None
    splits: dict[str, SplitData] = Field(min_length=1)


class Protocol(Part):
    """Which episodes were played."""

    name: str
    """``full``: every task the given number of times; others as docs/results.md defines them."""
    attempts: int = Field(ge=1)
    seed: int = Field(ge=0)
    """Of the evaluation; the seeds of all episodes follow from it."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """What else the run's configuration says about the protocol: how many draws, with replacement or not."""

    @property
    def draws(self) -> bool:
        """Whether the tasks are drawn, and not all played alike."""
        return self.settings.get("draws") is not None


class Method(Part):
    """What made the agent, as a row of the table of methods."""

    name: str
    label: str
    trained: bool
    fields: dict[str, Any] = Field(default_factory=dict)
    """The row of the table: init, rl, distill, skill_source, gate, ..."""


class Stage1(Part):
    """The budget of stage 1."""

    tasks: int
    rollouts: int
    episodes: int
    temperature: float
    annotator: str
    epochs: int


class Training(Part):
    """How the model was trained: what all runs of a row share."""

    digest: str = Field(pattern=SHA256)
    """The sha256 of the settings without the seed and without the folder of the first model."""
    preset: str
    model: str
    """What stage 2 (or, where there was one, stage 1) began with."""
    env: str
    iterations: int
    """Carried out before these weights were saved; 0 where there was stage 1 alone."""
    planned: int
    """Of the whole schedule, which ``fraction`` 1 is."""
    tasks: int
    """Per iteration."""
    group: int
    episodes: int
    """Of stage 2."""
    fraction: float = Field(ge=0, le=1)
    """Of the schedule (``budget``: ``iterations`` of ``planned``) or of the training tasks (``subset``)."""
    fraction_mode: Literal["budget", "subset"]
    stage1: Stage1 | None = None
    settings: dict[str, Any]
    """All settings without the seed, as ``train.json`` has them."""


class Policy(Part):
    """What played a run."""

    name: str
    kind: str
    """``scripted``, ``hf``, ``vllm``, ``openai`` or a plug-in's."""
    model: str | None = None
    weights_sha256: str | None = None
    dtype: str | None = None
    chat_template_sha256: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    """Of the libraries that ran the model."""
    language: dict[str, Any] | None = None
    """Prompt, parser and decoding (temperature, top_p, max_reply_tokens, stop); None for scripted policies."""
    builtin_prompt: bool = True
    """Whether the prompt's template is one of the suite's own."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """What else the run recorded: device, batch, threads, context, ..."""


class Provenance(Part):
    """Where a run came from."""

    command: str
    commits: tuple[str, ...] = Field(min_length=1)
    """Of the suite, one for every start that was not of the same."""
    dirty: bool
    """Whether files differed from the commit at any start."""
    starts: int = Field(ge=1)
    """How often the command was begun, resumptions included."""
    started: str
    finished: str
    python: str
    platform: str
    packages: dict[str, str] = Field(min_length=1)


class ActionLog(Part):
    """The file that lists every action of a run."""

    file: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*\.jsonl\.gz$")
    """Beside the row."""
    sha256: str = Field(pattern=SHA256)
    bytes: int
    episodes: int


class Rate(Open):
    """Successes."""

    count: int
    n: int
    rate: float | None
    ci95: tuple[float, float] | None


class Pair(Open):
    """A mean of successes and one of scores."""

    success: float | None
    score: float | None


class CategoryResult(Open):
    """The results in one category of tasks."""

    n: int
    success: Rate
    score: float | None


class SplitResult(Open):
    """The results in one split, as ``summary.json`` has them (docs/results.md explains every key)."""

    manifest_sha256: str
    tasks_sha256: str
    n_tasks: int
    attempts: int
    n: int
    success: Rate
    score: float | None
    pooled: Pair
    macro: Pair
    categories: dict[str, CategoryResult]
    turns: dict[str, Any]
    turn_rates: dict[str, float | None]
    truncated: dict[str, Any]
    outcomes: dict[str, int]
    errors: dict[str, Any]


class Summary(Open):
    """A run's ``summary.json``."""

    records_sha256: str
    n: int
    planned: int
    complete: bool
    errors: int
    splits: dict[str, SplitResult]


class CurvePoint(Part):
    """An iteration of training."""

    iteration: int
    values: dict[str, float]
    """Of ``metrics.jsonl``, by its keys: ``env/success``, ``env/turns``, ``eval/SPLIT/success``, ..."""


class Run(Part):
    """One evaluation: one training seed of a row."""

    training_seed: int | None
    """None where nothing was trained."""
    digest: str = Field(pattern=SHA256)
    """Of the run's configuration."""
    policy: Policy
    provenance: Provenance
    summary: Summary
    log: ActionLog
    curve: tuple[CurvePoint, ...] = ()


class Mean(Part):
    """A number over the runs of a row."""

    mean: float | None
    values: tuple[float | None, ...]
    """One per run, in the order of ``runs``."""
    ci95: tuple[float, float] | None
    of: Literal["training seeds", "episodes", "none"]
    """What the interval covers: another training seed; or, with a single run, only the tasks and the luck of
    its episodes; ``none`` where there is no interval."""


class Aggregate(Part):
    """A split's results over the training seeds."""

    macro: Mean
    """Success, mean over categories: the number that ranks."""
    pooled: Mean
    """Success over all episodes."""
    score: Mean
    """The benchmark's score over all episodes."""


class Entry(Part):
    """A measured row: one method in one environment, with one run per training seed."""

    schema_version: int = ROW_VERSION
    id: str = Field(pattern=TAG)
    """Also the name of its file."""
    submitted: str
    """When the row was made, UTC."""
    submitter: str = ""
    note: str = ""
    environment: Environment
    protocol: Protocol
    method: Method
    training: Training | None
    runs: tuple[Run, ...] = Field(min_length=1)
    aggregate: dict[str, Aggregate]
    """By split."""
    flags: tuple[str, ...]

    @model_validator(mode="after")
    def _one_split_list(self) -> "Entry":
        splits = sorted(self.environment.splits)
        for run in self.runs:
            if sorted(run.summary.splits) != splits:
                raise ValueError(f"a run has the splits {sorted(run.summary.splits)} and the environment {splits}")
        if sorted(self.aggregate) != splits:
            raise ValueError(f"the aggregate has the splits {sorted(self.aggregate)} and the environment {splits}")
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
            raise DataError(
                f"{path} has schema version {version}; this version reads up to {ROW_VERSION}: "
                "pip install -U seed-suite"
            )
        entry = Entry.model_validate_json(content)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"])) or "the row"
        raise DataError(f"{path} is no row of a leaderboard: {where}: {wrong['msg']}") from None
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
