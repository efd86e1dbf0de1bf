import itertools
import random

import pytest
from scipy.stats import binomtest

from harness import stats


@pytest.mark.parametrize(
    ("wins", "n", "low", "high"),
    [(115, 128, 0.833975, 0.939681), (96, 128, 0.668444, 0.816987), (0, 10, 0, 0.277533), (10, 10, 0.722467, 1)],
)
def test_wilson_golden(wins, n, low, high):
    found = stats.wilson(wins, n)
    assert found == pytest.approx((low, high), abs=5e-7)
    assert found[0] >= 0 and found[1] <= 1


def test_wilson_is_scipys_wherever_scipy_has_one():
    for n in (1, 2, 7, 134):
        for wins in range(n + 1):
            expected = binomtest(wins, n).proportion_ci(method="wilson")
            assert stats.wilson(wins, n) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert stats.wilson(0, 10)[0] == 0.0 and stats.wilson(10, 10)[1] == 1.0


def test_undefined_is_none_not_zero():
    assert stats.wilson(0, 0) is None
    assert stats.clustered_wilson([]) is None
    assert stats.design_effect([]) is None
    assert stats.mean([]) is None
    assert stats.share(0, 0) is None
    assert stats.pass_at(3, [(1, 2)]) is None
    assert stats.pass_hat(1, []) is None


def test_pass_golden():
    assert stats.pass_hat(2, [(6, 8)]) == pytest.approx(0.535714, abs=5e-7)
    assert stats.pass_at(2, [(6, 8)]) == pytest.approx(0.964286, abs=5e-7)
    assert stats.pass_hat(4, [(6, 8)]) == pytest.approx(0.214286, abs=5e-7)


def test_pass_is_the_mean_over_all_choices_of_k_attempts():
    groups = [(3, 5), (0, 5), (5, 5)]
    for k in range(1, 6):
        at, hat = [], []
        for wins, n in groups:
            choices = list(itertools.combinations([True] * wins + [False] * (n - wins), k))
            at.append(sum(map(any, choices)) / len(choices))
            hat.append(sum(map(all, choices)) / len(choices))
        assert stats.pass_at(k, groups) == pytest.approx(sum(at) / 3)
        assert stats.pass_hat(k, groups) == pytest.approx(sum(hat) / 3)


def test_one_attempt_per_task_is_plain_wilson():
    groups = [(1, 1)] * 19 + [(0, 1)] * 12
    assert stats.design_effect(groups) == pytest.approx(1.0, abs=0.06)
    assert stats.clustered_wilson(groups) == pytest.approx(stats.wilson(19, 31), abs=1e-12)


def test_attempts_that_agree_count_once():
    """Four attempts that always agree say as much as one."""
    groups = [(4, 4)] * 19 + [(0, 4)] * 12
    assert stats.design_effect(groups) == pytest.approx(4.0)
    assert stats.clustered_wilson(groups) == pytest.approx(stats.wilson(19, 31), abs=1e-12)
    assert stats.clustered_wilson([(4, 4)] * 10) == pytest.approx(stats.wilson(10, 10), abs=1e-12)


def test_independent_attempts_count_nearly_fully():
    rng = random.Random(1)
    groups = [(sum(rng.random() < 0.5 for _ in range(4)), 4) for _ in range(400)]
    assert 1.0 <= stats.design_effect(groups) < 1.2
    low, high = stats.clustered_wilson(groups)
    assert high - low < 1.15 * (stats.wilson(800, 1600)[1] - stats.wilson(800, 1600)[0])


def test_design_effect_by_hand():
    # rate 1/2, deviations 1, -1, 0: (1 + 1 + 0) / 36 * 3 / 2 over (1/4) / 6 = 2
    assert stats.design_effect([(2, 2), (0, 2), (1, 2)]) == pytest.approx(2.0)
    # rate 1/2, deviations 1, 0, 0, -1: 2 / 64 * 4 / 3 over (1/4) / 8 = 4/3
    assert stats.design_effect([(2, 2), (1, 2), (1, 2), (0, 2)]) == pytest.approx(4 / 3)


def test_coverage_of_the_interval_is_near_its_level():
    """With tasks of very different difficulty and 4 attempts, 95 % intervals hold the truth."""
    rng = random.Random(7)
    held, trials = 0, 400
    for _ in range(trials):
        rates = [0.9 if rng.random() < 0.5 else 0.1 for _ in range(60)]
        groups = [(sum(rng.random() < rate for _ in range(4)), 4) for rate in rates]
        low, high = stats.clustered_wilson(groups)
        held += low <= 0.5 <= high
    assert 0.92 <= held / trials <= 0.98


def test_mean_does_not_depend_on_order():
    values = [1e16, 1.0, -1e16, 3.0] * 3
    assert {stats.mean(order) for order in (values, sorted(values), values[::-1])} == {1.0}
