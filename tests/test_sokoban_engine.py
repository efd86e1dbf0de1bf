"""Rules, rewards and text of Sokoban, and plans through its rooms."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seed_envs.errors import DataError
from seed_envs.sokoban import engine, solver
from seed_envs.sokoban.engine import DIRECTIONS, Outcome, Room, State
from seed_envs.sokoban.generator import Level, generate
from seed_envs.sokoban.solver import Unreachable


def play(rows: str, *actions: int) -> tuple[list[float], str]:
    """Return the rewards of actions and the rows after them, joined by blanks like the input."""
    room, state = engine.parse(rows.split())
    rewards = []
    for action in actions:
        state, reward, _ = engine.step(room, state, action)
        rewards.append(reward)
    return rewards, " ".join(engine.rows(room, state))


UP, DOWN, LEFT, RIGHT = 1, 2, 3, 4


@pytest.mark.parametrize(
    ("before", "action", "reward", "after"),
    [
        ("##### #P__# #_XO# #####", DOWN, -0.1, "##### #___# #PXO# #####"),  # a plain step
        ("##### #P__# #_XO# #####", UP, -0.1, "##### #P__# #_XO# #####"),  # into a wall
        ("##### #P__# #_XO# #####", engine.STILL, -0.1, "##### #P__# #_XO# #####"),
        ("##### #___# #PXO# #####", RIGHT, 10.9, "##### #___# #_P√# #####"),  # the last box home
        ("###### #____# #P√_X# #__O_# ######", RIGHT, -1.1, "###### #____# #_SXX# #__O_# ######"),  # off its target
        ("###### #____# #PXOX# #__O_# ######", RIGHT, 0.9, "###### #____# #_P√X# #__O_# ######"),  # on, but not all
        ("###### #PX√O# #_X_O# #____# ######", RIGHT, -0.1, "###### #PX√O# #_X_O# #____# ######"),  # a box behind it
        ("###### #OP√X# #____# ######", RIGHT, -0.1, "###### #OP√X# #____# ######"),
        ("##### #OXP# #___# #####", DOWN, -0.1, "##### #OX_# #__P# #####"),
        ("##### #O_P# #_X_# #####", LEFT, -0.1, "##### #OP_# #_X_# #####"),
        ("##### #OP_# #_X_# #####", LEFT, -0.1, "##### #S__# #_X_# #####"),  # onto a target
        ("##### #S__# #_X_# #####", RIGHT, -0.1, "##### #OP_# #_X_# #####"),  # and off it
        ("##### #OP_# #_X_# #####", DOWN, -0.1, "##### #OP_# #_X_# #####"),  # a wall behind it
        ("##### #___# #PXO# #####", RIGHT + 4, -0.1, "##### #___# #PXO# #####"),  # move never pushes
        ("##### #___# #PXO# #####", UP + 4, -0.1, "##### #P__# #_XO# #####"),
    ],
)
def test_one_action(before: str, action: int, reward: float, after: str) -> None:
    assert play(before, action) == ([reward], after)


def test_a_box_on_its_target_at_the_start_earns_nothing_by_itself() -> None:
    assert play("###### #P_√_# #_X_O# ######", DOWN)[0] == [-0.1]


def test_stepping_on_after_the_end_pays_again_as_upstream_does() -> None:
    assert play("##### #___# #PXO# #####", RIGHT, LEFT, engine.STILL)[0] == [10.9, 9.9, 9.9]


@pytest.mark.parametrize("action", [-1, 9, 100])
def test_other_actions_are_errors(action: int) -> None:
    with pytest.raises(ValueError, match="expected 0 to 8"):
        play("##### #___# #PXO# #####", action)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least 3 rows"),
        (["###", "#P#"], "at least 3 rows"),
        (["#####", "#PXO#", "####"], "of one length"),
        (["#####", "#PX?#", "#####"], r"unknown symbols \['\?'\]"),
        (["#####", "#PXO_", "#####"], "outer ring"),
        (["#####", "#_XO#", "#####"], "one player; got 0"),
        (["######", "#PPXO#", "######"], "one player; got 2"),
        (["#####", "#PX_#", "#####"], "1 boxes and 0 targets"),
        (["#####", "#P__#", "#####"], "0 boxes and 0 targets"),
    ],
)
def test_what_is_no_room_is_refused(rows: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        engine.parse(rows)


@pytest.mark.parametrize("alphabet", [engine.SYMBOLS, engine.XSB])
def test_text_reads_back(alphabet: str) -> None:
    for seed in range(50):
        level = generate(7, 9, 3, seed)
        rows = engine.rows(level.room, level.start, alphabet)
        assert engine.parse(rows, alphabet) == (level.room, level.start)


levels = st.builds(generate, st.integers(5, 9), st.integers(5, 9), st.integers(1, 3), st.integers(0, 10_000))


@given(levels, st.lists(st.integers(0, 8), max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_play_keeps_the_room_whole(level: Level, actions: list[int]) -> None:
    room, state = level.room, level.start
    for action in actions:
        before = state
        state, reward, solved = engine.step(room, state, action)
        assert state.boxes.bit_count() == before.boxes.bit_count()
        assert not state.boxes & ~room.floor and room.floor >> state.player & 1
        assert not state.boxes >> state.player & 1
        assert abs(state.player - before.player) in (0, 1, room.width)
        assert reward == reward_of(room, before, Outcome(state, reward, solved))
        assert engine.parse(engine.rows(room, state)) == (room, state)


def reward_of(room: Room, before: State, outcome: Outcome) -> float:
    """The rewards said again: by counting rows of text."""
    old, new = ("".join(engine.rows(room, state)).count("√") for state in (before, outcome.state))
    reward = -0.1 + (new > old) - (new < old)
    return reward + 10 if outcome.solved and new == room.targets.bit_count() else reward


@given(levels, st.lists(st.sampled_from(range(1, 5)), max_size=40))
@settings(max_examples=40, deadline=None)
def test_a_pull_undoes_every_push(level: Level, actions: list[int]) -> None:
    room, state = level.room, level.start
    for action in actions:
        before = state
        state = engine.step(room, state, action).state
        if state.boxes != before.boxes:
            offset = room.offsets[action - 1]
            ahead, back = state.player + offset, state.player - offset
            assert State(state.boxes ^ (1 << ahead) ^ (1 << state.player), back) == before


def shortest(room: Room, start: State) -> int | None:
    """Search breadth first, one move at a time, with nothing but the rules."""
    queue, seen = deque([(start, 0)]), {start}
    while queue:
        state, moves = queue.popleft()
        if engine.solved(room, state):
            return moves
        for action in engine.PUSH:
            after = engine.step(room, state, action).state
            if after not in seen:
                seen.add(after)
                queue.append((after, moves + 1))
    return None


@pytest.mark.parametrize(("side", "boxes", "count"), [(5, 2, 25), (6, 1, 60), (7, 2, 15)])
def test_plans_are_as_short_as_can_be_from_anywhere(side: int, boxes: int, count: int) -> None:
    stuck = 0
    for seed in range(count):
        level = generate(side, side, boxes, seed)
        assert shortest(level.room, level.start) == level.difficulty
        state = level.start
        for action in [1 + (seed * 7 + i * i) % 4 for i in range(6)]:
            state = engine.step(level.room, state, action).state
        best = shortest(level.room, state)
        if best is None:
            stuck += 1
            with pytest.raises(Unreachable, match="stuck"):
                solver.solve(level.room, state)
        else:
            assert len(solver.solve(level.room, state)) == best
    assert stuck, "some of these rooms must be spoilt, or this says nothing about it"


def follow(room: Room, state: State, plan: list[str]) -> bool:
    for move in plan:
        state = engine.step(room, state, 1 + DIRECTIONS.index(move)).state
    return engine.solved(room, state)


def test_a_search_gives_up_within_its_bound() -> None:
    level = generate(10, 10, 4, 3)
    with pytest.raises(Unreachable, match="within 2 positions"):
        solver.solve(level.room, level.start, limit=2)


def test_many_boxes_are_planned_for_too() -> None:
    level = generate(9, 9, 7, 1)
    assert level.start.boxes.bit_count() == 7
    assert follow(level.room, level.start, solver.solve(level.room, level.start))


def test_a_solved_room_needs_no_plan() -> None:
    assert solver.solve(*engine.parse(["#####", "#P_√#", "#####"])) == []
