"""Keep a leaderboard: add rows of finished runs, check them, render the pages.

python -m harness.leaderboard add runs/alfworld-v0/scripted-random/embedded-1a2b3c4d --to leaderboards
python -m harness.leaderboard validate leaderboards
python -m harness.leaderboard build leaderboards

`add` makes one row of runs that differ by their training seed alone, and one of each other run;
it refuses runs that are unfinished, changed, without provenance or listed already. `validate`
computes every number of a row again from its action log, without playing; `python -m
harness.verify` plays as well. Exit codes: 0 ok; 1 a row was read and is not sound, or an action log is no
row's; 2 it cannot be done as asked, or a row is missing or cannot be read.
"""

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.board import checks
from harness.board.adding import Wishes, add
from harness.board.entry import LOG, MEASURED, Entry, read_entry, rows
from harness.board.verifying import exit_code
from harness.runs import once
from seed_envs.cli.common import OK, Parser, guarded, note, one_line, say, say_json
from seed_envs.errors import ConfigError, DataError

BOARD = Path("leaderboards")
_BUILD = "harness.board.build"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    return guarded(lambda: _main(argv), show_traceback="--traceback" in argv)


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    commands = {"add": _add, "validate": _validate, "build": _build}
    return commands[args.command](args)


def _add(args: argparse.Namespace) -> int:
    wishes = Wishes(args.by, args.note, args.with_errors, args.replace)
    once(args.run)
    paths = add(args.run, args.to, wishes)
    if args.json:
        say_json({"rows": [str(path) for path in paths]})
        return OK
    for path in paths:
        entry = read_entry(path)
        flags = ", ".join(entry.flags)
        say(f"{path}  ({len(entry.runs)} run{'s' * (len(entry.runs) > 1)}{f'; {flags}' if flags else ''})")
    note(f"check them by playing again: python -m harness.verify {' '.join(map(str, paths))}")
    note(f"render the pages: python -m harness.leaderboard build {args.to}")
    return OK


def _validate(args: argparse.Namespace) -> int:
    """Check rows; every one is told of, those too that cannot be read."""
    found: list[dict[str, Any]] = []
    seen: dict[str, Path] = {}
    named = args.row or [BOARD]
    entries: dict[Path, Entry | None] = dict.fromkeys(_rows(named))
    for path in entries:
        try:
            entry = entries[path] = read_entry(path)
        except DataError as error:
            found.append({"row": str(path), "sound": False, "problems": [], "absent": one_line(error)})
            note(f"error: {one_line(error)}")
            continue
        problems = list(checks.problems(entry, path.parent))
        for digest in dict.fromkeys(run.digest for run in entry.runs):
            if digest in seen:
                problems.append(f"it is of the same run as {seen[digest]}")
            seen[digest] = path
        found.append({"row": str(path), "sound": not problems, "problems": problems, "absent": None})
        if not args.json:
            say(f"{'DIFFERS' if problems else 'ok     '} {path}")
            for problem in problems:
                say(f"  {problem}")
    strays = list(dict.fromkeys(log for path in named if path.is_dir() for log in _strays(path, entries)))
    if args.json:
        say_json({"rows": found, "strays": [str(log) for log in strays]})
    for log in () if args.json else strays:
        say(f"DIFFERS {log}\n  no row names this action log; remove it, or add its run again")
    wrong = bool(strays) or any(row["problems"] for row in found)
    return exit_code(wrong=wrong, absent=any(row["absent"] for row in found))


def _strays(board: Path, entries: Mapping[Path, Entry | None]) -> list[Path]:
    """Return the action logs of a leaderboard that are no row's; a row that cannot be read has those of its name."""
    listed = {path: entries[path] for path in rows(board)}
    named = {path.parent / run.log.file for path, entry in listed.items() if entry for run in entry.runs}
    unread = tuple(f"{path.stem}." for path, entry in listed.items() if entry is None)
    logs = sorted(next(iter(listed)).parent.glob(f"*{LOG}"))
    return [log for log in logs if log not in named and not log.name.startswith(unread)]


def _rows(named: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in named:
        if path.is_dir():
            listed = rows(path)
            if not listed:
                raise DataError(f"{path} holds no rows; expected a leaderboard with {MEASURED}/ROW.json")
            found += listed
        elif path.is_file():
            found.append(path)
        else:
            raise DataError(f"{path} is not there; expected a row (ROW.json) or a leaderboard")
    return list(dict.fromkeys(found))


def _build(args: argparse.Namespace) -> int:
    try:
        build = importlib.import_module(_BUILD).build
    except ModuleNotFoundError as error:
        if error.name != _BUILD:
            raise
        raise ConfigError("this installation has no harness.board.build, which renders the pages") from None
    paths = build(args.to)
    if args.json:
        say_json({"files": [str(path) for path in paths]})
        return OK
    for path in paths:
        say(str(path))
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m harness.leaderboard", description=__doc__, formatter_class=Parser.raw_text)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    adding = commands.add_parser("add", help="make rows of finished runs")
    adding.add_argument("run", nargs="+", type=Path, metavar="RUN", help="the folder of a finished run")
    adding.add_argument("--to", type=Path, default=BOARD, metavar="DIR", help=f"the leaderboard; default {BOARD}")
    adding.add_argument("--by", default="", metavar="NAME", help="who submits the row")
    adding.add_argument("--note", default="", metavar="TEXT", help="what readers should know beside the facts")
    adding.add_argument("--with-errors", action="store_true", help="take runs in which episodes broke, as failures")
    adding.add_argument("--replace", action="store_true", help="replace rows of the same runs")
    validating = commands.add_parser("validate", help="compute rows again from their action logs")
    validating.add_argument("row", nargs="*", type=Path, metavar="ROW|DIR", help=f"default {BOARD}")
    building = commands.add_parser("build", help="render README.md and index.html")
    building.add_argument("to", nargs="?", type=Path, default=BOARD, metavar="DIR", help=f"default {BOARD}")
    for one in (adding, validating, building):
        one.add_argument("--json", action="store_true", help="the result as JSON")
        one.add_argument("--traceback", action="store_true", help="show where an error came from")
    return parser


if __name__ == "__main__":
    sys.exit(main())
