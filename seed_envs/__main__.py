"""``python -m seed_envs``: what there is, whether it works, and playing it by hand."""

import importlib
import sys
from collections.abc import Sequence

import seed_envs
from seed_envs.cli.common import guarded, say
from seed_envs.errors import UnknownName

COMMANDS = {
    "list": ("listing", "the environments there are"),
    "info": ("info", "arguments, splits, spaces and limits of one environment"),
    "doctor": ("doctor", "what works here, what is missing and what to type"),
    "play": ("play", "play in the terminal"),
    "fetch": ("fetch", "download official data"),
    "build": ("build", "make a search index"),
    "serve-search": ("serve", "serve a search index to search environments"),
    "export": ("export", "write games in the official format"),
    "check": ("check", "run the conformance suite on an environment"),
}
"""Name to module of ``seed_envs.cli`` and what it does."""

USAGE = """usage: python -m seed_envs COMMAND ...

{}

'python -m seed_envs COMMAND --help' tells more; --version prints the version.""".format(
    "\n".join(f"  {name:14}{does}" for name, (_, does) in COMMANDS.items())
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 (something failed), 2 (cannot run), 130 (Ctrl-C)."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _run(words), show_traceback="--traceback" in words)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        say(USAGE)
        return 0
    if words[0] == "--version":
        say(seed_envs.__version__)
        return 0
    if words[0] not in COMMANDS:
        raise UnknownName("command", words[0], COMMANDS)
    command = importlib.import_module(f"seed_envs.cli.{COMMANDS[words[0]][0]}")
    code: int = command.main(words[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
