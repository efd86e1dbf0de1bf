"""Play every logged action again and check every number of rows of a leaderboard, or of runs.

python -m harness.verify leaderboards
python -m harness.verify leaderboards/measured/ROW.json
python -m harness.verify runs/alfworld-v0/scripted-random/embedded-1a2b3c4d --workers 2

A row's numbers are computed again from its action log; the log's actions are played in fresh
environments, and every observation's hash, reward, flag, outcome and score is compared. Replies of
a model are not sampled again: that the actions are the named policy's is the submitter's word.
Exit codes: 0 all is as it is claimed; 1 something is not, and the first turn that differs is named;
2 it cannot be verified here: a row or run is missing or cannot be read, or data, an index or a
package is missing.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.board.entry import MEASURED, rows
from harness.board.replay import Where
from harness.board.verifying import Verdict, exit_code, verify
from harness.interrupts import terminable
from harness.runs import RUN
from seed_envs.cli.common import Parser, guarded, note, one_line, say, say_json
from seed_envs.cli.foreign import call, results_only
from seed_envs.errors import DataError, SeedError
from seed_envs.registry import load_plugins


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    with terminable():
        return guarded(lambda: _main(argv), show_traceback="--traceback" in argv)


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    plugins = tuple(args.plugin)
    with results_only():
        call("a plug-in", lambda: load_plugins(plugins))
    where = Where(args.data, plugins, args.workers)
    verdicts = []
    for target in _targets(args.target):
        with results_only():
            verdict = _verified(target, where)
        verdicts.append(verdict)
        if not args.json:
            _tell(verdict)
    if args.json:
        say_json({"verified": [_as_json(verdict) for verdict in verdicts]})
    return exit_code(wrong=any(one.problems for one in verdicts), absent=any(one.absent for one in verdicts))


def _verified(target: Path, where: Where) -> Verdict:
    """Return the verdict of a target; what is missing here is said there, so that the others are verified."""
    try:
        return verify(target, where)
    except SeedError as error:
        return Verdict(str(target), absent=one_line(error))


def _targets(named: Sequence[Path]) -> list[Path]:
    """Return rows and runs; a leaderboard stands for all of its measured rows.

    Raises:
        DataError: when something named is nothing of the kind.
    """
    found: list[Path] = []
    for path in named:
        if not path.exists():
            raise DataError(f"{path} is not there; expected a row (ROW.json), a run's folder or a leaderboard")
        if path.is_dir() and not (path / RUN).exists():
            listed = rows(path)
            if not listed:
                raise DataError(f"{path} holds neither a run ({RUN}) nor rows ({MEASURED}/*.json)")
            found += listed
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _tell(verdict: Verdict) -> None:
    done = verdict.replayed
    if verdict.absent:
        note(f"error: {verdict.target} cannot be verified here: {verdict.absent}")
    elif verdict.sound:
        say(f"ok      {verdict.target}: {done.episodes:,} episodes, {done.turns:,} turns played again, all equal")
    else:
        say(f"DIFFERS {verdict.target}: {done.episodes:,} episodes, {done.turns:,} turns played again")
        for problem in verdict.problems:
            say(f"  {problem}")
        if verdict.more:
            say(f"  and {verdict.more:,} more")


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "target": verdict.target,
        "sound": verdict.sound,
        "episodes": verdict.replayed.episodes,
        "turns": verdict.replayed.turns,
        "differences": verdict.problems,
        "more": verdict.more,
        "absent": verdict.absent or None,
    }


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m harness.verify", description=__doc__, formatter_class=Parser.raw_text)
    add = parser.add_argument
    add("target", nargs="+", type=Path, metavar="ROW|RUN", help="a row, a run's folder, or a leaderboard")
    add("--workers", type=Parser.count, default=0, metavar="W", help="processes for environments; 0 (default): none")
    add("--data", metavar="DIR", help="the folder of data that no manifest of the suite lists")
    add("--plugin", action="append", default=[], metavar="MODULE", help="module[:function] that adds things")
    add("--json", action="store_true", help="the result as JSON")
    add("--traceback", action="store_true", help="show where an error came from")
    return parser


if __name__ == "__main__":
    sys.exit(main())
