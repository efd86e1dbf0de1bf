"""Measured rows made by hand for the tests of the board: no run, no action log."""

from typing import Any

import numpy as np

from harness.board.entry import Ceiling
from harness.board.standing import Category, Contest, Result
from harness.html.curves import curve, steps
from harness.stats import wilson

CEILING = Ceiling(n=500, below=20, success=0.96, score=0.9938, macro={"success": 0.95, "score": 0.99})


def contest(environment: str = "seed_envs/ALFWorld-v0", **changes: Any) -> Contest:
    return Contest(
        **{
            "environment": environment, "version": "1", "settings": "", "split": "valid_seen", "data": "official",
            "protocol": "full", "drawn": "", "max_turns": 30, "manifest": "alfworld-2020", "manifest_sha256": "a" * 64,
            "tasks_sha256": "b" * 64, "data_sha256": "", **changes,
        }
    )  # fmt: skip


def result(name: str, wins: int, n: int = 140, **changes: Any) -> Result:
    """Return a row that solves the first ``wins`` of ``n`` tasks, half of them in either category."""
    solved = np.arange(n) < wins
    half = n // 2
    parts = [int(solved[:half].sum()), int(solved[half:].sum())]
    categories = tuple(
        Category(kind, size, won / size, wilson(won, size) or (0.0, 1.0))
        for kind, won, size in zip(("clean", "pick"), parts, (half, n - half), strict=True)
    )
    return Result(
        **{
            "id": f"{name}-row", "method": name, "model": "hf:tiny", "n": n, "n_tasks": n,
            "macro": sum(category.rate for category in categories) / 2, "pooled": wins / n,
            "ci95": wilson(wins, n), "interval_of": "Wilson's, of the pooled success", "score": wins / n, "turns": 12.5,
            "errors": 0, "ceiling": None, "seeds": (), "outcomes": solved[None, :].astype(float),
            "categories": categories, "rates": {"ill-formed": 0.01, "inadmissible": None},
            "facts": {"Provenance": {"commit": "0123456", "command": "python -m harness.eval"}},
            "links": (("row", f"measured/{name}-row.json"), ("episodes", f"measured/{name}-row.jsonl.gz")), **changes,
        }
    )  # fmt: skip


def curves() -> tuple[Any, ...]:
    return (curve("env/success", "success", [(i, i / 100) for i in range(1, 61)], x=steps(60), unit="whole"),)


def several() -> list[tuple[Contest, Result]]:
    """Return rows of five contests: kinds of data, splits, protocols and environments apart."""
    seen, unseen = contest(), contest(split="valid_unseen")
    shop = contest("seed_envs/WebShop-v0", split="test", max_turns=15, manifest="webshop-small")
    small = contest(data="embedded", manifest="embedded", manifest_sha256="c" * 64)
    paper = contest(protocol="paper", drawn="draws 128")
    return [
        (seen, result("grpo", 100, seeds=(("0", 0.7, 0.71), ("1", 0.72, 0.72)), curves=curves())),
        (seen, result("seed", 128, flags=("single-seed", "dirty-tree"))),
        (seen, result("sdar", 103, model="openai:other")),
        (seen, result("vanilla", 10, errors=2, score=None, turns=None)),
        (unseen, result("seed", 80, 134)),
        (paper, result("seed", 118, 128)),
        (shop, result("seed", 90, 128, ceiling=CEILING)),
        (small, result("oracle", 60, 60, model="scripted:oracle", flags=("embedded",))),
        (small, result("random", 0, 60, model="scripted:random", flags=("embedded",))),
    ]
