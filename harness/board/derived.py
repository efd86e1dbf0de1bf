"""What of a measured row is computed from the rest of it: means over training seeds, flags, budget, method, id."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from harness.board.entry import Environment, Method, Protocol, Run, Training
from harness.board.measures import Aggregate, Mean, Summary
from harness.paired import t_interval
from harness.stats import Interval, mean
from seed_agent.methods import METHODS
from seed_envs.seeding import canonical, sha256_text


def aggregate(summaries: Sequence[Summary]) -> dict[str, Aggregate]:
    """Return the results over runs, by split: means, and intervals where the runs allow one."""

    def over(values: list[float], alone: Interval | None) -> Mean:
        interval = t_interval(values) if len(values) > 1 else alone
        of: Literal["training seeds", "episodes", "none"] = "none"
        if interval is not None:
            of = "training seeds" if len(values) > 1 else "episodes"
        return Mean(mean=_round(mean(values) or 0.0), values=tuple(map(_round, values)), ci95=_pair(interval), of=of)

    found = {}
    for name in summaries[0].splits:
        parts = [summary.splits[name] for summary in summaries]
        found[name] = Aggregate(
            macro=over([part.macro.success for part in parts], None),
            pooled=over([part.pooled.success for part in parts], parts[0].success.ci95),
            score=over([part.pooled.score for part in parts], None),
        )
    return found


def _round(value: float) -> float:
    return round(value, 10)


def _pair(interval: Interval | None) -> Interval | None:
    return None if interval is None else (round(interval[0], 10), round(interval[1], 10))


def flags(
    environment: Environment, protocol: Protocol, method: Method, training: Training | None, runs: Sequence[Run]
) -> tuple[str, ...]:
    """Return what a reader must know before comparing a row; computed from the row, never typed."""
    policies, origins = [run.policy for run in runs], [run.provenance for run in runs]
    commits = {commit for origin in origins for commit in origin.commits}
    found = {
        "embedded": environment.data == "embedded",
        "local-data": environment.data == "local",
        "subset": not protocol.draws and not all(split.whole for split in environment.splits.values()),
        "single-seed": training is not None and len(runs) == 1,
        "data-fraction": training is not None and training.fraction < 1,
        "unknown-stage-1": training is not None and training.stage1 is None and method.fields.get("init") == "sft",
        "modified-prompt": not all(policy.builtin_prompt for policy in policies),
        "no-weights-hash": any(policy.language is not None and policy.weights_sha256 is None for policy in policies),
        "errors": any(run.summary.errors for run in runs),
        "dirty-tree": any(origin.dirty for origin in origins),
        "mixed-commits": len(commits) > 1,
    }
    return tuple(name for name, applies in found.items() if applies)


STAGE1 = Method(name="stage-1", label="Stage 1 alone", trained=True, fields={"init": "sft"})
"""What made a model that went through no stage 2."""


def method_of(name: str, *, trained: bool) -> Method | None:
    """Return the row of the table of methods that is called ``name``; None where none is."""
    if name not in METHODS:
        return None
    found = METHODS.get(name)
    fields = json.loads(json.dumps(asdict(found)))
    return Method(name=name, label=found.label or name, trained=trained, fields=fields)


def budget(training: Training) -> dict[str, Any]:
    """Return what the settings and the number of iterations decide of the rest of ``training``."""
    settings, done, planned = training.settings, training.iterations, training.settings.get("iterations")
    found = {key: settings.get(key) for key in ("preset", "env", "fraction_mode")}
    if training.planned == 0:  # stage 1 alone
        return found | {"iterations": 0, "tasks": 0, "group": 0, "episodes": 0, "fraction": 1.0}
    tasks, group = settings.get("tasks"), settings.get("group")
    found |= {"planned": planned, "tasks": tasks, "group": group, "episodes": done * training.tasks * training.group}
    share = done / training.planned if training.fraction_mode == "budget" else settings.get("fraction")
    return found | {"fraction": share}


def suffix(digests: Sequence[str]) -> str:
    """Return how the id of a row ends whose runs have the configurations ``digests``."""
    return f"-{sha256_text(canonical(sorted(digests)))[:8]}"
