"""``python -m seed_envs info ID``: everything about one environment."""

import json
from collections.abc import Sequence
from typing import Any

from seed_envs.cli import catalogue
from seed_envs.cli.common import OK, Parser, add_environment, environment, say, say_json, table
from seed_envs.cli.foreign import call, closing, results_only
from seed_envs.vector import EnvMaker


def main(argv: Sequence[str]) -> int:
    """Print what there is to know about an environment with these arguments."""
    parser = Parser(
        prog="python -m seed_envs info",
        description="Arguments, splits, spaces and limits of one environment.",
        epilog="example: python -m seed_envs info ALFWorld-v0 data=official",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_environment(parser)
    args = parser.parse_intermixed_args(argv)
    with results_only():
        facts = _facts(environment(args))
    if args.json:
        say_json(facts)
        return OK
    _show(facts)
    return OK


def _facts(maker: EnvMaker) -> dict[str, Any]:
    entry = catalogue.describe(maker)
    kwargs = dict(maker.kwargs)
    if "split" in entry.arguments and entry.splits:
        kwargs.setdefault("split", next(iter(entry.splits)))  # the default split may not be in these data
    with closing(call(maker.id, EnvMaker(maker.id, kwargs, maker.plugins))) as env:
        spaces = {"observation_space": str(env.observation_space), "action_space": str(env.action_space)}
        render_modes = list(env.metadata.get("render_modes", []))
    return {
        "id": entry.id,
        "version": entry.version,
        "description": entry.documentation,
        "max_episode_steps": entry.max_episode_steps,
        "arguments": {name: maker.kwargs.get(name, default) for name, default in entry.arguments.items()},
        "backends": list(entry.backends),
        "splits": {
            split: {
                "n": len(tasks),
                "categories": tasks.categories,
                "manifest": tasks.name,
                "manifest_sha256": tasks.sha256,
            }
            for split, tasks in entry.splits.items()
        },
        "render_modes": render_modes,
        **spaces,
    }


def _show(facts: dict[str, Any]) -> None:
    say(f"{facts['id']}  (version {facts['version']})")
    say()
    say(facts["description"] or "(no documentation)")
    say()
    say(f"turn limit    {facts['max_episode_steps'] or 'none'}  (max_episode_steps=N overrides)")
    say(f"backends      {', '.join(facts['backends'])}")
    say(f"observations  {facts['observation_space']}")
    say(f"actions       {facts['action_space']}")
    say(f"rendering     {', '.join(facts['render_modes']) or 'none'}")
    say()
    table(("argument", "value"), [(name, json.dumps(value)) for name, value in facts["arguments"].items()], keep=(0, 1))
    say()
    table(
        ("split", "tasks", "manifest", "sha256"),
        [
            (name, str(split["n"]), split["manifest"], split["manifest_sha256"])
            for name, split in facts["splits"].items()
        ],
        keep=(0, 1, 2, 3),
    )
    say()
    splits = facts["splits"]
    names = sorted({category for split in splits.values() for category in split["categories"]})
    rows = [(name, *(str(split["categories"].get(name, 0)) for split in splits.values())) for name in names]
    table(("category", *splits), rows)
