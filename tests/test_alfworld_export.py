"""Export in the official layout: what is written, what is refused, what TextWorld makes of it."""

import importlib.util
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from seed_envs.alfworld import engine, export
from seed_envs.alfworld.embedded import EmbeddedSource
from seed_envs.alfworld.export import export_split
from seed_envs.alfworld.grammar import MOVE, PUT
from seed_envs.alfworld.official import OfficialSource
from seed_envs.alfworld.problem import compile_game
from seed_envs.alfworld.sources import GameText
from seed_envs.errors import ConfigError, DataError, MissingDependency
from seed_envs.tasks import Task, TaskSet

SOURCE = EmbeddedSource()
SOME = SOURCE.tasks("valid_unseen").sample(7, seed=3)


@pytest.fixture(scope="module")
def logic(shared: Path) -> Path:
    """A folder with the released domain and grammar."""
    return shared / "data" / "alfworld"


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_an_export_is_an_official_split(tmp_path: Path, logic: Path) -> None:
    assert export_split(SOURCE, SOME, tmp_path / "out", logic=logic) == 7
    read = OfficialSource(tmp_path / "out")
    assert read.splits == ("valid_unseen",)
    assert list(read.tasks("valid_unseen")) == list(SOME), "ids, categories and content hashes survive"
    for name in ("alfred.pddl", "alfred.twl2"):
        assert (tmp_path / "out" / "logic" / name).read_bytes() == (logic / name).read_bytes()
    for task in SOME:
        text = read.load(task)
        assert text.grammar is MOVE
        game = json.loads((tmp_path / "out" / "json_2.1.1" / task.id / "game.tw-pddl").read_text())
        assert list(game) == ["pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"]
        assert game["solvable"] is True
        world = compile_game(text.problem, text.instruction, text.grammar)
        state = world.start
        for command in game["walkthrough"]:
            state = engine.step(world, state, command).state
        assert engine.won(world, state)


def test_trajectory_data_has_what_upstream_reads(tmp_path: Path, logic: Path) -> None:
    export_split(SOURCE, SOME, tmp_path, logic=logic)
    for task in SOME:
        _, folder, trial = task.id.split("/")
        kind, wanted, _, target, scene = folder.split("-")
        look = kind == "look_at_obj_in_light"
        assert json.loads((tmp_path / "json_2.1.1" / task.id / "traj_data.json").read_text()) == {
            "task_id": trial,
            "task_type": kind,
            "pddl_params": {
                "object_target": wanted,
                "parent_target": "" if look else target,
                "toggle_target": target if look else "",
                "mrecep_target": "",
                "object_sliced": False,
            },
            "scene": {"floor_plan": f"FloorPlan{scene}", "scene_num": int(scene)},
            "turk_annotations": {"anns": []},
        }
    assert {task.category for task in SOME} >= {"look_at_obj_in_light", "pick_two_obj_and_place"}


class Failing(EmbeddedSource):
    """A source that fails at its third game."""

    left = 2

    def load(self, task: Task) -> GameText:
        if not self.left:
            raise DataError("no more")
        self.left -= 1
        return super().load(task)


def test_an_interrupted_export_leaves_whole_games_and_is_completed(tmp_path: Path, logic: Path) -> None:
    with pytest.raises(DataError, match="no more"):
        export_split(Failing(), SOME, tmp_path / "one", logic=logic)
    assert list(OfficialSource(tmp_path / "one").tasks("valid_unseen")) == list(SOME)[:2]
    export_split(SOURCE, SOME, tmp_path / "one", logic=logic)
    export_split(SOURCE, SOME, tmp_path / "two", logic=logic)
    export_split(SOURCE, SOME[:1], tmp_path / "two", logic=logic)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_splits_may_share_a_folder(tmp_path: Path, logic: Path) -> None:
    export_split(SOURCE, SOME, tmp_path, logic=logic)
    export_split(SOURCE, SOURCE.tasks("valid_seen")[:2], tmp_path, logic=logic)
    assert OfficialSource(tmp_path).splits == ("valid_seen", "valid_unseen")


