"""Compare runs on the tasks they share: paired tests, intervals, and what could have been found at all.

python -m harness.compare runs/alfworld-v0/scripted-oracle/... runs/alfworld-v0/scripted-random/...
python -m harness.compare runs/seed-s0 runs/seed-s1 runs/grpo-s0 runs/grpo-s1 --require "seed>grpo"
python -m harness.compare --group seed=runs/a,runs/b --group grpo=runs/c,runs/d --metric score --json

RUN is a folder of harness.eval, or of harness.train (its last evaluation). Runs that differ by their training seed
alone are one side; --group NAME=RUN,RUN makes a side by hand. Up to four sides are compared all with all, more with
the first. Exit codes: 0 ok; 1 a --require does not hold; 2 the runs cannot be compared.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from harness import paired
from harness.paired import Difference
from harness.sides import Side, make_sides, shared_splits
from harness.stats import Interval
from seed_envs.cli.common import FAILED, OK, Parser, guarded, names, say, say_json, table
from seed_envs.errors import ConfigError, UnknownName

METRICS = ("success", "score")
MANY = 4
"""Sides that are all compared with each other; more are compared with the first."""
SIDES = ("method", "seeds", "tasks", "macro", "pooled", "interval", "of", "broke")
PAIRS = ("A - B", "pooled", "interval", "macro", "interval", "won", "lost", "p", "p (Holm)", "detectable", "test")
_LEGEND = (
    "differences are in points; won and lost count tasks or draws; "
    "detectable: the smallest difference that is found with 80 % power"
)


@dataclass(frozen=True)
class Pair:
    """Two sides compared in one split."""

    a: str
    b: str
    found: Difference
    macro: float
    """A minus B, mean over categories."""
    macro_interval: Interval | None
    """None where a category has one task."""
    per_seed: Mapping[str, Difference]
    """By training seed, of those that both have; evaluation noise only."""
    p_holm: float = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    return guarded(lambda: _main(argv), show_traceback="--traceback" in argv)


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    if not 1e-6 <= args.alpha <= 0.5:
        raise ConfigError(f"--alpha {args.alpha:g} cannot be used; expected a number from 1e-6 to 0.5, such as 0.05")
    sides = make_sides(args.runs, _groups(args.group))
    if len(sides) < 2:
        raise ConfigError(f"there is {len(sides)} method to compare; name runs of two or more")
    required = [_requirement(text, sides) for text in args.require]
    by_env: dict[str, list[Side]] = {}
    for side in sides:
        by_env.setdefault(side.first.env, []).append(side)
    alone = next((members[0] for members in by_env.values() if len(members) == 1), None)
    if alone is not None:
        raise ConfigError(f"{alone.name} is the only method in {alone.first.env}; name another, or leave it out")
    wanted, tables, together = names(args.split, "--split"), [], []
    for members in by_env.values():
        found = _tables(members, required, args.metric, args.alpha, wanted)
        tables += found
        together += _together(members, found, args.metric, args.alpha)
    verdicts = [_verdict(text, a, b, tables, args.alpha) for text, (a, b) in zip(args.require, required, strict=True)]
    if args.json:
        about = {"metric": args.metric, "alpha": args.alpha}
        say_json({**about, "tables": tables, "together": together, "requirements": verdicts})
    else:
        _show(tables, args.metric, args.alpha)
        _show_together(together)
        _show_verdicts(verdicts)
    return OK if all(verdict["met"] for verdict in verdicts) else FAILED


def _tables(
    sides: Sequence[Side], required: Sequence[tuple[str, str]], metric: str, alpha: float, wanted: Sequence[str]
) -> list[dict[str, Any]]:
    """Compare the sides of one environment in every split that all have played."""
    splits, left_out = shared_splits(sides, wanted)
    chosen = list(combinations(sides, 2)) if len(sides) <= MANY else [(sides[0], other) for other in sides[1:]]
    named = {side.name: side for side in sides}
    for a, b in required:
        if {a, b} <= named.keys() and not any({a, b} == {x.name, y.name} for x, y in chosen):
            chosen.append((named[a], named[b]))
    every = [run for side in sides for run in side.runs]
    tables = []
    for split in splits:
        pairs = [_pair(a, b, split, metric, alpha) for a, b in chosen]
        adjusted = paired.holm([pair.found.p for pair in pairs])
        tables.append(
            {
                "env": sides[0].first.env,
                "split": split,
                "contest": dict(sides[0].first.contest(split)),
                "unit": "draw" if sides[0].first.protocol.get("replacement") else "task",
                "left_out": left_out,
                "ceiling": next((run.ceilings[split] for run in every if split in run.ceilings), None),
                "sides": [_side(side, split, metric, 1 - alpha) for side in sides],
                "pairs": [asdict(replace(pair, p_holm=p)) for pair, p in zip(pairs, adjusted, strict=True)],
            }
        )
    return tables


def _pair(a: Side, b: Side, split: str, metric: str, alpha: float) -> Pair:
    of_a, of_b = a.matrix(split, metric), b.matrix(split, metric)
    per_seed = {}
    if len(a.runs) > 1 or len(b.runs) > 1:
        for i, seed in enumerate(a.seeds):
            j = 0 if len(b.runs) == 1 else b.seeds.index(seed) if seed in b.seeds else None
            if j is not None and (len(b.runs) == 1 or a.runs[i].seed is not None):
                per_seed[seed] = paired.compare(of_a[i : i + 1], of_b[j : j + 1], alpha=alpha)
    macro = a.macro(split, metric) - b.macro(split, metric)
    between = paired.macro_interval(of_a, of_b, a.groups([split]), alpha=alpha)
    return Pair(a.name, b.name, paired.compare(of_a, of_b, alpha=alpha), macro, between, per_seed)


def _together(
    sides: Sequence[Side], tables: Sequence[Mapping[str, Any]], metric: str, alpha: float
) -> list[dict[str, Any]]:
    """Compare over all splits at once where no category is in two of them, as in SearchQA, whose headline that is."""
    splits = [of["split"] for of in tables]
    kinds = [kind for split in splits for kind in dict.fromkeys(sides[0].first.kinds(split))]
    if len(splits) < 2 or len(dict.fromkeys(kinds)) < len(kinds):
        return []
    named, groups, pairs = {side.name: side for side in sides}, sides[0].groups(splits), []
    for pair in tables[0]["pairs"]:
        a, b = (np.hstack([named[pair[key]].matrix(split, metric) for split in splits]) for key in ("a", "b"))
        of_tasks = a.mean(axis=0) - b.mean(axis=0)
        pairs.append(
            {
                "a": pair["a"],
                "b": pair["b"],
                "macro": float(np.mean([of_tasks[group].mean() for group in groups])),
                "macro_interval": paired.macro_interval(a, b, groups, alpha=alpha),
                "pooled": float(of_tasks.mean()),
            }
        )
    return [{"env": sides[0].first.env, "splits": splits, "categories": len(groups), "pairs": pairs}]


def _side(side: Side, split: str, metric: str, level: float) -> dict[str, Any]:
    """Return a method's line: over the training seeds where there are several, else over the tasks."""
    values, found = side.matrix(split, metric), [run.summary["splits"][split] for run in side.runs]
    pooled = [float(value) for value in values.mean(axis=1)]
    several = len(side.runs) > 1
    interval: Interval | None
    if several:
        interval = paired.t_interval(pooled, level=level)
    elif metric == "success":
        interval = _wilson(side, split, level)
    else:
        interval = paired.bootstrap(values[0], alpha=1 - level)
    categories = side.categories(split, metric)
    middle = paired.iqm_interval(categories, level=level)
    return {
        "name": side.name,
        "runs": [str(run.folder) for run in side.runs],
        "seeds": list(side.seeds) if several or side.first.seed is not None else [],
        "tasks": values.shape[1],
        "macro": side.macro(split, metric),
        "pooled": float(np.mean(pooled)),
        "interval": interval,
        "interval_of": "training seeds" if several else "evaluation noise only",
        "per_seed": dict(zip(side.seeds, pooled, strict=True)) if several else {},
        "iqm": None if middle is None else {"value": paired.iqm(categories), "interval": middle},
        "errors": sum(split["errors"]["count"] for split in found),
        "episodes": sum(split["n"] for split in found),
    }


