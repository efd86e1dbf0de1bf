"""Stage 2: play, analyse, score, update. ``Trainer.iteration`` is the whole algorithm."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from accelerate import Accelerator

from seed_agent.backends.hf import HFPolicy
from seed_agent.backends.hf_model import Network
from seed_agent.losses import (
    Scores,
    denominator_of,
    distill,
    entropy_loss,
    group_advantage,
    kl_loss,
    merge_metrics,
    policy_loss,
)
from seed_agent.policy import Prompt
from seed_agent.train.rollouts import (
    ImageStore,
    Stage,
    draw_tasks,
    language_of,
    method_of,
    pool_of,
    rates,
    requests_of,
)
from seed_agent.train.samples import Played, Sample, build_samples, micro_batches
from seed_agent.train.scoring import align, reply_mask, score_rows, score_samples
from seed_agent.train.settings import Settings
from seed_agent.train.teaching import Skills
from seed_envs.errors import SeedError
from seed_envs.seeding import Draws


class Diverged(SeedError):
    """A loss or a gradient is no finite number."""


class Trainer:
    """A policy in training: the model, its frozen start, the optimiser and the place to play."""

    def __init__(self, settings: Settings, policy: HFPolicy) -> None:
        """Prepare a run from ``policy``'s present weights.

        Raises:
            SeedError: when method, language, environment or annotator cannot be used.
        """
        self.settings, self.policy, self.method = settings, policy, method_of(settings)
        self.language = language_of(settings, self.method, temperature=settings.temperature)
        self.network: Network = policy.network
        self.accelerator = Accelerator(cpu=self.network.device.type == "cpu")
        if settings.gradient_checkpointing:
            policy.model.gradient_checkpointing_enable()
        self.reference = self._frozen_copy()
        self.optimizer = torch.optim.AdamW(
            policy.model.parameters(), lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay
        )
        self.updates = 0
        self.stage = Stage(settings, "train", settings.tasks * settings.group)
        self.pool = pool_of(self.stage.tasks, settings)
        self.images = ImageStore()
        self.skills = Skills(settings, self.method, policy, self.reference, self.images.load)

    def _frozen_copy(self) -> HFPolicy:
        model = copy.deepcopy(self.policy.model).requires_grad_(False).eval()
        name = self.policy.name.removeprefix("hf:")
        return HFPolicy(name, model, self.policy.tokenizer, self.network.vision, batch=self.policy.batch)

    def iteration(self, number: int) -> dict[str, Any]:
        """Run iteration ``number`` (from 0) and return its metrics."""
        clock = Clock()
        self.policy.model.eval()
        self.images.pixels.clear()
        requests = requests_of(draw_tasks(self.pool, number, self.settings), number, self.settings)
        played, player = self.stage.play(
            requests, self.policy, self.language, images=self.images, skill_for=self.skills.shown
        )
        clock.lap("generate")
        skills = self.skills.annotate(played)
        clock.lap("analyse")
        samples = build_samples(played, self._teachers(played), self.settings)
        found = self._advantages(samples)
        self._rescore(samples)
        clock.lap("score")
        metrics = self._update(samples, number)
        clock.lap("update")
        tokens = sum(sample.reply for sample in samples)
        return {
            "iteration": number + 1,
            **rates(played),
            **{f"skill/{key}": value for key, value in skills.items()},
            **{f"rl/{key}": value for key, value in found.items()},
            **metrics,
            "env/history_turns_dropped": player.counts["history_turns_dropped"],
            "rl/samples": len(samples),
            "rl/reply_tokens": tokens,
            "time/tokens_per_s": tokens / max(clock.total, 1e-9),
            **{f"time/{name}_s": seconds for name, seconds in clock.laps.items()},
        }

    def _teachers(self, played: Sequence[Played]) -> dict[tuple[int, int], Prompt]:
        """Return the prompts with a skill in context, by (episode, turn)."""
        if self.method.distill is None:
            return {}
        return {
            (number, turn): prompt
            for number, one in enumerate(played)
            for turn, decision in enumerate(one.decisions)
            if decision.prompt is not None
            and (prompt := self.skills.teacher_prompt(one, turn, decision.prompt)) is not None
        }

    def _advantages(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Give every sample its advantage within its task's group."""
        settings = self.settings
        if not samples or self.method.rl is None:
            return {}
        values, found = group_advantage(
            torch.tensor([sample.score for sample in samples], dtype=torch.float64),
            [sample.group for sample in samples],
            [sample.episode for sample in samples],
            mask=torch.tensor([not sample.rejected for sample in samples]),
            stats=settings.adv_stats,
            std=settings.adv_std,
            singleton=settings.adv_singleton,
        )
        for sample, value in zip(samples, values.tolist(), strict=True):
            sample.advantage = value
        return {key: found[key] for key in ("groups", "tied", "singletons", "rejected")}

    def _rescore(self, samples: Sequence[Sample]) -> None:
        """Score the sampled tokens before anything changes: old policy, reference, teacher."""
        budget, temperature = self.settings.micro_tokens, self.settings.temperature
        score_samples(self.network, samples, "old", temperature=temperature, budget=budget)
        if self.settings.kl:
            score_samples(self.reference.network, samples, "ref", temperature=temperature, budget=budget)
        if self.settings.teacher == "snapshot":
            self._score_teacher(samples)

    def _score_teacher(self, samples: Sequence[Sample]) -> None:
        taught = [sample for sample in samples if sample.teacher is not None]
        settings = self.settings
        score_samples(
            self.network,
            taught,
            "teacher",
            temperature=settings.temperature,
            budget=settings.micro_tokens,
            teacher=True,
        )

    def _update(self, samples: Sequence[Sample], number: int) -> dict[str, float]:
        """Take the optimiser steps of an iteration: one pass over mini-batches in a drawn order."""
        usable = [sample for sample in samples if not sample.rejected]
        parts: dict[str, list[dict[str, Any]]] = {}
        norms = []
        self.policy.model.train()
        for minibatch in self._minibatches(usable, number):
            norms.append(self._step(minibatch, number, parts))
        self.policy.model.eval()
        drift = [abs(a - b) for s in usable for a, b in zip(s.sampled_logp, s.scores["old"].tolist(), strict=False)]
        metrics = {
            f"{group}/{key}": value
            for group, found in parts.items()
            for key, value in merge_metrics(found).items()
            if key != "tokens"
        }
        if self.method.distill is not None and usable:
            tokens = sum(s.reply for s in usable)
            metrics["opd/active_ratio"] = sum(s.reply for s in usable if s.teacher is not None) / max(tokens, 1)
        return {
            **metrics,
            "rl/updates": len(norms),
            "rl/grad_norm": sum(norms) / max(len(norms), 1),
            "rl/logp_drift_max": max(drift, default=0.0),
        }

    def _minibatches(self, samples: Sequence[Sample], number: int) -> Iterator[list[Sample]]:
        order = Draws("mini-batches", self.settings.seed, number).shuffled(samples)
        size = self.settings.minibatch or len(order)
        for start in range(0, len(order), max(size, 1)):
            yield order[start : start + size]

    def _step(self, minibatch: Sequence[Sample], number: int, parts: dict[str, list[dict[str, Any]]]) -> float:
        """Accumulate the gradient of one mini-batch, clip it and step; return its norm."""
        settings = self.settings
        if settings.teacher == "current":
            self.policy.model.eval()
            self._score_teacher(minibatch)
            self.policy.model.train()
        rows = reply_mask([sample.row for sample in minibatch])
        taught = rows & torch.tensor([sample.teacher is not None for sample in minibatch])[:, None]
        totals = denominator_of(rows, settings.reduction), denominator_of(taught, settings.reduction)
        rate = settings.lr * min(1.0, (self.updates + 1) / (settings.warmup + 1)) if settings.warmup else settings.lr
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        for batch in micro_batches(minibatch, settings.micro_tokens):
            loss, found = self._loss(batch, totals, number)
            size = float(loss.detach())
            if not math.isfinite(size):
                raise Diverged(
                    f"the loss of iteration {number + 1} is {size}; lower lr, or try dtype=float32; "
                    "the last checkpoint is whole"
                )
            self.accelerator.backward(loss)
            for key, value in found.items():
                parts.setdefault(key, []).append(value)
        norm = float(torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), settings.grad_clip))
        if not math.isfinite(norm):
            raise Diverged(f"the gradient of iteration {number + 1} is {norm}; lower lr, or try dtype=float32")
        self.optimizer.step()
        self.updates += 1
        return norm

    def _loss(
        self, batch: Sequence[Sample], totals: tuple[Any, Any], number: int
    ) -> tuple[torch.Tensor, dict[str, dict[str, Any]]]:
        """Return L = L_rl + lambda L_distill + beta KL - c H of a micro-batch, as its share of the mini-batch."""
        settings = self.settings
        rows = [sample.row for sample in batch]
        scored = score_rows(self.network, rows, settings.temperature, entropy=True)
        logp, mask = scored.logp, reply_mask(rows, self.network.device)
        width = logp.shape[1]
        old = align([sample.scores["old"] for sample in batch], width, like=logp)
        teacher = align([sample.scores.get("teacher", ()) for sample in batch], width, like=logp)
        has_teacher = torch.tensor([sample.teacher is not None for sample in batch], device=mask.device)
        advantages = torch.tensor([sample.advantage for sample in batch], dtype=logp.dtype, device=logp.device)
        mode = settings.reduction
        taught = Scores(logp, old, teacher, advantages, mask & has_teacher[:, None], number, mode, totals[1])
        out = distill(taught, self.method)
        loss, found = out.weight * out.loss, {"opd": {"loss": out.loss.detach() * 1.0, **out.metrics}}
        if "tokens" not in found["opd"]:
            found = {}
        if self.method.rl is not None:
            term, metrics = policy_loss(
                logp,
                old,
                out.advantages,
                mask,
                clip_low=settings.clip_low,
                clip_high=settings.clip_high,
                dual_clip=settings.dual_clip,
                mode=mode,
                denominator=totals[0],
            )
            loss, found["rl"] = loss + term, metrics
        if settings.kl:
            ref = align([sample.scores["ref"] for sample in batch], width, like=logp)
            term, metrics = kl_loss(logp, ref, mask, mode=mode, denominator=totals[0])
            loss, found["kl"] = loss + settings.kl * term, metrics
        assert scored.entropy is not None
        term, metrics = entropy_loss(scored.entropy, mask, mode=mode, denominator=totals[0])
        loss, found["policy"] = loss + settings.entropy * term, metrics
        return loss, found

    def close(self) -> None:
        """Close the environments."""
        self.stage.close()


class Clock:
    """Seconds per part of an iteration."""

    def __init__(self) -> None:
        """Start now."""
        self._start = self._last = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Close the part called ``name``."""
        now = time.monotonic()
        self.laps[name], self._last = now - self._last, now

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return self._last - self._start


Notify = Callable[[dict[str, Any]], None]
