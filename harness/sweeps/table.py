"""The table of a sweep: a pure function of what its cells' folders hold."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import stats
from harness.paired import t_interval
from harness.runs import RUN, SUMMARY
from harness.sweeps.units import CELL, EVALUATION, Unit, read_json
from harness.table import percent
from seed_envs.cli.common import say, table
from seed_envs.errors import DataError

METRICS = ("success", "score")
AVERAGES = ("macro", "pooled")
GIVEN = ("stage1_episodes", "rl_episodes", "train_skill", "test_skill", "skill_source", "stage1_annotator", "annotator")


def read_cells(root: Path) -> list[dict[str, Any]]:
    """Return a row for every cell below ``root``, with its results where it is evaluated.

    Raises:
        DataError: when a file of a cell cannot be read.
    """
    paths = sorted(root.glob(f"*/*/*/*/{CELL}"))
    return [_read(path.parent, root) for path in paths if not path.relative_to(root).parts[1].startswith("_")]


def _read(folder: Path, root: Path) -> dict[str, Any]:
    try:
        return _cell(folder, root)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"the files of {folder} are not as they were written ({error!r}); remove the folder") from None


def _cell(folder: Path, root: Path) -> dict[str, Any]:
    known = read_json(folder / CELL)
    config, given = known["config"], known["given"]
    row = {key: config[key] for key in ("env", "method", "model", "fraction", "fraction_mode", "seed", "iteration")}
    row |= {"folder": str(folder.relative_to(root)), "given": given, "splits": None, "errors": None}
    evaluation = folder / EVALUATION
    if not (evaluation / SUMMARY).exists():
        return row
    summary, run = read_json(evaluation / SUMMARY), read_json(evaluation / RUN)
    best = run.get("ceilings", {})
    splits = {name: {**_split(found), "ceiling": _best(best.get(name))} for name, found in summary["splits"].items()}
    found = {
        "splits": splits,
        "errors": summary["errors"],
        "digest": run["digest"],
        "records_sha256": summary["records_sha256"],
        "weights_sha256": run["config"].get("model", {}).get("weights_sha256"),
    }
    return row | found


def _split(found: Mapping[str, Any]) -> dict[str, Any]:
    values = {average: {metric: found[average][metric] for metric in METRICS} for average in AVERAGES}
    about = {key: found[key] for key in ("n", "tasks_sha256")}
    return {**about, **values, "ci95": found["success"]["ci95"], "errors": found["errors"]["count"]}


def _best(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what the best play would reach, by average and metric; None where that is everything."""
    if found is None:
        return None
    return {"pooled": {key: found[key] for key in METRICS}, "macro": {key: found["macro"][key] for key in METRICS}}


