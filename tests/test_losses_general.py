"""What holds for every loss: finite differences, masks, empty masks, micro-batches, dtypes."""

import math
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'seed-suite[train]'")

import torch
from torch import Tensor

from seed_agent.losses import (
    entropy_loss,
    gate,
    jsd_loss,
    jsd_values,
    kl_loss,
    opd_loss,
    policy_loss,
    sft_loss,
    signed_opd_loss,
    skill_sd_loss,
)
from seed_agent.losses.reduction import MODES

Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]
B, T, V = 3, 5, 7
MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1], [0, 1, 0, 0, 0]], dtype=torch.bool)


def _jsd(mixture: float) -> Loss:
    def loss(logits: Tensor, teacher: Tensor, mask: Tensor, **options: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return jsd_loss(jsd_values(logits, teacher, mixture=mixture, temperature=1.1), mask, **options)

    return loss


def _kl(estimator: Any) -> Loss:
    def loss(logp: Tensor, reference: Tensor, mask: Tensor, **options: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return kl_loss(logp, reference, mask, estimator=estimator, **options)

    return loss


def _dual(*tensors: Tensor, **options: Any) -> tuple[Tensor, dict[str, Tensor]]:
    return policy_loss(*tensors, clip_high=0.28, dual_clip=3.0, **options)


# the loss, and the names of what it takes before the mask; the first has the gradient
LOSSES: dict[str, tuple[Loss, tuple[str, ...]]] = {
    "policy": (policy_loss, ("logp", "old", "gain")),
    "policy dual": (_dual, ("logp", "old", "gain")),
    "kl k1": (_kl("k1"), ("logp", "teacher")),
    "kl abs": (_kl("abs"), ("logp", "teacher")),
    "kl k2": (_kl("k2"), ("logp", "teacher")),
    "kl k3": (_kl("k3"), ("logp", "teacher")),
    "entropy": (entropy_loss, ("logp",)),
    "sft": (sft_loss, ("logp",)),
    "opd": (opd_loss, ("logp", "teacher", "gates")),
    "signed": (signed_opd_loss, ("logp", "delta")),
    "skill_sd": (skill_sd_loss, ("logp", "old", "teacher")),
    "jsd 0": (_jsd(0.0), ("logits", "teacher_logits")),
    "jsd 0.5": (_jsd(0.5), ("logits", "teacher_logits")),
    "jsd 0.9": (_jsd(0.9), ("logits", "teacher_logits")),
    "jsd 1": (_jsd(1.0), ("logits", "teacher_logits")),
}
every_loss = pytest.mark.parametrize("name", LOSSES)


def inputs(names: tuple[str, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    logp, teacher = -1.5 + 0.5 * draw(B, T), -1.5 + 0.5 * draw(B, T)
    found = {
        "logp": logp,
        "teacher": teacher,
        "old": logp + 0.5 * draw(B, T),
        "gain": draw(B, T),
        "delta": teacher - logp,
        "gates": gate(teacher - logp),
        "logits": draw(B, T, V),
        "teacher_logits": draw(B, T, V),
    }
    return [found[name].to(dtype) for name in names]


def value_and_gradient(name: str, tensors: list[Tensor], mask: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    loss, _ = LOSSES[name]
    first = tensors[0].clone().requires_grad_()
    value, metrics = loss(first, *tensors[1:], mask, **options)
    assert value.shape == () and metrics["tokens"] == mask.sum()
    assert all(metric.shape == () and not metric.requires_grad for metric in metrics.values())
    (gradient,) = torch.autograd.grad(value, first)
    return value.detach(), gradient


@every_loss
@pytest.mark.parametrize("mode", ["token_mean", "sequence_mean"])
def test_gradients_equal_finite_differences(name: str, mode: Any) -> None:
    loss, names = LOSSES[name]
    first, *others = inputs(names)
    options = {"mode": mode, "denominator": 11.0}
    assert torch.autograd.gradcheck(lambda x: loss(x, *others, MASK, **options)[0], first.requires_grad_())
    assert value_and_gradient(name, [first.detach(), *others], MASK, **options)[1].any()


@every_loss
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30])
def test_what_the_mask_leaves_out_changes_nothing(name: str, junk: float) -> None:
    tensors = inputs(LOSSES[name][1])
    value, gradient = value_and_gradient(name, tensors, MASK)
    if tensors[0].dim() == 3 and not math.isfinite(junk):
        return  # a distribution is computed before it is masked; finite junk must do
    for position in range(len(tensors)):
        changed = [t.clone() for t in tensors]
        changed[position][~MASK] = junk
        other, found = value_and_gradient(name, changed, MASK)
        assert torch.equal(other, value) and torch.equal(found, gradient)
    assert not gradient[~MASK].any() and gradient[MASK].any()


@every_loss
def test_polarity_true_means_counted(name: str) -> None:
    """The gradient is on the tokens of the mask and on no other; the inverse mask moves it to the others."""
    tensors = inputs(LOSSES[name][1])
    for mask in (MASK, ~MASK):
        _, gradient = value_and_gradient(name, tensors, mask)
        touched = gradient.reshape(B, T, -1).any(dim=-1)
        assert not touched[~mask].any()
        assert touched[mask].sum() >= mask.sum() - 4  # clipped tokens of the policy loss have none


@every_loss
def test_an_empty_mask_gives_exactly_zero_and_says_so(name: str) -> None:
    value, gradient = value_and_gradient(name, inputs(LOSSES[name][1]), torch.zeros_like(MASK))
    assert value.item() == 0 and not gradient.any()


@every_loss
@pytest.mark.parametrize("mode", MODES)
def test_micro_batches_give_the_gradient_of_the_batch(name: str, mode: Any) -> None:
    tensors = inputs(LOSSES[name][1])
    value, gradient = value_and_gradient(name, tensors, MASK, mode=mode, denominator=8)
    parts = [
        value_and_gradient(name, [t[i : i + 1] for t in tensors], MASK[i : i + 1], mode=mode, denominator=8)
        for i in range(B)
    ]
    assert sum(part[0].item() for part in parts) == pytest.approx(value.item(), abs=1e-12)
    assert torch.allclose(torch.cat([part[1] for part in parts]), gradient, atol=1e-12)


@every_loss
def test_float32_stays_float32(name: str) -> None:
    tensors = inputs(LOSSES[name][1], torch.float32)
    value, gradient = value_and_gradient(name, tensors, MASK)
    exact, _ = value_and_gradient(name, [t.double() for t in tensors], MASK)
    assert value.dtype == gradient.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=1e-4, abs=1e-5)


@every_loss
def test_a_mask_of_floats_is_refused(name: str) -> None:
    loss, names = LOSSES[name]
    with pytest.raises(RuntimeError, match="bool"):
        loss(*inputs(names), MASK.double())


def test_gradient_reaches_the_trained_policy_only() -> None:
    for loss, names in LOSSES.values():
        tensors = [t.requires_grad_() for t in inputs(names)]
        value, _ = loss(*tensors, MASK)
        gradients = torch.autograd.grad(value, tensors, allow_unused=True)
        assert gradients[0] is not None and gradients[0].any()
        assert all(gradient is None for gradient in gradients[1:])
