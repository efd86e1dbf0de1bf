"""``python -m seed_envs serve-search``: a search server in both published dialects."""

import sys
from collections.abc import Sequence

from seed_envs.cli.common import OK, Parser, note, say
from seed_envs.errors import ConfigError
from seed_envs.search.retrievers import open_retriever

LOOPBACK = "127.0.0.1"


def main(argv: Sequence[str]) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    parser = Parser(
        prog="python -m seed_envs serve-search",
        description="Serve a search index: POST /retrieve as Search-R1's server and as verl-agent's and SkyRL's take "
        "it, GET /health. Ends at Ctrl-C or SIGTERM when the requests it has are answered.",
    )
    parser.add_argument("index", metavar="DIR", help="folder of: python -m seed_envs build search; or a Lucene index")
    parser.add_argument(
        "--host", default=LOOPBACK, help=f"address to listen on (default {LOOPBACK}: this machine only)"
    )
    parser.add_argument("--port", type=Parser.count, default=8000, help="port (default 8000; 0 for a free one)")
    parser.add_argument("--workers", type=Parser.count, default=4, metavar="N", help="searches at a time (default 4)")
    parser.add_argument("--device", help="dense: where the encoder runs (default: as it was built)")
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    args = parser.parse_args(argv)
    if args.port > 65535 or args.workers < 1:
        raise ConfigError("--port goes up to 65535, --workers from 1")
    from seed_envs.search.server import serve

    options = {"device": args.device} if args.device else {}
    retriever = open_retriever(args.index, **options)
    if args.host not in (LOOPBACK, "localhost", "::1"):
        note(f"warning: {args.host} may be reached from other machines; there are no passwords")
    serve(retriever, host=args.host, port=args.port, workers=args.workers, ready=_ready)
    return OK


def _ready(url: str) -> None:
    say(f"serving at {url}/retrieve; {url}/health tells what")
    sys.stdout.flush()
