"""``python -m seed_envs build WHAT``: make once what environments then only open."""

import importlib
from collections.abc import Sequence

from seed_envs.cli.common import OK, say
from seed_envs.errors import UnknownName

BUILDERS = {
    "search": ("build_search", "a search index over a corpus of passages"),
    "webshop": ("build_webshop", "the store of a WebShop catalogue"),
}
"""Name to module of ``seed_envs.cli`` and what it makes."""

USAGE = """usage: python -m seed_envs build WHAT ...

{}

'python -m seed_envs build WHAT --help' tells more.""".format(
    "\n".join(f"  {name:8}{makes}" for name, (_, makes) in BUILDERS.items())
)


def main(argv: Sequence[str]) -> int:
    """Run a builder."""
    words = list(argv)
    if not words or words[0] in ("-h", "--help"):
        say(USAGE)
        return OK
    if words[0] not in BUILDERS:
        raise UnknownName("thing to build", words[0], BUILDERS)
    code: int = importlib.import_module(f"seed_envs.cli.{BUILDERS[words[0]][0]}").main(words[1:])
    return code
