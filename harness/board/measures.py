"""The numbers of a row: ``summary.json`` of its runs as far as anything is computed from it, and means over runs."""

from typing import Annotated, Literal

from pydantic import Field

from harness.board.fields import Count, Facts, Hash, Interval, Line, Open, Part, Share, Some

Turns = Annotated[float, Field(ge=0, le=1e9)]


class Rate(Open):
    """Successes."""

    count: Count
    n: Some
    rate: Share
    ci95: tuple[Share, Share]


class Pair(Open):
    """A mean of successes and one of scores."""

    success: Share
    score: Share


class CategoryResult(Open):
    """The results in one category of tasks."""

    n: Some
    success: Rate
    score: Share


class TurnCounts(Open):
    """How many turns episodes had."""

    mean: Turns


class ErrorCounts(Open):
    """Episodes that broke."""

    count: Count
    rate: Share
    types: dict[Line, Count]


class SplitResult(Open):
    """The results in one split, as ``summary.json`` has them (docs/results.md explains every key)."""

    manifest_sha256: Hash
    tasks_sha256: Hash
    n_tasks: Some
    attempts: Some
    n: Some
    success: Rate
    score: Share
    pooled: Pair
    macro: Pair
    categories: dict[Line, CategoryResult] = Field(min_length=1)
    turns: TurnCounts
    turn_rates: dict[Line, Share | None]
    truncated: Facts
    outcomes: dict[Line, Count]
    errors: ErrorCounts


class Summary(Open):
    """A run's ``summary.json``."""

    records_sha256: Hash
    n: Some
    planned: Some
    complete: bool
    errors: Count
    splits: dict[Line, SplitResult] = Field(min_length=1)


class Mean(Part):
    """A number over the runs of a row."""

    mean: Share
    values: tuple[Share, ...]
    """One per run, in the order of ``runs``."""
    ci95: Interval | None
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
