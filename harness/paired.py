"""Statistics of comparisons: two methods on the same tasks, several training seeds, many comparisons.

Values are arrays of shape (training seeds, tasks): the mean over a task's attempts, in [0, 1], the tasks in the
same order everywhere. Nothing here draws from a global generator: every resampling has a fixed seed and takes raw
words of PCG64, so its result is the same with every numpy. What is undefined is ``None``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from harness.stats import Interval
from seed_envs.errors import ConfigError
from seed_envs.seeding import derive

Array = np.ndarray[Any, np.dtype[np.float64]]
RESAMPLES = 10_000
"""Draws of a bootstrap or permutation test; a tenth of them at least where tasks are very many."""
_WORK, _CHUNK = 50_000_000, 2_000_000
"""Values drawn in all, and at once."""
_TINY = 1e-12


@dataclass(frozen=True)
class Difference:
    """A minus B on the tasks that both played."""

    n: int
    """Tasks."""
    seeds: tuple[int, int]
    """Training seeds of A and of B."""
    difference: float
    """Mean over seeds and tasks of A minus B, -1 to 1."""
    interval: Interval | None
    """At level 1 - alpha; None where nothing varies (one task, or scores that all differ alike)."""
    gained: int
    """Tasks at which A did better."""
    lost: int
    """Tasks at which B did better."""
    p: float
    """Two-sided."""
    detectable: float | None
    """The smallest true difference that this comparison finds with 80 % power at alpha."""
    test: str
    """``mcnemar``, ``permutation`` or ``hierarchical``."""


def compare(a: Array, b: Array, *, alpha: float = 0.05) -> Difference:
    """Compare two methods on the same tasks.

    One seed each: the exact McNemar test with Bonett and Price's interval where every value is 0 or 1, else the
    sign-flip permutation test with the paired bootstrap; both speak of the tasks and the luck of the attempts alone.
    More seeds: the hierarchical bootstrap over seeds and tasks, whose unit is the training seed.

    Args:
        a: (seeds of A, tasks), values 0 to 1.
        b: (seeds of B, tasks), the same tasks in the same order.
        alpha: one minus the level of the interval; also for the smallest detectable difference.

    Raises:
        ConfigError: when the shapes do not fit, a value is no number of [0, 1], or alpha is none of (0, 1).
    """
    a, b = _checked(a, b, alpha)
    of_tasks = a.mean(axis=0) - b.mean(axis=0)
    n, seeds = len(of_tasks), (len(a), len(b))
    gained, lost = int((of_tasks > _TINY).sum()), int((of_tasks < -_TINY).sum())
    interval: Interval | None
    found: float | None
    if seeds != (1, 1):
        test, (interval, found, p) = "hierarchical", hierarchical(a, b, alpha=alpha)
    elif all(np.isin(values, (0.0, 1.0)).all() for values in (a, b)):
        test, p = "mcnemar", mcnemar(gained, lost)
        interval, found = _of_pairs(gained, lost, n, alpha)
    else:
        test, p = "permutation", sign_flip(of_tasks)
        interval = bootstrap(of_tasks, alpha=alpha)
        found = None if interval is None else detectable(float(of_tasks.std(ddof=1)) / sqrt(n), alpha=alpha)
    return Difference(n, seeds, float(of_tasks.mean()), interval, gained, lost, p, found, test)


def mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided p of the exact McNemar test; 1 where no task tells the two apart.

    Source: Q. McNemar, Psychometrika 12 (1947) 153-157, with the binomial distribution itself.
    """
    from scipy.stats import binomtest

    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def _of_pairs(gained: int, lost: int, n: int, alpha: float) -> tuple[Interval, float]:
    """Return the interval of a paired difference of proportions, and the smallest detectable difference.

    One pair of either kind is added, so that pairs which all agree do not look certain.

    Source: D. G. Bonett and R. M. Price, J. Educ. Behav. Stat. 37 (2012) 479-488; for the second R. J. Connor,
    Biometrics 43 (1987) 207-211, with the variance under no difference, which errs upwards.
    """
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    spread = NormalDist().inv_cdf(1 - alpha / 2) * sqrt((up + down - (up - down) ** 2) / (n + 2))
    interval = max(up - down - spread, -1.0), min(up - down + spread, 1.0)
    return interval, detectable(sqrt((up + down) / (n + 2)), alpha=alpha)


def sign_flip(differences: Array) -> float:
    """Return the two-sided p of the paired permutation test: the sign of every task's difference is a coin.

    Exact up to 16 tasks that differ, else from ``RESAMPLES`` draws and never below 1 / (draws + 1). Where every
    difference is -1, 0 or 1 the exact test is McNemar's.
    """
    differing = differences[np.abs(differences) > _TINY]
    count = len(differing)
    if not count:
        return 1.0
    observed = abs(differing.sum()) - _TINY
    if count <= 16:
        every = 1.0 - 2.0 * (np.arange(2**count)[:, None] >> np.arange(count) & 1)
        return float((np.abs(every @ differing) >= observed).mean())
    words = ceil(count / 64)
    extreme = total = 0
    bits = np.random.PCG64(derive("sign flip"))
    for rows in _rows(count):
        raw = bits.random_raw(rows * words).reshape(rows, words)
        signs = 1.0 - 2.0 * np.unpackbits(raw.view(np.uint8), axis=1)[:, :count]
        extreme += int((np.abs(signs @ differing) >= observed).sum())
        total += rows
    return (extreme + 1) / (total + 1)


