"""The native engine against the real TextWorld, live; and the backend that runs it."""

import importlib.util
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from test_alfworld_engine import kitchen_problem
from test_alfworld_grammar import LOCATION_NAMED, PUT_FEEDBACK, PUT_VERB, edited, without_help

from seed_envs.alfworld import engine, oracle, textworld
from seed_envs.alfworld.embedded import EmbeddedSource
from seed_envs.alfworld.export import export_split
from seed_envs.alfworld.grammar import MOVE, PUT
from seed_envs.alfworld.official import read_game
from seed_envs.alfworld.problem import TASK_TYPES, compile_game
from seed_envs.alfworld.sources import GameText
from seed_envs.alfworld.textworld import Shown, TextWorldBackend
from seed_envs.errors import ConfigError, DataError, SeedError, WorkerDied

pytestmark = [
    pytest.mark.alfworld,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("alfworld", "textworld", "fast_downward")),
        reason="alfworld and textworld are not installed; type: pip install 'seed-suite[alfworld]'",
    ),
]


@pytest.fixture(scope="module")
def parity() -> ModuleType:
    """The benchmark that compares both sides; what it measures is what is tested here."""
    path = Path(__file__).parent.parent / "benchmarks" / "alfworld_parity.py"
    spec = importlib.util.spec_from_file_location("alfworld_parity", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shared_backend() -> Iterator[TextWorldBackend]:
    """One process for all comparisons: imports are paid once, and games must not leak into each other."""
    backend = TextWorldBackend()
    yield backend
    backend.close()


@pytest.fixture
def backend() -> Iterator[TextWorldBackend]:
    """A process of the test's own."""
    backend = TextWorldBackend()
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def small_games(alfworld_root: Path) -> dict[str, GameText]:
    """The game with the shortest problem of each task type: the one TextWorld loads fastest."""
    found: dict[str, tuple[int, str]] = {}
    for path in sorted(alfworld_root.glob("json_2.1.1/valid_*/*/*/game.tw-pddl")):
        kind = path.parent.parent.name.split("-")[0]
        found[kind] = min(found.get(kind, (sys.maxsize, "")), (path.stat().st_size, str(path)))
    assert set(found) == set(TASK_TYPES)
    return {kind: read_game(Path(path)) for kind, (_, path) in found.items()}


def house(goal: str = "pick", o: str = "Mug", r: str = "Desk") -> GameText:
    """The engine tests' kitchen; too few facts to load slowly."""
    return GameText(kitchen_problem(goal, o, r), 'do "it" {now} [#].', MOVE)


# --- the same game on both sides -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_official_games_play_the_same(
    kind: str, small_games: dict[str, GameText], shared_backend: TextWorldBackend, parity: ModuleType
) -> None:
    choose = parity.random_commands("test", kind)
    assert list(parity.differences(shared_backend, small_games[kind], choose, 14)) == []


def test_at_least_two_of_them_are_kitchens(small_games: dict[str, GameText]) -> None:
    assert sum("Fridge_bar" in text.problem and "Microwave_bar" in text.problem for text in small_games.values()) >= 2


@pytest.mark.parametrize(
    ("seed", "goal"),
    [(0, ("look", "Apple", "DeskLamp")), (1, ("two", "Mug", "Desk")), (2, ("heat", "Apple", "Microwave"))],
)
def test_a_house_full_of_quirks_plays_the_same(
    seed: int, goal: tuple[str, str, str], shared_backend: TextWorldBackend, parity: ModuleType
) -> None:
    """Shared locations, a cabinet without a door, vessels, knives, a lamp: 100 commands each."""
    assert list(parity.differences(shared_backend, house(*goal), parity.random_commands("house", seed), 100)) == []


