"""Who stands where: rows that may be compared, their ranks, and which neighbours cannot be told apart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import pairwise

from harness.board.entry import Ceiling
from harness.html.curves import Chart
from harness.paired import Array, Difference, compare, holm
from harness.stats import Interval
from harness.table import number, percent

ALPHA = 0.05
"""Neighbours whose Holm-adjusted p is not below it cannot be told apart."""
FULL = "full"
"""The protocol that needs no mention: every task of the split once."""
DATA = ("official", "embedded")
"""Kinds of data in the order in which they are shown, apart from each other; any other comes last."""


@dataclass(frozen=True)
class Contest:
    """What rows must have in common to be ranked together."""

    environment: str
    version: str
    settings: str
    """Construction arguments that change what is played, as text."""
    split: str
    data: str
    """``official``, ``embedded`` or another kind."""
    protocol: str
    drawn: str
    """What else the protocol was told: attempts, draws; as text."""
    max_turns: int | None
    manifest: str
    manifest_sha256: str
    """Of the whole split."""
    tasks_sha256: str
    """Of the tasks that were played."""
    data_sha256: str

    @property
    def family(self) -> str:
        """The environment's name without namespace and version."""
        return self.environment.rpartition("/")[2].partition("-v")[0]

    @property
    def title(self) -> str:
        """What stands above the table."""
        return f"{self.family}, {self.split}{'' if self.protocol == FULL else f', protocol {self.protocol}'}"


@dataclass(frozen=True)
class Category:
    """A category's part of a result."""

    name: str
    n: int
    rate: float
    ci95: Interval | None


@dataclass(frozen=True)
class Result:
    """A measured row in one split; shares are 0 to 1."""

    id: str
    method: str
    model: str
    n: int
    """Episodes."""
    n_tasks: int
    macro: float
    pooled: float
    ci95: Interval | None
    """Of ``pooled``; one over training seeds may leave [0, 1]."""
    interval_of: str
    """What the interval covers, in words."""
    score: float | None
    turns: float | None
    errors: int
    ceiling: Ceiling | None
    seeds: tuple[tuple[str, float, float], ...]
    """Training seed, macro and pooled success; empty where nothing was trained."""
    outcomes: Array
    """(training seeds, tasks), success as the mean over a task's attempts, tasks in the order of their ids."""
    flags: tuple[str, ...] = ()
    categories: tuple[Category, ...] = ()
    rates: Mapping[str, float | None] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What else there is to know, by heading."""
    links: tuple[tuple[str, str], ...] = ()
    """Label and address, relative to the page."""
    curves: tuple[Chart, ...] = ()

    @property
    def bar(self) -> dict[str, float | Interval]:
        """The pooled rate with its interval for a bar from 0 to 1."""
        low, high = self.ci95 or (self.pooled, self.pooled)
        return {"rate": self.pooled, "ci95": (max(low, 0.0), min(high, 1.0))}


@dataclass(frozen=True)
class Standing:
    """A result with its rank."""

    result: Result
    rank: int
    """1 is best; equal macro success, equal rank."""
    against: Difference | None
    """The row above minus this one; None for the first."""
    p: float | None
    """Of ``against``, adjusted for the number of neighbours."""

    @property
    def tied(self) -> bool:
        """Whether this row and the one above cannot be told apart."""
        return self.p is not None and self.p >= ALPHA

    @property
    def comparison(self) -> str:
        """How this row differs from the one above, in words; empty for the first."""
        found = self.against
        if found is None or self.p is None:
            return ""
        span = "" if found.interval is None else f", 95 % interval {_points(found.interval)}"
        verdict = "Cannot be told apart from" if self.tied else "Differs from"
        return (
            f"{verdict} the row ranked above: pooled success {100 * -found.difference:+.1f} points on the same "
            f"{found.n:,} tasks{span}; better on {found.lost:,}, worse on {found.gained:,}; "
            f"p {'< 0.001' if self.p < 0.0005 else f'= {self.p:.3f}'} ({found.test}, Holm)."
        )


@dataclass(frozen=True)
class Ranking:
    """The rows of a contest, the best first."""

    contest: Contest
    standings: tuple[Standing, ...]

    @property
    def ceiling(self) -> str:
        """What the best play would reach, where that is less than everything, in words; else empty."""
        best = next((row.result.ceiling for row in self.standings if row.result.ceiling is not None), None)
        if best is None:
            return ""
        return (
            f"{best.below:,} of {best.n:,} tasks cannot be solved whole: the best play reaches {percent(best.success)} "
            f"success pooled, {percent(best.macro.success)} macro, and a score of {number(best.score)}."
        )


def between(interval: Interval | None) -> str:
    """Return an interval of shares in percent, ``-`` where there is none."""
    return "-" if interval is None else f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"


def _points(interval: Interval) -> str:
    """Return the interval of a difference, turned round: of this row minus the one above."""
    low, high = interval
    return f"{-100 * high:+.1f} to {-100 * low:+.1f}"


def rankings(found: Iterable[tuple[Contest, Result]]) -> list[Ranking]:
    """Return a ranking for every contest: official data first, then by environment and split."""
    contests: dict[Contest, list[Result]] = {}
    for contest, result in found:
        contests.setdefault(contest, []).append(result)
    order = sorted(contests, key=lambda c: (DATA.index(c.data) if c.data in DATA else len(DATA), repr(astuple(c))))
    return [Ranking(contest, _ranked(contests[contest])) for contest in order]


def _ranked(results: Sequence[Result]) -> tuple[Standing, ...]:
    """Rank by macro success, and compare each row with the one above on the tasks that both played."""
    ordered = sorted(results, key=lambda result: (-result.macro, -result.pooled, result.id))
    differences = [compare(above.outcomes, below.outcomes, alpha=ALPHA) for above, below in pairwise(ordered)]
    adjusted = holm([difference.p for difference in differences])
    ranks = [1 + sum(other.macro > result.macro for other in ordered) for result in ordered]
    rest = zip([None, *differences], [None, *adjusted], strict=True)
    return tuple(
        Standing(result, rank, difference, p)
        for result, rank, (difference, p) in zip(ordered, ranks, rest, strict=True)
    )
