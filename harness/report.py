"""Write the HTML report of runs: one self-contained page each, RUN/report.html.

python -m harness.report runs/alfworld-v0/scripted-random/embedded-...
python -m harness.report runs/seed

A run of harness.eval gets its results and episodes, a run of harness.train its curves. Prints the
path of each page. The page needs no network and no server: open it in a browser. Exit codes: 0 ok;
2 a folder holds no run, or its records cannot be read.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.html.page import render
from harness.html.reading import read
from harness.html.training import render_training
from harness.html.training_reading import is_training, read_training
from harness.records import WriteFailed
from harness.runs import REPORT, once
from seed_envs.cli.common import OK, Parser, guarded, say
from seed_envs.errors import ConfigError
from seed_envs.files import write_atomically


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the page of the evaluation in ``run_dir`` and return where: ``out``, or ``report.html`` in the run.

    The same files give the same bytes.

    Raises:
        SeedError: when there is no run, a record cannot be read or the page cannot be written.
    """
    return _write(render(read(run_dir)), run_dir / REPORT if out is None else out)


def write_training_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the curves of the training run in ``run_dir``, which need not have ended, and return where.

    The same files give the same bytes.

    Raises:
        SeedError: when there is no training run, a file cannot be read or the page cannot be written.
    """
    return _write(render_training(read_training(run_dir)), run_dir / REPORT if out is None else out)


def _write(content: bytes, path: Path) -> Path:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise WriteFailed(path, error, kept="") from None
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    return guarded(lambda: _main(argv), show_traceback="--traceback" in argv)


def _main(argv: Sequence[str]) -> int:
    parser = Parser(
        prog="python -m harness.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a folder that harness.eval or harness.train wrote"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page of a single RUN (default RUN/report.html)")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    args = parser.parse_args(argv)
    if args.out is not None and len(args.runs) > 1:
        raise ConfigError(f"--out names one file, but there are {len(args.runs)} runs; leave it out or name one run")
    if args.out is not None and args.out.suffix != ".html":
        raise ConfigError(f"--out {args.out}: the page is HTML; give a name that ends in .html")
    once(args.runs)
    for run in args.runs:
        write = write_training_report if is_training(run) else write_report
        say(str(write(run, args.out)))
    return OK


if __name__ == "__main__":
    sys.exit(main())
