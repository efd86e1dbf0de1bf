"""What of a measured row is computed from the rest of it: means over training seeds, and flags."""

from collections.abc import Sequence
from typing import Literal

from harness.board.entry import Aggregate, Environment, Mean, Method, Protocol, Run, Summary, Training
from harness.paired import t_interval
from harness.stats import mean


def aggregate(summaries: Sequence[Summary]) -> dict[str, Aggregate]:
    """Return the results over runs, by split: means, and intervals where the runs allow one."""

    def over(values: list[float | None], alone: tuple[float, float] | None) -> Mean:
        known = [value for value in values if value is not None]
        if len(values) > 1:
            interval = t_interval(known) if len(known) == len(values) else None
            of: Literal["training seeds", "episodes", "none"] = "training seeds" if interval else "none"
        else:
            interval, of = alone, "episodes" if alone else "none"
        middle = mean(known) if len(known) == len(values) else None
        return Mean(mean=_round(middle), values=tuple(map(_round, values)), ci95=_pair(interval), of=of)

    found = {}
    for name in summaries[0].splits:
        parts = [summary.splits[name] for summary in summaries]
        found[name] = Aggregate(
            macro=over([part.macro.success for part in parts], None),
            pooled=over([part.pooled.success for part in parts], parts[0].success.ci95),
            score=over([part.pooled.score for part in parts], None),
        )
    return found


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 10)


def _pair(interval: tuple[float, float] | None) -> tuple[float, float] | None:
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
