"""Distillation: the propositions of SEED in exact expectation, every method's term, and their limits."""

import math
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'seed-suite[train]'")

import torch
from torch import Tensor

from seed_agent.losses import (
    Distilled,
    Scores,
    distill,
    gate,
    group_advantage,
    jsd_values,
    opd_loss,
    opid_advantage,
    policy_loss,
    reduce,
    rlsd_advantage,
    signed_opd_loss,
    skill_sd_loss,
    skill_shift,
)
from seed_agent.methods import DISTILL, METHODS, SEED, Distill, Gate, Method
from seed_envs.errors import ConfigError, UnknownName

BETA, C, V = 5.0, 3, 7
COUNTS = torch.tensor([[1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1], [4, 4, 4, 4, 4, 4, 4]])
"""A policy over 7 tokens in 3 contexts, pi_k = counts / 28: 28 tokens a row are its exact expectation."""
TOKENS = torch.stack([torch.arange(V).repeat_interleave(row) for row in COUNTS])
PI = COUNTS.double() / 28
ALL = torch.ones_like(TOKENS, dtype=torch.bool)


def of_tokens(table: Tensor) -> Tensor:
    """Return the entries of [C, V] at the sampled tokens, [C, 28]."""
    return table.gather(1, TOKENS)


def teachers(seed: int = 0, scale: float = 0.5) -> Tensor:
    noise = torch.randn(C, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.log_softmax(PI.log() + scale * noise, dim=1)


def gates_of(teacher: Tensor, beta: float = BETA) -> Tensor:
    return gate(skill_shift(teacher, PI.log()), beta=beta)


def opd(logits: Tensor, teacher: Tensor, weights: Tensor) -> Tensor:
    """Return L_opd at the policy of ``logits`` [C, V], in exact expectation over pi_k."""
    logp = torch.log_softmax(logits, dim=1)
    return opd_loss(of_tokens(logp), of_tokens(teacher), of_tokens(weights), ALL)[0]


def opd_gradient(teacher: Tensor, weights: Tensor) -> Tensor:
    logits = PI.log().requires_grad_()
    return torch.autograd.grad(opd(logits, teacher, weights), logits)[0]


# --- propositions and checks (a) to (l) -------------------------------------------------------------------------------


def test_a_the_gradient_is_minus_pi_times_the_centred_gate() -> None:
    teacher = teachers()
    w = gates_of(teacher)
    z = (PI * w).sum(1, keepdim=True)
    expected = -PI * (w - z) / C
    found, step = torch.zeros(C, V, dtype=torch.float64), 1e-5
    for c in range(C):
        for v in range(V):
            shift = torch.zeros(C, V, dtype=torch.float64)
            shift[c, v] = step
            up, down = (opd(PI.log() + sign * shift, teacher, w) for sign in (1, -1))
            found[c, v] = (up - down) / (2 * step)
    assert torch.allclose(found, expected, atol=1e-10)
    assert torch.allclose(opd_gradient(teacher, w), expected, atol=1e-14)
    assert expected.abs().max() > 1e-3


def test_b_the_gradient_is_that_of_a_local_projection() -> None:
    teacher = teachers()
    w = gates_of(teacher)
    z = (PI * w).sum(1)
    r = PI * w / z[:, None]
    logits = PI.log().requires_grad_()
    kl = (r * (r.log() - torch.log_softmax(logits, dim=1))).sum(1)
    (projection,) = torch.autograd.grad((z * kl).mean(), logits)
    assert torch.allclose(opd_gradient(teacher, w), projection, atol=1e-14)


def test_c_the_gradient_has_the_variance_of_the_gate() -> None:
    teacher = teachers()
    w = gates_of(teacher)
    gradient = C * opd_gradient(teacher, w)
    variance = (PI * w.square()).sum(1) - (PI * w).sum(1).square()
    assert torch.allclose((gradient.square() / PI).sum(1), variance, atol=1e-12)
    assert variance.min() > 1e-3
    assert opd_gradient(teacher, torch.full_like(w, 0.3)).abs().max() < 1e-15


def test_d_the_loss_less_the_projection_is_constant() -> None:
    teacher = teachers()
    w = gates_of(teacher)
    z = (PI * w).sum(1)
    r = PI * w / z[:, None]
    differences = []
    for seed in range(4):
        logits = torch.randn(C, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        kl = (r * (r.log() - torch.log_softmax(logits, dim=1))).sum(1)
        differences.append((opd(logits, teacher, w) - (z * kl).mean()).item())
    assert differences == pytest.approx([differences[0]] * 4, abs=1e-12)
    q = torch.arange(C * V, dtype=torch.float64).reshape(C, V).sin()
    covariance = (PI * q * w).sum(1) - (PI * q).sum(1) * (PI * w).sum(1)
    assert torch.allclose((r * q).sum(1) - (PI * q).sum(1), covariance / z, atol=1e-14)


@pytest.mark.parametrize("noise", [0.01, 0.3, 2.0])
def test_e_a_stale_analyzer_moves_the_gradient_by_a_bounded_amount(noise: float) -> None:
    teacher = teachers()
    stale = teacher + noise * torch.randn(C, V, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    moved = opd_gradient(teacher, gates_of(teacher)) - opd_gradient(stale, gates_of(stale))
    scores = torch.eye(V, dtype=torch.float64)[None] - PI[:, None, :]
    bound = scores.norm(dim=2).max() * BETA / 4 * (PI * (teacher - stale).abs()).sum(1).mean()
    assert 0 < moved.norm() <= bound


def test_e_the_gate_is_beta_over_four_lipschitz() -> None:
    delta = torch.linspace(-3, 3, 2001, dtype=torch.float64)
    slopes = gate(delta, beta=BETA).diff() / delta.diff()
    assert BETA / 4 * 0.999 < slopes.max() <= BETA / 4


def test_f_no_shift_gives_one_half() -> None:
    logp = torch.randn(2, 3)
    delta = skill_shift(logp, logp)
    assert not delta.any()
    assert gate(delta).tolist() == [[0.5] * 3] * 2
    assert torch.sigmoid(torch.tensor(1.0)).item() == pytest.approx(0.731059, abs=1e-6)
    assert gate(torch.tensor([[0.2]])).item() == pytest.approx(0.731059, abs=1e-6)


def test_g_beta_zero_forgets_the_teacher() -> None:
    one, two = teachers(1), teachers(2)
    assert gates_of(one, beta=0.0).unique().tolist() == [0.5]
    logits = torch.randn(C, V, generator=torch.Generator().manual_seed(4), dtype=torch.float64).requires_grad_()
    gradients = [
        torch.autograd.grad(opd(logits, teacher, gates_of(teacher, beta=0.0)), logits)[0] for teacher in (one, two)
    ]
    assert torch.equal(*gradients) and gradients[0].any()
    assert opd_gradient(one, gates_of(one, beta=0.0)).abs().max() < 1e-15  # exactly zero at pi_k, in expectation
    assert not torch.equal(*[opd_gradient(t, gates_of(t)) for t in (one, two)])


def test_h_no_gradient_reaches_teacher_or_gate() -> None:
    logp, teacher = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    delta = skill_shift(teacher, logp)
    found = {kind: gate(delta, kind=kind) for kind in ("sigmoid", "hard", "none")}
    assert not delta.requires_grad and not any(g.requires_grad for g in found.values())
    loose = torch.rand(2, 3, requires_grad=True)
    mask = torch.ones(2, 3, dtype=torch.bool)
    opd_loss(logp, teacher, loose, mask)[0].backward()  # type: ignore[no-untyped-call]
    assert teacher.grad is None and loose.grad is None
    assert torch.allclose(logp.grad, -loose.detach() / 6)  # type: ignore[arg-type]


def test_i_trajectories_without_a_skill_change_nothing() -> None:
    logp = torch.randn(3, 4, dtype=torch.float64).requires_grad_()
    teacher, g = torch.randn(3, 4, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64)
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False
    loss, metrics = opd_loss(logp, teacher, g, mask)
    (gradient,) = torch.autograd.grad(loss, logp)
    assert metrics["tokens"] == 8 and not gradient[1].any() and gradient[0].all()
    kept = [0, 2]
    alone, _ = opd_loss(logp[kept], teacher[kept], g[kept], mask[kept])
    assert loss.item() == pytest.approx(alone.item(), abs=1e-15)


def test_j_tied_returns_leave_the_distillation_alone() -> None:
    logp = torch.randn(4, 3, dtype=torch.float64).requires_grad_()
    teacher, mask = torch.randn(4, 3, dtype=torch.float64), torch.ones(4, 3, dtype=torch.bool)
    tied, _ = group_advantage(torch.full((4,), 0.95), ["task"] * 4)
    rl, _ = policy_loss(logp, logp.detach() + 0.1, tied, mask)
    assert not torch.autograd.grad(rl, logp)[0].any() and rl.item() == 0
    dense, _ = opd_loss(logp, teacher, gate(skill_shift(teacher, logp)), mask)
    assert torch.autograd.grad(dense, logp)[0].all()


def test_l_a_larger_shift_weighs_more_within_zero_and_one() -> None:
    delta = torch.linspace(-6, 6, 101, dtype=torch.float64)
    g = gate(delta)
    assert (g.diff() > 0).all() and 0 < g.min() and g.max() < 1
    assert torch.allclose(g + g.flip(0), torch.ones_like(g))


def test_the_other_gates() -> None:
    delta = torch.tensor([-1.0, 0.0, 1.0])
    assert gate(delta, kind="hard").tolist() == [0, 0, 1]
    assert gate(delta, kind="none").tolist() == [1, 1, 1]
    with pytest.raises(UnknownName, match="sigmoid"):
        gate(delta, kind="sigmoids")  # type: ignore[arg-type]


def test_what_is_reported() -> None:
    logp, teacher = torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[-0.5, -2.5, math.nan]])
    mask = torch.tensor([[True, True, False]])
    g = gate(skill_shift(teacher, logp))
    loss, metrics = opd_loss(logp, teacher, g, mask)
    high = 1 / (1 + math.exp(-2.5))
    assert loss.item() == pytest.approx((high * 0.5 - (1 - high) * 0.5) / 2)
    said = {name: float(value) for name, value in metrics.items()}
    assert said == pytest.approx({"tokens": 2, "teacher_gap": 0, "gate": 0.5, "gate_active": 0.5})


# --- the other distillation losses ------------------------------------------------------------------------------------


def reverse_kl(logits: Tensor, teacher: Tensor) -> Tensor:
    logp = torch.log_softmax(logits, dim=1)
    return (logp.exp() * (logp - teacher)).sum(1).mean()


def test_signed_has_the_gradient_of_the_reverse_kl() -> None:
    teacher, logits = teachers(), PI.log().requires_grad_()
    logp = of_tokens(torch.log_softmax(logits, dim=1))
    loss, _ = signed_opd_loss(logp, skill_shift(of_tokens(teacher), logp), ALL)
    found, expected = (torch.autograd.grad(value, logits)[0] for value in (loss, reverse_kl(logits, teacher)))
    assert torch.allclose(found, expected, atol=1e-14) and expected.any()


@pytest.mark.parametrize("distance", [0.0, 0.4])
def test_skill_sd_is_the_reverse_kl_also_away_from_the_sampling_policy(distance: float) -> None:
    """Without gradient through rho, neither the value off pi_k nor the gradient would be this."""
    teacher = teachers()
    step = distance * torch.randn(C, V, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    logits = (PI.log() + step).requires_grad_()
    logp = of_tokens(torch.log_softmax(logits, dim=1))
    loss, _ = skill_sd_loss(logp, of_tokens(PI.log()), of_tokens(teacher), ALL)
    expected = reverse_kl(logits, teacher)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    found, wanted = (torch.autograd.grad(value, logits)[0] for value in (loss, expected))
    assert torch.allclose(found, wanted, atol=1e-12) and wanted.abs().max() > 1e-3


def test_skill_sd_limits_its_exponents() -> None:
    one = torch.tensor([[True]])
    logp = torch.tensor([[-500.0]], requires_grad=True)
    loss, _ = skill_sd_loss(logp, logp.detach(), torch.zeros(1, 1), one)
    assert loss.item() == pytest.approx(math.exp(20) - 1 - 500, rel=1e-6)
    assert torch.isfinite(torch.autograd.grad(loss, logp)[0]).all()
    loss, metrics = skill_sd_loss(logp, torch.full((1, 1), -600.0), torch.full((1, 1), -500.5), one)
    assert float(metrics["ratio"]) == pytest.approx(math.exp(10), rel=1e-6)
    assert loss.item() == pytest.approx(math.exp(10) * (math.exp(-0.5) - 0.5), rel=1e-5)


def test_opid_adds_the_gradient_of_the_reverse_kl() -> None:
    teacher, logits = teachers(), PI.log().requires_grad_()
    logp = of_tokens(torch.log_softmax(logits, dim=1))
    changed, _ = opid_advantage(torch.zeros(C), logp.detach(), of_tokens(teacher), ALL, coefficient=0.3)
    loss, _ = policy_loss(logp, logp.detach(), changed, ALL)
    found, expected = (torch.autograd.grad(value, logits)[0] for value in (loss, 0.3 * reverse_kl(logits, teacher)))
    assert torch.allclose(found, expected, atol=1e-14) and expected.any()


def test_jsd_has_its_numbers_and_limits() -> None:
    p, q = torch.tensor([0.75, 0.25], dtype=torch.float64).log(), torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    kl = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    m = (0.625, 0.375)
    half = 0.5 * (0.75 * math.log(0.75 / m[0]) + 0.25 * math.log(0.25 / m[1]))
    half += 0.5 * (0.5 * math.log(0.5 / m[0]) + 0.5 * math.log(0.5 / m[1]))
    assert jsd_values(q, p).item() == pytest.approx(half, abs=1e-15)
    assert jsd_values(q, p, mixture=0.0).item() == pytest.approx(kl, abs=1e-15)
    assert jsd_values(p, q, mixture=1.0).item() == pytest.approx(kl, abs=1e-15)
    for mixture, limit in ((1e-6, 0.0), (1 - 1e-6, 1.0)):
        scaled = jsd_values(q, p, mixture=mixture).item() / min(mixture, 1 - mixture)
        assert scaled == pytest.approx(jsd_values(q, p, mixture=limit).item(), rel=1e-4)
    assert jsd_values(q + 3, q).item() == pytest.approx(0, abs=1e-15)
    assert jsd_values(3 * q, 3 * p, temperature=3.0).item() == pytest.approx(half, abs=1e-15)


def test_jsd_of_half_precision_is_computed_in_float32() -> None:
    student, teacher = (torch.linspace(0, end, 50).bfloat16() for end in (1, 3))
    found = jsd_values(student, teacher, temperature=1.1)
    assert found.dtype == torch.float32 and found == jsd_values(student.float(), teacher.float(), temperature=1.1)


@pytest.mark.parametrize("mixture", [0.0, 0.5, 1.0])
def test_jsd_survives_tokens_that_are_ruled_out(mixture: float) -> None:
    student = torch.tensor([1.0, 0.0, -math.inf, -math.inf], requires_grad=True)
    teacher = torch.tensor([0.0, 1.0, 2.0, -math.inf])
    value = jsd_values(student, teacher, mixture=mixture)
    assert torch.isfinite(value) and torch.isfinite(torch.autograd.grad(value, student)[0]).all()


# --- terms: methods as trained ----------------------------------------------------------------------------------------


def scores(**changes: Any) -> Scores:
    generator = torch.Generator().manual_seed(5)
    logp, old, teacher = (-torch.rand(4, 6, generator=generator, dtype=torch.float64) for _ in range(3))
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[2], mask[:, 5] = False, False
    advantages = torch.tensor([1.0, -1.0, 0.5, 0.0], dtype=torch.float64)
    return replace(Scores(logp.requires_grad_(), old, teacher, advantages, mask), **changes)


def total(batch: Scores, method: Method) -> tuple[Tensor, Tensor]:
    """Return the whole loss as a trainer forms it, and its gradient."""
    out = distill(batch, method)
    rl, _ = policy_loss(batch.logp, batch.old_logp, out.advantages, torch.ones_like(batch.mask))
    loss = (rl if method.rl else 0.0) + out.weight * out.loss
    return loss.detach(), torch.autograd.grad(loss, batch.logp)[0]


TRAINED = [name for name in METHODS if METHODS.get(name).trained]


@pytest.mark.parametrize("name", [name for name in TRAINED if METHODS.get(name).distill])
def test_k_weight_zero_is_grpo_bit_for_bit(name: str) -> None:
    method, batch = METHODS.get(name), scores()
    assert method.distill is not None
    off = replace(method, rl="grpo", distill=replace(method.distill, coefficient=0.0))
    plain, gradient = total(batch, METHODS.get("grpo"))
    for row, same in ((off, True), (replace(method, rl="grpo"), False)):
        loss, found = total(batch, row)
        assert (torch.equal(loss, plain) and torch.equal(found, gradient)) is same


def test_at_weight_zero_the_teacher_is_not_even_looked_at() -> None:
    batch = scores(teacher_logp=torch.full((4, 6), math.nan, dtype=torch.float64))
    loss, gradient = total(batch, replace(SEED, distill=Distill("opd", 0.0)))
    plain, expected = total(batch, METHODS.get("grpo"))
    assert torch.equal(loss, plain) and torch.equal(gradient, expected)


def test_rlsd_ends_as_grpo_and_stays_finite_without_any_signal() -> None:
    plain, gradient = total(scores(), METHODS.get("grpo"))
    loss, found = total(scores(iteration=100), METHODS.get("rlsd"))
    assert torch.equal(loss, plain) and torch.equal(found, gradient)
    nobody = scores(mask=torch.zeros(4, 6, dtype=torch.bool))
    loss, found = total(nobody, METHODS.get("opsd"))
    assert loss.item() == 0 and not found.any()


def test_terms_are_the_functions_with_the_numbers_of_the_row() -> None:
    batch = scores(denominator=40, mode="sequence_mean", iteration=25)
    delta = skill_shift(batch.teacher_logp, batch.logp)
    options: dict[str, Any] = {"mode": "sequence_mean", "denominator": 40}

    def gated(**gates: Any) -> Tensor:
        return opd_loss(batch.logp, batch.teacher_logp, gate(delta, **gates), batch.mask, **options)[0]

    losses = {
        "seed": (0.01, gated(beta=5.0)),
        "sdar": (0.01, gated(beta=5.0)),
        "opsd": (0.01, gated(beta=5.0)),
        "grpo-opsd": (0.01, 0.5 * gated(kind="none")),
        "seed-no-gate": (0.01, gated(kind="none")),
        "skill-sd": (0.001, skill_sd_loss(batch.logp, batch.old_logp, batch.teacher_logp, batch.mask, **options)[0]),
    }
    for name, (weight, loss) in losses.items():
        out = distill(batch, METHODS.get(name))
        assert out.weight == weight and torch.allclose(out.loss, loss, atol=1e-15), name
        assert out.advantages is batch.advantages and out.metrics["tokens"] == batch.mask.sum()
    arguments = (batch.advantages, batch.old_logp, batch.teacher_logp, batch.mask)
    for name, expected in {
        "rlsd": rlsd_advantage(*arguments, mix=0.375)[0],
        "opid": opid_advantage(*arguments, coefficient=0.001)[0],
    }.items():
        out = distill(batch, METHODS.get(name))
        assert torch.equal(out.advantages, expected) and out.loss.item() == 0
    signed = distill(batch, replace(METHODS.get("opsd"), distill=Distill("signed", 0.01)))
    assert torch.equal(signed.loss, signed_opd_loss(batch.logp, delta, batch.mask, **options)[0])


def test_whole_vocabulary_distillation_needs_logits() -> None:
    row = replace(METHODS.get("opsd"), name="opsd-jsd", distill=Distill("jsd", 1.0, inputs="logits"))
    with pytest.raises(ConfigError, match="inputs='logits'"):
        distill(scores(), row)
    logits, teacher = torch.randn(4, 6, V).requires_grad_(), torch.randn(4, 6, V)
    batch = scores(logits=logits, teacher_logits=teacher)
    out = distill(batch, row)
    assert torch.allclose(out.loss, reduce(jsd_values(logits, teacher), batch.mask))
    assert torch.autograd.grad(out.loss, logits)[0][batch.mask].any()


def test_a_third_party_adds_a_kind_with_one_function_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def squared(batch: Scores, method: Method, weight: float) -> Distilled:
        loss = reduce((batch.logp - batch.teacher_logp).square(), batch.mask, batch.mode, batch.denominator)
        return Distilled(weight, loss, batch.advantages, {})

    row = Method("squared", rl="grpo", distill=Distill("toy-squared", 2.0, decay=10), skill_source="self")
    with pytest.raises(UnknownName, match="kind of distillation"):
        distill(scores(), row)
    monkeypatch.setitem(DISTILL._entries, "toy-squared", squared)
    assert distill(scores(iteration=5), row).weight == 1.0
    plain, _ = total(scores(), METHODS.get("grpo"))
    assert total(scores(), row)[0] > plain


def test_an_unusable_skill_only_takes_its_tokens_out_of_the_term() -> None:
    batch = scores()
    row = replace(SEED, gate=Gate("none"))
    _, gradient = total(batch, row)
    _, plain = total(batch, METHODS.get("grpo"))
    assert torch.equal(gradient[~batch.mask], plain[~batch.mask])
    assert (gradient[batch.mask] != plain[batch.mask]).all()
