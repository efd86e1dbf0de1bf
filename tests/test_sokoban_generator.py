"""Rooms from seeds: never a failure, solvable, the same everywhere; and the committed splits."""

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from seed_envs import paths
from seed_envs.errors import ConfigError, DataError, UnknownName
from seed_envs.seeding import Draws
from seed_envs.sokoban import engine, generator, manifest, solver, sources
from seed_envs.sokoban.generator import Level, generate
from seed_envs.tasks import Task, TaskSet, read_manifest


def check(level: Level, height: int, width: int, boxes: int) -> None:
    """A room is closed and has its boxes off their targets, its player on plain floor, and a solution."""
    room, start = level.room, level.start
    assert (room.height, room.width, start.boxes.bit_count()) == (height, width, boxes)
    assert engine.parse(engine.rows(room, start)) == (room, start)
    assert not start.boxes & room.targets
    assert not room.targets >> start.player & 1
    assert sum(solver.flood(room.floor, width, start.player)) == room.floor, "the floor hangs together"
    plan = list(level.plan)
    if boxes <= 2:
        plan = solver.solve(room, start)
        assert (level.kind, level.plan) == ("optimal", ())
        assert 1 <= len(plan) <= generator.LONGEST
    else:
        assert level.kind == "upper_bound"
    assert level.difficulty == len(plan)
    state, solved = start, False
    for move in plan:
        assert not solved
        state, _, solved = engine.step(room, state, 1 + engine.DIRECTIONS.index(move))
    assert solved


@pytest.mark.parametrize(("side", "boxes", "distinct"), [(6, 1, 1_700), (7, 2, 1_990), (10, 4, 2_000)])
def test_two_thousand_seeds_make_sound_rooms(side: int, boxes: int, distinct: int) -> None:
    found = set()
    for seed in range(2_000):
        begun = time.monotonic()
        level = generate.__wrapped__(side, side, boxes, seed)
        assert time.monotonic() - begun < 2
        check(level, side, side, boxes)
        found.add((level.room, level.start))
    assert len(found) >= distinct


def test_every_size_and_number_of_boxes_that_fits_works() -> None:
    for height, width in [(5, 5), (5, 6), (6, 5), (5, 12), (12, 5), (8, 8), (13, 9)]:
        for boxes in range(1, generator.max_boxes(height, width) + 1):
            for seed in range(12):
                check(generate(height, width, boxes, seed), height, width, boxes)
    check(generate(32, 32, 30, 0), 32, 32, 30)


@pytest.mark.parametrize(
    ("height", "width", "boxes"), [(5, 5, 1), (5, 5, 3), (5, 9, 7), (9, 5, 2), (9, 5, 7), (32, 32, 2)]
)
def test_the_room_of_last_resort_is_sound(height: int, width: int, boxes: int) -> None:
    for seed in range(3):
        check(generator._plain(Draws(seed), height, width, boxes), height, width, boxes)


