"""``python -m seed_envs fetch NAME``: official data from their official place."""

import os
from collections.abc import Sequence
from pathlib import Path

from seed_envs import fetch, paths
from seed_envs.cli.common import OK, Parser, note, say, table
from seed_envs.cli.progress import progress
from seed_envs.errors import UnknownName

NAMES = ("alfworld",)


def main(argv: Sequence[str]) -> int:
    """Download, unpack and compare with the release; a second call only compares."""
    parser = Parser(
        prog="python -m seed_envs fetch",
        description="Download official data. Interrupted downloads go on where they stopped; what is there stays.",
    )
    parser.add_argument("name", metavar="NAME", help=f"one of: {', '.join(NAMES)}")
    parser.add_argument("--dest", type=Path, help="folder (default: ALFWORLD_DATA, or SEED_DATA/alfworld)")
    parser.add_argument(
        "--base-url",
        default=os.environ.get("SEED_FETCH_BASE") or fetch.ALFWORLD_URL,
        help="a mirror of the releases (default: SEED_FETCH_BASE, or %(default)s)",
    )
    parts = [archive.part for archive in fetch.ALFWORLD]
    parser.add_argument("--only", action="append", default=[], metavar="PART", help=f"part: {' or '.join(parts)}")
    parser.add_argument("--by-hand", action="store_true", help="print how to do it without this program")
    parser.add_argument("--force", action="store_true", help="fetch again what is there")
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    args = parser.parse_args(argv)
    if args.name not in NAMES:
        raise UnknownName("data set", args.name, NAMES)
    dest = (args.dest or paths.data_root("alfworld")).expanduser().absolute()
    if args.by_hand:
        say("\n".join(fetch.by_hand(dest, base_url=args.base_url, parts=args.only)))
        return OK
    with progress() as report:
        fetched = fetch.fetch_alfworld(dest, base_url=args.base_url, parts=args.only, force=args.force, report=report)
    say(f"{dest}: " + (f"fetched {', '.join(fetched.new)}" if fetched.new else "already there (--force fetches again)"))
    _compare(dest)
    if dest != paths.data_root("alfworld").expanduser().absolute():
        say(f"use it with --data {dest}, or: export ALFWORLD_DATA={dest}")
    return OK


def _compare(dest: Path) -> None:
    """Print the playable games of every split beside those of the release the manifest lists."""
    from seed_envs.alfworld.official import GAME_FILE, OfficialSource, released

    if not any((dest / fetch.FOLDER).glob(f"*/*/*/{GAME_FILE}")):
        say(f"there are no game files yet: python -m seed_envs fetch alfworld --only game-files --dest {dest}")
        return
    note("comparing with the release; the first time takes a while")
    games, rows = OfficialSource(dest), []
    for split in fetch.ALFWORLD_SPLITS:
        if split not in games.splits:
            rows.append((split, "0", str(len(released(split))), "missing"))
            continue
        odd = ", ".join(f"{len(ids)} {what}" for what, ids in games.against_release(split).items() if ids)
        rows.append((split, str(len(games.tasks(split))), str(len(released(split))), odd or "as released"))
    table(("split", "games", "released", "difference"), rows)
