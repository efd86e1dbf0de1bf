"""Group advantages: conventions, ties, singletons, rejected rows; RLSD's and OPID's changes per token."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'seed-suite[train]'")

import torch

from seed_agent.losses import group_advantage, opid_advantage, rlsd_advantage

VERL: dict[str, Any] = {"std": "sample", "singleton": "raw"}


def advantage(returns: list[float], groups: list[Any] | None = None, **options: Any) -> list[float]:
    dtype = options.pop("dtype", torch.float32)
    found, _ = group_advantage(torch.tensor(returns, dtype=dtype), groups or ["g"] * len(returns), **options)
    assert found.dtype == dtype and not found.requires_grad
    return list(found.tolist())


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returns", "std", "expected"),
    [
        ([1, 0, 0, 1], "population", [1, -1, -1, 1]),
        ([1, 0, 0, 1], "sample", [0.866025, -0.866025, -0.866025, 0.866025]),
        ([1] + [0] * 7, "population", [2.645751] + [-0.377964] * 7),
        ([1] + [0] * 7, "sample", [2.474874] + [-0.353553] * 7),
        ([1, 0, 0, 0], "sample", [1.499997, -0.499999, -0.499999, -0.499999]),
        ([1, 0, 0, 0], "population", [1.732047, -0.577349, -0.577349, -0.577349]),
        ([1, 0, 0, 0], "none", [0.75, -0.25, -0.25, -0.25]),
        ([0.0] + [0.95] * 7, "sample", [-2.4749] + [0.3536] * 7),
    ],
)
def test_each_std_gives_its_numbers(returns: list[float], std: str, expected: list[float]) -> None:
    exact = 2e-6 if expected[0] != -2.4749 else 5e-5
    assert advantage(returns, std=std) == pytest.approx(expected, abs=5 * exact)


def test_epsilon_is_added_to_the_std() -> None:
    assert advantage([1, 0, 0, 0], std="sample", eps=1e-4) == pytest.approx(
        [1.4997, -0.4999, -0.4999, -0.4999], abs=5e-5
    )
    assert advantage([1, 0, 0, 0], std="sample", dtype=torch.float64)[0] == pytest.approx(
        0.75 / (0.5 + 1e-6), rel=1e-12
    )


# --- ties -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("std", ["population", "sample", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("value", "n"), [(0.95, 8), (0.95, 5), (1 / 3, 8), (0.7, 8), (0.1, 3), (0, 8), (10, 8), (-1, 8)]
)
def test_tied_groups_get_exactly_zero_and_are_counted(std: str, dtype: Any, value: float, n: int) -> None:
    returns = torch.tensor([value] * n + [0.0, 1.0], dtype=dtype)
    found, counts = group_advantage(returns, ["tied"] * n + ["open"] * 2, std=std)  # type: ignore[arg-type]
    assert found[:n].tolist() == [0.0] * n
    assert found[n:].abs().min() > 0.4
    assert counts == {"groups": 2, "tied": 1, "singletons": 0, "rejected": 0}


def test_the_naive_formula_would_not_give_zero() -> None:
    """The vector of the test above can fail: this is what it guards against."""
    returns = torch.full((8,), 0.95)
    naive = (returns - returns.mean()) / (returns.std() + 1e-6)
    assert naive.abs().max() > 0.05


def test_nearly_tied_groups_are_not_suppressed() -> None:
    assert advantage([1.0, 1.00001], std="sample") == pytest.approx([-0.6196, 0.6196], abs=1e-4)
    assert max(map(abs, advantage([0.0] + [0.95] * 7, std="sample"))) < 2.475
    close = advantage([0.5, 0.5 + 1e-12], dtype=torch.float64)
    assert close == pytest.approx([-5e-7, 5e-7], rel=1e-3)


def test_tied_trajectories_give_zero_whatever_their_lengths() -> None:
    returns, names = [0.1] * 6, ["a", "b", "b", "b", "c", "c"]
    assert advantage(returns, trajectories=names, dtype=torch.float64) == [0.0] * 6


# --- singletons, rejected rows, groups --------------------------------------------------------------------------------


def test_a_singleton_is_zero_or_the_raw_score_and_counted() -> None:
    found, counts = group_advantage(torch.tensor([3.3]), ["g"])
    assert found.tolist() == [0.0] and counts == {"groups": 1, "tied": 1, "singletons": 1, "rejected": 0}
    for std in ("population", "sample"):
        assert advantage([3.3], std=std) == [0.0]
        assert advantage([3.3], std=std, singleton="raw") == pytest.approx([3.3 / (1 + 1e-6)])
    assert advantage([3.3], eps=0.5, singleton="raw") == pytest.approx([2.2])
    assert advantage([3.3], std="none", eps=0.5, singleton="raw") == pytest.approx([3.3])


def test_a_rejected_row_gets_zero_and_moves_nobody() -> None:
    mask = torch.tensor([True, True, True, False])
    found, counts = group_advantage(torch.tensor([1.0, 0.0, 0.0, 5.0]), ["g"] * 4, mask=mask, std="sample")
    assert found.tolist() == pytest.approx([1.1547, -0.57735, -0.57735, 0], abs=1e-5)
    assert counts["rejected"] == 1
    for junk in (math.nan, math.inf, -100.0):
        again, _ = group_advantage(torch.tensor([1.0, 0.0, 0.0, junk]), ["g"] * 4, mask=mask, std="sample")
        assert again.tolist() == found.tolist()
    nobody, counts = group_advantage(torch.tensor([1.0, 2.0]), ["g", "g"], mask=torch.tensor([False, False]))
    assert nobody.tolist() == [0.0, 0.0] and counts["groups"] == 0


def test_a_rejected_row_leaves_its_trajectory() -> None:
    returns, names = [1.0, 9.0, 0.0], ["a", "a", "b"]
    found = advantage(returns, trajectories=names, mask=torch.tensor([True, False, True]))
    assert found == pytest.approx([1, 0, -1], abs=1e-5)


@pytest.mark.parametrize("stats", ["trajectory", "step_rows"])
def test_groups_are_formed_by_id_and_the_order_of_rows_is_invisible(stats: str) -> None:
    generator = torch.Generator().manual_seed(0)
    groups = [f"task-{i % 5}" for i in range(60)]
    names = [i // 5 % 4 for i in range(60)]
    returns = torch.randn(60, generator=generator)
    found, _ = group_advantage(returns, groups, names, stats=stats)  # type: ignore[arg-type]
    order = torch.randperm(60, generator=generator)
    shuffled, _ = group_advantage(
        returns[order],
        [groups[i] for i in order],
        [names[i] for i in order],
        stats=stats,  # type: ignore[arg-type]
    )
    assert torch.equal(shuffled, found[order])
    for task in range(5):
        own = torch.tensor([i for i in range(60) if i % 5 == task])
        alone, _ = group_advantage(returns[own], [0] * 12, [names[i] for i in own], stats=stats)  # type: ignore[arg-type]
        assert torch.equal(alone, found[own])


def test_ids_may_be_tensors_and_a_constant_changes_nothing() -> None:
    returns = torch.tensor([1.0, 0.0, 4.0, 2.0], dtype=torch.float64)
    ids = torch.tensor([7, 7, 3, 3])
    found, _ = group_advantage(returns, ids)
    assert found.tolist() == pytest.approx([1, -1, 1, -1], abs=1e-5)
    moved, _ = group_advantage(returns - 17.5, ids)
    assert moved.tolist() == pytest.approx(found.tolist(), abs=1e-12)


def test_statistics_are_of_trajectories_or_of_rows() -> None:
    returns, names = [1.0, 0.0, 0.0, 0.0], ["a", "b", "b", "b"]
    assert advantage(returns, trajectories=names) == pytest.approx([1, -1, -1, -1], abs=1e-5)
    assert advantage(returns, trajectories=names, stats="step_rows") == pytest.approx(advantage(returns))
    assert advantage(returns, trajectories=names, stats="step_rows")[0] == pytest.approx(1.732, abs=1e-3)


def test_trajectories_are_named_within_their_group() -> None:
    returns, groups, names = [1.0, 0.0, 5.0, 3.0], ["g", "g", "h", "h"], [0, 1, 0, 1]
    assert advantage(returns, groups, trajectories=names) == pytest.approx([1, -1, 1, -1], abs=1e-5)


def test_penalised_rows_share_the_advantage_of_their_trajectory() -> None:
    """Rows that differ while trajectories tie would otherwise be divided by epsilon alone."""
    returns, names = [1.0, 0.9, 0.9, 1.0], ["a", "a", "b", "b"]
    assert advantage(returns, trajectories=names) == [0.0] * 4
    found = advantage([1.0, 0.9, 1.0, 1.0], trajectories=names)
    assert found == pytest.approx([-1, -1, 1, 1], abs=1e-3)


def test_wrong_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one group"):
        group_advantage(torch.zeros(3), ["a", "b"])
    with pytest.raises(ValueError, match="one group"):
        group_advantage(torch.zeros(2), ["a", "b"], mask=torch.tensor([True]))


# --- verl -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_std", [True, False])
@pytest.mark.parametrize("cross_steps", [True, False])
def test_recorded_advantages_are_reproduced(shared: Path, by_std: bool, cross_steps: bool) -> None:
    setting = f"norm_by_std={by_std},cross_steps={cross_steps}"
    lines = (shared / "golden" / "trainer" / "grpo_advantages.jsonl").read_text().splitlines()
    assert len(lines) == 12
    for batch in map(json.loads, lines):
        found, _ = group_advantage(
            torch.tensor(batch["scores"]),
            batch["index"],
            batch["traj_index"],
            stats="step_rows" if cross_steps else "first_row",
            std="sample" if by_std else "none",
            eps=batch["epsilon"],
            singleton="raw",
        )
        for group, score, ours, theirs in zip(
            batch["index"], batch["scores"], found.tolist(), batch["outputs"][setting], strict=True
        ):
            largest = max(abs(s) for s, g in zip(batch["scores"], batch["index"], strict=True) if g == group)
            rounding = 0 if by_std else 2e-7 * largest  # theirs is float32 throughout
            assert ours == pytest.approx(theirs, rel=2e-5, abs=2e-6 + rounding), (batch["batch"], group, score)


# --- a teacher's part -------------------------------------------------------------------------------------------------

OLD = torch.tensor([[-1.0, -2.0, -0.5, -3.0]], dtype=torch.float64)
TEACHER = torch.tensor([[-0.9, -2.5, -0.5, math.nan]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, False]])


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("mix", [0.5, 0.25, 0.0])
def test_rlsd_reweighs_by_the_clipped_ratio(sign: float, mix: float) -> None:
    found, metrics = rlsd_advantage(torch.tensor([2.0 * sign], dtype=torch.float64), OLD, TEACHER, MASK, mix=mix)
    ratios = [math.exp(0.1), 0.8, 1.0] if sign > 0 else [math.exp(-0.1), 1.2, 1.0]
    weights = [(1 - mix) + mix * ratio for ratio in ratios]
    assert found.tolist()[0] == pytest.approx([2 * sign * w for w in weights] + [2 * sign], rel=1e-12)
    assert metrics["tokens"] == 3
    assert float(metrics["weight"]) == pytest.approx(sum(weights) / 3)
    assert float(metrics["weight_clipped"]) == pytest.approx(1 / 3)


def test_rlsd_keeps_zero_and_direction() -> None:
    big = torch.tensor([[1e4, -1e4, 5.0, 0.0]], dtype=torch.float64)
    everywhere = torch.ones(1, 4, dtype=torch.bool)
    tied, _ = rlsd_advantage(torch.zeros(1, dtype=torch.float64), OLD, OLD + big, everywhere)
    assert tied.tolist() == [[0.0] * 4]
    found, _ = rlsd_advantage(torch.tensor([[1.0, -1.0, -3.0, 2.0]], dtype=torch.float64), OLD, OLD + big, everywhere)
    assert found.tolist()[0] == pytest.approx([1.1, -1.1, -2.7, 2.0])


def test_opid_adds_the_shift_per_token() -> None:
    found, metrics = opid_advantage(torch.tensor([2.0], dtype=torch.float64), OLD, TEACHER, MASK, coefficient=0.1)
    assert found.tolist()[0] == pytest.approx([2.01, 1.95, 2.0, 2.0], rel=1e-12)
    assert float(metrics["teacher_gap"]) == pytest.approx(-0.4 / 3)
    tiny, _ = opid_advantage(torch.tensor([2.0], dtype=torch.float64), OLD, TEACHER, MASK)
    assert tiny[0, 1].item() == pytest.approx(2 - 0.001 * 0.5)


def test_nothing_of_them_carries_gradient() -> None:
    old, teacher = OLD.clone().requires_grad_(), (OLD + 0.1).requires_grad_()
    for change in (rlsd_advantage, opid_advantage):
        found, metrics = change(torch.ones(1, 4, dtype=torch.float64, requires_grad=True), old, teacher, MASK)
        assert not found.requires_grad and not any(value.requires_grad for value in metrics.values())
