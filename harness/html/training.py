"""The page of a training run: its curves, its evaluations, its settings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from harness.html.curves import WINDOW, Axis, Chart, curve, evaluations, finite, spaced, steps
from harness.html.rendering import origin, render_page
from harness.html.training_reading import DIVERGED, EVALS, METRICS, TrainingFiles
from harness.stats import wilson
from harness.table import percent

GROUPS = {
    "Result while training": {
        "env/success": ("success", "whole"),
        "env/score": ("score", "count"),
        "env/reward": ("reward per episode", ""),
        "env/turns": ("turns per episode", "count"),
    },
    "Skills and distillation": {
        "skill/parse_rate": ("usable skills", "whole"),
        "opd/active_ratio": ("reply tokens with a teacher", "whole"),
        "opd/loss": ("distillation loss", ""),
        "opd/gate": ("gate, mean", "count"),
        "opd/gate_active": ("gates above one half", "whole"),
        "opd/teacher_gap": ("teacher minus policy, log-probability", ""),
        "skill/teacher_too_long": ("teacher prompts too long", "count"),
    },
    "Behaviour": {
        "env/ill_formed": ("ill-formed replies", "share"),
        "env/inadmissible": ("inadmissible actions", "share"),
        "env/cut_replies": ("replies cut off by length", "share"),
        "env/reply_tokens": ("tokens per reply", "count"),
        "env/history_dropped": ("turns of history dropped", "count"),
        "env/unasked": ("turns not asked, the context being full", "count"),
        "env/errors": ("episodes that broke", "count"),
    },
    "Optimisation": {
        "rl/loss_total": ("loss, all terms", ""),
        "rl/loss": ("policy loss", ""),
        "rl/entropy": ("entropy per token", "count"),
        "rl/kl": ("KL from the start", "count"),
        "rl/grad_norm": ("gradient norm", "count"),
        "rl/tied": ("groups that tie", "count"),
        "rl/clip_fraction": ("tokens clipped", "share"),
        "rl/ratio": ("probability ratio, mean", "count"),
        "rl/logp_drift_max": ("sampler against scorer, largest", "count"),
    },
    "Speed": {
        "time/tokens_per_s": ("reply tokens per second", "count"),
        "time/generate_s": ("seconds, playing", "count"),
        "time/analyse_s": ("seconds, skills", "count"),
        "time/score_s": ("seconds, scoring", "count"),
        "time/update_s": ("seconds, updates", "count"),
    },
}
"""Charts by section: metric, label, kind of scale. Metrics that are not listed come last, as they are."""
SHOWN = ("method", "env", "model", "seed", "tasks", "group")
"""Settings that stand above everything."""
HEALTH = ("skill/parse_rate", "opd/active_ratio", "env/ill_formed", "env/inadmissible", "env/cut_replies")
MOST_OTHERS, MOST_ROWS = 60, 50
"""Charts of metrics that are not listed, and rows of the table of evaluations, at most."""
LABELS = {key: label for group in GROUPS.values() for key, (label, _) in group.items()}


def render_training(run: TrainingFiles) -> bytes:
    """Return the page of ``run``: a pure function of its files."""
    x = steps(max(run.rows, default=1))
    found = _evaluations(run)
    sections, others = _sections(run, x)
    return render_page(
        "training",
        settings={key: run.settings.get(key, "?") for key in SHOWN},
        window=WINDOW,
        done=run.done,
        planned=run.planned,
        warnings=list(_warnings(run)),
        cards=[_card(split, rows) for split, rows in found.items()],
        health=list(_health(run)),
        curves=[_chart(split, rows, x) for split, rows in found.items()],
        sections=sections,
        others_left_out=others,
        evaluations=spaced(_table(run, found), MOST_ROWS),
        evaluated=sum(map(len, found.values())),
        provenance=_provenance(run),
    )


def _warnings(run: TrainingFiles) -> Iterable[tuple[str, str]]:
    """Yield what nobody may overlook: a heading and a sentence each."""
    if run.diverged:
        yield "This run met a number that is none", f"The samples it came from are in {DIVERGED}."
    if run.planned is not None and run.done < run.planned:
        yield (
            "This run is not finished",
            f"{run.done:,} of {run.planned:,} iterations are here; repeat the command below.",
        )
    elif not run.exported:
        yield "This run was not closed", "The trained model was not written; repeat the command below."
    if run.torn:
        yield f"The last line of {METRICS} is torn", "It was not written whole and does not count."
    if run.unreadable:
        yield f"{run.unreadable:,} lines of {METRICS} cannot be read", "They do not count."
    broke = sum(int(value) for _, value in run.points("env/errors"))
    if broke:
        yield f"{broke:,} episodes broke while training", "They are left out of their groups."
    lost = sum(row["errors"] for rows in _evaluations(run).values() for row in rows)
    if lost:
        yield f"{lost:,} episodes broke in evaluations", "They count as failures."


def _evaluations(run: TrainingFiles) -> dict[str, list[dict[str, Any]]]:
    """Return the evaluations of every split in order: success with its interval, and what stands beside it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for key in run.columns:
        split = key.removeprefix("eval/").removesuffix("/success")
        if key != f"eval/{split}/success":
            continue
        for iteration, rate in run.points(key):
            if 0 <= rate <= 1:
                found.setdefault(split, []).append(_evaluation(run.rows[iteration], split, rate))
    return found


