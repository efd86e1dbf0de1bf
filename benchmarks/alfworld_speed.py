"""Time the native ALFWorld engine against TextWorld in one process, on the same games and commands.

    python benchmarks/alfworld_speed.py --data ROOT [--games 6] [--turns 20] [--resets 2000] [--split train]

ROOT is a folder in the official layout; ``pip install 'seed-suite[alfworld]'`` brings TextWorld.
Prints CPU and wall time per load+reset and per command with their ratios (targets: 300 and
1,000), the time to open the split twice with an empty cache (target: second time under 1 s), and
how much memory native resets add. Native load+reset is: read the file, parse its grammar,
compile, list the admissible commands; native step: take the command, list, judge the goal.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from seed_envs.alfworld import engine
from seed_envs.alfworld.official import OfficialSource, read_game
from seed_envs.alfworld.problem import Actions, Game, State, compile_game
from seed_envs.alfworld.textworld import check_installed
from seed_envs.alfworld.textworld_child import Player
from seed_envs.errors import SeedError
from seed_envs.seeding import Draws

LOAD_REPEATS, WALK_REPEATS = 20, 50
"""The native side is repeated so often that its time can be read off the clock."""

Clock = tuple[float, float]
"""CPU and wall seconds."""


def timed(work: Callable[[], object], repeats: int = 1) -> Clock:
    """Return CPU and wall seconds of one call, the mean of ``repeats``."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.process_time() - cpu) / repeats, (time.perf_counter() - wall) / repeats


def native_begin(path: Path) -> tuple[Game, State, Actions]:
    """Do what a native reset does, from the file to the first observation."""
    text = read_game(path)
    game = compile_game(text.problem, text.instruction, text.grammar)
    engine.intro(game, game.start)
    return game, game.start, engine.admissible(game, game.start)


def native_walk(begun: tuple[Game, State, Actions], commands: list[str]) -> None:
    """Take ``commands`` as the environment does."""
    game, state, offered = begun
    for command in commands:
        state = engine.step(game, state, command, offered).state
        offered = engine.admissible(game, state)
        engine.won(game, state)


def upstream_walk(player: Player, commands: list[str]) -> None:
    """Take ``commands`` in TextWorld."""
    for command in commands:
        player.act(command)


def draw_commands(begun: tuple[Game, State, Actions], turns: int, seed: object) -> list[str]:
    """Return a random walk of ``turns`` admissible commands: a verb first, then a command with it."""
    game, state, offered = begun
    draws, commands = Draws("speed", seed), []
    for _ in range(turns):
        verb = draws.choice(sorted({command.split()[0] for command in offered}))
        commands.append(draws.choice([command for command in offered if command.split()[0] == verb]))
        state = engine.step(game, state, commands[-1], offered).state
        offered = engine.admissible(game, state)
    return commands


def race(paths: list[Path], turns: int) -> None:
    """Time both sides on ``paths`` and print the sums and ratios."""
    player = Player()  # its imports are not counted
    sums = {name: [0.0, 0.0] for name in ("load upstream", "load native", "step upstream", "step native")}

    def add(name: str, clock: Clock) -> None:
        sums[name] = [total + part for total, part in zip(sums[name], clock, strict=True)]

    for path in paths:
        begun = native_begin(path)
        commands = draw_commands(begun, turns, path.name)
        add("load native", timed(partial(native_begin, path), LOAD_REPEATS))
        add("step native", timed(partial(native_walk, begun, commands), WALK_REPEATS))
        add("load upstream", timed(partial(player.begin, str(path))))
        add("step upstream", timed(partial(upstream_walk, player, commands)))
        print(f"  {path.parent.parent.name}: {len(begun[0].receptacles)} receptacles, {len(begun[0].objects)} objects")
    for what, count, target in (("load", len(paths), 300), ("step", len(paths) * turns, 1000)):
        for column, clock in enumerate(("CPU", "wall")):
            theirs, ours = (sums[f"{what} {side}"][column] / count for side in ("upstream", "native"))
            label = "load+reset" if what == "load" else "command"
            print(f"per {label}, {clock}: TextWorld {theirs * 1e3:.1f} ms, native {ours * 1e6:.1f} us, "
                  f"ratio {theirs / ours:,.0f} (target {target:,})")  # fmt: skip


def open_twice(root: Path, split: str) -> None:
    """Print how long opening ``split`` takes without and with an index of it."""
    for which in ("first", "second"):
        source = OfficialSource(root)
        cpu, wall = timed(partial(source.tasks, split))
        count = len(source.tasks(split))  # read already
        print(f"opening {split} ({count:,} games) the {which} time: {wall:.2f} s wall, {cpu:.2f} s CPU")


def memory(paths: list[Path], resets: int) -> None:
    """Print how much resident memory ``resets`` native resets add, after as many as there are games."""
    for path in paths:
        native_begin(path)
    before = resident()
    for number in range(resets):
        native_walk(native_begin(paths[number % len(paths)]), ["look", "inventory"])
    print(f"{resets:,} native resets: resident memory {before:.1f} -> {resident():.1f} MB")


def resident() -> float:
    """Return this process's resident memory in MB; its peak where there is no /proc."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> int:
    """Run the measurements; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT")
    parser.add_argument("--games", type=int, default=6)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--resets", type=int, default=2000)
    parser.add_argument("--split", default="train", help="the split to open, and to draw the games from")
    args = parser.parse_args()
    check_installed()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["SEED_CACHE"] = cache  # so that the first opening has no index
        open_twice(args.data, args.split)
        source = OfficialSource(args.data)
        tasks = source.tasks(args.split)
        paths = [source.load(task).path for task in tasks.sample(min(200, len(tasks)))]
    files = [path for path in paths if path is not None]
    memory(files, args.resets)
    chosen = [path for task in tasks.sample(args.games) if (path := source.load(task).path) is not None]
    race(chosen, args.turns)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SeedError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
