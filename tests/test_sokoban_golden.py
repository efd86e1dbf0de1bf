"""Every recorded upstream room, replayed through the engine without a difference.

The traces were printed by gym-sokoban and by verl-agent's environment on top of it.
"""

import json
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seed_envs.sokoban import engine, solver
from seed_envs.sokoban.engine import BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET, SYMBOLS, TARGET, Room, State

Trace = dict[str, Any]


def read(shared: Path, name: str) -> list[Trace]:
    with lzma.open(shared / f"golden/sokoban/{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def start(trace: Trace) -> tuple[Room, State]:
    """Put the recorded layers together: upstream's state does not say what lies below the player."""
    rows = []
    for fixed, moving in zip(trace["room_fixed"], trace["room_state"], strict=True):
        on_target = [kind == str(TARGET) and cell == str(PLAYER) for kind, cell in zip(fixed, moving, strict=True)]
        codes = [PLAYER_ON_TARGET if on else int(cell) for on, cell in zip(on_target, moving, strict=True)]
        rows.append("".join(SYMBOLS[code] for code in codes))
    return engine.parse(rows)


def grid(room: Room, state: State) -> list[str]:
    digits = ["".join(row) for row in engine.rows(room, state, "0123455")]
    assert all(len(row) == room.width for row in digits)
    return digits


def compare(trace: Trace, turn: int, **pairs: tuple[object, object]) -> Iterator[str]:
    for name, (ours, theirs) in pairs.items():
        if ours != theirs:
            yield f"{trace['generator']} seed {trace['seed']} turn {turn} {name}: {ours!r} for {theirs!r}"


def replay_gym(trace: Trace) -> Iterator[str]:
    room, state = start(trace)
    yield from compare(trace, 0, grid=(grid(room, state), trace["room_state"]))
    for turn, recorded in enumerate(trace["steps"], 1):
        before = state
        state, reward, solved = engine.step(room, before, recorded["action"])
        yield from compare(
            trace,
            turn,
            grid=(grid(room, state), recorded["grid"]),
            reward=(reward, recorded["reward"]),
            done=(solved or turn == trace["max_steps"], recorded["done"]),
            moved_player=(state.player != before.player, recorded["moved_player"]),
            moved_box=(state.boxes != before.boxes, recorded["moved_box"]),
            on_target=((state.boxes & room.targets).bit_count(), recorded["boxes_on_target"]),
        )


def replay_verl_agent(trace: Trace) -> Iterator[str]:
    """Action 0 costs 0.1 there, is not counted as a step, and is never done or won."""
    room, state = start(trace)
    shown = [trace, *trace["steps"]]
    texts = [engine.tabbed(room, state)]
    counted = 0
    for turn, recorded in enumerate(trace["steps"], 1):
        before = state
        state, reward, solved = engine.step(room, before, recorded["action"])
        still = recorded["action"] == engine.STILL
        counted += not still
        texts.append(engine.tabbed(room, state))
        yield from compare(
            trace,
            turn,
            grid=(grid(room, state), recorded["grid"]),
            reward=(engine.TURN_REWARD if still else reward, recorded["reward"]),
            done=(not still and (solved or counted == trace["max_steps"]), recorded["done"]),
            effective=(state != before, recorded["action_is_effective"]),
            won=(solved and not still, recorded["won"]),
        )
    for turn, (row, text) in enumerate(zip(shown, texts, strict=True)):
        if "text" in row:
            yield from compare(trace, turn, text=(text, row["text"]))


REPLAYS = {"gym_sokoban": replay_gym, "verl_agent": replay_verl_agent}


@pytest.mark.parametrize("name", REPLAYS)
def test_every_room_replays_without_a_difference(shared: Path, name: str) -> None:
    traces = read(shared, name)
    assert len(traces) == 300
    assert [line for trace in traces for line in REPLAYS[name](trace)] == []


def test_the_traces_hold_what_they_are_for(shared: Path) -> None:
    gym, verl = read(shared, "gym_sokoban"), read(shared, "verl_agent")
    assert Counter(step["action"] for trace in gym for step in trace["steps"]).keys() == set(range(9))
    assert sum(len(trace["steps"]) for trace in gym) == 9_000
    past_the_end = [s["reward"] for t in gym for s in t["steps"] if s["done"] and s["reward"] == 9.9]
    assert len(past_the_end) > 50, "stepping on while solved pays 10 again"
    assert {10.9, -1.1, 0.9, -0.1} <= {step["reward"] for trace in gym for step in trace["steps"]}
    assert sum("text" in trace["steps"][0] for trace in verl) == 75
    assert any(code in "".join(t["room_state"]) for t in verl for code in str(BOX)), "boxes start off their targets"
    assert not any(str(BOX_ON_TARGET) in "".join(t["room_state"]) for t in gym + verl)


@pytest.mark.parametrize("name", REPLAYS)
def test_the_replay_notices_a_difference(shared: Path, name: str) -> None:
    trace = read(shared, name)[0]
    assert not list(REPLAYS[name](trace))
    trace["steps"][0]["reward"] += 1
    trace["steps"][1]["grid"] = trace["steps"][1]["grid"][::-1]
    trace["steps"][2]["done"] = not trace["steps"][2]["done"]
    assert len(list(REPLAYS[name](trace))) == 3


def test_the_solver_finds_the_recorded_shortest_lengths(shared: Path) -> None:
    known = [trace for trace in read(shared, "verl_agent") if "shortest_solution_length" in trace]
    found = [len(solver.solve(*start(trace))) for trace in known]
    assert found == [trace["shortest_solution_length"] for trace in known]
    assert len(found) == 150


@pytest.mark.parametrize("name", REPLAYS)
def test_the_solver_solves_upstream_rooms(shared: Path, name: str) -> None:
    for trace in read(shared, name):
        room, state = start(trace)
        for move in solver.solve(room, state):
            state, _, solved = engine.step(room, state, 1 + engine.DIRECTIONS.index(move))
        assert solved, trace["seed"]