@pytest.mark.parametrize(
    ("height", "width", "boxes", "message"),
    [
        (4, 6, 1, "cannot make a 4x6 room; expected a size from 5x5 to 32x32"),
        (6, 33, 1, "6x33"),
        (6, 6, 0, "with 0 boxes; expected 1 to 4"),
        (6, 6, 5, "with 5 boxes; expected 1 to 4"),
    ],
)
def test_what_does_not_fit_is_refused(height: int, width: int, boxes: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generate(height, width, boxes, 0)
    with pytest.raises(ConfigError, match="not negative"):
        generate(6, 6, 1, -1)


def test_a_room_depends_on_every_argument() -> None:
    rooms = [
        generate(6, 6, 1, 1),
        generate(6, 6, 1, 2),
        generate(6, 7, 1, 1),
        generate(7, 6, 1, 1),
        generate(6, 6, 2, 1),
    ]
    assert len({engine.rows(level.room, level.start)[2] + str(level) for level in rooms}) == len(rooms)


def test_rooms_are_the_ones_first_published() -> None:
    """A change here changes what published runs were about: raise ``generator.VERSION`` and say so."""
    digest = hashlib.sha256()
    for arguments in [(6, 6, 1), (7, 8, 2), (10, 10, 4), (5, 5, 3)]:
        for seed in range(20):
            level = generate(*arguments, seed)
            digest.update(sources.content_sha256(level.room, level.start).encode())
    assert generator.VERSION == 1
    assert digest.hexdigest() == "b3f6f8ade7c25a819d006d87e6ab5318f6a5cd65f09a702728caffa9d1c1dfe5"


CHILD = """
import hashlib, random
import numpy
from seed_envs.sokoban.env import SokobanEnv
before = random.getstate(), str(numpy.random.get_state())
digest = hashlib.sha256()
for kwargs in ({}, {"size": "7x7", "boxes": 2}, {"split": "unseen"}):
    env = SokobanEnv(render_mode="ansi", **kwargs)
    for seed in range(200):
        observation, info = env.reset(seed=seed)
        digest.update(f"{info['task_id']} {env.render()}".encode() + observation["image"].tobytes())
assert (random.getstate(), str(numpy.random.get_state())) == before
print(digest.hexdigest())
"""


def test_rooms_and_pixels_are_the_same_in_every_process(cli_env: Callable[..., dict[str, str]]) -> None:
    children = [
        subprocess.run([sys.executable, "-c", CHILD], env=cli_env(PYTHONHASHSEED=seed), capture_output=True, text=True)
        for seed in ("0", "1", "random")
    ]
    assert [child.stderr for child in children] == ["", "", ""]
    assert len(children[0].stdout) == 65
    assert len({child.stdout for child in children}) == 1


def test_the_committed_splits_are_what_was_promised() -> None:
    splits = read_manifest(paths.manifest_path(sources.NAME))
    assert {name: len(tasks) for name, tasks in splits.items()} == {"train": 3_000, "seen": 128, "unseen": 128}
    for name, tasks in splits.items():
        counts = tasks.categories
        assert sorted(counts) == ["long", "medium", "short"]
        assert max(counts.values()) - min(counts.values()) <= 2, (name, counts)
    kinds = {name: {task.id.split("/")[1] for task in tasks} for name, tasks in splits.items()}
    assert kinds == {"train": {"6x6-1box"}, "seen": {"6x6-1box"}, "unseen": {"7x7-2box", "8x8-2box"}}


def test_every_committed_room_is_made_from_its_id_alone() -> None:
    embedded = sources.EmbeddedRooms()
    shapes: set[tuple[str, ...]] = set()
    for split in embedded.splits:
        for task in embedded.tasks(split):
            level = embedded.load(task)  # refuses a room that is not the manifest's
            assert level.difficulty is not None
            assert len(solver.solve(level.room, level.start)) == level.difficulty <= 12
            assert task.category == sources.band(level.difficulty)
            shapes.add(manifest.shape(level.room, level.start))
    assert len(shapes) == 3_256, "no room is there twice, turned and mirrored ones included"


def test_the_manifest_is_built_by_its_program() -> None:
    built = sorted(manifest.build())
    committed = read_manifest(paths.manifest_path(sources.NAME))
    assert built == sorted(task for tasks in committed.values() for task in tasks)


def test_shapes_forget_turns_and_mirrors() -> None:
    rows = ["######", "##_O##", "##_X##", "#____#", "#P___#", "######"]
    turned = ["".join(column) for column in zip(*rows[::-1], strict=True)]
    mirrored = [row[::-1] for row in rows]
    shapes = {manifest.shape(*engine.parse(form)) for form in (rows, turned, mirrored, rows[::-1])}
    assert len(shapes) == 1
    assert manifest.shape(*engine.parse(["######", "##_O##", "##_X##", "#____#", "#_P__#", "######"])) not in shapes


def test_a_room_that_is_not_its_manifests_is_refused() -> None:
    embedded = sources.EmbeddedRooms()
    task = embedded.tasks("seen")[0]
    with pytest.raises(DataError, match="not the room its manifest lists"):
        embedded.load(Task(task.id, task.split, task.category, "0" * 64))
    with pytest.raises(DataError, match="no id of a generated room"):
        embedded.load(Task("sokoban/6x6", "seen", "short", "0" * 64))


def test_rooms_of_any_seed_form_a_task_set() -> None:
    tasks = sources.RandomRooms(5, 6, 2).tasks("random")
    plain = TaskSet(list(tasks), name=tasks.name)
    assert len(tasks) == len(plain) == 10_000
    assert tasks.ids == plain.ids == tuple(sorted(plain.ids))
    assert tasks[17] == plain[17] == tasks.get("sokoban/5x6-2box/000017")
    assert tasks[-1] == plain[-1]
    assert list(tasks[3:6]) == list(plain[3:6])
    assert tasks.categories == plain.categories == {"5x6-2box": 10_000}
    assert list(tasks.sample(30, seed=4)) == list(plain.sample(30, seed=4))
    assert list(tasks.limit("0.002")) == list(plain.limit("0.002"))
    assert list(tasks.subset(reversed(tasks.ids[5:9]))) == list(plain[5:9])
    for wrong in ("sokoban/5x6-2box/17", "sokoban/5x6-1box/000017", "sokoban/5x6-2box/010000", "", None):
        with pytest.raises(UnknownName, match="000000 to sokoban/5x6-2box/009999"):
            tasks.get(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot take 0"):
        tasks.sample(0)
    with pytest.raises(IndexError):
        tasks[10_000]
    assert tasks.sha256 != sources.RandomRooms(6, 5, 2).tasks("random").sha256
