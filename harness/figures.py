"""Draw the figures of a paper from run folders: nothing else is read.

python -m harness.figures training runs/seed runs/grpo --out training.svg
python -m harness.figures overview runs/*/evaluation --out overview.png
python -m harness.figures skills runs/seed

RUN is a folder of harness.train or harness.eval; NAME=RUN gives it another name in the figure. The
same files give the same bytes. docs/figures.md shows what each figure takes. Exit codes: 0 ok; 2 a
folder cannot be drawn as asked.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.plots.bars import fraction_figure, overview_figure, types_figure
from harness.plots.curves import LOSS, SUCCESS, grid_figure, training_figure
from harness.plots.episodes import attempts, side_by_side_figure, strip_figure
from harness.plots.look import check_out, save, styled
from harness.plots.reading import named, results, trainings
from harness.plots.skills import skills_table
from harness.records import WriteFailed
from seed_envs.cli.common import OK, Parser, guarded, say
from seed_envs.errors import ConfigError
from seed_envs.files import write_atomically

Options = argparse.Namespace
SKILLS = "skills"


@dataclass(frozen=True)
class Kind:
    """A figure: what it shows, and how to draw it from the command line."""

    purpose: str
    draw: Callable[[Options], Any]
    fewest: int = 1
    """Runs it takes at least."""


KINDS = {
    "training": Kind("success and turns per iteration (training runs)", lambda o: training_figure(trainings(o.runs))),
    "success-grid": Kind(
        "success per iteration, a panel per environment and model (training runs)",
        lambda o: grid_figure(trainings(o.runs), SUCCESS),
    ),
    "opd-grid": Kind(
        "distillation loss per iteration, the same grid (training runs)", lambda o: grid_figure(trainings(o.runs), LOSS)
    ),
    "fraction": Kind("success by the share of the data", lambda o: fraction_figure(results(o.runs)), fewest=2),
    "types": Kind(
        "success by category, of unseen unless --split",
        lambda o: types_figure(results(o.runs), o.split or "unseen"),
    ),
    "overview": Kind("success of all methods, a panel per split", lambda o: overview_figure(results(o.runs))),
    "side-by-side": Kind(
        "the same task played by several",
        lambda o: side_by_side_figure(attempts(o.runs, o.split, o.task), o.most or 12),
        fewest=2,
    ),
    "strip": Kind(
        "the pictures of an episode in a row", lambda o: strip_figure(attempts(o.runs, o.split, o.task), o.most or 8)
    ),
    SKILLS: Kind("a table in Markdown of skills a run has written (training runs)", lambda o: None),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    return guarded(lambda: _main(argv), show_traceback="--traceback" in argv)


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    kind = KINDS[args.name]
    if len(args.runs) < kind.fewest:
        raise ConfigError(f"{args.name} takes at least {kind.fewest} runs, got {len(args.runs)}")
    if args.name == SKILLS:
        return _skills(args)
    if args.out is None:
        raise ConfigError(f"give a file to draw, such as --out {args.name}.svg or --out {args.name}.png")
    check_out(args.out)
    with styled():
        save(kind.draw(args), args.out)
    say(str(args.out))
    return OK


def _skills(args: Options) -> int:
    text = skills_table([named(run)[1] for run in args.runs], args.most or 2)
    if args.out is None:
        say(text.rstrip("\n"))
        return OK
    if args.out.suffix.lower() not in (".md", ".txt"):
        raise ConfigError(f"--out {args.out} is no file for a table; expected one that ends in .md or .txt")
    try:
        write_atomically(args.out, text.encode("utf-8", "replace"))
    except OSError as error:
        raise WriteFailed(args.out, error, kept="") from None
    say(str(args.out))
    return OK


def _count(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text} cannot be used; expected a whole number from 2 to 100")
    return int(text)


def _name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("the name is empty; leave the flag out, or give one")
    return text


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:13} {kind.purpose}" for name, kind in KINDS.items())
    parser = Parser(
        prog="python -m harness.figures",
        description=f"{__doc__}\nfigures:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("name", choices=list(KINDS), metavar="FIGURE", help="one of those above")
    add("runs", nargs="+", metavar="[NAME=]RUN", help="a folder of harness.train or harness.eval")
    add("--out", type=Path, metavar="FILE", help="a .png or .svg file; a .md file for skills")
    add("--split", type=_name, metavar="NAME", help="of types, side-by-side and strip")
    add(
        "--task",
        type=_name,
        metavar="ID",
        help="of side-by-side and strip; by default the first that the runs end unlike",
    )
    add("--most", type=_count, metavar="N", help="turns or pictures of an episode, skills of a category and outcome")
    add("--traceback", action="store_true", help="show where an error came from")
    return parser


if __name__ == "__main__":
    sys.exit(main())
