"""Stage 2: play, analyse, score, update. ``Trainer.iteration`` is the whole algorithm."""

import copy
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from accelerate import Accelerator

from seed_agent.backends.hf import HFPolicy
from seed_agent.backends.hf_model import Network
from seed_agent.losses import group_advantage, merge_metrics
from seed_agent.policy import Policy, Prompt
from seed_agent.rollout import Request
from seed_agent.train.actor import copy_on_vllm
from seed_agent.train.limits import check_model, explained
from seed_agent.train.objective import Denominators, Objective, objective
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
from seed_agent.train.samples import Played, Sample, build_samples, micro_batches, spoken
from seed_agent.train.scoring import score_samples
from seed_agent.train.settings import Settings
from seed_agent.train.teaching import Skills
from seed_envs.errors import SeedError
from seed_envs.seeding import Draws


class Diverged(SeedError):
    """A loss or a gradient is no finite number; ``batch`` are the samples it came from."""

    def __init__(self, what: str, batch: Sequence[Sample] = (), *, dtype: str = "bfloat16") -> None:
        """Say what is not finite and what to try where the run computes in ``dtype``."""
        super().__init__(f"{what}; lower lr" + (", or try dtype=float32" if dtype == "bfloat16" else ""))
        self.batch = list(batch)


class Trainer:
    """A policy in training: the model, its frozen start, the optimiser and the place to play."""

    def __init__(self, settings: Settings, policy: HFPolicy) -> None:
        """Prepare a run from ``policy``'s present weights.

        Raises:
            SeedError: when method, language, environment or annotator cannot be used.
        """
        self.settings, self.policy, self.method = settings, policy, method_of(settings)
        self.language = language_of(settings, self.method, temperature=settings.temperature)
        check_model(policy, settings, self.method, self.language)
        self.network: Network = policy.network
        self.accelerator = Accelerator(cpu=self.network.device.type == "cpu")
        if settings.gradient_checkpointing:
            # the newer name first: the older one warns where there are both
            model, names = policy.model, ("activation_checkpointing_enable", "gradient_checkpointing_enable")
            next(getattr(model, name) for name in names if hasattr(model, name))({"use_reentrant": False})
        needed = settings.kl or self.method.skill_source == "frozen"
        self.reference = self._frozen_copy() if needed else None
        self.optimizer = torch.optim.AdamW(
            policy.model.parameters(), lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay
        )
        self.updates = 0
        self.copy = copy_on_vllm(settings, policy)
        self._copied: int | None = None
        """After how many updates the copy got the weights."""
        self.images = ImageStore()
        frozen = self.method.skill_source == "frozen"
        analyzer: Policy = (self.reference or policy) if frozen else (self.copy or policy)
        self.skills = Skills(settings, self.method, policy, analyzer, self.images.load)
        self.stage = Stage(settings, "train", settings.tasks * settings.group)
        self.pool = pool_of(self.stage.tasks, settings)

    def _frozen_copy(self) -> HFPolicy:
        model = copy.deepcopy(self.policy.model).requires_grad_(False).eval()
        name = self.policy.name.removeprefix("hf:")
        return HFPolicy(name, model, self.policy.tokenizer, self.network.vision, batch=self.policy.batch)

    @property
    def actor(self) -> Policy:
        """What plays: the policy itself, or its copy on vLLM with the weights of now.

        Raises:
            SeedError: when vLLM cannot take the weights.
        """
        if self.copy is None:
            return self.policy
        if self._copied != self.updates:
            self.copy.sync(self.policy.model)
            self._copied = self.updates
        return self.copy

    def precision(self) -> Any:
        """Return a context that computes in bfloat16 where the settings say so."""
        enabled = self.settings.dtype == "bfloat16"
        return torch.autocast(self.network.device.type, dtype=torch.bfloat16, enabled=enabled)

    def iteration(self, number: int) -> dict[str, Any]:
        """Run iteration ``number`` (from 0) and return its metrics.

        Raises:
            Diverged: when a loss or gradient is not finite.
            SeedError: when memory is too small, or every episode broke.
        """
        with explained(self.settings):
            return self._iteration(number)

    def _iteration(self, number: int) -> dict[str, Any]:
        clock = Clock()
        self.policy.model.eval()
        self.images.pixels.clear()
        requests = requests_of(draw_tasks(self.pool, number, self.settings), number, self.settings)
        played = self.play(requests)
        clock.lap("generate")
        with self.precision():
            skills = self.skills.annotate(played)
        clock.lap("analyse")
        samples = build_samples(played, self._teachers(played, number), self.settings)
        found = self._advantages(samples)
        self._rescore(samples, number)
        clock.lap("score")
        metrics = self._update(samples, number)
        clock.lap("update")
        tokens = sum(sample.reply for sample in samples)
        return {
            "iteration": number + 1,
            **rates(played),
            **{f"skill/{key}": value for key, value in skills.items()},
            "skill/teacher_too_long": self.skills.too_long,
            **{f"rl/{key}": value for key, value in found.items()},
            **metrics,
            "env/history_dropped": sum(d.history_dropped for one in played for d in one.decisions),
            "rl/samples": len(samples),
            "rl/reply_tokens": tokens,
            "time/tokens_per_s": tokens / max(clock.total, 1e-9),
            **{f"time/{name}_s": seconds for name, seconds in clock.laps.items()},
        }

    def play(self, requests: Sequence[Request]) -> list[Played]:
        """Play the episodes of an iteration.

        Raises:
            SeedError: when every one of them broke: there is nothing to learn from.
        """
        actor = self.actor
        with self.precision():
            played, _ = self.stage.play(requests, actor, self.language, images=self.images, skill_for=self.skills.shown)
        if all(one.rejected for one in played):
            error = played[0].episode.error
            why = f"{error.type}: {error.message}" if error else "nothing was played"
            raise SeedError(f"all {len(played)} episodes of an iteration broke, the first by {why}")
        return played

    def _distills(self, number: int) -> bool:
        return self.method.distill is not None and self.method.distill.weight(number) != 0

    def _teachers(self, played: Sequence[Played], number: int) -> dict[tuple[int, int], Prompt]:
        """Return the prompts with a skill in context, by (episode, turn); none where lambda is 0."""
        if not self._distills(number):
            return {}
        last = slice(-1 if self.settings.samples == "episode" else 0, None)  # the last turn's holds all of an episode
        return {
            (place, turn): taught
            for place, one in enumerate(played)
            if not one.rejected
            for turn in spoken(one)[last]
            if (prompt := one.decisions[turn].prompt) is not None
            and (taught := self.skills.teacher_prompt(one, turn, prompt)) is not None
        }

    def _advantages(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Give every sample its advantage within its task's group."""
        settings = self.settings
        if not samples or self.method.rl is None:
            return {}
        turns = [sample for sample in samples for _ in sample.earned]
        values, found = group_advantage(
            torch.tensor([score for sample in samples for score in sample.earned], dtype=torch.float64),
            [sample.group for sample in turns],
            [sample.episode for sample in turns],
            mask=torch.tensor([not sample.rejected for sample in turns]),
            stats=settings.adv_stats,
            std=settings.adv_std,
            singleton=settings.adv_singleton,
        )
        left = iter(values.tolist())
        for sample in samples:
            sample.give([next(left) for _ in sample.earned])
        return {key: found[key] for key in ("groups", "tied", "singletons", "rejected")}

    def _rescore(self, samples: Sequence[Sample], number: int) -> None:
        """Score the sampled tokens before anything changes: old policy, reference, teacher."""
        with self.precision():
            if self.settings.old == "rescored":
                self._score(self.network, samples, "old")
            else:
                for sample in samples:
                    sample.scores["old"] = torch.tensor(sample.sampled_logp)
                if self.copy is not None:  # another program's numbers: the longest ones are compared
                    self._score(self.network, next(micro_batches(samples, self.settings.micro_tokens), []), "check")
            if self.settings.kl and self.reference is not None:
                self._score(self.reference.network, samples, "ref")
        if self.settings.teacher == "snapshot":
            self._score_teacher(samples, number)

    def _score_teacher(self, samples: Sequence[Sample], number: int) -> None:
        if self._distills(number) and self.method.distill is not None and self.method.distill.inputs == "logp":
            with self.precision():
                self._score(self.network, [s for s in samples if s.teacher is not None], "teacher")

    def _score(self, network: Network, samples: Sequence[Sample], key: str) -> None:
        temperature, budget = self.settings.temperature, self.settings.micro_tokens
        score_samples(network, samples, key, temperature=temperature, budget=budget, teacher=key == "teacher")

    def _update(self, samples: Sequence[Sample], number: int) -> dict[str, float]:
        """Take the optimiser steps of an iteration: one pass over mini-batches in a drawn order."""
        usable = [sample for sample in samples if not sample.rejected]
        seen = Seen()
        self.policy.model.train()
        for minibatch in self._minibatches(usable, number):
            self._step(minibatch, number, seen)
        self.policy.model.eval()
        metrics = {**seen.metrics(), **drift(usable)}
        if self.method.distill is not None:
            taught = sum(s.reply for s in usable if s.teacher is not None)
            metrics["opd/active_ratio"] = taught / max(sum(s.reply for s in usable), 1)
        return metrics

    def _minibatches(self, samples: Sequence[Sample], number: int) -> Iterator[list[Sample]]:
        order = Draws("mini-batches", self.settings.seed, number).shuffled(samples)
        size = self.settings.minibatch or len(order)
        for start in range(0, len(order), max(size, 1)):
            yield order[start : start + size]

    def _step(self, minibatch: Sequence[Sample], number: int, seen: "Seen") -> None:
        """Accumulate the gradient of one mini-batch, clip it and step."""
        settings = self.settings
        if settings.teacher == "current":
            self.policy.model.eval()
            self._score_teacher(minibatch, number)
            self.policy.model.train()
        totals = Denominators.of(minibatch, settings)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, (self.updates + 1) / (settings.warmup + 1))
        self.optimizer.zero_grad(set_to_none=True)
        moving = [sample for sample in minibatch if self._moves(sample)]
        if not moving:  # as if computed: momentum and weight decay go on
            for weight in self.policy.model.parameters():
                weight.grad = torch.zeros_like(weight)
        for batch in micro_batches(moving, settings.micro_tokens):
            with self.precision():
                part = objective(batch, self.network, self.method, settings, totals, number)
            if not math.isfinite(part.shares["loss"]):
                raise Diverged(
                    f"the loss of iteration {number + 1} is {part.shares['loss']}", batch, dtype=settings.dtype
                )
            self.accelerator.backward(part.loss)
            seen.add(part)
        norm = float(torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), settings.grad_clip))
        if not math.isfinite(norm):
            raise Diverged(f"the gradient of iteration {number + 1} is {norm}", minibatch, dtype=settings.dtype)
        self.updates += 1  # first: an interruption in between must find the weights counted as changed
        self.optimizer.step()
        seen.norms.append(norm)

    def _moves(self, sample: Sample) -> bool:
        """Whether a sample can have a gradient: a tied group's, without a teacher, is not computed for nothing."""
        everywhere = self.settings.kl or self.settings.entropy
        return bool(everywhere or sample.advantage or sample.teacher is not None)

    def close(self) -> None:
        """Close the environments and end vLLM."""
        self.stage.close()
        if self.copy is not None:
            self.copy.close()