def bootstrap(differences: Array, *, alpha: float = 0.05) -> Interval | None:
    """Return the percentile bootstrap interval of the mean of per-task differences; None where all are the same."""
    if np.ptp(differences) < _TINY:
        return None
    bits = np.random.PCG64(derive("bootstrap"))
    means = [
        differences[_below(bits, len(differences), (rows, len(differences)))].mean(axis=1)
        for rows in _rows(len(differences))
    ]
    return _percentiles(np.concatenate(means), alpha)


Groups = Sequence[Sequence[int]]
"""Places of tasks: one item per category."""


def macro_interval(a: Array, b: Array, groups: Groups, *, alpha: float = 0.05) -> Interval | None:
    """Return the interval of A minus B as the mean over categories of the means over their tasks.

    ``hierarchical`` with the tasks drawn within their category, also for one seed each, where nothing but the tasks
    and the luck of the attempts is in it. None where a category has a single task, or nothing varies.

    Args:
        a: (seeds of A, tasks).
        b: (seeds of B, tasks).
        groups: the categories; every task is in one of them.
        alpha: one minus the level.

    Raises:
        ConfigError: as ``compare``.
    """
    a, b = _checked(a, b, alpha)
    if any(len(group) < 2 for group in groups):
        return None
    return hierarchical(a, b, alpha=alpha, groups=groups)[0]


