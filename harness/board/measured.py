"""Measured rows as the board shows them: one result for every split of an entry."""

from collections.abc import Iterator, Mapping, Sequence

from harness.board.entry import Entry, Run
from harness.board.measures import Aggregate
from harness.board.standing import Category, Contest, Result
from harness.html.curves import Chart, curve, finite, steps
from harness.html.rendering import flat
from harness.paired import Array
from harness.stats import mean
from harness.table import percent
from seed_envs.seeding import canonical

CURVES = {
    "env/success": "success while training",
    "eval/{split}/success": "success in evaluations, pooled",
    "env/turns": "turns per episode while training",
}
"""Metrics that are drawn, where a row has them."""
RATES = {
    "ill_formed": "ill-formed",
    "inadmissible": "inadmissible",
    "ineffective": "ineffective",
    "truncated_reply": "cut replies",
}
OF = {
    "training seeds": "Student's t over {n} training seeds",
    "episodes": "over the tasks and the luck of the episodes; it says nothing about another training seed",
    "none": "none",
}


def results(entry: Entry, outcomes: Mapping[str, Array]) -> Iterator[tuple[Contest, Result]]:
    """Yield what the board shows of ``entry``, split by split.

    Args:
        entry: The row.
        outcomes: Success as the mean over a task's attempts, by split: (runs, tasks), tasks in the order of their ids.
    """
    for split in entry.environment.splits:
        yield contest(entry, split), _result(entry, split, outcomes[split])


def contest(entry: Entry, split: str) -> Contest:
    """Return what a row has to share with another to be ranked with it."""
    env, data, protocol = entry.environment, entry.environment.splits[split], entry.protocol
    told = [f"{protocol.attempts} attempts"] if protocol.attempts > 1 else []
    told += [f"{key} {value}" for key, value in flat(protocol.settings).items()]
    return Contest(
        environment=env.id,
        version=env.version,
        settings=", ".join(f"{key} {value}" for key, value in flat(env.kwargs).items()),
        split=split,
        data=env.data,
        protocol=protocol.name,
        drawn=", ".join(told),
        max_turns=env.max_turns,
        manifest=data.manifest,
        manifest_sha256=data.manifest_sha256,
        tasks_sha256=data.tasks_sha256,
        data_sha256=data.data_sha256 or "",
    )


def _result(entry: Entry, split: str, outcomes: Array) -> Result:
    found, over = [run.summary.splits[split] for run in entry.runs], entry.aggregate[split]
    return Result(
        id=entry.id,
        method=entry.method.label,
        model=entry.model,
        n=sum(result.n for result in found),
        n_tasks=found[0].n_tasks,
        macro=over.macro.mean,
        pooled=over.pooled.mean,
        ci95=over.pooled.ci95,
        interval_of=OF[over.pooled.of].format(n=len(entry.runs)),
        score=over.score.mean,
        turns=mean(result.turns.mean for result in found),
        errors=sum(result.errors.count for result in found),
        ceiling=entry.environment.splits[split].ceiling,
        seeds=tuple(_seeds(entry.runs, over)),
        outcomes=outcomes,
        flags=entry.flags,
        categories=tuple(_categories(entry, split)),
        rates={label: _mean(result.turn_rates.get(key) for result in found) for key, label in RATES.items()},
        facts=_facts(entry, split),
        links=tuple(_links(entry)),
        curves=tuple(_curves(entry.runs, split)),
    )


def _mean(values: Iterator[float | None]) -> float | None:
    """Return the mean over runs; None when a run does not say."""
    known = list(values)
    return mean(value for value in known if value is not None) if None not in known else None


def _seeds(runs: Sequence[Run], over: Aggregate) -> Iterator[tuple[str, float, float]]:
    for run, macro, pooled in zip(runs, over.macro.values, over.pooled.values, strict=True):
        if run.training_seed is not None:
            yield str(run.training_seed), macro, pooled


def _categories(entry: Entry, split: str) -> Iterator[Category]:
    """Yield the categories: with several runs means over them, without an interval."""
    found = [run.summary.splits[split].categories for run in entry.runs]
    for name in sorted(found[0]):
        parts = [categories[name] for categories in found if name in categories]
        rate = mean(part.success.rate for part in parts) or 0.0
        ci95 = parts[0].success.ci95 if len(parts) == 1 else None
        yield Category(name, sum(part.n for part in parts), rate, ci95)


def _facts(entry: Entry, split: str) -> dict[str, dict[str, str]]:
    """Return what else there is to know, by heading; long settings last."""
    first = entry.runs[0]
    outcomes = {
        kind: f"{sum(run.summary.splits[split].outcomes.get(kind, 0) for run in entry.runs):,}"
        for kind in first.summary.splits[split].outcomes
    }
    facts = {"Outcomes of the episodes": {kind: count for kind, count in outcomes.items() if count != "0"}}
    training = entry.training
    if training is not None:
        facts["Training"] = flat(training.model_dump(mode="json", exclude={"settings"}))
    facts["Policy"] = flat(first.policy.model_dump(mode="json", exclude_none=True))
    row = {"submitted": entry.submitted, "by": entry.submitter, "note": entry.note}
    facts["Row"] = {
        "id": entry.id,
        **{key: value for key, value in row.items() if value},
        "verify": f"python -m harness.verify leaderboards/measured/{entry.id}.json",
        "read the actions": f"gzip -cd {' '.join(f'leaderboards/measured/{run.log.file}' for run in entry.runs)}",
    }
    for i, run in enumerate(entry.runs):
        of = "" if len(entry.runs) == 1 else f", run {i + 1}"
        facts[f"Provenance{of}"] = {
            **flat(run.provenance.model_dump(mode="json", exclude={"packages"})),
            "packages": canonical(run.provenance.packages),
            "records sha256": run.summary.records_sha256,
            "action log sha256": run.log.sha256,
            "errors": percent(run.summary.errors / run.summary.n),
        }
    return facts


def _links(entry: Entry) -> Iterator[tuple[str, str]]:
    yield "row", f"measured/{entry.id}.json"
    for run in entry.runs:
        seed = "" if run.training_seed is None or len(entry.runs) == 1 else f", seed {run.training_seed}"
        yield f"actions of every episode{seed}", f"measured/{run.log.file}"


def _curves(runs: Sequence[Run], split: str) -> Iterator[Chart]:
    """Yield a chart per metric and run."""
    for key, label in CURVES.items():
        name = key.format(split=split)
        for run in runs:
            points = [
                (float(point.iteration), value)
                for point in run.curve
                if (value := finite(point.values.get(name))) is not None
            ]
            if points:
                of = f", seed {run.training_seed}" if len(runs) > 1 else ""
                unit = "whole" if name.endswith("success") else "count"
                yield curve(name, f"{label}{of}", points, x=steps(run.curve[-1].iteration), unit=unit)
