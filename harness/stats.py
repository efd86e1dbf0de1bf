"""The statistics of a run. What is undefined is ``None``: never 0, never NaN."""

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist

Interval = tuple[float, float]
Group = tuple[int, int]
"""The attempts at one task: how many succeeded, how many there were."""


def mean(values: Iterable[float]) -> float | None:
    """Return the mean; exact summation, so the order of ``values`` changes nothing."""
    kept = list(values)
    return math.fsum(kept) / len(kept) if kept else None


def share(part: int, whole: int) -> float | None:
    """Return ``part / whole``, or None of nothing."""
    return part / whole if whole else None


def wilson(successes: float, n: float, *, level: float = 0.95) -> Interval | None:
    """Return Wilson's score interval for a proportion, in [0, 1]; None when ``n`` is 0.

    ``n`` may be fractional: with several attempts per task it is an effective sample size.

    Source: E. B. Wilson, JASA 22 (1927) 209-212.
    """
    if n <= 0:
        return None
    z = NormalDist().inv_cdf((1 + level) / 2)
    rate = successes / n
    centre = rate + z * z / (2 * n)
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if rate <= 0 else (centre - spread) / scale
    high = 1.0 if rate >= 1 else (centre + spread) / scale
    return low, high


def design_effect(groups: Sequence[Group]) -> float | None:
    """Return how many times larger clustering by task makes the variance of the pooled rate.

    It is the task-clustered variance over the binomial one, kept between 1 (attempts are
    independent) and the mean number of attempts (attempts at a task all agree). Where the data
    cannot tell - one task, or every attempt ended alike - it is that upper end, the careful choice.
    None without attempts.

    Source: clustered standard errors as in arXiv 2411.00640, section 2.2.
    """
    n = sum(attempts for _, attempts in groups)
    if n == 0:
        return None
    tasks = len(groups)
    most = n / tasks
    rate = sum(wins for wins, _ in groups) / n
    if tasks < 2 or rate in (0.0, 1.0):
        return most
    clustered = math.fsum((wins - attempts * rate) ** 2 for wins, attempts in groups) / n**2 * tasks / (tasks - 1)
    return min(max(clustered * n / (rate * (1 - rate)), 1.0), most)


def clustered_wilson(groups: Sequence[Group], *, level: float = 0.95) -> Interval | None:
    """Return Wilson's interval of the pooled rate at the effective sample size of ``groups``.

    With one attempt per task this is Wilson's interval itself.
    """
    effect = design_effect(groups)
    if effect is None:
        return None
    wins, n = (sum(column) for column in zip(*groups, strict=True))
    return wilson(wins / effect, n / effect, level=level)


def pass_at(k: int, groups: Sequence[Group]) -> float | None:
    """Return the chance that at least one of ``k`` attempts at a task succeeds, unbiased.

    None when a task has fewer than ``k`` attempts.

    Source: arXiv 2107.03374, section 2.1.
    """
    if any(n < k for _, n in groups):
        return None
    return mean(1 - math.comb(n - wins, k) / math.comb(n, k) for wins, n in groups)


def pass_hat(k: int, groups: Sequence[Group]) -> float | None:
    """Return the chance that all of ``k`` attempts at a task succeed (pass^k), unbiased.

    None when a task has fewer than ``k`` attempts.

    Source: arXiv 2406.12045, section 3.
    """
    if any(n < k for _, n in groups):
        return None
    return mean(math.comb(wins, k) / math.comb(n, k) for wins, n in groups)
