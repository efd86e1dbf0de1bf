"""The table of methods: its rows, what they say, and that ablations change one thing."""

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seed_agent.methods import DISTILL, METHODS, SEED, Distill, Gate, Method
from seed_envs.errors import ConfigError, UnknownName

NAMES = (
    "vanilla react skill-prompt-star grpo skill-grpo skill-grpo-star opsd grpo-opsd skill-sd skill-sd-bank rlsd sdar "
    "opid seed seed-no-sft seed-no-opd seed-static-skill seed-frozen-analyzer seed-no-gate"
).split()
WORDS = {"name", "label", "cites"}
"""Fields that say nothing about what is done."""


def changes(row: Method, other: Method) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(Method) if field.name not in WORDS]
    return {name: getattr(row, name) for name in names if getattr(row, name) != getattr(other, name)}


def test_every_method_has_its_row() -> None:
    assert set(NAMES) <= set(METHODS)
    for name in NAMES:
        row = METHODS.get(name)
        assert row.name == name and row.cites.startswith("arXiv ") and row.label
        assert pickle.loads(pickle.dumps(row)) == row
        with pytest.raises(dataclasses.FrozenInstanceError):
            row.rl = None  # type: ignore[misc]
    rows = [METHODS.get(name) for name in NAMES]
    assert len({row.label for row in rows}) == len(rows)
    assert all(changes(one, two) for one in rows for two in rows if one is not two)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("seed-no-sft", {"init": "base"}),
        ("seed-no-opd", {"distill": None}),
        ("seed-static-skill", {"skill_source": "static"}),
        ("seed-frozen-analyzer", {"skill_source": "frozen"}),
        ("seed-no-gate", {"gate": Gate("none")}),
    ],
)
def test_an_ablation_differs_from_seed_in_one_field(name: str, change: dict[str, Any]) -> None:
    assert changes(METHODS.get(name), SEED) == change
    assert METHODS.get(name).cites == SEED.cites


def test_every_ablation_is_tested() -> None:
    ablations = [name for name in METHODS if name.startswith("seed-")]
    assert [len(changes(METHODS.get(name), SEED)) for name in ablations] == [1] * 5


@pytest.mark.parametrize(
    ("name", "base", "change"),
    [
        ("react", "vanilla", {"prompt": "react"}),
        ("skill-prompt-star", "vanilla", {"skill_source": "static", "test_skill": True}),
        ("grpo", "vanilla", {"rl": "grpo"}),
        ("skill-grpo", "grpo", {"skill_source": "static", "train_skill": True}),
        ("skill-grpo-star", "skill-grpo", {"test_skill": True}),
        ("opsd", "sdar", {"rl": None}),
        ("grpo-opsd", "sdar", {"gate": Gate("sigmoid", 0.0)}),
        ("skill-sd", "sdar", {"distill": Distill("skill_sd", 0.001), "gate": Gate("none")}),
        ("skill-sd-bank", "skill-sd", {"skill_source": "bank"}),
        ("rlsd", "sdar", {"distill": Distill("rlsd", 0.5, decay=100), "gate": Gate("none")}),
        (
            "opid",
            "sdar",
            {
                "distill": Distill("opid", 0.001),
                "gate": Gate("none"),
                "skill_source": "external",
                "step_skills": True,
            },
        ),
        ("seed", "sdar", {"init": "sft", "skill_source": "self"}),
    ],
)
def test_each_row_says_what_sets_it_apart(name: str, base: str, change: dict[str, Any]) -> None:
    assert changes(METHODS.get(name), METHODS.get(base)) == change


def test_seed_has_the_published_values() -> None:
    assert SEED.distill == Distill("opd", 0.01, decay=0, inputs="logp")
    assert SEED.gate == Gate("sigmoid", 5.0)
    assert not SEED.train_skill and not SEED.test_skill and SEED.prompt == "plain"


def test_only_the_starred_rows_see_skills_at_test_time() -> None:
    assert [name for name in NAMES if METHODS.get(name).test_skill] == ["skill-prompt-star", "skill-grpo-star"]
    untrained = [name for name in NAMES if not METHODS.get(name).trained]
    assert untrained == ["vanilla", "react", "skill-prompt-star"]
    assert [name for name in NAMES if not METHODS.get(name).uses_skills] == ["vanilla", "react", "grpo", "seed-no-opd"]


def test_every_distillation_names_a_function_that_exists() -> None:
    kinds = sorted({row.distill.kind for row in map(METHODS.get, NAMES) if row.distill})
    assert kinds == ["opd", "opid", "rlsd", "skill_sd"]
    assert set(kinds) < set(DISTILL)
    pytest.importorskip("torch", reason="needs torch: pip install 'seed-suite[train]'")
    assert all(callable(DISTILL.get(kind)) for kind in DISTILL)


def test_a_coefficient_is_constant_or_falls_linearly_to_nothing() -> None:
    rlsd = METHODS.get("rlsd").distill
    assert rlsd is not None and SEED.distill is not None
    assert [rlsd.weight(k) for k in (0, 1, 50, 99, 100, 150)] == pytest.approx([0.5, 0.495, 0.25, 0.005, 0, 0])
    assert {SEED.distill.weight(k) for k in (0, 75, 150)} == {0.01}


@pytest.mark.parametrize("name", ["", "Skill-GRPO*", "a b", "a_b", "-a", "a--b", "a/b", "a\n"])
def test_names_are_slugs(name: str) -> None:
    with pytest.raises(ConfigError, match="lower-case letters"):
        Method(name)


@pytest.mark.parametrize("use", [{"train_skill": True}, {"test_skill": True}, {"distill": Distill("opd", 0.01)}])
def test_skills_must_come_from_somewhere(use: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="skill_source"):
        Method("toy", **use)
    assert Method("toy", skill_source="self", **use).uses_skills


def test_a_misspelt_method_gets_a_hint() -> None:
    with pytest.raises(UnknownName, match="did you mean seed-no-sft"):
        METHODS.get("seed-no-stf")


def test_the_table_needs_no_torch() -> None:
    script = "import sys, seed_agent.methods as m; list(m.METHODS); sys.exit('torch' in sys.modules)"
    root = Path(__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=False).returncode == 0