def _evaluation(row: Mapping[str, Any], split: str, rate: float) -> dict[str, Any]:
    rest = {name: finite(row.get(f"eval/{split}/{name}")) for name in ("macro", "n", "errors", "turns")}
    n, errors = int(rest["n"] or 0), int(rest["errors"] or 0)
    return {"split": split, "iteration": row["iteration"], "rate": rate, "ci95": wilson(rate * n, n), **rest, "n": n,
            "errors": errors}  # fmt: skip


def _chart(split: str, rows: Sequence[Mapping[str, Any]], x: Axis) -> Chart:
    found = [(row["iteration"], row["rate"], row["ci95"]) for row in rows]
    return evaluations(f"eval/{split}/success", f"{split}: success", found, x=x, sizes=[row["n"] for row in rows])


def _card(split: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what stands in the card of a split: the last evaluation, and the one before training."""
    first = rows[0] if rows[0]["iteration"] == 0 and len(rows) > 1 else None
    return {"split": split, "last": rows[-1], "first": first}


def _health(run: TrainingFiles) -> Iterable[tuple[str, str, str]]:
    """Yield label, meaning and value of what shows trouble, over the last iterations."""
    for key in HEALTH:
        values = [value for _, value in run.points(key)][-WINDOW:]
        if values:
            yield LABELS[key], f"{key}, mean of the last {len(values)} iterations", percent(sum(values) / len(values))
    groups, tied = (dict(run.points(f"rl/{name}")) for name in ("groups", "tied"))
    last = [at for at in groups if at in tied][-WINDOW:]
    total = sum(groups[at] for at in last)
    if total > 0:
        meaning = f"groups without any signal, of the last {len(last)} iterations"
        yield "groups that tie", meaning, percent(sum(tied[at] for at in last) / total)


def _sections(run: TrainingFiles, x: Axis) -> tuple[dict[str, list[Chart]], int]:
    """Return the charts by section, and how many metrics have none."""
    sections: dict[str, list[Chart]] = {}
    for name, group in GROUPS.items():
        charts = [_curve(run, key, label, x, unit) for key, (label, unit) in group.items() if run.points(key)]
        if charts:
            sections[name] = charts
    keys = (key for key in run.columns if key != "iteration" and not key.startswith("eval/"))
    others = [key for key in sorted(keys) if key not in LABELS and run.points(key)]
    if others:
        sections["Other metrics"] = [_curve(run, key, key, x, "") for key in others[:MOST_OTHERS]]
    return sections, max(0, len(others) - MOST_OTHERS)


def _curve(run: TrainingFiles, key: str, label: str, x: Axis, unit: str) -> Chart:
    points = run.points(key)
    return curve(key, label, points, x=x, unit=unit, left_out=len(run.columns[key]) - len(points))


def _table(run: TrainingFiles, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the evaluations, the newest first, with the file of their episodes where it is there."""
    rows = [dict(row) for several in found.values() for row in several]
    for row in rows:
        name = f"iteration_{row['iteration']:06d}-{row['split']}.jsonl"
        row["href"] = f"{EVALS}/{quote(name, safe='')}" if name in run.files else ""
        row["name"] = name
    return sorted(rows, key=lambda row: -int(row["iteration"]))


def _provenance(run: TrainingFiles) -> dict[str, Any]:
    """Return what a reader needs to train the same again."""
    model = run.state.get("model")
    names = {"settings": "Settings", "model": "Model", "language": "Language", "random": "Sources of randomness"}
    weights = model.get("weights_sha256", "-") if isinstance(model, Mapping) else "-"
    order = [*names, *(key for key in run.state if key not in names)]
    sections = {names.get(key, key): run.state.get(key) for key in order}
    return origin(
        run.starts,
        made="Trained",
        note="The same settings digest and weights mean the same run: on a CPU with one thread, bit for bit.",
        facts={
            "settings digest": str(run.state.get("digest", "-")),
            "weights at the start, sha256": str(weights),
        },
        sections=sections,
    )
