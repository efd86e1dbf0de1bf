"""``python -m seed_envs build search``: an index over a corpus of passages."""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from seed_envs.cli.common import OK, Parser, say
from seed_envs.cli.progress import progress
from seed_envs.errors import ConfigError, DataError
from seed_envs.search.passages import Passage, read_corpus
from seed_envs.search.retrievers import BACKENDS, build_retriever, open_retriever, verify

CORPUS_ENDS = (".jsonl", ".jsonl.gz", ".jsonl.xz")


def main(argv: Sequence[str]) -> int:
    """Build an index, or check one."""
    args = _parser().parse_args(argv)
    out = args.out.expanduser().absolute()
    if args.check:
        return _check(out)
    if not args.corpus:
        raise ConfigError("--corpus is missing; give the file or folder that holds the passages")
    if out.exists() and not args.force:
        if not out.is_dir() or any(out.iterdir()):
            raise ConfigError(f"{out} exists already; --force replaces it")
    files = _files([path.expanduser() for path in args.corpus])
    passages: Iterator[Passage] = itertools.chain.from_iterable(map(read_corpus, files))
    if args.limit is not None:
        passages = itertools.islice(passages, args.limit)
    options = _options(args)
    with progress() as report:
        card = build_retriever(passages, out, backend=args.backend, options=options, report=report)
    size = sum(path.stat().st_size for path in sorted(out.rglob("*")) if path.is_file())
    say(f"{out}: {card.backend} index of {card.passages} passages, {size / 1e6:.1f} MB")
    say(f"serve it with: python -m seed_envs serve-search {out}")
    return OK


def _parser() -> Parser:
    parser = Parser(
        prog="python -m seed_envs build search",
        description="Index passages. The folder appears only when it is complete; a build that was interrupted goes "
        "on where it stopped when the command is repeated.",
        epilog="example: python -m seed_envs build search --corpus wiki-18.jsonl.gz --out wiki-18",
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        action="append",
        metavar="FILE",
        help=f"JSON lines with 'id' and 'contents', or 'title' and 'text' ({', '.join(CORPUS_ENDS)}), or a folder of "
        "such files; may be given more than once",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--backend", default="bm25", metavar="NAME", help=f"one of: {', '.join(BACKENDS)} (default bm25)"
    )
    parser.add_argument("--limit", type=Parser.count, metavar="N", help="the first N passages only")
    parser.add_argument("--force", action="store_true", help="replace what is in DIR")
    parser.add_argument("--check", action="store_true", help="only verify the index in DIR, every byte of it")
    parser.add_argument("--threads", type=Parser.count, metavar="N", help="pyserini: threads (default 1)")
    dense = parser.add_argument_group("dense")
    dense.add_argument("--model", help="folder or hub name of a transformers encoder, such as intfloat/e5-base-v2")
    dense.add_argument("--kind", choices=("flat", "hnsw"), help="exact or approximate (default flat)")
    dense.add_argument("--device", help="where the encoder runs (default cpu)")
    dense.add_argument("--batch", type=Parser.count, metavar="N", help="passages at a time (default 64)")
    dense.add_argument("--max-tokens", type=Parser.count, metavar="N", help="tokens of a passage (default 256)")
    dense.add_argument("--query-prefix", metavar="TEXT", help="default: that of E5 for E5, else none")
    dense.add_argument("--passage-prefix", metavar="TEXT", help="the same for passages")
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    return parser


DENSE_OPTIONS = ("model", "kind", "device", "batch", "max_tokens", "query_prefix", "passage_prefix")


def _options(args: argparse.Namespace) -> dict[str, object]:
    """Return the options of the backend.

    Raises:
        ConfigError: when one of another backend is given.
    """
    of = {"dense": DENSE_OPTIONS, "pyserini": ("threads",)}
    for backend, names in of.items():
        given = [name for name in names if getattr(args, name) is not None]
        if given and args.backend != backend:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ConfigError(f"{flags} belong to --backend {backend}, not to {args.backend}")
    if args.threads == 0:
        raise ConfigError("--threads goes from 1")
    names = of.get(args.backend, ())
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _files(paths: Sequence[Path]) -> list[Path]:
    """Return the corpus files, those of a folder in the order of their names.

    Raises:
        DataError: when there are none.
    """
    files = []
    for path in paths:
        inside = sorted(p for p in path.iterdir() if p.name.endswith(CORPUS_ENDS)) if path.is_dir() else [path]
        if not inside or not inside[0].is_file():
            raise DataError(f"there is no corpus in {path}; expected a {', '.join(CORPUS_ENDS)} file")
        files += inside
    return files


def _check(folder: Path) -> int:
    """Hash what has hashes, open the index, and search once."""
    card = verify(folder)
    open_retriever(folder).search(["check"], 1)
    say(f"{folder}: {card.backend} index of {card.passages} passages, undamaged")
    return OK
