"""Boxoban's official level files as splits."""

import tarfile
from pathlib import Path

import pytest

from seed_envs.errors import DataError, UnknownName
from seed_envs.sokoban import boxoban, engine, health, solver
from seed_envs.sokoban.boxoban import BoxobanLevels
from seed_envs.sokoban.env import SokobanEnv
from seed_envs.tasks import TaskSet

LEVEL = """\
##########
#@ ..    #
#  $$    #
#        #
#        #
#  $$    #
#  ..    #
#        #
#        #
##########"""


def write(root: Path, folder: str, stem: str, *levels: str) -> Path:
    path = root / folder / f"{stem}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"; {number}\n{level}\n\n" for number, level in enumerate(levels)))
    return root


@pytest.fixture(scope="module")
def official(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the official release: every split, some of its files."""
    root = tmp_path_factory.mktemp("sokoban") / "boxoban"
    with tarfile.open(shared / "data/sokoban/boxoban_subset.tar.xz") as tar:
        tar.extractall(root, filter="data")
    return root


def test_official_levels_are_found_in_order(official: Path) -> None:
    levels = BoxobanLevels(official.parent)
    assert levels.splits == tuple(boxoban.FOLDERS)
    sizes = {split: len(levels.tasks(split)) for split in levels.splits}
    assert sizes == {
        "hard": 3_332, "medium-train": 2_000, "medium-valid": 2_000,
        "unfiltered-train": 10_000, "unfiltered-valid": 2_000, "unfiltered-test": 1_000,
    }  # fmt: skip
    hard = levels.tasks("hard")
    assert (hard[0].id, hard[-1].id) == ("boxoban/hard/000/000", "boxoban/hard/003/331")
    assert hard.categories == {"hard": 3_332}
    assert levels.tasks("medium-valid").get("boxoban/medium/valid/001/017").split == "medium-valid"


def test_every_official_level_reads_back_and_is_a_task(official: Path) -> None:
    levels = BoxobanLevels(official)
    tasks = levels.tasks("hard")
    plain = TaskSet(list(tasks), name=tasks.name)
    assert tasks.ids == plain.ids == tuple(sorted(plain.ids))
    assert list(tasks.sample(20)) == list(plain.sample(20))
    task = tasks.get("boxoban/hard/002/345")
    level = levels.load(task)
    assert (level.difficulty, level.kind) == (None, "unknown")
    text = (official / "hard/002.txt").read_text().split("; 345\n")[1].split("\n\n")[0]
    assert "\n".join(engine.rows(level.room, level.start, engine.XSB)) == text
    assert level.start.boxes.bit_count() == level.room.targets.bit_count() == 4


@pytest.mark.parametrize("split", ["hard", "medium-valid", "unfiltered-test"])
def test_the_oracle_solves_official_levels(official: Path, split: str) -> None:
    env = SokobanEnv(data=str(official), split=split, observation="text")
    for task in env.tasks.sample(12):
        env.reset(options={"task_id": task.id})
        plan = env.oracle()
        assert [env.step(move)[2] for move in plan] == [False] * (len(plan) - 1) + [True]


@pytest.mark.slow
def test_the_solver_solves_a_thousand_official_levels(official: Path) -> None:
    levels = BoxobanLevels(official)
    for split in ("hard", "medium-valid", "unfiltered-test"):
        for task in levels.tasks(split).sample(334):
            level = levels.load(task)
            assert solver.solve(level.room, level.start), task.id


def test_the_environment_plays_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "sokoban/boxoban", "unfiltered/test", "000", LEVEL, LEVEL.replace("@ ", " @"))
    monkeypatch.setenv("SEED_DATA", str(tmp_path))
    assert SokobanEnv.split_names(data="official") == ("unfiltered-test",)
    env = SokobanEnv(data="official")
    assert env.tasks.ids == ("boxoban/unfiltered/test/000/000", "boxoban/unfiltered/test/000/001")
    observation, info = env.reset(options={"task_id": "boxoban/unfiltered/test/000/001"})
    assert observation["image"].shape == (160, 160, 3)
    assert info["category"] == "unfiltered"
    extra = {"difficulty": None, "difficulty_kind": "unknown", "size": "10x10", "boxes": 4, "on_target": 0.0}
    assert info["extra"] == extra
    assert env.identity()["manifest"] == "boxoban-local/unfiltered-test"
    assert env.notices() == ["unfiltered-test: 2 levels, the release has 1000"]


def test_a_split_is_known_by_its_rows_alone(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "hard", "000", LEVEL, LEVEL)
    two = write(tmp_path / "two", "hard", "000", LEVEL + "\n\n", LEVEL)
    three = write(tmp_path / "three", "hard", "000", LEVEL, LEVEL.replace("@ ", " @"))
    hashes = [BoxobanLevels(root).tasks("hard").sha256 for root in (one, two, three)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (LEVEL.replace("@", " "), r"000\.txt, level 0: a room has one player; got 0"),
        (LEVEL.replace("$$", "$ "), "2 boxes and 4 targets"),
        (LEVEL.replace("##########", "######### ", 1), "outer ring"),
        (LEVEL.replace("@", "?"), "unknown symbols"),
        ("\n".join(LEVEL.split("\n")[:5] + LEVEL.split("\n")[6:]), "is 9x10|2 boxes"),
        ("", "level 0: a room has at least 3 rows"),
    ],
)
def test_a_torn_level_is_refused(tmp_path: Path, level: str, message: str) -> None:
    tasks = BoxobanLevels(write(tmp_path, "hard", "000", level, LEVEL)).tasks("hard")
    with pytest.raises(DataError, match=message):
        tasks[0]
    assert tasks[1].id == "boxoban/hard/000/001", "the others can be played"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no Boxoban levels; expected hard, medium/train.*boxoban-levels"):
        BoxobanLevels(tmp_path)
    (tmp_path / "hard").mkdir()
    (tmp_path / "hard/000.txt").write_text("")
    with pytest.raises(DataError, match="hold no levels"):
        BoxobanLevels(tmp_path).tasks("hard")
    with pytest.raises(UnknownName, match="known: hard"):
        BoxobanLevels(tmp_path).tasks("medium-train")
    (tmp_path / "hard/000.txt").write_text(f"; 7\n{LEVEL}\n")
    with pytest.raises(DataError, match="expected level number 0, got '7'"):
        BoxobanLevels(tmp_path).tasks("hard")[0]


def test_a_level_that_changed_is_refused(tmp_path: Path) -> None:
    levels = BoxobanLevels(write(tmp_path, "hard", "000", LEVEL))
    task = levels.tasks("hard")[0]
    boxoban._levels.cache_clear()
    write(tmp_path, "hard", "000", LEVEL.replace("@ ", " @"))
    with pytest.raises(DataError, match="changed since its split was opened"):
        levels.load(task)
    (tmp_path / "hard/000.txt").unlink()
    boxoban._levels.cache_clear()
    with pytest.raises(DataError, match="cannot read"):
        levels.load(task)


def test_unknown_ids_are_refused(tmp_path: Path) -> None:
    tasks = BoxobanLevels(write(tmp_path, "hard", "000", LEVEL)).tasks("hard")
    for wrong in ("boxoban/hard/000/001", "boxoban/hard/000/0000", "boxoban/hard/001/000", "hard/000/000", "", None):
        with pytest.raises(UnknownName, match="boxoban/hard/000/000"):
            tasks.get(wrong)  # type: ignore[arg-type]


def test_the_doctor_looks_at_the_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED_DATA", str(tmp_path))
    (finding,) = health.doctor()
    assert (finding.status, finding.base) == ("missing", False)
    assert finding.remedy.startswith("python -m seed_envs fetch sokoban ")
    (tmp_path / "sokoban").mkdir()
    assert health.doctor()[0].status == "wrong"
    write(tmp_path / "sokoban/boxoban-levels-master", "hard", "000", LEVEL, LEVEL)
    (finding,) = health.doctor()
    assert finding.status == "ok" and "hard 2" in finding.message
