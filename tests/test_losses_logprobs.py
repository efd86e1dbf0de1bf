"""Log-probabilities of given tokens: alignment, temperature, chunks, and how much memory they take."""

import math
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'seed-suite[train]'")

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seed_agent.losses import (
    align,
    head_logprobs,
    jsd_values,
    opd_loss,
    sft_loss,
    skill_shift,
    token_entropy,
    token_jsd,
    token_logprobs,
)

B, T, H, V = 3, 10, 8, 50


def draw(*shape: int, seed: int = 0, dtype: Any = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def some_ids() -> Tensor:
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


# --- definition -------------------------------------------------------------------------------------------------------


def test_temperature_divides_logits_not_log_probabilities() -> None:
    logits, token = torch.tensor([[[2.0, 1.0, 0.0]]]), torch.tensor([[0]])
    assert token_logprobs(logits, token).item() == pytest.approx(-0.40761, abs=1e-5)
    assert token_logprobs(logits, token, temperature=0.5).item() == pytest.approx(-0.14293, abs=1e-5)
    assert token_logprobs(logits, token).item() / 0.5 == pytest.approx(-0.81521, abs=1e-5)  # the wrong shortcut
    head = head_logprobs(torch.ones(1, 1, 1), logits[0].mT, token, temperature=0.5, entropy=True)
    assert head.logp.item() == pytest.approx(-0.14293, abs=1e-5)
    p = torch.softmax(2 * logits[0, 0], 0)
    assert head.entropy is not None and head.entropy.item() == pytest.approx(-(p * p.log()).sum().item(), abs=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_no_temperature_divides_by_zero(temperature: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        token_logprobs(draw(1, 2, 3), torch.zeros(1, 2, dtype=torch.long), temperature=temperature)
    with pytest.raises(ValueError, match="above 0"):
        head_logprobs(draw(1, 2, 3), draw(4, 3), torch.zeros(1, 2, dtype=torch.long), temperature=temperature)


@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_unchanged_weights_give_ratio_one_by_either_path(temperature: float) -> None:
    hidden, weight, ids = draw(B, T, H, dtype=torch.float32), draw(V, H, seed=2, dtype=torch.float32), some_ids()
    one = token_logprobs(hidden @ weight.T, ids, temperature=temperature)
    two = head_logprobs(hidden, weight, ids, temperature=temperature, chunk=7).logp
    assert (torch.exp(one - two) - 1).abs().max() < 1e-4


def test_the_definition_is_that_of_log_softmax() -> None:
    logits, ids = draw(B, T, V), some_ids()
    logits[0, 0, 3], ids[0, 0] = -math.inf, 4
    logp = torch.log_softmax(logits / 0.7, dim=-1)
    assert torch.allclose(token_logprobs(logits, ids, temperature=0.7), logp.gather(-1, ids[..., None])[..., 0])
    entropy = torch.special.entr(logp.exp()).sum(-1)
    assert torch.allclose(token_entropy(logits, temperature=0.7), entropy, atol=1e-12)
    assert token_entropy(torch.zeros(1, 1, 8)).item() == pytest.approx(math.log(8))


def test_half_precision_is_scored_in_float32() -> None:
    logits = draw(B, T, V, dtype=torch.bfloat16)
    found = token_logprobs(logits, some_ids())
    assert found.dtype == torch.float32
    assert torch.equal(found, token_logprobs(logits.float(), some_ids()))
    hidden, weight = draw(B, T, H, dtype=torch.bfloat16), draw(V, H, seed=2, dtype=torch.bfloat16)
    scored = head_logprobs(hidden, weight, some_ids(), entropy=True)
    assert scored.logp.dtype == torch.float32 and scored.entropy is not None
    assert torch.allclose(scored.logp, token_logprobs(hidden @ weight.T, some_ids()), atol=1e-6)


def test_a_peaked_distribution_has_a_finite_entropy_gradient() -> None:
    logits = torch.tensor([[[0.0, 500.0, -500.0, -math.inf]]], requires_grad=True)
    entropy = token_entropy(logits)
    assert entropy.item() == pytest.approx(0, abs=1e-6)
    assert torch.isfinite(torch.autograd.grad(entropy.sum(), logits)[0]).all()


# --- masks and borders ------------------------------------------------------------------------------------------------

TURNS = [False] * 5 + [True] * 3 + [False] * 4 + [True] * 2


def test_the_state_before_a_token_scores_it() -> None:
    ids = torch.arange(14)[None] + 20
    mask = torch.tensor([TURNS])
    assert mask[0].nonzero().flatten().tolist() == [5, 6, 7, 12, 13]
    logits = torch.zeros(1, 14, V)
    for position in (4, 5, 6, 11, 12):
        logits[0, position, ids[0, position + 1]] = 1000.0
    states, targets, wanted = align(logits, ids, mask)
    assert wanted.sum() == 5 and targets[wanted].tolist() == [25, 26, 27, 32, 33]
    logp = token_logprobs(states, targets)
    assert not logp[wanted].any()
    assert logp[~wanted].max() < -3
    assert sft_loss(logp, wanted)[0].item() == 0
    off_by_one = token_logprobs(logits, ids)
    assert sft_loss(off_by_one, mask)[0].item() > 3


def test_observation_targets_change_neither_loss_nor_gradient() -> None:
    ids, mask = torch.randint(V, (2, 14), generator=torch.Generator().manual_seed(3)), torch.tensor([TURNS, TURNS])
    logits = draw(2, 14, V).requires_grad_()

    def run(tokens: Tensor) -> tuple[Tensor, Tensor]:
        states, targets, wanted = align(logits, tokens, mask)
        loss, _ = sft_loss(token_logprobs(states, targets), wanted)
        return loss, torch.autograd.grad(loss, logits)[0]

    loss, gradient = run(ids)
    other = torch.where(mask, ids, (ids + 7) % V)
    assert not torch.equal(other, ids)
    again, same = run(other)
    assert torch.equal(again, loss) and torch.equal(same, gradient)
    assert gradient.any(dim=-1)[0].nonzero().flatten().tolist() == [4, 5, 6, 11, 12]


@pytest.mark.parametrize("skill", [0, 1, 2, 17, 500])
def test_a_bigram_teacher_shifts_nothing_whatever_its_context(skill: int) -> None:
    """Only the last token decides, so any misalignment of the two contexts would show."""
    table = draw(V, V, seed=6)
    generator = torch.Generator().manual_seed(skill)
    prompt, reply, hint = (torch.randint(V, (1, n), generator=generator) for n in (6, 9, skill))
    found = []
    for before in (prompt, torch.cat([prompt[:, :3], hint, prompt[:, 3:]], dim=1)):
        ids = torch.cat([before, reply], dim=1)
        mask = torch.arange(ids.shape[1])[None] >= before.shape[1]
        states, targets, wanted = align(table[ids], ids, mask)
        found.append(token_logprobs(states, targets)[wanted][None])
    delta = skill_shift(found[1], found[0])
    assert delta.shape == (1, 9) and not delta.any()


@pytest.mark.parametrize("chunk", [None, 1, 7, 1000])
def test_masked_tokens_are_not_computed(chunk: int | None) -> None:
    hidden, weight, ids = draw(B, T, H), draw(V, H, seed=2), some_ids()
    mask = draw(B, T, seed=4) > 0
    whole = head_logprobs(hidden, weight, ids, entropy=True)
    hidden = torch.where(mask[..., None], hidden, math.nan).requires_grad_()
    found = head_logprobs(hidden, weight, torch.where(mask, ids, -100), mask=mask, entropy=True, chunk=chunk)
    for ours, expected in zip(found, whole, strict=True):
        assert ours is not None and expected is not None
        assert torch.allclose(ours[mask], expected[mask], atol=1e-12) and not ours[~mask].any()
    (gradient,) = torch.autograd.grad(found.logp.sum(), hidden)
    assert torch.isfinite(gradient).all() and not gradient[~mask].any()
    nobody = head_logprobs(hidden, weight, ids, mask=torch.zeros_like(mask), entropy=True, chunk=chunk)
    assert not nobody.logp.any() and nobody.logp.requires_grad
    assert not torch.autograd.grad(nobody.logp.sum(), hidden)[0].any()


# --- chunks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 4, 10, 1000])
@pytest.mark.parametrize("with_bias", [True, False])
def test_chunks_change_neither_values_nor_gradients(chunk: int, with_bias: bool) -> None:
    hidden, weight, bias = draw(B, T, H).requires_grad_(), draw(V, H, seed=2).requires_grad_(), draw(V, seed=3)
    bias.requires_grad_(with_bias)
    ids, up, down = some_ids(), draw(B, T, seed=7), draw(B, T, seed=8)
    leaves = [hidden, weight, bias][: 2 + with_bias]
    logits = torch.nn.functional.linear(hidden, weight, bias) / 0.7
    logp = torch.log_softmax(logits, dim=-1)
    expected = (logp.gather(-1, ids[..., None])[..., 0], torch.special.entr(logp.exp()).sum(-1))
    wanted = torch.autograd.grad((up * expected[0] + down * expected[1]).sum(), leaves)
    found = head_logprobs(hidden, weight, ids, bias=bias, temperature=0.7, entropy=True, chunk=chunk)
    assert found.entropy is not None
    assert torch.allclose(found.logp, expected[0], atol=1e-12)
    assert torch.allclose(found.entropy, expected[1], atol=1e-12)
    gradients = torch.autograd.grad((up * found.logp + down * found.entropy).sum(), leaves)
    assert all(torch.allclose(*pair, atol=1e-10) for pair in zip(gradients, wanted, strict=True))

    logits, teacher = draw(B, T, V, seed=9).requires_grad_(), draw(B, T, V, seed=10)
    pairs = (
        (token_logprobs(logits, ids, chunk=chunk), torch.log_softmax(logits, -1).gather(-1, ids[..., None])[..., 0]),
        (token_entropy(logits, chunk=chunk), token_entropy(logits, chunk=T)),
        (token_jsd(logits, teacher, chunk=chunk), jsd_values(logits, teacher)),
    )
    for ours, theirs in pairs:
        assert torch.allclose(ours, theirs, atol=1e-12)
        one, two = (torch.autograd.grad((up * both).sum(), logits, retain_graph=True)[0] for both in (ours, theirs))
        assert torch.allclose(one, two, atol=1e-12) and one.any()


def test_gradients_equal_finite_differences() -> None:
    hidden, weight, bias = draw(2, 3, 4).requires_grad_(), draw(5, 4, seed=2).requires_grad_(), draw(5, seed=3)
    ids = torch.tensor([[0, 1, 2], [4, 4, 3]])

    def both(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        scored = head_logprobs(leaves[0], leaves[1], ids, bias=leaves[2], temperature=0.7, entropy=True, chunk=2)
        assert scored.entropy is not None
        return scored.logp, scored.entropy

    assert torch.autograd.gradcheck(both, (hidden, weight, bias.requires_grad_()))
    logits = draw(2, 3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_logprobs(x, ids, temperature=0.7, chunk=1), logits)
    assert torch.autograd.gradcheck(lambda x: token_entropy(x, temperature=0.7, chunk=2), logits)


class Watch(TorchDispatchMode):
    """Notes the largest floating-point result of any operation, and of those in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.largest_float32 = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                self.largest = max(self.largest, tensor.numel())
                if tensor.dtype == torch.float32:
                    self.largest_float32 = max(self.largest_float32, tensor.numel())
        return out


def test_logits_are_never_held_whole_in_float32() -> None:
    b, t, h, v, chunk = 2, 64, 8, 500, 16
    ids = torch.randint(v, (b, t), generator=torch.Generator().manual_seed(0))
    hidden = draw(b, t, h, dtype=torch.bfloat16).requires_grad_()
    weight = draw(v, h, seed=1, dtype=torch.bfloat16).requires_grad_()
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with Watch() as seen, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        scored = head_logprobs(hidden, weight, ids, entropy=True, chunk=chunk)
        assert scored.entropy is not None
        (scored.logp.sum() + scored.entropy.sum()).backward()  # type: ignore[no-untyped-call]
    assert seen.largest == chunk * v  # no whole logits in any precision, forward or backward
    assert max(kept) < chunk * v  # and nothing that large waits for the backward pass
    logits = draw(b, t, v, dtype=torch.bfloat16).requires_grad_()
    with Watch() as seen:
        token_logprobs(logits, ids, chunk=chunk).sum().backward()  # type: ignore[no-untyped-call]
    assert seen.largest_float32 == b * chunk * v


def test_an_empty_skill_is_no_shift_bit_for_bit() -> None:
    hidden, weight, ids = draw(B, T, H, dtype=torch.float32), draw(V, H, seed=2, dtype=torch.float32), some_ids()
    student, teacher = (head_logprobs(hidden, weight, ids).logp for _ in range(2))
    delta = skill_shift(teacher, student)
    assert not delta.any()
    loss, metrics = opd_loss(student, teacher, torch.full_like(delta, 0.5), torch.ones_like(ids, dtype=torch.bool))
    assert loss.item() == 0 and metrics["teacher_gap"] == 0


@pytest.mark.parametrize("chunk", [None, 7])
def test_an_entropy_that_is_only_measured_has_no_graph(chunk: int | None) -> None:
    ids, found = some_ids(), []
    for graph in (True, False):
        hidden = draw(B, T, H).requires_grad_()
        scored = head_logprobs(hidden, draw(V, H, seed=2), ids, entropy=True, entropy_graph=graph, chunk=chunk)
        assert scored.entropy is not None and scored.entropy.requires_grad is graph
        scored.logp.sum().backward()  # type: ignore[no-untyped-call]
        found.append((scored.logp, scored.entropy, hidden.grad))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
