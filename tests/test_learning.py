"""Does training raise success? A small base policy that looks at pictures, SEED's two stages, before and after."""

import json
from pathlib import Path

import pytest

from harness.paired import mcnemar

pytest.importorskip("torch", reason="needs pip install 'seed-suite[train]'")

SMALLER = {"iterations": 12, "tasks": 16, "minibatch": 256, "eval_splits": ("seen",)}
"""Than ``benchmarks/learning.py``, which has the figures of all methods."""
SFT = {"tasks": 24, "rollouts": 4, "temperature": 1.0, "epochs": 3, "lr": 5e-4, "batch": 8}


@pytest.mark.slow
def test_seed_raises_success_in_pictured_rooms(tmp_path: Path) -> None:
    from seed_agent.train.base import build_base
    from seed_agent.train.model import load_policy
    from seed_agent.train.presets import get_preset
    from seed_agent.train.run import TrainingRun
    from seed_agent.train.settings import build
    from seed_agent.train.sft import run_sft

    build_base("sokoban", tmp_path / "base")  # most of the time; less fitting gave a base that learns nothing
    preset = get_preset("sokoban/micro/seed").settings.model_dump()
    first = build({**preset, **SMALLER, "model": str(tmp_path / "base"), "init": "given"})
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


def _outcomes(folder: Path, iteration: int) -> dict[str, bool]:
    lines = (folder / "evaluations" / f"iteration_{iteration:06d}-seen.jsonl").read_text().splitlines()
    return {record["task_id"]: record["success"] for record in map(json.loads, lines)}
