"""Run methods x environments x models x data fractions x seeds, whatever of it is missing, and tabulate the results.

python -m harness.sweep --envs alfworld --models micro --methods grpo,seed --fractions 0.2,0.6,1 --seeds 0,1,2 --dry-run
python -m harness.sweep --envs alfworld --models micro=runs/base --methods all --out runs/baselines
python -m harness.sweep --grid sweep.yaml --jobs 2 --out runs/sweep

Every cell is made by ordinary commands (harness.train, harness.eval), which --dry-run prints. Repeat
the command and it goes on; a cell that fails is named at the end and the others go on. The table goes
to stdout and, with every cell's figures, to OUT/sweep.json; --show prints it of a folder as it is.
Exit codes: 0 ok; 1 a cell failed or episodes broke; 2 nothing can be run as asked; 130 interrupted.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.interrupts import leave_at_once, terminable

if __name__ == "__main__":
    leave_at_once()

from harness.protocol import PROTOCOLS
from harness.provenance import collect, now
from harness.sweeps.grid import LISTS, Grid, grid_json, make_grid, read_file
from harness.sweeps.jobs import Launcher, Outcome, run_steps
from harness.sweeps.plan import SweepPlan, plan_sweep
from harness.sweeps.table import plan_rows, read_cells, rows_of, show_table
from harness.sweeps.units import Step, read_json
from seed_envs.cli.common import FAILED, INTERRUPTED, OK, Parser, guarded, note, say, say_json, table
from seed_envs.cli.foreign import results_only
from seed_envs.errors import UPDATE, ConfigError, DataError
from seed_envs.files import unwritable, write_atomically
from seed_envs.locks import claim
from seed_envs.registry import load_plugins

SWEEP = "sweep.json"
SWEEP_VERSION = 1
MAY_GROW = ("envs", "methods", "models", "fractions", "seeds", "plugins")
"""What a repeated command may change; the rest decides what results can stand in one table."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    with terminable():
        return guarded(lambda: _main(argv), show_traceback="--traceback" in argv)


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_intermixed_args(argv)  # settings may stand between flags
    if args.show:
        return _show(args.out, as_json=args.json)
    grid = _grid(args)
    with results_only():
        load_plugins(grid.plugins)
        _check_sweep(args.out, grid)
        plan = plan_sweep(grid, args.out)
    for name, reason in plan.left_out.items():
        note(f"left out {name}: {reason}")
    for notice in filter(None, (*plan.notices, plan.lacking if args.dry_run else "")):
        note(f"note: {notice}")
    if args.dry_run:
        _show_plan(plan, as_json=args.json)
        return OK
    if plan.lacking:
        raise ConfigError(plan.lacking)
    with _locked(args.out):
        return _run(plan, args, argv)


