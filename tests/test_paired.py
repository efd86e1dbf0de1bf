"""Statistics of comparisons: golden values, hand-computed cases, scipy's own, and coverage."""

import itertools
from math import comb

import numpy as np
import pytest

from harness import paired
from seed_envs.errors import ConfigError


def row(*values):
    return np.array([values], dtype=float)


def of_pairs(gained, lost, both=0, neither=0):
    """Return A and B of one seed that differ on so many tasks."""
    return row(*[1] * gained, *[0] * lost, *[1] * both, *[0] * neither), row(
        *[0] * gained, *[1] * lost, *[1] * both, *[0] * neither
    )


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(9, 1, 0.021484), (15, 5, 0.041389), (12, 4, 0.076813), (6, 0, 0.03125), (5, 0, 0.0625), (0, 0, 1), (4, 4, 1)],
)
def test_mcnemar_golden(gained, lost, p):
    assert paired.mcnemar(gained, lost) == pytest.approx(p, abs=5e-7)
    assert paired.mcnemar(lost, gained) == paired.mcnemar(gained, lost)


def test_what_exact_mcnemar_needs():
    """9:1, 12:3, 15:5 and 21:9 are enough at 5 %; one pair fewer is not."""
    assert all(paired.mcnemar(*pair) < 0.05 for pair in [(9, 1), (12, 3), (15, 5), (21, 9)])
    assert all(paired.mcnemar(*pair) >= 0.05 for pair in [(7, 1), (12, 4), (14, 5), (20, 9)])


def test_holm_golden_and_in_the_order_given():
    assert paired.holm([0.01, 0.03, 0.04]) == pytest.approx([0.03, 0.06, 0.06])
    assert paired.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert paired.holm([0.6, 0.7]) == [1.0, 1.0] and paired.holm([]) == []


def test_t_interval_golden():
    low, high = paired.t_interval([0.86, 0.83, 0.88])
    assert ((low + high) / 2, (high - low) / 2) == pytest.approx((0.856667, 0.062516), abs=5e-7)
    assert paired.t_interval([0.5]) is None


def test_iqm_is_the_mean_of_the_middle_half():
    assert paired.iqm(np.array([0, 1, 2, 9], float)) == 1.5
    values = np.arange(40.0).reshape(5, 8) / 40
    from scipy.stats import trim_mean

    assert paired.iqm(values) == pytest.approx(trim_mean(values, 0.25, axis=None))
    low, high = paired.iqm_interval(values)
    assert low < paired.iqm(values) < high and paired.iqm_interval(values) == (low, high)
    assert paired.iqm_interval(values[:4]) is None
    same = np.tile(np.linspace(0, 1, 8), (5, 1))  # strata differ, seeds do not: nothing to be unsure of
    assert paired.iqm_interval(same) == pytest.approx((0.5, 0.5))


def test_pairs_are_counted_and_the_interval_is_bonett_and_prices():
    found = paired.compare(*of_pairs(15, 5, both=60, neither=48))
    assert (found.n, found.gained, found.lost, found.test) == (128, 15, 5, "mcnemar")
    assert found.difference == pytest.approx(10 / 128) and found.p == pytest.approx(0.041389, abs=5e-7)
    # (16 - 6) / 130, and 1.959964 * sqrt((22/130 - (10/130)**2) / 130)
    assert found.interval == pytest.approx((0.076923 - 0.069469, 0.076923 + 0.069469), abs=2e-6)
    # (1.959964 + 0.841621) * sqrt(22/130 / 130)
    assert found.detectable == pytest.approx(0.101081, abs=2e-6)
    back = paired.compare(*reversed(of_pairs(15, 5, both=60, neither=48)))
    assert (back.difference, back.gained, back.p) == (-found.difference, 5, found.p)
    assert back.interval == pytest.approx(tuple(-x for x in reversed(found.interval)))


def test_two_runs_that_agree_everywhere_are_not_certain():
    found = paired.compare(*of_pairs(0, 0, both=10))
    assert found.p == 1 and found.interval[0] < -0.2 and found.interval[1] > 0.2 and found.detectable > 0.3
    one = paired.compare(row(1), row(0))
    assert one.p == 1 and one.interval[0] < 0 < one.interval[1]


def test_the_pairs_interval_covers_exactly_enough():
    """Over all outcomes of 20 tasks: 95 % intervals hold the true difference at least 93 % of the time."""
    n, up, down = 20, 0.3, 0.1
    held = 0.0
    for gained, lost in itertools.product(range(n + 1), repeat=2):
        if gained + lost <= n:
            weight = comb(n, gained) * comb(n - gained, lost) * up**gained * down**lost * 0.6 ** (n - gained - lost)
            low, high = paired.compare(*of_pairs(gained, lost, both=n - gained - lost)).interval
            held += weight * (low <= up - down <= high)
    assert 0.93 <= held <= 0.99


def test_sign_flip_is_mcnemar_where_it_can_be_and_exact_where_tasks_are_few():
    for gained, lost in [(9, 1), (6, 0), (4, 4), (12, 3)]:
        differences = np.array([1.0] * gained + [-1.0] * lost + [0.0] * 5)
        assert paired.sign_flip(differences) == pytest.approx(paired.mcnemar(gained, lost))
    # |sum| of +-0.5 +-0.25 +-0.25 is at least 0.5 in six of eight
    assert paired.sign_flip(np.array([0.5, 0.25, -0.25])) == 0.75
    assert paired.sign_flip(np.zeros(4)) == 1
    many = np.array([1.0] * 21 + [-1.0] * 9)  # drawn, not counted out
    assert paired.sign_flip(many) == pytest.approx(paired.mcnemar(21, 9), abs=0.006)
    assert paired.sign_flip(np.ones(400)) == pytest.approx(1 / 10_001)


