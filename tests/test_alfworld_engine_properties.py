"""What holds of the native engine after any commands: honest offers, independent episodes."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_alfworld_engine import PUT_MUG, kitchen, play

from seed_envs.alfworld import engine
from seed_envs.alfworld.grammar import MOVE, NOTHING_HAPPENS, PUT, Grammar
from seed_envs.alfworld.official import read_game
from seed_envs.alfworld.problem import Game, State, compile_game
from seed_envs.seeding import Draws


def vocabulary(game: Game) -> list[str]:
    """Every command the grammar could form from this house's names, and some it could not."""
    things, places, templates = game.objects, game.receptacles, game.grammar.templates
    commands = {"", "dance", "put", "Look"}
    for action, template in templates.items():
        if action == "SliceObject":
            commands |= {template.format(co=a, ko=b) for a in things for b in things}
        else:
            commands |= {template.format(o=o, r=r) for o in (*things, "egg 9") for r in (*places, "shelf 9")}
    return sorted(commands)


def check_offers(game: Game, state: State, candidates: Iterable[str]) -> None:
    """Whatever is offered works, in that spelling; whatever is refused is not offered and changes nothing."""
    offered = engine.admissible(game, state)
    assert list(offered) == sorted(offered)
    for command in offered:
        outcome = engine.step(game, state, command, offered)
        assert outcome.admissible and outcome.text and outcome.text != NOTHING_HAPPENS
    for command in candidates:
        outcome = engine.step(game, state, command, offered)
        assert outcome.admissible is (command in offered)
        assert outcome.admissible or outcome == (state, NOTHING_HAPPENS, False)


@pytest.mark.parametrize("grammar", [MOVE, PUT], ids=lambda grammar: grammar.tag)
@pytest.mark.parametrize("seed", range(3))
def test_the_offered_commands_are_exactly_those_that_work(grammar: Grammar, seed: int) -> None:
    game, draws = kitchen(grammar=grammar), Draws("offers", seed)
    candidates, state = vocabulary(game), kitchen(grammar=grammar).start
    used = set()
    for _ in range(200):
        check_offers(game, state, (draws.choice(candidates) for _ in range(40)))
        command = draws.choice(list(engine.admissible(game, state)))
        used.add(command.split()[0])
        state = engine.step(game, state, command).state
    assert {"go", "open", "close", "take", "examine"} <= used


def test_on_official_games_the_offered_commands_are_exactly_those_that_work(alfworld_root: Path) -> None:
    paths = sorted(alfworld_root.glob("json_2.1.1/valid_*/*/*/game.tw-pddl"))
    assert len(paths) == 274
    for path in paths[::27]:
        text, draws = read_game(path), Draws("offers", path.parent.name)
        game = compile_game(text.problem, text.instruction, text.grammar)
        candidates, state = vocabulary(game), game.start
        for _ in range(60):
            check_offers(game, state, (draws.choice(candidates) for _ in range(20)))
            state = engine.step(game, state, draws.choice(list(engine.admissible(game, state)))).state


def walk(game: Game, seed: int, turns: int = 60) -> Iterator[object]:
    """Yield what each turn of a seeded random episode shows; one command in five is wrong."""
    draws, state = Draws("walk", seed), game.start
    yield engine.intro(game, state)
    for _ in range(turns):
        offered = engine.admissible(game, state)
        command = "dance" if draws.chance(0.2) else draws.choice(list(offered))
        state, text, admissible = engine.step(game, state, command, offered)
        yield command, text, admissible, list(offered), engine.won(game, state)


def test_interleaved_episodes_are_what_they_are_alone() -> None:
    """Two episodes of one game and one of another, turn by turn."""
    alone = [list(walk(kitchen(goal), seed)) for goal, seed in (("pick", 0), ("pick", 1), ("two", 2))]
    pick = kitchen("pick")
    turns = zip(walk(pick, 0), walk(pick, 1), walk(kitchen("two"), 2), strict=True)
    assert [list(episode) for episode in zip(*turns, strict=True)] == alone
    assert alone[0] != alone[1]


def test_a_win_in_one_episode_leaves_the_other_alone() -> None:
    game = kitchen("pick")
    won, _ = play(game, *PUT_MUG)
    other, texts = play(game, "look")
    assert engine.won(game, won) and not engine.won(game, other)
    assert texts == ["You are in the middle of a room. Looking quickly around you, you see nothing."]


def test_threads_may_share_a_game() -> None:
    game = kitchen("two")
    alone = [list(walk(kitchen("two"), seed)) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda seed: list(walk(game, seed)), range(8))) == alone
