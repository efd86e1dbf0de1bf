"""``python -m seed_envs list``: the environments there are, plug-ins' among them."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from seed_envs.cli import catalogue
from seed_envs.cli.common import OK, Parser, add_plugins, note, say_json, table


def main(argv: Sequence[str]) -> int:
    """Print a row per environment."""
    parser = Parser(prog="python -m seed_envs list", description="The environments there are.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_plugins(parser)
    args = parser.parse_args(argv)
    rows = []
    for env_id in catalogue.environment_ids(args.plugin):
        entry, problem = catalogue.overview(env_id, args.plugin)
        rows.append(
            {
                "id": env_id,
                "description": entry.summary if entry else "",
                "max_episode_steps": gym.spec(env_id).max_episode_steps,
                "splits": {split: len(tasks) for split, tasks in entry.splits.items()} if entry else {},
                "backends": list(entry.backends) if entry else [],
                "problem": problem,
            }
        )
    if args.json:
        say_json(rows)
        return OK
    table(("id", "turns", "splits", "backends", "description"), map(_cells, rows), keep=(0, 1, 2, 3))
    for row in rows:
        if row["problem"]:
            note(f"{row['id']}: {row['problem']}")
    return OK


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["id"],
        str(row["max_episode_steps"] or "-"),
        "\n".join(f"{split}={n}" for split, n in row["splits"].items()) or "?",
        "\n".join(row["backends"]),
        row["description"],
    )