def test_scores_are_bootstrapped_and_permuted():
    draw = np.random.Generator(np.random.PCG64(3))
    a, b = draw.random((1, 80)), draw.random((1, 80)) * 0.8
    found = paired.compare(a, b)
    differences = (a - b)[0]
    error = differences.std(ddof=1) / 80**0.5
    assert found.test == "permutation" and found.difference == pytest.approx(differences.mean())
    assert found.interval == pytest.approx(
        (differences.mean() - 1.96 * error, differences.mean() + 1.96 * error), abs=0.01
    )
    assert found.detectable == pytest.approx(2.8016 * error, rel=1e-3)
    assert paired.compare(a, b) == found  # nothing is drawn anew
    alike = paired.compare(a, a)
    assert (alike.p, alike.interval, alike.detectable) == (1, None, None)


def test_seeds_are_the_unit():
    """Two seeds that disagree say less than the same tasks as one run: Student's interval of few seeds is wide."""
    good, bad = [1] * 30 + [0] * 10, [1] * 10 + [0] * 30
    steady = paired.compare(np.array([good, good], float), np.array([bad, bad], float))
    shaky = paired.compare(np.array([[1] * 40, [1] * 20 + [0] * 20], float), np.array([bad, bad], float))
    assert steady.test == "hierarchical" and steady.seeds == (2, 2)
    assert steady.difference == shaky.difference == 0.5
    assert steady.p < 0.001 < shaky.p and shaky.interval[0] < steady.interval[0]
    assert (steady.gained, steady.lost) == (20, 0)
    one = paired.compare(np.array([[1] * 40, [1] * 20 + [0] * 20], float), row(*bad))
    assert one.seeds == (2, 1) and one.interval is not None


def test_the_error_of_seeds_and_tasks_is_that_of_the_two_way_layout():
    """By hand: the variance of seeds' means, plus tasks', less the cells' that both hold."""
    draw = np.random.Generator(np.random.PCG64(1))
    a = np.clip(0.5 + draw.normal(0, 0.1, (4, 1)) + draw.normal(0, 0.2, (1, 50)) + draw.normal(0, 0.1, (4, 50)), 0, 1)
    b = np.full((1, 50), 0.5)
    rest = a - a.mean(0) - a.mean(1, keepdims=True) + a.mean()
    cells = (rest**2).sum() / (3 * 49) / 200
    variance = a.mean(1).var(ddof=1) / 4 + a.mean(0).var(ddof=1) / 50 - cells
    interval, detectable, _ = paired.hierarchical(a, b)
    from scipy.stats import t

    free = paired._freedom(a, b, [np.arange(50)])
    assert 3 < free < 52
    assert (interval[1] - interval[0]) / 2 == pytest.approx(t.ppf(0.975, free) * variance**0.5, rel=0.1)
    assert detectable > (interval[1] - interval[0]) / 2


def test_the_interval_of_the_macro_difference_weighs_categories_alike():
    """By hand: categories of 4 and 16 tasks, their variances over n, a quarter of each, as one standard error."""
    from scipy.stats import t

    a = row(1, 1, 1, 0, *[1] * 10, *[0] * 6)
    b = row(0, 1, 0, 0, *[1] * 7, *[0] * 9)
    groups = [range(4), range(4, 20)]
    # differences: (1, 0, 1, 0), variance 1/3; three of sixteen, variance (3/16 - (3/16)**2) * 16/15 = 0.1625
    parts = [1 / 3 / 4 / 4, 0.1625 / 16 / 4]
    error, centre = sum(parts) ** 0.5, (0.5 + 3 / 16) / 2
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 15)
    low, high = paired.macro_interval(a, b, groups)
    assert (low + high) / 2 == pytest.approx(centre)
    assert (high - low) / 2 == pytest.approx(t.ppf(0.975, freedom) * error, rel=0.05)
    assert paired.macro_interval(a, b, groups) == (low, high)  # nothing is drawn anew
    assert paired.macro_interval(a, a, groups) is None  # nothing varies
    assert paired.macro_interval(a, b, [range(19), [19]]) is None  # one task says nothing about its category
    several = paired.macro_interval(np.vstack([a, a, b]), np.vstack([b, b, a]), groups)
    assert several[0] < low and several[1] > centre / 3  # another training seed is in it


def test_one_category_of_all_tasks_is_the_pooled_mean():
    draw = np.random.Generator(np.random.PCG64(2))
    a, b = draw.random((3, 40)), draw.random((2, 40)) * 0.9
    assert paired.macro_interval(a, b, [range(40)]) == paired.compare(a, b).interval


def test_intervals_follow_alpha():
    a, b = of_pairs(15, 5, both=60, neither=48)
    assert paired.compare(a, b, alpha=0.01).interval[0] < 0 < paired.compare(a, b).interval[0]


@pytest.mark.parametrize("value", [85.0, -0.1, float("nan")])
def test_values_that_are_no_shares_are_refused(value):
    with pytest.raises(ConfigError, match=r"expected 0 to 1 \(0.85, not 85\)"):
        paired.compare(row(0.5, value), row(0.5, 0.5))


def test_shapes_and_alpha_are_checked():
    with pytest.raises(ConfigError, match="the same tasks"):
        paired.compare(row(1, 0), row(1))
    with pytest.raises(ConfigError, match="alpha 5"):
        paired.compare(row(1), row(1), alpha=5)