def _wilson(side: Side, split: str, level: float) -> Interval | None:
    from harness.stats import clustered_wilson

    wins: dict[str, list[bool]] = {}
    for row in side.first.rows:
        if row.key[0] == split:
            wins.setdefault(row.key[1], []).append(row.success)
    return clustered_wilson([(sum(found), len(found)) for found in wins.values()], level=level)


def _verdict(text: str, a: str, b: str, tables: Sequence[Mapping[str, Any]], alpha: float) -> dict[str, Any]:
    """Say whether A is better than B in every split in which both were compared."""
    why, compared = [], 0
    for of in tables:
        for pair in of["pairs"]:
            if {a, b} != {pair["a"], pair["b"]}:
                continue
            compared += 1
            better = pair["found"]["difference"] * (1 if pair["a"] == a else -1)
            if better <= 0 or pair["p_holm"] >= alpha:
                why.append(f"{of['split']}: {_points(better)} points, p {_p(pair['p_holm'])}")
    if not compared:
        why.append("they were never compared: they are of two environments")
    return {"require": text, "met": not why, "why": why}


def _show(tables: Sequence[Mapping[str, Any]], metric: str, alpha: float) -> None:
    level = f"{100 * (1 - alpha):g} %"
    for of in tables:
        limit, protocol = of["contest"]["turn limit"], of["contest"]["protocol"]["name"]
        say(f"{of['env']}  {of['split']}  at most {limit} turns  protocol {protocol}  intervals {level}")
        head = [f"{of['unit']}s" if column == "tasks" else column for column in SIDES]
        table(head, [*map(_side_row, of["sides"]), *_ceiling_row(of["ceiling"], metric)])
        say()
        table(PAIRS, map(_pair_row, of["pairs"]))
        for pair in of["pairs"]:
            _say_seeds(pair)
        for side in of["sides"]:
            if side["iqm"] is not None:
                middle = side["iqm"]
                say(f"{side['name']}: interquartile mean {100 * middle['value']:.1f}, {_range(middle['interval'])}")
            if side["errors"]:
                say(f"{side['name']}: {side['errors']} of {side['episodes']} episodes broke and count as failures")
        if of["left_out"]:
            say(f"not compared, since not all have played it: {', '.join(of['left_out'])}")
        say()
    say(_LEGEND)