def rows_of(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per environment, model, method and fraction: means over training seeds with t-intervals.

    A single seed has no interval over seeds; its pooled success keeps the interval over tasks, and says so.

    Raises:
        DataError: when cells of an environment were evaluated on different tasks.
    """
    _check_tasks(cells)
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        key = tuple(cell[name] for name in ("env", "model", "method", "fraction", "fraction_mode"))
        groups.setdefault(key, []).append(cell)
    rows = []
    for (env, model, method, fraction, mode), members in groups.items():
        there = sorted((m for m in members if m["splits"] is not None), key=lambda m: m["seed"] or 0)
        rows.append(
            {
                "env": env,
                "model": model,
                "method": method,
                "fraction": fraction,
                "fraction_mode": mode,
                "seeds": [m["seed"] for m in there if m["seed"] is not None],
                "planned": len(members),
                "evaluated": len(there),
                "given": {key: members[0]["given"][key] for key in GIVEN},
                "errors": sum(m["errors"] for m in there),
                "splits": {split: _means([m["splits"][split] for m in there]) for split in _split_names(there)},
            }
        )
    return sorted(rows, key=_place)


def _check_tasks(cells: Sequence[Mapping[str, Any]]) -> None:
    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    for cell in cells:
        for split, found in (cell["splits"] or {}).items():
            other = first.setdefault((cell["env"], split), cell)
            if other["splits"][split]["tasks_sha256"] != found["tasks_sha256"]:
                raise DataError(
                    f"{other['folder']} and {cell['folder']} were evaluated on different tasks of {split}; "
                    "their results cannot stand in one table"
                )


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["env"], row["model"], row["fraction"] is not None, row["fraction"] or 0.0, row["method"]


def _split_names(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for cell in cells for name in cell["splits"]))


def _means(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    means: dict[str, Any] = {"n": found[0]["n"], "ceiling": found[0]["ceiling"]}  # of the same tasks in all
    for average in AVERAGES:
        for metric in METRICS:
            values = [one[average][metric] for one in found]
            interval, kind = t_interval(values), "t over seeds"
            if len(values) == 1 and (average, metric) == ("pooled", "success"):
                interval, kind = found[0]["ci95"], "over tasks, one seed"
            means[f"{average}/{metric}"] = {
                "mean": stats.mean(values),
                "ci95": interval,
                "interval": kind if interval is not None else None,
            }
    return means


# --- for people -------------------------------------------------------------------------------------------------------


def show_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one table per environment and model to stdout."""
    for env, model in dict.fromkeys((row["env"], row["model"]) for row in rows):
        members = [row for row in rows if (row["env"], row["model"]) == (env, model)]
        splits = list(dict.fromkeys(name for row in members for name in row["splits"]))
        sizes = {name: next(row["splits"][name]["n"] for row in members if name in row["splits"]) for name in splits}
        metrics = METRICS if _scores_differ(members) else METRICS[:1]
        say(f"{env}, {model}: {', '.join(f'{name} {n} episodes' for name, n in sizes.items()) or 'nothing evaluated'}")
        columns = ["method", "fraction", "seeds", "stage-1 ep.", "RL ep.", "skills", "at test", "annotator"]
        columns += [
            f"{split} {average}" + ("" if metric == "success" else f" {metric}")
            for split in splits
            for metric in metrics
            for average in AVERAGES
        ]
        lines = [_line(row, splits, metrics) for row in members]
        if best := _ceiling_line(members, splits, metrics):
            lines.append([*best, *[""] * (len(columns) + 1 - len(best))])
        table([*columns, "errors"], lines)
        say()
    if any(row["evaluated"] and row["fraction"] is not None for row in rows):
        say("success, mean over training seeds [95 % t-interval]; of one seed [95 % interval over tasks], pooled alone")


def _scores_differ(rows: Sequence[Mapping[str, Any]]) -> bool:
    found = [split for row in rows for split in row["splits"].values()]
    return any(split["pooled/score"]["mean"] != split["pooled/success"]["mean"] for split in found)


def _line(row: Mapping[str, Any], splits: Sequence[str], metrics: Sequence[str]) -> list[str]:
    given, trained = row["given"], row["fraction"] is not None
    seeds = f"{row['evaluated']} of {row['planned']}" if row["evaluated"] < row["planned"] else str(row["evaluated"])
    fraction = f"{row['fraction']:g}" + (" of tasks" if row["fraction_mode"] == "subset" else "") if trained else "-"
    writers = dict.fromkeys(filter(None, (given["stage1_annotator"], given["annotator"])))
    line = [row["method"], fraction, seeds if trained or row["evaluated"] < row["planned"] else "-"]
    line += [str(given["stage1_episodes"]), str(given["rl_episodes"]), given["skill_source"], given["test_skill"]]
    line += [", ".join(writers) or "-"]
    for split in splits:
        found = row["splits"].get(split)
        line += [_value(found[f"{a}/{m}"]) if found else "-" for m in metrics for a in AVERAGES]
    return [*line, str(row["errors"])]


def _ceiling_line(rows: Sequence[Mapping[str, Any]], splits: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """Return the row of what the best play would reach; nothing where that is everything."""
    found = {name: row["splits"][name]["ceiling"] for row in rows for name in splits if name in row["splits"]}
    if not any(found.values()):
        return []
    values = [found[name][a][m] if found.get(name) else 1.0 for name in splits for m in metrics for a in AVERAGES]
    return ["(ceiling)", *[""] * 7, *map(percent, values)]


def _value(found: Mapping[str, Any]) -> str:
    if found["ci95"] is None:
        return percent(found["mean"])
    low, high = found["ci95"]
    return f"{percent(found['mean'])} [{100 * low:.1f}, {100 * high:.1f}]"


def plan_rows(units: Sequence[Unit]) -> Iterator[list[str]]:
    """Yield what a plan says of each cell: state, budgets, evaluation."""
    for unit in units:
        given, config = unit.content["given"], unit.content["config"]
        played = ", ".join(f"{name} {count}" for name, count in config["evaluation"]["splits"].items())
        trained = f"iteration {config['iteration']} of {config['run']}" if config["run"] else "nothing"
        rollouts = [str(given["stage1_episodes"]), str(given["rl_episodes"])]
        yield [unit.name, unit.state, *rollouts, trained, played]