def _run(plan: SweepPlan, args: argparse.Namespace, argv: Sequence[str]) -> int:
    path = args.out / SWEEP
    owed = [step for step in plan.steps if not step.done]
    provenance = list(_known(path)["provenance"]) if path.exists() else []
    provenance += [collect("harness.sweep", argv)] if owed or not provenance else []
    done = sum(unit.state == "done" for unit in plan.cells)
    note(f"{args.out}: {len(plan.cells)} cells, {done} done; {len(owed)} commands to run (--dry-run shows them)")
    _write(plan, "started", provenance)

    def begin(step: Step) -> None:
        plan.units[step.unit].begin()

    threads = max(1, (os.cpu_count() or 1) // args.jobs) if args.jobs > 1 else None
    launcher = Launcher(args.gpus, threads)
    try:
        outcome = run_steps(plan.steps, jobs=args.jobs, launch=launcher, begin=begin)
    except KeyboardInterrupt:
        provenance[-1]["finished"] = now()
        _write(plan, "interrupted", provenance)
        note(f"interrupted: what is done is kept in {args.out}; repeat the command to go on")
        return INTERRUPTED
    provenance[-1]["finished"] = provenance[-1]["finished"] or now()
    sweep = _write(plan, "failed" if outcome.failed else "finished", provenance, outcome)
    if args.json:
        say_json(sweep)
    else:
        show_table(sweep["rows"])
        say(f"sweep  {args.out}")
    for step, reason in outcome.failed.items():
        note(f"failed: {step.what} {step.unit}: {reason}; its log: {step.log}")
    for step in outcome.broke:
        note(f"episodes broke and count as failures: {step.unit}; repeat the command to play them again")
    return FAILED if outcome.failed or outcome.broke else OK


def _write(
    plan: SweepPlan, status: str, provenance: Sequence[Mapping[str, Any]], outcome: Outcome | None = None
) -> dict[str, Any]:
    """Write ``sweep.json`` from the cells' folders and return what it holds."""
    path, cells = plan.root / SWEEP, read_cells(plan.root)
    content = {
        "schema_version": SWEEP_VERSION,
        "status": status,
        "grid": grid_json(plan.grid),
        "rows": rows_of(cells),
        "cells": cells,
        "left_out": dict(plan.left_out),
        "failed": {f"{s.what} {s.unit}": reason for s, reason in outcome.failed.items()} if outcome else {},
        "provenance": list(provenance),
    }
    try:
        write_atomically(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; choose another --out") from None
    return content


def _check_sweep(root: Path, grid: Grid) -> None:
    """Refuse a folder that holds a sweep whose results cannot stand beside this one's.

    Raises:
        ConfigError: naming what differs.
        DataError: when the folder's file cannot be read or is of a newer version.
    """
    path = root / SWEEP
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{root} is a file; a sweep needs a folder: choose another --out")
    if above := unwritable(root):
        raise ConfigError(f"nothing can be written in {above}; choose another --out")
    if not path.exists():
        return
    there = _known(path)["grid"]
    there["splits"] = there.get("splits") or None  # an empty list, in older ones
    fixed = {key: value for key, value in grid_json(grid).items() if key not in MAY_GROW}
    odd = [f"{key}: {there.get(key)!r} there, {value!r} now" for key, value in fixed.items() if there.get(key) != value]
    if odd:
        raise ConfigError(f"{root} holds a sweep of another configuration ({'; '.join(odd)}); choose another --out")


def _known(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if [type(found.get(key)) for key in ("schema_version", "grid", "provenance")] != [int, dict, list]:
        raise DataError(f"{path} is not as it was written; choose another --out")
    if found["schema_version"] > SWEEP_VERSION:
        raise DataError(
            f"{path} has schema version {found['schema_version']}; this version reads up to {SWEEP_VERSION}: {UPDATE}"
        )
    return found


def _show(root: Path, *, as_json: bool) -> int:
    cells = read_cells(root)
    if not cells:
        raise DataError(f"{root} holds no cell of a sweep; give the folder of one with --out")
    rows = rows_of(cells)
    if as_json:
        say_json({"rows": rows, "cells": cells})
    else:
        show_table(rows)
    return OK


def _show_plan(plan: SweepPlan, *, as_json: bool) -> None:
    owed = [step for step in plan.steps if not step.done]
    if as_json:
        cells = [
            {"name": unit.name, "state": unit.state, **unit.content["config"], "given": unit.content["given"]}
            for unit in plan.cells
        ]
        commands = [{"unit": step.unit, "what": step.what, "command": step.command} for step in owed]
        told = {"left_out": dict(plan.left_out), "notices": [text for text in (*plan.notices, plan.lacking) if text]}
        say_json({"folder": str(plan.root), "cells": cells, **told, "commands": commands})
        return
    table(["cell", "state", "stage-1 ep.", "RL ep.", "evaluated weights", "episodes"], plan_rows(plan.cells))
    done = sum(unit.state == "done" for unit in plan.cells)
    say(f"{plan.root}: {len(plan.cells)} cells, {done} done; {len(owed)} commands to run{':' if owed else ''}")
    for step in owed:
        say(step.command)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Make the folder of a sweep and keep other processes from running it.

    Raises:
        ConfigError: when it cannot be made or another process runs it.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"cannot write in {root}: {error.strerror}; choose another --out") from None
    claim(handle, f"another process runs the sweep in {root}; choose another --out")
    try:
        yield
    finally:
        os.close(handle)


def _grid(args: argparse.Namespace) -> Grid:
    """Return the grid of the file with the flags in place of its entries."""
    values = read_file(args.grid) if args.grid else {}
    flags = {key: value for key, value in vars(args).items() if value is not None and key in _AXES}
    return make_grid(values | {key: value for key, value in flags.items() if value != []})


_AXES = (*LISTS, "fraction_mode", "data", "protocol", "limit", "eval_seed")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m harness.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("settings", nargs="*", metavar="key=value", help="settings of every training, e.g. lr=1e-5 sft.tasks=24")
    add("--envs", metavar="NAMES", help="comma list of preset environments, e.g. alfworld,sokoban")
    add("--models", metavar="NAMES", help="comma list of preset models; NAME=FOLDER or ENV/NAME=FOLDER gives weights")
    add("--methods", metavar="NAMES", help="comma list (python -m harness lists them), or all")
    add("--fractions", metavar="LIST", help="shares of the training data, e.g. 0.2,0.6,1 (default 1)")
    add(
        "--fraction-mode",
        metavar="MODE",
        help="budget (default): checkpoints of one run; subset: shares of the tasks",
    )
    add("--seeds", metavar="LIST", help="of training, e.g. 0,1,2 (default 0)")
    add("--grid", type=Path, metavar="FILE", help="all of this in a YAML or JSON file; flags win")
    add("--data", metavar="WHICH", help="embedded (default), official, or a folder")
    add("--splits", metavar="NAMES", help="to evaluate (default: all but those of training and development)")
    add("--protocol", choices=PROTOCOLS, help="of evaluation, as for harness.eval (default full)")
    add("--limit", metavar="N|FRACTION", help="evaluate N tasks (or a share) of each split")
    add("--eval-seed", metavar="S", help="of evaluation, the same in every cell (default 0)")
    add("--jobs", type=_positive, default=1, metavar="N", help="commands at a time (default 1)")
    add("--gpus", type=_devices, default=(), metavar="LIST", help="device numbers, one for each of the jobs in turn")
    add("--plugin", action="append", default=[], dest="plugins", metavar="MODULE", help="module[:function] to import")
    add("--out", type=Path, default=Path("runs") / "sweep", metavar="DIR", help="the sweep's folder (runs/sweep)")
    add("--json", action="store_true", help="the result as JSON")
    add("--dry-run", action="store_true", help="check everything, show cells and commands, run nothing")
    add("--show", action="store_true", help="print the table of the folder as it is")
    add("--traceback", action="store_true", help="show where an error came from")
    return parser


def _devices(text: str) -> tuple[str, ...]:
    """Read what CUDA_VISIBLE_DEVICES takes one by one: numbers, or ids such as GPU-8932f937."""
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) < len(names) or not all(re.fullmatch(r"\d{1,4}|(GPU|MIG)-[\w/-]+", name) for name in names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of devices; expected numbers such as 0,1, each once")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of jobs; expected 1 to 1024")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
