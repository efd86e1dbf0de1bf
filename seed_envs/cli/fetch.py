"""``python -m seed_envs fetch NAME``: official data from their official place."""

import os
from collections.abc import Sequence
from pathlib import Path

from seed_envs import paths
from seed_envs.cli.common import OK, Parser, note, say, table
from seed_envs.cli.progress import progress
from seed_envs.errors import UnknownName
from seed_envs.fetch import SOURCES, by_hand, fetch
from seed_envs.fetch_source import Source


def main(argv: Sequence[str]) -> int:
    """Download, unpack and compare with the release; a second call only compares."""
    args = _parser().parse_args(argv)
    if args.name not in SOURCES:
        raise UnknownName("data set", args.name, SOURCES)
    source = SOURCES[args.name]
    default = paths.data_root(source.name).expanduser().absolute()
    dest = args.dest.expanduser().absolute() if args.dest else default
    base = args.base_url or os.environ.get("SEED_FETCH_BASE", "")
    if args.by_hand:
        say("\n".join(by_hand(source, dest, base_url=base, parts=args.only)))
        return OK
    with progress() as report:
        fetched = fetch(source, dest, base_url=base, parts=args.only, force=args.force, report=report)
    say(f"{dest}: " + (f"fetched {', '.join(fetched.new)}" if fetched.new else "already there (--force fetches again)"))
    _compare(source, dest)
    if dest != default:
        say(f"use it with --data {dest}" + (f", or: export {source.variable}={dest}" if source.variable else ""))
    return OK


def _parser() -> Parser:
    parser = Parser(
        prog="python -m seed_envs fetch",
        description="Download official data. Interrupted downloads go on where they stopped, if the server lets "
        "them; what is there stays.",
    )
    variables = [source.variable for source in SOURCES.values() if source.variable]
    parts = [f"{' or '.join(a.part for a in source.archives)} ({name})" for name, source in SOURCES.items()]
    parser.add_argument("name", metavar="NAME", help=f"one of: {', '.join(SOURCES)}")
    parser.add_argument("--dest", type=Path, help=f"folder (default: {', '.join(variables)}, or SEED_DATA/NAME)")
    parser.add_argument(
        "--base-url", help="a mirror with the same paths below it (default: SEED_FETCH_BASE, or the official place)"
    )
    parser.add_argument("--only", action="append", default=[], metavar="PART", help=f"part: {', '.join(parts)}")
    parser.add_argument("--by-hand", action="store_true", help="print how to do it without this program")
    parser.add_argument("--force", action="store_true", help="fetch again what is there")
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    return parser


def _compare(source: Source, dest: Path) -> None:
    """Print the tasks of every split that can be played beside those that were released."""
    first = source.archives[0]
    if not any(source.count(dest, first).values()):
        only = f"python -m seed_envs fetch {source.name} --only {first.part} --dest {dest}"
        say(f"there are no {first.part.replace('-', ' ')} yet: {only}")
        return
    note("comparing with the release; the first time takes a while")
    rows = [(*map(str, row[:3]), row[3] or "as released") for row in source.compare(dest)]
    table(("split", "tasks", "released", "difference"), rows)
