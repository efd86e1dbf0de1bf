"""Reductions, the clipped policy loss, KL estimators, entropy and likelihood, with hand-made and recorded numbers."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'seed-suite[train]'")

import torch

from seed_agent.losses import (
    denominator_of,
    entropy_loss,
    kl_loss,
    kl_values,
    merge_metrics,
    policy_loss,
    reduce,
    sft_loss,
)
from seed_agent.losses.reduction import MODES
from seed_envs.errors import ConfigError, UnknownName

VERL_MODES = {
    "token-mean": "token_mean",
    "seq-mean-token-sum": "sequence_sum",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum-norm": "constant_length",
}
VERL_KL = {"kl": "k1", "abs": "abs", "mse": "k2", "low_var_kl": "k3"}


def ragged(lengths: list[int], width: int | None = None) -> torch.Tensor:
    columns = torch.arange(width or max(lengths))
    return columns[None, :] < torch.tensor(lengths)[:, None]


def row(*numbers: float) -> torch.Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


# --- reduce -----------------------------------------------------------------------------------------------------------


def test_each_mode_divides_at_its_own_level() -> None:
    mask = ragged([2, 8])
    values = torch.tensor([[1.0] * 8, [0.0] * 8])
    assert reduce(values, mask).item() == pytest.approx(0.2)
    assert reduce(values, mask, "sequence_mean").item() == 0.5
    assert reduce(values, mask, "sequence_sum").item() == 1.0
    constant = denominator_of(mask, "constant_length", length=10)
    assert constant == 20
    assert reduce(values, mask, "constant_length", constant).item() == pytest.approx(0.1)


@pytest.mark.parametrize("mode", MODES)
def test_micro_batches_add_up_to_the_batch(mode: Any) -> None:
    mask = ragged([2, 10, 3, 5])
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(4, 10, generator=generator, dtype=torch.float64).requires_grad_()
    whole = denominator_of(mask, mode, length=10)

    def gradient(cuts: list[int]) -> tuple[float, torch.Tensor]:
        parts = zip(torch.split(weights, cuts), torch.split(mask, cuts), strict=True)
        losses = [reduce(part.square(), kept, mode, whole) for part, kept in parts]
        weights.grad = None
        for loss in losses:
            loss.backward()  # type: ignore[no-untyped-call]
        assert weights.grad is not None
        return float(sum(loss.item() for loss in losses)), weights.grad.clone()

    value, reference = gradient([4])
    assert reference.abs().max() > 0
    for cuts in ([1, 1, 1, 1], [2, 2], [1, 3]):
        other, found = gradient(cuts)
        assert other == pytest.approx(value, abs=1e-12)
        assert torch.allclose(found, reference, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_a_row_without_tokens_changes_nothing(mode: Any) -> None:
    mask, values = ragged([2, 0, 3], 4), torch.rand(3, 4)
    without = [0, 2]
    denominators = [denominator_of(m, mode, length=4) for m in (mask, mask[without])]
    assert denominators[0] == denominators[1]
    with_it = reduce(values, mask, mode, denominators[0])
    assert with_it.item() == pytest.approx(reduce(values[without], mask[without], mode, denominators[1]).item())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("denominator", [None, 0, torch.tensor(0), 7.0])
def test_an_empty_mask_gives_zero_with_a_graph(mode: Any, denominator: Any) -> None:
    values = torch.full((2, 3), math.nan, requires_grad=True)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    if mode == "constant_length" and denominator is None:
        denominator = denominator_of(mask, mode, length=3)
    loss = reduce(values, mask, mode, denominator)
    assert loss.item() == 0 and loss.requires_grad
    loss.backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None and not values.grad.any()


def test_wrong_arguments_are_refused() -> None:
    values, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(UnknownName, match="sequence_mean"):
        reduce(values, mask, "sequence-mean")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="did you mean token_mean"):
        reduce(values, mask, "token-mean", 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected 1 or more"):
        reduce(values, mask, "constant_length")
    with pytest.raises(ValueError, match="shape"):
        reduce(values, mask[:, :1])
    with pytest.raises(ValueError, match="shape"):
        policy_loss(values, values, torch.zeros(3, 2), mask)


def test_metrics_of_micro_batches_merge_by_tokens() -> None:
    logp, old = torch.randn(2, 6), torch.randn(2, 6)
    mask, gain = ragged([6, 1]), torch.tensor([1.0, -1.0])
    _, whole = policy_loss(logp, old, gain, mask)
    parts = [policy_loss(logp[i : i + 1], old[i : i + 1], gain[i : i + 1], mask[i : i + 1])[1] for i in range(2)]
    empty = policy_loss(logp, old, gain, torch.zeros_like(mask))[1]
    merged = merge_metrics([*parts, empty])
    assert merged == pytest.approx({name: float(value) for name, value in whole.items()}, abs=1e-6)
    assert merged["tokens"] == 7
    assert merge_metrics([empty]) == merge_metrics([{}]) == {"tokens": 0.0}


# --- recorded numbers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[dict[str, Any]]:
    lines = (shared / "golden" / "trainer" / "policy_losses.jsonl").read_text().splitlines()
    assert len(lines) == 20
    return [json.loads(line) for line in lines]


def tensors(case: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    names = ("logp", "old_logp", "ref_logp", "advantages")
    return (*(torch.tensor(case[name]) for name in names), torch.tensor(case["mask"]).bool())


def test_recorded_kl_estimates_are_reproduced(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        logp, _, ref_logp, _, _ = tensors(case)
        assert set(case["kl"]) == set(VERL_KL)
        for name, theirs in case["kl"].items():
            ours = kl_values(logp, ref_logp, estimator=VERL_KL[name])  # type: ignore[arg-type]
            assert torch.allclose(ours, torch.tensor(theirs), rtol=1e-5, atol=1e-6), (case["case"], name)


def test_recorded_aggregations_are_reproduced(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        *_, values, mask = tensors(case)
        assert set(case["agg"]) == set(VERL_MODES)
        for name, theirs in case["agg"].items():
            width = mask.shape[1] if name == "seq-mean-token-sum-norm" else None
            ours = reduce(values, mask, VERL_MODES[name], width)  # type: ignore[arg-type]
            assert ours.item() == pytest.approx(theirs, rel=1e-5, abs=1e-6), (case["case"], name)


def test_recorded_policy_losses_are_reproduced(cases: list[dict[str, Any]]) -> None:
    clipped = bounded = 0
    for case in cases:
        logp, old_logp, _, advantages, mask = tensors(case)
        for name, theirs in case["policy_loss"].items():
            loss, metrics = policy_loss(
                logp,
                old_logp,
                advantages,
                mask,
                clip_low=case["clip_ratio_low"],
                clip_high=case["clip_ratio_high"],
                dual_clip=case["clip_ratio_c"],
                mode=VERL_MODES[name],  # type: ignore[arg-type]
                denominator=mask.shape[1] if name == "seq-mean-token-sum-norm" else None,
            )
            ours = [loss, metrics["clip_fraction"], metrics["old_kl"], metrics["dual_clip_fraction"]]
            assert [float(x) for x in ours] == pytest.approx(theirs, rel=1e-5, abs=1e-6), (case["case"], name)
            clipped += theirs[1] > 0
            bounded += theirs[3] > 0
    assert clipped and bounded


# --- clipping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "gain", "options", "loss", "gradient"),
    [
        (1.1, 1.0, {}, -1.1, -1.1),
        (1.5, 1.0, {}, -1.2, 0.0),
        (0.5, 1.0, {}, -0.5, -0.5),
        (0.5, -1.0, {}, 0.8, 0.0),
        (1.5, -1.0, {}, 1.5, 1.5),
        (1.25, 1.0, {"clip_high": 0.28}, -1.25, -1.25),
        (1.5, 1.0, {"clip_high": 0.28}, -1.28, 0.0),
        (0.75, -1.0, {"clip_low": 0.3}, 0.75, 0.75),
        (5.0, -1.0, {}, 5.0, 5.0),
        (5.0, -1.0, {"dual_clip": 3.0}, 3.0, 0.0),
        (2.0, -1.0, {"dual_clip": 3.0}, 2.0, 2.0),
        (5.0, 1.0, {"dual_clip": 3.0}, -1.2, 0.0),
    ],
)
def test_what_is_clipped_has_no_gradient(
    ratio: float, gain: float, options: dict[str, float], loss: float, gradient: float
) -> None:
    logp = row(math.log(ratio) - 1).requires_grad_()
    found, metrics = policy_loss(logp, row(-1.0), row(gain), torch.tensor([[True]]), **options)  # type: ignore[arg-type]
    found.backward()  # type: ignore[no-untyped-call]
    assert found.item() == pytest.approx(loss)
    assert logp.grad is not None and logp.grad.item() == pytest.approx(gradient)
    stopped = metrics["clip_fraction"] + metrics["dual_clip_fraction"]
    assert bool(stopped > 0) is (gradient == 0)


def test_unchanged_weights_give_the_plain_policy_gradient() -> None:
    logp = torch.randn(2, 3, dtype=torch.float64).requires_grad_()
    gain = torch.tensor([2.0, -1.0], dtype=torch.float64)
    loss, metrics = policy_loss(logp, logp.detach(), gain, ragged([3, 2]))
    loss.backward()  # type: ignore[no-untyped-call]
    assert metrics["ratio"] == 1 and metrics["old_kl"] == 0 and metrics["clip_fraction"] == 0
    assert torch.allclose(logp.grad, torch.tensor([[-2.0, -2, -2], [1, 1, 0]], dtype=torch.float64) / 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("gain", [1.0, -1.0])
@pytest.mark.parametrize("gap", [500.0, -500.0])
def test_absurd_ratios_stay_finite(gap: float, gain: float) -> None:
    logp = torch.tensor([[-1.0]], requires_grad=True)
    for loss in (
        policy_loss(logp, logp.detach() - gap, torch.tensor([gain]), torch.tensor([[True]]))[0],
        kl_loss(logp, logp.detach() - gap, torch.tensor([[True]]))[0],
    ):
        (gradient,) = torch.autograd.grad(loss, logp)
        assert torch.isfinite(loss) and torch.isfinite(gradient).all()


# --- KL, entropy, likelihood ------------------------------------------------------------------------------------------


def test_estimators_have_their_numbers() -> None:
    logp, mask = row(-1.0, -1.0), torch.tensor([[True, True]])
    reference = row(-0.5, -1.5)
    assert kl_values(logp, reference).tolist()[0] == pytest.approx([0.148721, 0.106531], abs=1e-6)
    assert kl_values(logp, reference, estimator="k1").tolist() == [[-0.5, 0.5]]
    assert kl_values(logp, reference, estimator="abs").tolist() == [[0.5, 0.5]]
    assert kl_values(logp, reference, estimator="k2").tolist() == [[0.125, 0.125]]
    assert kl_values(logp, reference + 5).tolist() == [[10.0, 10.0]]
    assert kl_values(logp, reference + 5, limit=1000.0)[0, 0].item() == pytest.approx(math.exp(5.5) - 6.5)
    loss, metrics = kl_loss(logp, reference, mask)
    assert loss.item() == float(metrics["kl"]) == pytest.approx((0.148721 + 0.106531) / 2, abs=1e-6)
    with pytest.raises(UnknownName, match="estimator"):
        kl_values(logp, reference, estimator="k9")  # type: ignore[arg-type]


def test_k3_is_the_kl_in_exact_expectation() -> None:
    counts = [1, 2, 3, 4]
    tokens = torch.tensor([[v for v, n in enumerate(counts) for _ in range(n)]])
    logp = torch.log(torch.tensor(counts, dtype=torch.float64) / 10)
    reference = torch.log_softmax(torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64), 0)
    exact = (logp.exp() * (logp - reference)).sum().item()
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    for estimator in ("k1", "k3"):
        loss, _ = kl_loss(logp[tokens], reference[tokens], everywhere, estimator=estimator)
        assert loss.item() == pytest.approx(exact, abs=1e-12)


def test_entropy_is_raised_and_likelihood_too() -> None:
    entropy = row(1.0, 2.0, 9.0).requires_grad_()
    mask = torch.tensor([[True, True, False]])
    loss, metrics = entropy_loss(entropy, mask)
    assert loss.item() == -1.5 and metrics["entropy"] == 1.5
    assert torch.autograd.grad(loss, entropy)[0].tolist() == [[-0.5, -0.5, 0.0]]
    logp = row(-1.0, -3.0, -9.0).requires_grad_()
    loss, metrics = sft_loss(logp, mask)
    assert loss.item() == 2 and metrics["nll"] == 2
    assert torch.autograd.grad(loss, logp)[0].tolist() == [[-0.5, -0.5, 0.0]]
