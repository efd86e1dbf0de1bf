"""``python -m harness``: the commands, and the environments, policies and methods there are."""

import sys
from collections.abc import Sequence

from harness.config import suite_ids
from seed_agent.methods import METHODS
from seed_agent.policy import MODELS, POLICIES
from seed_agent.scripted import NAMES
from seed_envs.cli.common import OK, Parser, guarded, say
from seed_envs.registry import load_plugins

COMMANDS = {
    "harness.eval": "play environments with policies and score them",
    "harness.train": "train a model by SEED or a method it is compared with",
    "harness.compare": "compare runs on the tasks they share: paired tests, intervals, requirements for scripts",
    "harness.sweep": "methods x environments x models x data fractions x seeds: run what is missing, tabulate",
    "harness.report": "write the page of a run, to look at its episodes in a browser",
    "harness.figures": "draw the figures of a paper from runs",
    "harness.leaderboard": "add rows of finished runs to a leaderboard, check them, render its pages",
    "harness.verify": "play every logged action of a row or run again and check all of its numbers",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return guarded(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    parser = Parser(prog="python -m harness", description=__doc__)
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="MODULE", help="module[:function] that adds things"
    )
    plugins = load_plugins(parser.parse_args(argv).plugin)
    scripted = [f"scripted:{name}" for name in NAMES]
    others = [f"{kind}:..." for kind in [*POLICIES, *MODELS] if kind != "scripted"]
    say("commands (each has --help)")
    for name, purpose in COMMANDS.items():
        say(f"  python -m {name}  {purpose}")
    for title, names in (
        ("environments", suite_ids()),
        ("policies", scripted + others),
        ("methods", list(METHODS)),
        ("plug-ins", list(plugins)),
    ):
        say(f"{title}\n  " + ("\n  ".join(names) or "none"))
    return OK


if __name__ == "__main__":
    sys.exit(main())