def drift(samples: Sequence[Sample]) -> dict[str, float]:
    """Return how far the sampler's log-probabilities are from the trainer's; nothing where the sampler gave none."""
    scored = [sample.scores.get("check", sample.scores["old"]).tolist() for sample in samples]
    told = [(s.sampled_logp, line) for s, line in zip(samples, scored, strict=True) if s.sampled_logp]
    if samples and not told:
        return {}
    gaps = [abs(a - b) for logp, line in told for a, b in zip(logp, line, strict=True)]
    return {"rl/logp_drift_max": max(gaps, default=0.0)}


class Seen:
    """What the updates of an iteration measured."""

    def __init__(self) -> None:
        """Start empty."""
        self.norms: list[float] = []
        self._shares: dict[str, float] = {}
        self._parts: dict[str, list[Any]] = {}

    def add(self, part: Objective) -> None:
        """Take up a micro-batch."""
        for key, value in part.shares.items():
            self._shares[key] = self._shares.get(key, 0.0) + value
        for group, found in part.metrics.items():
            self._parts.setdefault(group, []).append(found)

    def metrics(self) -> dict[str, float]:
        """Return losses as means over updates, the other metrics as means over tokens."""
        updates = max(len(self.norms), 1)
        found = {
            f"{group}/{key}": value
            for group, parts in self._parts.items()
            for key, value in merge_metrics(parts).items()
            if key != "tokens"
        }
        losses = {key if "/" in key else f"rl/{key}_total": value / updates for key, value in self._shares.items()}
        return {**losses, **found, "rl/updates": len(self.norms), "rl/grad_norm": sum(self.norms) / updates}


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
