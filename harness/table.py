"""The summary of a run as a table for people."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import stats
from seed_envs.cli.common import say, table

COLUMNS = (
    "split, average, category", "n", "success", "95 % interval", "score", "ceiling", "turns",
    "ill-formed", "inadmissible", "ineffective", "cut replies", "out of turns", "errors",
)  # fmt: skip
_CEILING = COLUMNS.index("ceiling")


def show(summary: Mapping[str, Any], folder: Path, ceilings: Mapping[str, Any] | None = None) -> None:
    """Write the table of a finished run to stdout, then where it is kept and its records hash.

    Where ``ceilings`` (of ``harness.ceilings``) has a split, a column says what the best play would reach.
    """
    env = summary["env"]
    settings = ", ".join(f"{key} {value}" for key, value in sorted(env["kwargs"].items()))
    about = [
        f"{env['id']} (version {env['version']})",
        settings,
        f"at most {env['max_turns']} turns",
        f"protocol {summary['protocol']}",
        summary["policy"],
    ]
    say("  ".join(part for part in about if part))
    lines = [list(COLUMNS)]
    for name, split in summary["splits"].items():
        lines += _rows(name, split, (ceilings or {}).get(name))
    if all_of_it := together(summary["splits"]):
        lines += _both_means(all_of_it)
    if not ceilings:
        for line in lines:
            del line[_CEILING]
    table(lines[0], lines[1:])
    for name, split in summary["splits"].items():
        _say_attempts(name, split)
        if split["errors"]["count"]:
            kinds = ", ".join(f"{count} {kind}" for kind, count in split["errors"]["types"].items())
            say(f"{name}: {split['errors']['count']} of {split['n']} episodes broke and count as failures ({kinds})")
    say(f"run      {folder}")
    say(f"records  {summary['records_sha256']}")


def _rows(name: str, split: Mapping[str, Any], best: Mapping[str, Any] | None) -> list[list[str]]:
    """Return the pooled row of a split with everything, the macro row, and the categories."""
    most = best or {"macro": None, "categories": {}}
    rates, macro = split["turn_rates"], split["macro"]
    turn_rates = [percent(rates[key]) for key in ("ill_formed", "inadmissible", "ineffective", "truncated_reply")]
    pooled = [
        f"{name}, pooled",
        *_success(split),
        ceiling(best),
        f"{split['turns']['mean']:.1f}",
        *turn_rates,
        percent(split["truncated"]["rate"]),
        percent(split["errors"]["rate"]),
    ]
    average = [f"{name}, macro", f"{macro['categories']} cat.", percent(macro["success"]), "", number(macro["score"])]
    average.append(ceiling(most["macro"]))
    categories = most["categories"]
    kinds = [
        [f"  {kind}", *_success(found), ceiling(categories.get(kind))] for kind, found in split["categories"].items()
    ]
    rows = [pooled, average, *kinds]
    return [row + [""] * (len(COLUMNS) - len(row)) for row in rows]


def together(splits: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the means over several splits of a summary, where no category is in two of them; else None.

    For SearchQA these are the published headline: seven question sets, two of them ``seen``.
    Keys: ``name``, ``n``, ``success`` and ``score`` (pooled), ``macro`` with ``success``, ``score``, ``categories``.
    """
    found = [(name, category) for split in splits.values() for name, category in split["categories"].items()]
    if len(splits) < 2 or len(dict(found)) < len(found):
        return None
    kinds = [category for _, category in found]
    n = sum(kind["n"] for kind in kinds)
    return {
        "name": " + ".join(splits),
        "n": n,
        "success": stats.share(sum(kind["success"]["count"] for kind in kinds), n),
        "score": sum(kind["score"] * kind["n"] for kind in kinds) / n,
        "macro": {
            "success": stats.mean(kind["success"]["rate"] for kind in kinds),
            "score": stats.mean(kind["score"] for kind in kinds),
            "categories": len(kinds),
        },
    }


def _both_means(found: Mapping[str, Any]) -> list[list[str]]:
    name, macro = found["name"], found["macro"]
    rows = [
        [f"{name}, pooled", str(found["n"]), percent(found["success"]), "", number(found["score"])],
        [f"{name}, macro", f"{macro['categories']} cat.", percent(macro["success"]), "", number(macro["score"])],
    ]
    return [row + [""] * (len(COLUMNS) - len(row)) for row in rows]


def _success(found: Mapping[str, Any]) -> list[str]:
    success = found["success"]
    low, high = success["ci95"]
    return [str(found["n"]), percent(success["rate"]), f"{100 * low:.1f} to {100 * high:.1f}", number(found["score"])]


def ceiling(best: Mapping[str, Any] | None) -> str:
    """Return what the best play would reach: success, and the score in brackets; empty where it is everything."""
    return "" if best is None else f"{percent(best['success'])} ({number(best['score'])})"


def _say_attempts(name: str, split: Mapping[str, Any]) -> None:
    if split["attempts"] > 1 and split["pass_at"] is None:
        most = f"one of them up to {split['attempts']} times"
        say(f"{name}: {split['n']} episodes of {split['n_tasks']} tasks, {most}; intervals by task")
    elif split["attempts"] > 1:
        k = str(split["attempts"])
        say(
            f"{name}: {split['n_tasks']} tasks x {k} attempts; pass@{k} {percent(split['pass_at'][k])}, "
            f"pass^{k} {percent(split['pass_hat'][k])}; intervals by task"
        )


def percent(value: float | None) -> str:
    """Return a share as percent with one decimal, ``-`` where it is undefined."""
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    """Return a score with three decimals, ``-`` where it is undefined."""
    return "-" if value is None else f"{value:.3f}"
