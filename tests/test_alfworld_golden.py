"""Every recorded upstream trace, replayed through the native engine without a difference.

The traces were printed by TextWorld 1.7.0 with alfworld 0.4.2 on official games.
"""

import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seed_envs.alfworld import engine
from seed_envs.alfworld.grammar import MOVE
from seed_envs.alfworld.problem import TASK_TYPES, compile_game

LIMIT = 50


@pytest.fixture(scope="module")
def traces(shared: Path) -> list[dict[str, Any]]:
    with lzma.open(shared / "golden/alfworld/traces.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def games(shared: Path, traces: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The packed rows of the traced games, by id."""
    wanted = {trace["game"] for trace in traces}
    found = {}
    with lzma.open(shared / "data/alfworld/games_json_2.1.1.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.split('"', 4)[3] in wanted:  # the id comes first; most rows need no parsing
                row = json.loads(line)
                found[row["game"]] = row
    return found


def replay(trace: dict[str, Any], row: dict[str, Any]) -> tuple[int, list[str]]:
    """Play a trace's commands; return how many, and every difference from what it recorded."""
    game = compile_game(row["pddl_problem"], row["goal"], MOVE)
    state, initial, differences = game.start, trace["initial"], []

    def compare(turn: int, command: str, **pairs: tuple[object, object]) -> None:
        differences.extend(
            f"{trace['game']} turn {turn} {command!r} {name}: {ours!r} for {theirs!r}"
            for name, (ours, theirs) in pairs.items()
            if ours != theirs
        )

    offered = engine.admissible(game, state)
    compare(
        0,
        "",
        kind=(game.goal.kind, trace["task_type"]),
        text=(engine.intro(game, state), initial["observation"]),
        admissible=(list(offered), initial["admissible_commands"]),
        won=(engine.won(game, state), initial["won"]),
    )
    shown: dict[str, Any] = {"done": False}
    for turn, step in enumerate(trace["steps"], 1):
        if not shown["done"]:  # after that upstream repeats its last result, whatever the command
            state, text, _ = engine.step(game, state, step["command"], offered)
            offered, won = engine.admissible(game, state), engine.won(game, state)
            shown = {"text": text, "admissible": list(offered), "won": won, "done": won or turn >= LIMIT}
        compare(
            turn,
            step["command"],
            text=(shown["text"], step["observation"]),
            admissible=(shown["admissible"], step["admissible_commands"]),
            won=(shown["won"], step["won"]),
            score=(int(shown["won"]), step["score"]),
            done=(shown["done"], step["done"]),
        )
    return len(trace["steps"]), differences


def test_every_trace_replays_without_a_difference(
    traces: list[dict[str, Any]], games: dict[str, dict[str, Any]]
) -> None:
    assert len(games) == len({trace["game"] for trace in traces})
    replayed = [replay(trace, games[trace["game"]]) for trace in traces]
    assert [line for _, lines in replayed for line in lines] == []
    assert sum(turns for turns, _ in replayed) == 1_410


def test_the_traces_are_the_ones_described(traces: list[dict[str, Any]]) -> None:
    assert len(traces) == 48
    assert set(Counter(trace["task_type"] for trace in traces)) == set(TASK_TYPES)
    assert {trace["max_episode_steps"] for trace in traces} == {LIMIT}
    assert sum(any(step["won"] for step in trace["steps"]) for trace in traces) == 32
    assert any(step["done"] and not step["won"] for trace in traces for step in trace["steps"])


def test_the_replay_notices_a_difference(traces: list[dict[str, Any]], games: dict[str, dict[str, Any]]) -> None:
    trace = json.loads(json.dumps(next(t for t in traces if t["style"] == "walkthrough")))
    trace["steps"][0]["observation"] += " "
    trace["steps"][1]["admissible_commands"].pop()
    trace["steps"][-1]["won"] = not trace["steps"][-1]["won"]
    _, differences = replay(trace, games[trace["game"]])
    assert len(differences) == 3