def _ceiling_row(best: Mapping[str, Any] | None, metric: str) -> list[list[str]]:
    """Return the row of what the best play would reach; none where that is everything."""
    if best is None:
        return []
    shares = [f"{100 * found[metric]:.1f}" for found in (best["macro"], best)]
    return [["(ceiling)", "", str(best["n"]), *shares, "", "", ""]]


def _show_together(together: Sequence[Mapping[str, Any]]) -> None:
    for of in together:
        say()
        say(f"{of['env']}  {' + '.join(of['splits'])}  {of['categories']} categories")
        rows = [
            [f"{p['a']} - {p['b']}", _points(p["macro"]), _range(p["macro_interval"]), _points(p["pooled"])]
            for p in of["pairs"]
        ]
        table(("A - B", "macro", "interval", "pooled"), rows)


def _show_verdicts(verdicts: Sequence[Mapping[str, Any]]) -> None:
    for verdict in verdicts:
        why = "holds" if verdict["met"] else f"FAILS ({'; '.join(verdict['why'])})"
        say(f"required {verdict['require']}: {why}")


def _say_seeds(pair: Mapping[str, Any]) -> None:
    name, seeds = f"{pair['a']} - {pair['b']}", pair["found"]["seeds"]
    if pair["per_seed"]:
        each = [f"{seed}: {_points(d['difference'])}, {d['gained']}:{d['lost']}, p {_p(d['p'])}"
                for seed, d in pair["per_seed"].items()]  # fmt: skip
        say(f"{name} by training seed (evaluation noise only): {'; '.join(each)}")
    if 1 in seeds and max(seeds) > 1:
        say(f"{name}: {pair['a' if seeds[0] == 1 else 'b']} has one training seed; its training noise is in no number")