def hierarchical(
    a: Array, b: Array, *, alpha: float = 0.05, groups: Groups | None = None
) -> tuple[Interval | None, float | None, float]:
    """Return interval, smallest detectable difference and two-sided p of A minus B, the training seed as the unit.

    The standard error is a bootstrap's over seeds, then tasks: A's and B's seeds are drawn apart, the tasks once for
    both, since all seeds play the same ones. Each level draws one fewer than there are, which keeps the variance of a
    mean of few unbiased; the noise of single episodes, which such a bootstrap counts three times, is taken off twice.
    Quantiles are Student's, with the degrees of freedom that few seeds leave. A method's single seed stays as it is:
    its training noise is in no number here. Interval and detectable difference are None, and p is ``sign_flip``'s,
    where every task has the same difference.

    With ``groups`` all of it is of the mean over groups (categories, of two tasks or more each).

    Source: J. N. K. Rao and C. F. J. Wu, J. Am. Stat. Assoc. 83 (1988) 231-241; A. B. Owen, Ann. Appl. Stat. 1 (2007)
    386-411, on crossed bootstraps; F. E. Satterthwaite, Biometrics Bulletin 2 (1946) 110-114.
    """
    from scipy.stats import t

    of_tasks = a.mean(axis=0) - b.mean(axis=0)
    places = [np.arange(len(of_tasks))] if groups is None else list(map(np.array, groups))
    if all(np.ptp(of_tasks[place]) < _TINY for place in places):
        return None, None, sign_flip(of_tasks)
    bits = np.random.PCG64(derive("hierarchical bootstrap"))
    found = []
    for rows in _rows(len(of_tasks), RESAMPLES // 5):
        per_task = _of_drawn_seeds(bits, a, rows) - _of_drawn_seeds(bits, b, rows)
        found.append(np.mean([_of_drawn_tasks(bits, per_task[:, place]) for place in places], axis=0))
    cells = sum(_of_cells(x[:, place]) for x in (a, b) for place in places) / len(places) ** 2
    error = sqrt(max(float(np.concatenate(found).var()) - 2 * cells, cells))
    centre = float(np.mean([of_tasks[place].mean() for place in places]))
    freedom = _freedom(a, b, places)
    spread = float(t.ppf(1 - alpha / 2, freedom)) * error
    interval = max(centre - spread, -1.0), min(centre + spread, 1.0)
    return interval, detectable(error, alpha=alpha, freedom=freedom), float(2 * t.sf(abs(centre) / error, freedom))


def _of_drawn_seeds(bits: np.random.PCG64, values: Array, rows: int) -> Array:
    """Return, for each of ``rows`` draws of seeds, the mean per task: (rows, tasks)."""
    seeds = len(values)
    if seeds == 1:
        return np.broadcast_to(values, (rows, values.shape[1]))
    chosen = _below(bits, seeds, (rows, seeds - 1))
    weights = (chosen[:, :, None] == np.arange(seeds)).mean(axis=1)
    return np.asarray(weights @ values)


def _of_drawn_tasks(bits: np.random.PCG64, per_task: Array) -> Array:
    """Return, for each row of (rows, tasks), the mean of a draw of one task fewer than there are."""
    rows, tasks = per_task.shape
    return np.asarray(np.take_along_axis(per_task, _below(bits, tasks, (rows, tasks - 1)), axis=1).mean(axis=1))


def _of_cells(values: Array) -> float:
    """Return the variance of a mean over seeds and tasks that is neither a seed's nor a task's; 0 of one seed."""
    seeds, tasks = len(values), int(values.shape[1])
    if seeds == 1:
        return 0.0
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    return float(np.square(rest).sum()) / ((seeds - 1) * (tasks - 1)) / (seeds * tasks)


def _freedom(a: Array, b: Array, places: Sequence[Any]) -> float:
    """Return Satterthwaite's degrees of freedom of a difference whose variance is of seeds and of tasks, by group."""
    of_tasks = a.mean(axis=0) - b.mean(axis=0)
    parts = [(float(of_tasks[p].var(ddof=1)) / len(p) / len(places) ** 2, len(p) - 1) for p in places]
    of_seeds = [np.mean([x[:, p].mean(axis=1) for p in places], axis=0) for x in (a, b) if len(x) > 1]
    parts += [(float(seeds.var(ddof=1)) / len(seeds), len(seeds) - 1) for seeds in of_seeds]
    whole = float(sum(variance for variance, _ in parts))
    return whole * whole / float(sum(variance**2 / free for variance, free in parts))


def detectable(error: float, *, alpha: float = 0.05, power: float = 0.8, freedom: float = float("inf")) -> float:
    """Return the smallest true difference that a two-sided test at ``alpha`` finds with ``power``.

    ``error`` is the standard error of the difference; the normal approximation, Student's for finite ``freedom``.
    """
    from scipy.stats import t

    return float(t.ppf(1 - alpha / 2, freedom) + t.ppf(power, freedom)) * error


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number, in the order given: at most alpha of any false claim.

    Source: S. Holm, Scand. J. Stat. 6 (1979) 65-70.
    """
    adjusted, worst = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = max(worst, min((len(ps) - rank) * ps[i], 1.0))
        adjusted[i] = worst
    return adjusted


def t_interval(values: Sequence[float], *, level: float = 0.95) -> Interval | None:
    """Return Student's interval for the mean over training seeds; None of fewer than two."""
    from scipy.stats import t

    if len(values) < 2:
        return None
    found = np.asarray(values, dtype=float)
    spread = float(t.ppf((1 + level) / 2, len(values) - 1) * found.std(ddof=1) / sqrt(len(values)))
    return float(found.mean()) - spread, float(found.mean()) + spread


def iqm(values: Array) -> float:
    """Return the mean of the middle half of all ``values``.

    Source: arXiv 2108.13264, section 4.3.
    """
    return float(_trimmed(np.asarray(values, dtype=float).reshape(1, -1))[0])


def iqm_interval(values: Array, *, level: float = 0.95) -> Interval | None:
    """Return the stratified bootstrap interval of ``iqm``; None of fewer than five seeds.

    Args:
        values: (seeds, strata), for example the success of each category; seeds are drawn in every stratum apart.
        level: share of draws within.

    Source: arXiv 2108.13264, section 4.2.
    """
    values = np.asarray(values, dtype=float)
    seeds, strata = values.shape
    if seeds < 5:
        return None
    bits = np.random.PCG64(derive("stratified bootstrap"))
    drawn = values[_below(bits, seeds, (RESAMPLES // 5, seeds, strata)), np.arange(strata)]
    return _percentiles(_trimmed(drawn.reshape(len(drawn), -1)), 1 - level)


def _trimmed(rows: Array) -> Array:
    """Return the mean of each row without its lowest and highest quarter."""
    cut = rows.shape[1] // 4
    return np.asarray(np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut].mean(axis=1))


def _checked(a: Array, b: Array, alpha: float) -> tuple[Array, Array]:
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha {alpha} cannot be used; expected a number between 0 and 1, such as 0.05")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or not a.size or not b.size:
        raise ConfigError(f"values of shapes {a.shape} and {b.shape}; expected (seeds, tasks) with the same tasks")
    for values in (a, b):
        if not ((values >= 0) & (values <= 1)).all():  # NaN is neither
            odd = values[~((values >= 0) & (values <= 1))][0]
            raise ConfigError(f"a value of {odd:g} cannot be compared; expected 0 to 1 (0.85, not 85)")
    return a, b


def _rows(count: int, resamples: int = RESAMPLES) -> Iterator[int]:
    """Yield numbers of rows of ``count`` values to draw at once, ``resamples`` in all where that is not too much."""
    left = min(max(_WORK // count, RESAMPLES // 10), resamples)
    while left:
        rows = min(left, max(_CHUNK // count, 1))
        yield rows
        left -= rows


def _below(bits: np.random.PCG64, n: int, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return indices below ``n`` from the upper halves of raw words; the bias is below n / 2**32."""
    raw = bits.random_raw(int(np.prod(shape)))
    return ((raw >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64).reshape(shape)


def _percentiles(values: Array, alpha: float) -> Interval:
    low, high = np.quantile(values, (alpha / 2, 1 - alpha / 2))
    return float(low), float(high)
