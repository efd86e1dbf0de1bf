"""``python -m seed_envs export ID``: games in the official format, for upstream's own programs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from seed_envs.alfworld.sources import GameSource, GameText
from seed_envs.cli import catalogue
from seed_envs.cli.common import OK, Parser, add_plugins, say
from seed_envs.cli.progress import progress
from seed_envs.errors import ConfigError
from seed_envs.tasks import Task, resolve_split

ALFWORLD = "seed_envs/ALFWorld-v0"


def main(argv: Sequence[str]) -> int:
    """Write a split, or some of it, to a folder."""
    parser = Parser(
        prog="python -m seed_envs export",
        description="Write ALFWorld games in the official format.",
        epilog="example: python -m seed_envs export ALFWorld-v0 --split valid_seen --out games",
    )
    parser.add_argument("id", metavar="ID", help=f"environment: {ALFWORLD}")
    parser.add_argument("--split", required=True, help="the split to write")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write to; made when absent")
    parser.add_argument("--data", default="embedded", help="games to write (default: embedded)")
    parser.add_argument("--limit", metavar="N", help="so many tasks, or a share such as 0.1, over all categories")
    parser.add_argument(
        "--logic",
        type=Path,
        metavar="DIR",
        help="folder with alfred.pddl and alfred.twl2 (default: the alfworld package's)",
    )
    add_plugins(parser)
    args = parser.parse_args(argv)
    env_id = catalogue.resolve(args.id, catalogue.environment_ids(args.plugin))
    if env_id != ALFWORLD:
        raise ConfigError(f"{env_id} has no official format to export to; {ALFWORLD} has")
    return _export(args.data, args.split, args.out.expanduser(), args.limit, args.logic)


def _export(data: str, split: str, out: Path, limit: str | None, logic: Path | None) -> int:
    from seed_envs.alfworld.env import make_source
    from seed_envs.alfworld.export import export_split

    source = make_source(data)
    split = resolve_split(split, source.splits)
    tasks = source.tasks(split)
    if limit is not None:
        tasks = tasks.limit(limit)
    with progress() as report:
        export_split(
            _Watched(source, lambda done: report(f"writing {split}", done, len(tasks), "games")),
            tasks,
            out,
            logic=logic,
        )
    say(f"wrote {len(tasks)} games of {split} to {out}")
    say(f"play them with: python -m seed_envs play {ALFWORLD} --data {out} --split {split}")
    return OK


class _Watched:
    """A source that tells how many games have been read from it."""

    def __init__(self, source: GameSource, tell: Callable[[int], None]) -> None:
        self.name, self.splits, self.tasks, self.describe = source.name, source.splits, source.tasks, source.describe
        self._source, self._tell, self._done = source, tell, 0

    def load(self, task: Task) -> GameText:
        """Load a game, and tell."""
        self._done += 1
        self._tell(self._done)
        return self._source.load(task)