def _side_row(side: Mapping[str, Any]) -> list[str]:
    shares = [f"{100 * side[key]:.1f}" for key in ("macro", "pooled")]
    seeds = ", ".join(side["seeds"]) or "-"
    interval = [_range(side["interval"]), side["interval_of"]]
    return [side["name"], seeds, str(side["tasks"]), *shares, *interval, str(side["errors"])]


def _pair_row(pair: Mapping[str, Any]) -> list[str]:
    found = pair["found"]
    return [
        f"{pair['a']} - {pair['b']}",
        _points(found["difference"]),
        _range(found["interval"]),
        _points(pair["macro"]),
        _range(pair["macro_interval"]),
        str(found["gained"]),
        str(found["lost"]),
        _p(found["p"]),
        _p(pair["p_holm"]),
        "-" if found["detectable"] is None else f"{100 * found['detectable']:.1f}",
        found["test"],
    ]


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _range(interval: Interval | None) -> str:
    return "-" if interval is None else f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def _groups(texts: Sequence[str]) -> dict[str, list[Path]]:
    groups = dict(map(_group, texts))
    if len(groups) < len(texts):
        raise ConfigError("two --group have the same name; name all runs of a method in one: NAME=RUN,RUN")
    return groups


def _group(text: str) -> tuple[str, list[Path]]:
    name, equals, folders = text.partition("=")
    paths = [folder.strip() for folder in folders.split(",")]
    if not equals or not name.strip() or not all(paths):
        raise ConfigError(f"--group {text!r} is no group; expected NAME=RUN,RUN")
    return name.strip(), [Path(path) for path in paths]


def _requirement(text: str, sides: Sequence[Side]) -> tuple[str, str]:
    """Return the names of the two sides that ``A>B`` is about."""
    parts = [part.strip() for part in text.split(">")]
    if len(parts) != 2 or not all(parts):
        raise ConfigError(f'--require {text!r} is no requirement; expected "A>B" with the quotes')
    called = {str(Path(name)): side.name for side in sides for name in side.names} | {s.name: s.name for s in sides}
    for part in parts:
        if part not in called and str(Path(part)) not in called:
            raise UnknownName("method", part, called)
    a, b = (called.get(part) or called[str(Path(part))] for part in parts)
    if a == b:
        raise ConfigError(f"--require {text!r} compares {a} with itself; name two methods")
    return a, b


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m harness.compare", description=__doc__, formatter_class=Parser.raw_text)
    add = parser.add_argument
    add("runs", nargs="*", type=Path, metavar="RUN", help="a folder that harness.eval or harness.train wrote")
    add("--group", action="append", default=[], metavar="NAME=RUN,RUN", help="one method's runs, one per training seed")
    add("--metric", choices=METRICS, default="success", help="success (default), or the benchmark's own score")
    add("--alpha", type=float, default=0.05, metavar="A", help="level of tests and of intervals (default 0.05)")
    add("--split", action="append", default=[], metavar="NAMES", help="only these splits, as the runs name them")
    add(
        "--require",
        action="append",
        default=[],
        metavar='"A>B"',
        help="exit 1 unless A is better, p (Holm) below alpha",
    )
    add("--json", action="store_true", help="everything as JSON")
    add("--traceback", action="store_true", help="show where an error came from")
    return parser


if __name__ == "__main__":
    sys.exit(main())
