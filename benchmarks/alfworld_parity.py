"""Play official ALFWorld games live in TextWorld and natively, and count the differences.

    python benchmarks/alfworld_parity.py --data ROOT [--games 30] [--turns 15] [--seed 0]

ROOT is a folder in the official layout; ``pip install 'seed-suite[alfworld]'`` brings TextWorld.
Every text, admissible list and outcome is compared. Games are drawn evenly over the splits there
are and the six task types. Exit status 1 when anything differs. About 10 s a game.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from seed_envs.alfworld import engine
from seed_envs.alfworld.grammar import MOVE, PUT
from seed_envs.alfworld.official import OfficialSource
from seed_envs.alfworld.problem import Game, compile_game
from seed_envs.alfworld.sources import GameText
from seed_envs.alfworld.textworld import TextWorldBackend
from seed_envs.errors import SeedError
from seed_envs.seeding import Draws
from seed_envs.tasks import Task

Chooser = Callable[[Game, list[str]], str]
"""The next command from the game and what it offers now."""

WRONG = ("", "dance", "Look", "help me", "go to", "inventory 1", "examine", "use lamp", "put it down", "1")


def random_commands(*seed: object, wrong: float = 0.2) -> Chooser:
    """Return a chooser that draws a verb, then a command with it; a share ``wrong`` is refused mostly."""
    draws = Draws("parity", *seed)

    def choose(game: Game, offered: list[str]) -> str:
        if draws.chance(wrong):
            return _wrong(draws, game, offered)
        verb = draws.choice(sorted({command.split()[0] for command in offered}))
        return draws.choice([command for command in offered if command.split()[0] == verb])

    return choose


def _wrong(draws: Draws, game: Game, offered: list[str]) -> str:
    """Return a command that is misspelt, of the other grammar, or about things elsewhere."""
    kind = draws.below(4)
    if kind == 0:
        return draws.choice(WRONG)
    if kind == 1:
        command = draws.choice(offered)
        return draws.choice([command.upper(), command + " 1", command[1:], command.replace(" ", "  "), f" {command} "])
    templates = game.grammar.templates if kind == 2 else draws.choice([MOVE, PUT]).templates
    template = templates[draws.choice(sorted(templates))]
    names = {key: draws.choice(game.objects) for key in ("o", "co", "ko")}
    return template.format(r=draws.choice(game.receptacles), **names)


def scripted(commands: Iterable[str]) -> Chooser:
    """Return a chooser that plays ``commands`` whatever is offered."""
    remaining = iter(commands)
    return lambda game, offered: next(remaining)


def differences(backend: TextWorldBackend, text: GameText, choose: Chooser, turns: int) -> Iterator[str]:
    """Play ``turns`` commands on both sides; yield every difference, with the command before it."""
    game = compile_game(text.problem, text.instruction, text.grammar)
    state, shown = game.start, backend.begin(text)
    offered = engine.admissible(game, state)
    ours: dict[str, object] = {"text": engine.intro(game, state)}
    command = ""
    for turn in range(turns + 1):
        ours |= {"admissible": list(offered), "won": engine.won(game, state)}
        for name, value in ours.items():
            if value != getattr(shown, name):
                yield f"turn {turn} {command!r} {name}: TextWorld {getattr(shown, name)!r}, native {value!r}"
        if turn < turns:
            command = choose(game, shown.admissible)
            state, ours["text"], _ = engine.step(game, state, command, offered)
            offered, shown = engine.admissible(game, state), backend.act(command)


def pick_games(source: OfficialSource, count: int, seed: int) -> list[Task]:
    """Return ``count`` tasks, spread over the splits and, within each, over the task types."""
    splits = source.splits
    shares = [count // len(splits) + (i < count % len(splits)) for i in range(len(splits))]
    return [
        task
        for split, share in zip(splits, shares, strict=True)
        if share
        for task in source.tasks(split).sample(min(share, len(source.tasks(split))), seed=seed)
    ]


def main() -> int:
    """Run the comparison; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT")
    parser.add_argument("--games", type=int, default=30)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    backend = TextWorldBackend()
    source = OfficialSource(args.data)
    tasks = pick_games(source, args.games, args.seed)
    total, started = 0, time.perf_counter()
    for number, task in enumerate(tasks, 1):
        began = time.perf_counter()
        found = list(differences(backend, source.load(task), random_commands(args.seed, task.id), args.turns))
        total += len(found)
        print(
            f"{number}/{len(tasks)} {task.id}: {len(found)} differences, {time.perf_counter() - began:.1f} s",
            flush=True,
        )
        for line in found:
            print(f"    {line}")
    backend.close()
    seconds = time.perf_counter() - started
    print(f"{len(tasks)} games, {len(tasks) * args.turns} commands, {total} differences, {seconds:.0f} s")
    return 1 if total else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SeedError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
