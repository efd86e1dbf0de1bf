"""Methods as rows of one table, and the kinds of distillation they name.

A third party adds a method from its own package with one row and, where its loss is new, one
function (`seed_agent.losses.terms` says what such a function takes and gives)::

    DISTILL.add("my-kind", "my_package.losses:my_kind")
    METHODS.add("my-method", Method("my-method", rl="grpo", distill=Distill("my-kind", 0.01), skill_source="self"))

An ablation is ``dataclasses.replace(row, name=..., field=...)``. What is a habit of a published
training script rather than of a method (statistics of the advantage, dual clip, entropy, penalty
of invalid actions, KL) belongs to the trainer's presets. This module imports no torch.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from seed_envs.errors import ConfigError
from seed_envs.registry import Registry

if TYPE_CHECKING:
    from seed_agent.losses.terms import Distilled, Scores

GateKind = Literal["none", "sigmoid", "hard"]
SkillSource = Literal["none", "static", "self", "frozen", "external", "bank"]
DistillFunction = Callable[["Scores", "Method", float], "Distilled"]


@dataclass(frozen=True)
class Gate:
    """How much of the distillation term a token gets, from the teacher's shift of it."""

    kind: GateKind = "none"
    """``none`` = 1; ``sigmoid`` = sigma(beta * shift); ``hard`` = 1 where the teacher prefers the token, else 0."""
    beta: float = 5.0
    """Per nat, used by ``sigmoid`` alone; 0 makes the gate 1/2 everywhere."""


@dataclass(frozen=True)
class Distill:
    """The distillation term of a method. A kind with more constants may subclass this."""

    kind: str
    """A name in `DISTILL`."""
    coefficient: float
    """Lambda at the first iteration; 0 switches the term off."""
    decay: int = 0
    """Iterations over which lambda falls linearly to 0; with 0 it is constant."""
    inputs: Literal["logp", "logits"] = "logp"
    """What the trainer must score: sampled tokens, or the whole vocabulary in both contexts."""

    def weight(self, iteration: int) -> float:
        """Return lambda at ``iteration``, counted from 0."""
        return self.coefficient * max(0.0, 1.0 - iteration / self.decay) if self.decay else self.coefficient


@dataclass(frozen=True)
class Method:
    """One way to make an agent, as data.

    Raises:
        ConfigError: when the name is no slug, or skills are used that come from nowhere.
    """

    name: str
    """A slug: lower-case letters, digits and hyphens."""
    init: Literal["base", "sft"] = "base"
    """Where training starts: the base model, or the model fitted to hindsight skills (stage 1)."""
    rl: Literal["grpo"] | None = None
    distill: Distill | None = None
    skill_source: SkillSource = "none"
    """Who writes skills: nobody, our library per category, the current policy, the policy as stage 1
    left it, another model, or a bank fed by another model."""
    gate: Gate = Gate()
    train_skill: bool = False
    """Whether the acting policy sees a skill in its prompt while it is trained."""
    test_skill: bool = False
    """Whether it sees one when it is evaluated."""
    step_skills: bool = False
    """Whether a turn's own skill, where there is one, replaces the episode's in the teacher's context."""
    prompt: Literal["plain", "react"] = "plain"
    cites: str = ""
    label: str = ""
    """How tables print the row; the name where empty."""

    def __post_init__(self) -> None:
        """Refuse what cannot mean anything."""
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name):
            raise ConfigError(f"method {self.name!r}: expected lower-case letters, digits and single hyphens")
        if self.uses_skills and self.skill_source == "none":
            raise ConfigError(f"method {self.name!r} uses skills; give it a skill_source other than 'none'")

    @property
    def trained(self) -> bool:
        """Whether there is anything to train in stage 2."""
        return self.rl is not None or self.distill is not None

    @property
    def uses_skills(self) -> bool:
        """Whether skills are needed anywhere: by the teacher, or in the acting policy's prompt."""
        return self.distill is not None or self.train_skill or self.test_skill


DISTILL: Registry[DistillFunction] = Registry("kind of distillation")
for _kind in ("opd", "signed", "jsd", "skill_sd", "rlsd", "opid"):
    DISTILL.add(_kind, f"seed_agent.losses.terms:{_kind}")

METHODS: Registry[Method] = Registry("method")

_SDAR = "arXiv 2605.15155"
_SEED = "arXiv 2607.14777"
_OPSD = "arXiv 2601.18734, as run in 2605.15155"

SEED = Method(
    "seed",
    init="sft",
    rl="grpo",
    distill=Distill("opd", 0.01),
    skill_source="self",
    gate=Gate("sigmoid", 5.0),
    cites=_SEED,
    label="SEED",
)

# Distilling baselines run with the static library, as in the papers' tables; sources in docs/papers.md.
_ROWS = (
    Method("vanilla", cites=_SDAR, label="Vanilla"),
    Method("react", prompt="react", cites="arXiv 2210.03629", label="ReAct"),
    Method("skill-prompt-star", skill_source="static", test_skill=True, cites=_SDAR, label="Skill-Prompt*"),
    Method("grpo", rl="grpo", cites="arXiv 2402.03300", label="GRPO"),
    Method("skill-grpo", rl="grpo", skill_source="static", train_skill=True, cites=_SDAR, label="Skill-GRPO"),
    Method(
        "skill-grpo-star",
        rl="grpo",
        skill_source="static",
        train_skill=True,
        test_skill=True,
        cites=_SDAR,
        label="Skill-GRPO*",
    ),
    Method(
        "opsd",
        distill=Distill("opd", 0.01),
        skill_source="static",
        gate=Gate("sigmoid", 5.0),
        cites=_OPSD,
        label="OPSD (released)",
    ),
    Method(
        "grpo-opsd",
        rl="grpo",
        distill=Distill("opd", 0.01),
        skill_source="static",
        gate=Gate("sigmoid", 0.0),
        cites=_OPSD,
        label="GRPO+OPSD (released)",
    ),
    Method(
        "skill-sd",
        rl="grpo",
        distill=Distill("skill_sd", 0.001),
        skill_source="static",
        cites="arXiv 2604.10674, as run in 2605.15155",
        label="Skill-SD",
    ),
    Method(
        "skill-sd-bank",
        rl="grpo",
        distill=Distill("skill_sd", 0.001),
        skill_source="bank",
        cites="arXiv 2604.10674",
        label="Skill-SD (bank)",
    ),
    Method(
        "rlsd",
        rl="grpo",
        distill=Distill("rlsd", 0.5, decay=100),
        skill_source="static",
        cites="arXiv 2604.03128, as run in 2605.15155",
        label="RLSD",
    ),
    Method(
        "sdar",
        rl="grpo",
        distill=Distill("opd", 0.01),
        skill_source="static",
        gate=Gate("sigmoid", 5.0),
        cites=_SDAR,
        label="SDAR",
    ),
    Method(
        "opid",
        rl="grpo",
        distill=Distill("opid", 0.001),
        skill_source="external",
        step_skills=True,
        cites="arXiv 2606.26790",
        label="OPID",
    ),
    SEED,
    replace(SEED, name="seed-no-sft", init="base", label="SEED without skill SFT"),
    replace(SEED, name="seed-no-opd", distill=None, label="SEED without OPD"),
    replace(SEED, name="seed-static-skill", skill_source="static", label="SEED with static skills"),
    replace(SEED, name="seed-frozen-analyzer", skill_source="frozen", label="SEED with a frozen analyzer"),
    replace(SEED, name="seed-no-gate", gate=Gate("none"), label="SEED without gate"),
)
for _row in _ROWS:
    METHODS.add(_row.name, _row)