def test_the_old_grammar_plays_the_same_from_its_file(
    shared: Path, shared_backend: TextWorldBackend, parity: ModuleType, tmp_path: Path
) -> None:
    """``put``, no ``help``, and locations where the newer grammar names places."""
    grammar = (shared / "data/alfworld/alfred.twl2").read_text(encoding="utf-8").replace("UNKNOWN GOAL.", "put it.")
    domain = (shared / "data/alfworld/alfred.pddl").read_text(encoding="utf-8")
    content = {
        "pddl_domain": domain[: domain.index("(:action help")] + ")",  # its last action
        "grammar": edited(without_help(grammar), PUT_VERB, PUT_FEEDBACK, LOCATION_NAMED),
        "pddl_problem": kitchen_problem("two"),
    }
    (tmp_path / "game.tw-pddl").write_text(json.dumps(content), encoding="utf-8")
    text = read_game(tmp_path / "game.tw-pddl")
    assert text.grammar is PUT
    assert list(parity.differences(shared_backend, text, parity.random_commands("old"), 60)) == []
    shared_backend.begin(text)
    assert shared_backend.act("go to fridge 1").text == "You arrive at loc 4. The fridge 1 is closed."


def test_wins_are_told_on_both_sides(
    small_games: dict[str, GameText], shared_backend: TextWorldBackend, parity: ModuleType
) -> None:
    text = min(small_games.values(), key=lambda text: len(text.problem))
    assert text.path is not None
    walkthrough = json.loads(text.path.read_bytes())["walkthrough"]
    commands = [command for step in walkthrough for command in ("dance", step)]
    assert list(parity.differences(shared_backend, text, parity.scripted(commands), len(commands))) == []
    assert shared_backend.act("look").won


@pytest.mark.parametrize("kind", ["look_at_obj_in_light", "pick_heat_then_place_in_recep", "pick_two_obj_and_place"])
def test_a_generated_game_exported_is_won_in_textworld_by_the_oracle(
    kind: str, shared_backend: TextWorldBackend, parity: ModuleType, tmp_path: Path
) -> None:
    source = EmbeddedSource()
    tasks = [task for task in source.tasks("valid_unseen") if task.category == kind]
    task = min(tasks, key=lambda task: (len(source.load(task).problem), task.id))
    assert export_split(source, [task], tmp_path / "data") == 1
    exported = read_game(tmp_path / "data" / "json_2.1.1" / task.id / "game.tw-pddl")
    assert exported.path is not None
    game = compile_game(exported.problem, exported.instruction, exported.grammar)
    plan = oracle.plan(game, game.start)
    assert list(parity.differences(shared_backend, exported, parity.scripted(plan), len(plan))) == []
    assert shared_backend.act("look").won
    if kind == "look_at_obj_in_light":  # small; the other kinds would only take longer
        assert shared_backend.begin(source.load(task)) == shared_backend.begin(exported)


def test_the_comparison_notices_differences(parity: ModuleType) -> None:
    class Liar:
        def begin(self, text: GameText) -> Shown:
            game = compile_game(text.problem, text.instruction, MOVE)
            return Shown(engine.intro(game, game.start), list(engine.admissible(game, game.start)), True)

        def act(self, command: str) -> Shown:
            return Shown("Nothing happened.", ["look"], False)

    found = list(parity.differences(Liar(), house(), parity.scripted(["look"]), 1))
    assert [line.split(":")[0] for line in found] == ["turn 0 '' won", "turn 1 'look' text", "turn 1 'look' admissible"]


# --- the backend -----------------------------------------------------------------------------------------------------


def test_the_instruction_may_differ_from_the_file(
    small_games: dict[str, GameText], shared_backend: TextWorldBackend
) -> None:
    text = min(small_games.values(), key=lambda text: len(text.problem))
    own = shared_backend.begin(text)
    told = shared_backend.begin(GameText(text.problem, 'Put the "thing" {there}.', text.grammar, text.path))
    assert own.text.endswith(f"\n\nYour task is to: {text.instruction}")
    assert told.text == own.text.replace(text.instruction, 'Put the "thing" {there}.')


def test_two_backends_do_not_disturb_each_other(shared_backend: TextWorldBackend, backend: TextWorldBackend) -> None:
    games = [house("pick"), house("two")]
    lanes = [["go to desk 1", "take apple 1 from desk 1", "look"], ["go to fridge 1", "open fridge 1", "inventory"]]
    alone = [
        [shared_backend.begin(game), *map(shared_backend.act, lane)] for game, lane in zip(games, lanes, strict=True)
    ]
    backends = [shared_backend, backend]
    together = [[b.begin(game)] for b, game in zip(backends, games, strict=True)]
    for turn in range(3):
        for lane, b in enumerate(backends):
            together[lane].append(b.act(lanes[lane][turn]))
    assert together == alone


