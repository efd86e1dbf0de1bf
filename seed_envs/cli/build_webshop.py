"""``python -m seed_envs build webshop``: the store of a catalogue that worker processes share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seed_envs import paths
from seed_envs.cli.common import OK, Parser, say
from seed_envs.cli.progress import progress
from seed_envs.errors import UnknownName
from seed_envs.webshop.official import PROFILES
from seed_envs.webshop.store import open_store, read_manifest, store_folder, verify
from seed_envs.webshop.store_build import build_official


def main(argv: Sequence[str]) -> int:
    """Build a store, or check one; a second call only checks."""
    args = _parser().parse_args(argv)
    if args.profile not in PROFILES:
        raise UnknownName("WebShop profile", args.profile, PROFILES)
    size, goals = PROFILES[args.profile]
    root = args.data.expanduser().absolute() if args.data else paths.data_root("webshop").expanduser().absolute()
    folder = store_folder(root, size)
    if args.check or (folder.is_dir() and not args.force):
        open_store(folder, root=root, size=size)
        verify(folder, size, root)
        say(f"{folder}: undamaged, {_told(read_manifest(folder, size, root))} (--force builds it again)")
        return OK
    with progress() as report:
        build_official(root, size, human=goals == "human", report=report)
    say(f"{folder}: {_told(read_manifest(folder, size, root))}")
    return OK


def _parser() -> Parser:
    parser = Parser(
        prog="python -m seed_envs build webshop",
        description="Compile the official files into a store below SEED_CACHE, which appears only when it is complete. "
        "The full catalogue needs one; the small one is read from its files where there is none.",
    )
    parser.add_argument(
        "--profile",
        default="small-synthetic",
        metavar="NAME",
        help=f"one of: {', '.join(PROFILES)} (default: the first)",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of the official files (default: SEED_DATA/webshop)"
    )
    parser.add_argument("--force", action="store_true", help="build it again")
    parser.add_argument("--check", action="store_true", help="only verify the store, every byte of it")
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    return parser


def _told(manifest: dict[str, Any]) -> str:
    skipped = ", ".join(f"{count} {reason}" for reason, count in manifest["skipped"].items())
    return f"{manifest['products']} products" + (f"; left out as upstream does: {skipped}" if skipped else "")
