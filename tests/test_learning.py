"""Does training raise success? A small base policy that looks at pictures, SEED's two stages, before and after."""

import json
import runpy
from dataclasses import asdict
from pathlib import Path

import pytest

from harness.paired import mcnemar

pytest.importorskip("torch", reason="needs pip install 'seed-suite[train]'")

BASE = Path(__file__).parent / "bases" / "sokoban"
"""Written by ``python -m harness.train --stage base --env sokoban``, 15 minutes; its card says what it has seen."""
SMALLER = {"iterations": 12, "tasks": 16, "minibatch": 256, "lr": 3e-4, "eval_splits": ("seen",)}
"""Than ``benchmarks/learning.py``, which has the figures of all methods."""
SFT = {"tasks": 24, "rollouts": 4, "temperature": 1.0, "epochs": 3, "lr": 5e-4, "batch": 8}


def test_the_base_policy_is_made_by_the_recipe_there_is() -> None:
    from seed_agent.train.base import BASES

    made = json.loads((BASE / "card.json").read_text())["made_from"]
    assert made == json.loads(json.dumps({"seed": 0, "base": asdict(BASES["sokoban"])}))


@pytest.mark.slow
def test_seed_raises_success_in_pictured_rooms(tmp_path: Path) -> None:
    from seed_agent.train.model import load_policy
    from seed_agent.train.presets import get_preset
    from seed_agent.train.run import TrainingRun
    from seed_agent.train.settings import build
    from seed_agent.train.sft import run_sft

    preset = get_preset("sokoban/micro/seed").settings.model_dump()
    first = build({**preset, **SMALLER, "model": str(BASE), "init": "given"})
    run_sft(first, load_policy(first), tmp_path / "sft", **SFT)
    settings = build({**first.model_dump(), "model": str(tmp_path / "sft" / "final")})
    run = TrainingRun(tmp_path / "run", settings, load_policy(settings), provenance={})
    try:
        run.train()
    finally:
        run.close()
    before, after = (_outcomes(tmp_path / "run", iteration) for iteration in (0, settings.planned))
    assert len(before) == 128 and before.keys() == after.keys()
    gained = sum(after[task] > before[task] for task in before)
    lost = sum(after[task] < before[task] for task in before)
    assert gained > lost and mcnemar(gained, lost) < 0.05, (gained, lost)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    shown = runpy.run_path(str(BASE.parents[2] / "benchmarks" / "learning.py"))["HEALTH"]
    assert set(shown) <= {key for line in lines for key in json.loads(line)}  # the benchmark's columns are all there


def _outcomes(folder: Path, iteration: int) -> dict[str, bool]:
    lines = (folder / "evaluations" / f"iteration_{iteration:06d}-seen.jsonl").read_text().splitlines()
    return {record["task_id"]: record["success"] for record in map(json.loads, lines)}