def test_a_killed_child_is_told_and_replaced(backend: TextWorldBackend) -> None:
    first = backend.begin(house())
    assert backend._child is not None
    os.kill(backend._child.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match=r"process ended \(signal 9\); begin the game again"):
        backend.act("look")
    with pytest.raises(SeedError, match="no TextWorld game is running"):
        backend.act("look")
    assert backend.begin(house()) == first
    assert backend.act("go to desk 1").text.startswith("You arrive at desk 1.")


def test_a_child_that_hangs_is_ended(backend: TextWorldBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.begin(house())
    assert backend._child is not None
    os.kill(backend._child.pid, signal.SIGSTOP)
    monkeypatch.setattr(textworld, "TIMEOUT", 0.2)
    with pytest.raises(WorkerDied, match=r"did not answer within 0\.2 s"):
        backend.act("look")


def test_a_child_that_cannot_start_says_why(
    backend: TextWorldBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "textworld.py").write_text("raise ImportError('torn install')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(WorkerDied, match="exit status 1: ImportError: torn install"):
        backend.begin(house())


@pytest.mark.parametrize("content", ["", "{}", '{"pddl_problem": "(:goal)", "grammar": "none"}'])
def test_a_torn_file_is_refused(backend: TextWorldBackend, tmp_path: Path, content: str) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_text(content)
    with pytest.raises(DataError, match=r"game\.tw-pddl"):
        backend.begin(GameText("", "", MOVE, path))


def test_a_game_textworld_refuses_leaves_the_backend_usable(backend: TextWorldBackend) -> None:
    with pytest.raises(DataError, match="TextWorld cannot load the game") as error:
        backend.begin(GameText("(define (problem p) (:init) (:goal (and", "x", MOVE))
    assert "\n" not in str(error.value)
    assert backend.begin(house()).won is False


def test_the_old_grammar_needs_a_file(backend: TextWorldBackend) -> None:
    with pytest.raises(ConfigError, match="backend='native'"):
        backend.begin(GameText(kitchen_problem(), "x", PUT))


def test_close_may_be_repeated_and_ends_the_child(backend: TextWorldBackend) -> None:
    backend.close()
    backend.begin(house())
    assert backend._child is not None
    pid = backend._child.pid
    backend.close()
    backend.close()
    assert not Path(f"/proc/{pid}").exists() or not Path("/proc").exists()
    assert backend.begin(house()).admissible


def first_text(backend: TextWorldBackend) -> str:
    try:
        return backend.begin(house()).text
    finally:
        backend.close()


def test_it_travels_to_worker_processes(shared_backend: TextWorldBackend) -> None:
    """Pickled before and after first use; the copy has a process of its own."""
    expected = shared_backend.begin(house()).text
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(first_text, shared_backend).result() == expected
    assert pickle.loads(pickle.dumps(TextWorldBackend()))._child is None
    assert shared_backend.act("look").text.startswith("You are in the middle of a room.")


def test_the_child_ends_with_its_parent(cli_env: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    program = (
        "import os, pickle, sys\n"
        "from seed_envs.alfworld.textworld import TextWorldBackend\n"
        "backend = TextWorldBackend()\n"
        "backend.begin(pickle.loads(bytes.fromhex(sys.argv[1])))\n"
        "print(backend._child.pid, flush=True)\n"
        "os._exit(9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, pickle.dumps(house()).hex()],
        env=cli_env(), cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 9, done.stderr
    deadline = time.monotonic() + 10
    while Path(f"/proc/{int(done.stdout)}/exe").exists():  # a zombie has no exe
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.05)


def test_neither_streams_nor_arguments_nor_data_folders_are_touched(
    backend: TextWorldBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "absent"))
    before = list(sys.argv), sys.stdout
    backend.begin(house())
    assert (list(sys.argv), sys.stdout) == before
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