def test_foreign_folders_are_refused_untouched(tmp_path: Path, logic: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        export_split(SOURCE, SOME, tmp_path, logic=logic)
    with pytest.raises(ConfigError, match="is a file"):
        export_split(SOURCE, SOME, tmp_path / "thesis.txt", logic=logic)
    assert files(tmp_path) == {"thesis.txt": b"mine"}


def test_official_games_are_not_mixed_with_generated_ones(tmp_path: Path, logic: Path) -> None:
    trial = tmp_path / "json_2.1.1/valid_unseen/pick_and_place_simple-Mug-None-Desk-308/trial_T20190908_125200_737896"
    trial.mkdir(parents=True)
    (trial / "game.tw-pddl").write_text("{}")
    with pytest.raises(ConfigError, match="mixed split"):
        export_split(SOURCE, SOME, tmp_path, logic=logic)
    assert len(files(tmp_path)) == 1


def test_games_are_not_exported_onto_themselves(tmp_path: Path, logic: Path) -> None:
    export_split(SOURCE, SOME, tmp_path, logic=logic)
    before = files(tmp_path)
    official = OfficialSource(tmp_path)
    with pytest.raises(ConfigError, match="where the games come from"):
        export_split(official, official.tasks("valid_unseen"), tmp_path, logic=logic)
    assert files(tmp_path) == before


def test_logic_that_does_not_fit_is_refused(tmp_path: Path, logic: Path) -> None:
    with pytest.raises(DataError, match=r"alfred\.pddl and alfred\.twl2"):
        export_split(SOURCE, SOME, tmp_path / "out", logic=tmp_path)
    grammar = (logic / "alfred.twl2").read_text()
    with pytest.raises(DataError, match="'put'"):
        export.fill_grammar(grammar, replace(SOURCE.load(SOME[0]), grammar=PUT))
    with pytest.raises(DataError, match="filled in already"):
        export.fill_grammar(grammar.replace("UNKNOWN GOAL", "wash up"), SOURCE.load(SOME[0]))
    assert not (tmp_path / "out").exists()


def test_without_alfworld_the_error_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'seed-suite\[alfworld\]'.*alfred\.twl2"):
        export_split(SOURCE, SOME, tmp_path / "out")


def test_ids_that_are_no_official_paths_are_refused(tmp_path: Path, logic: Path) -> None:
    class Odd(EmbeddedSource):
        def tasks(self, split: str) -> TaskSet:
            return TaskSet([replace(SOME[0], id="../../elsewhere-1/trial")])

    with pytest.raises(ConfigError, match="official layout"):
        export_split(Odd(), Odd().tasks("valid_unseen"), tmp_path / "a" / "b", logic=logic)
    assert not list(tmp_path.rglob("*elsewhere*"))


@pytest.mark.alfworld
def test_textworld_plays_exported_games_and_the_walkthrough_wins(tmp_path: Path) -> None:
    from seed_envs.alfworld.textworld import TextWorldBackend

    export_split(SOURCE, SOME, tmp_path)
    assert "alfworld" not in sys.modules, "its files are read, it is not imported"
    assert "ALFWORLD_DATA" not in os.environ
    backend = TextWorldBackend()
    official = OfficialSource(tmp_path)
    for task in SOME:
        text = official.load(task)
        shown, game = backend.begin(text), compile_game(text.problem, text.instruction, text.grammar)
        state = game.start
        assert shown.text == engine.intro(game, state)
        assert shown.admissible == list(engine.admissible(game, state))
        for command in json.loads((tmp_path / "json_2.1.1" / task.id / "game.tw-pddl").read_text())["walkthrough"]:
            assert not shown.won
            shown, outcome = backend.act(command), engine.step(game, state, command)
            state = outcome.state
            assert shown.text == outcome.text
            assert shown.admissible == list(engine.admissible(game, state))
        assert shown.won
    backend.close()
