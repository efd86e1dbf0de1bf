"""Folders of training runs made by hand for the tests of their page: no torch, any length, any damage."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

COMMAND = "python -m harness.train --preset alfworld/micro/seed model=runs/sft/final --out runs/seed"


def row(iteration: int, total: int) -> dict[str, Any]:
    """Return the metrics of an iteration that learns a little, with noise that is always the same."""
    part, places = iteration / total, count(1)

    def noisy(value: float, spread: float) -> float:
        return value + spread * (iteration * next(places) * 7919 % 1009 / 1008 - 0.5)

    return {
        "iteration": iteration,
        "env/success": min(1.0, max(0.0, noisy(0.15 + 0.5 * part, 0.2))),
        "env/score": noisy(0.4 + 0.3 * part, 0.1),
        "env/reward": noisy(0.15 + 0.5 * part, 0.2),
        "env/turns": noisy(20 - 8 * part, 2),
        "env/errors": 0,
        "env/ill_formed": abs(noisy(0.05 * (1 - part), 0.02)),
        "env/inadmissible": noisy(0.3 - 0.2 * part, 0.05),
        "env/reply_tokens": noisy(20 + 40 * part, 5),
        "env/cut_replies": 0.0,
        "opd/active_ratio": noisy(0.9, 0.05),
        "opd/loss": noisy(0.05 - 0.02 * part, 0.02),
        "opd/gate": noisy(0.4, 0.05),
        "opd/teacher_gap": noisy(-0.3 + 0.2 * part, 0.1),
        "skill/parse_rate": noisy(0.7 + 0.2 * part, 0.15),
        "rl/entropy": noisy(1.2 - 0.7 * part, 0.1),
        "rl/kl": noisy(0.02 * part, 0.002),
        "rl/grad_norm": math.exp(noisy(0, 2)),
        "rl/loss": noisy(0, 0.02),
        "rl/groups": 16,
        "rl/tied": round(noisy(6, 4)),
        "rl/logp_drift_max": abs(noisy(0, 1e-5)),
        "time/tokens_per_s": noisy(12_000, 900),
        "time/generate_s": noisy(9 + 3 * part, 1),
        "time/update_s": noisy(20, 3),
    }


def evaluated(split: str, rate: float, n: int = 140) -> dict[str, Any]:
    """Return the metrics of an evaluation."""
    return {
        f"eval/{split}/success": rate,
        f"eval/{split}/macro": rate,
        f"eval/{split}/n": n,
        f"eval/{split}/errors": 0,
        f"eval/{split}/turns": 17.25,
    }


def learning(total: int = 60, *, every: int = 10) -> list[dict[str, Any]]:
    """Return the metrics of a run: an evaluation before the first iteration and after every n-th."""
    rows = [{"iteration": 0, **evaluated("valid_seen", 28 / 140)}]
    for i in range(1, total + 1):
        wins = 28 + 70 * i // total
        rows.append(row(i, total) | (evaluated("valid_seen", wins / 140) if i % every == 0 else {}))
    return rows


def write_training(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    iterations: int | None = None,
    exported: bool = True,
    settings: Mapping[str, Any] | None = None,
    **state: Any,
) -> Path:
    """Write the files of a run that has done ``rows`` and was to have ``iterations`` (by default just these)."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(line) + "\n" for line in rows)
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    known = {"method": "seed", "env": "seed_envs/ALFWorld-v0", "model": "runs/sft/final", "seed": 0, "tasks": 16}
    known |= {"group": 8, "iterations": iterations or max([1, *(int(r["iteration"]) for r in rows)])}
    start = {
        "started": "2026-01-02T03:04:05+00:00",
        "command": COMMAND,
        "git_commit": "c0ffee" * 6 + "c0ff",
        "git_dirty": False,
        "python": "3.11.7",
        "platform": "Linux",
        "cpus": 2,
        "packages": {"seed-suite": "0.1.0"},
    }
    run = {
        "settings": {**known, **(settings or {})},
        "digest": "d1" * 32,
        "model": {"weights_sha256": "aa" * 32, "parameters": 452_864},
        "language": {"preset": "alfworld/seed"},
        "random": {"task order": "task order, 0, round"},
        "provenance": [start],
        **state,
    }
    (folder / "train.json").write_text(json.dumps(run), encoding="utf-8")
    if exported:
        (folder / "final").mkdir(exist_ok=True)
        (folder / "final" / "DONE").touch()
    for line in rows:
        for key in line:
            split = key.removeprefix("eval/").removesuffix("/success")
            if key == f"eval/{split}/success" and split.isidentifier():
                (folder / "evaluations").mkdir(exist_ok=True)
                (folder / "evaluations" / f"iteration_{line['iteration']:06d}-{split}.jsonl").touch()
    return folder
