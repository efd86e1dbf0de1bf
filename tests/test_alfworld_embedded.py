"""The embedded ALFWorld tasks: what they are, that they can be won, that they are made again alike."""

import lzma
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from seed_envs import paths
from seed_envs.alfworld import embedded, engine, generator, house, oracle
from seed_envs.alfworld.embedded import EmbeddedSource, HouseTask, Scene
from seed_envs.alfworld.official import OfficialSource
from seed_envs.alfworld.problem import TASK_TYPES, Game, Goal, compile_game, read_facts, read_goal
from seed_envs.errors import DataError, UnknownName
from seed_envs.tasks import Task, write_manifest

SOURCE = EmbeddedSource()
ALL = [task for split in SOURCE.splits for task in SOURCE.tasks(split)]


@pytest.fixture(scope="module")
def store() -> tuple[dict[int, Scene], dict[str, HouseTask]]:
    return embedded.read_store(embedded.STORE)


def compiled(task: Task) -> Game:
    text = SOURCE.load(task)
    return compile_game(text.problem, text.instruction, text.grammar)


@pytest.mark.parametrize(
    ("split", "counts"),
    [
        ("train", (133, 52, 110, 78, 90, 137)),
        ("valid_seen", (35, 13, 27, 16, 25, 24)),
        ("valid_unseen", (24, 18, 31, 23, 21, 17)),
    ],
)
def test_splits_have_the_official_numbers_of_each_type(split: str, counts: tuple[int, ...]) -> None:
    tasks = SOURCE.tasks(split)
    assert tasks.name == f"alfworld-embedded/{split}"
    assert tasks.categories == dict(sorted(zip(TASK_TYPES, counts, strict=True)))
    described = SOURCE.describe(split)
    assert described["tasks"] == sum(counts) == len(tasks)
    assert described["categories"] == tasks.categories
    assert list(tasks.ids) == sorted(tasks.ids)


def test_aliases_and_unknown_splits() -> None:
    assert SOURCE.tasks("unseen").name == "alfworld-embedded/valid_unseen"
    with pytest.raises(UnknownName, match="valid_seen"):
        SOURCE.tasks("valid_sen")


def test_ids_are_official_paths_and_say_what_the_task_is() -> None:
    for task in ALL:
        split, folder, trial = task.id.split("/")
        kind, wanted, movable, target, _ = folder.split("-")
        goal = read_goal(read_facts(SOURCE.load(task).problem)[1])
        assert (split, kind, movable) == (task.split, task.category, "None")
        assert goal == Goal(kind, wanted, target)
        assert trial.startswith("trial_")
        assert trial[6:].isdigit()
    assert len({task.id.split("/")[0] + task.id.split("/")[2] for task in ALL}) == len(ALL)


def test_no_task_comes_twice_and_no_room_of_unseen_is_in_train(
    store: tuple[dict[int, Scene], dict[str, HouseTask]],
) -> None:
    scenes, tasks = store
    assert set(tasks) == {task.id for task in ALL}
    assert len({task.sha256 for task in ALL}) == len(ALL)
    assert len({(task.scene, task.objects) for task in tasks.values()}) == len(ALL), "a placement comes twice"
    assert len({(task.scene, task.goal) for task in tasks.values()}) == len(ALL), "a goal comes twice in a room"
    played = {split: {t.scene for t in tasks.values() if t.id.startswith(f"{split}/")} for split in SOURCE.splits}
    assert played["valid_seen"] <= played["train"]
    assert played["valid_unseen"].isdisjoint(played["train"])
    rooms = {number: frozenset(r.id for r in scene.receptacles) for number, scene in scenes.items()}
    assert len(set(rooms.values())) == len(scenes), "two scenes have the same receptacles in the same positions"
    for room in house.ROOMS:
        for split in ("train", "valid_unseen"):
            assert any(scenes[number].room == room for number in played[split])


def test_every_task_is_open_at_the_start_and_the_oracle_wins_it() -> None:
    lengths: Counter[int] = Counter()
    for task in ALL:
        game = compiled(task)
        state = game.start
        assert not engine.won(game, state), task.id
        assert not game.at_location[state.at], "the agent starts away from every receptacle"
        plan = oracle.plan(game, state)
        for command in plan:
            outcome = engine.step(game, state, command)
            assert outcome.admissible, (task.id, command)
            state = outcome.state
        assert engine.won(game, state), task.id
        lengths[len(plan)] += 1
    assert max(lengths) <= generator.LONGEST_PLAN
    assert len(lengths) >= 6


def test_everything_lies_where_it_may_lie(store: tuple[dict[int, Scene], dict[str, HouseTask]]) -> None:
    scenes, tasks = store
    for task in tasks.values():
        scene = scenes[task.scene]
        full = Counter(thing.holder for thing in task.objects)
        for thing in task.objects:
            holder = scene.receptacles[thing.holder]
            assert thing.kind in house.CONTAINS[holder.kind], (task.id, thing)
            assert thing.place == holder.place
            assert full[thing.holder] == 1 or holder.kind not in house.HOLDS_ONE
        ids = [r.id for r in scene.receptacles] + [thing.id for thing in (*scene.scenery, *task.objects)]
        assert len(set(ids)) == len(ids), f"two things of {task.id} have one id"


def test_what_can_be_picked_up_can_be_put_down_in_the_same_room() -> None:
    for task in ALL[::5]:
        game = compiled(task)
        accepted = frozenset[str]().union(*game.accepts)
        held = {
            game.object_types[o] for contents in game.start.contents for o in contents if o in game.able["pickupable"]
        }
        assert held <= accepted, f"{sorted(held - accepted)} of {task.id} could never be put down"


def test_rooms_are_as_varied_as_official_ones(store: tuple[dict[int, Scene], dict[str, HouseTask]]) -> None:
    scenes, tasks = store
    behind: dict[str, list[bool]] = {room: [] for room in house.ROOMS}
    for task in tasks.values():
        scene = scenes[task.scene]
        behind[scene.room] += [scene.receptacles[thing.holder].openable for thing in task.objects]
    share = {room: sum(doors) / len(doors) for room, doors in behind.items()}
    assert 0.2 < share["Kitchen"] < 0.4
    assert all(0.05 < share[room] < 0.3 for room in ("LivingRoom", "Bedroom", "Bathroom"))
    cabinets = Counter(r.openable for scene in scenes.values() for r in scene.receptacles if r.kind == "Cabinet")
    assert cabinets[True] > cabinets[False] > 0
    crowded = [max(Counter(r.place for r in scene.receptacles).values()) for scene in scenes.values()]
    assert {1, 2} <= set(crowded)
    lamps = {scene.room for scene in scenes.values() for thing in scene.scenery if thing.kind.endswith("Lamp")}
    assert lamps == {"LivingRoom", "Bedroom"}
    receptacles = [len(scene.receptacles) for scene in scenes.values()]
    assert min(receptacles) < 12
    assert max(receptacles) > 30


def test_cool_from_the_start_are_the_goals_objects_in_the_fridge() -> None:
    found = 0
    for task in ALL:
        facts, _ = read_facts(SOURCE.load(task).problem)
        fridge = {o for o, r in facts["inReceptacle"] if r.startswith("Fridge")}
        wanted = {o for o in fridge if o.split("_bar_")[0] == task.id.split("-")[1]}
        cool = {o for (o,) in facts["isCool"]}
        assert cool <= wanted
        assert not cool or task.category != "pick_cool_then_place_in_recep"
        found += len(cool)
    assert found > 20


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_both_sentences_of_each_type_are_used(kind: str) -> None:
    goal = Goal(kind, "SoapBar", "GarbageCan")
    sentences = [embedded.sentence(goal, template) for template in (0, 1)]
    told = {SOURCE.load(task).instruction for task in ALL if task.category == kind}
    for sentence in sentences:
        assert sentence.endswith(".")
        before, between = sentence.split("soapbar")[0], sentence.split("soapbar")[1].split("garbagecan")[0]
        assert any(words.startswith(before) and between in words for words in told), sentence


def test_the_store_and_the_manifest_are_made_again_alike(tmp_path: Path) -> None:
    scenes, tasks = generator.generate()
    stored = lzma.decompress(embedded.STORE.read_bytes()).decode()
    assert embedded.store_text(scenes, tasks) == stored
    write_manifest(tmp_path / "again.tsv", generator.manifest_rows(scenes, tasks), title=generator.TITLE)
    assert (tmp_path / "again.tsv").read_bytes() == paths.manifest_path("alfworld-embedded").read_bytes()


def test_the_store_is_small() -> None:
    assert embedded.STORE.stat().st_size < 1_000_000


def test_a_scene_depends_on_its_number_alone(store: tuple[dict[int, Scene], dict[str, HouseTask]]) -> None:
    assert generator.draw_scene("Bedroom", 335) == store[0][335]
    assert generator.draw_scene("Bedroom", 336).receptacles != store[0][335].receptacles


def test_a_source_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(SOURCE))
    assert again.load(ALL[0]) == SOURCE.load(ALL[0])


def test_another_version_of_a_task_is_refused() -> None:
    with pytest.raises(DataError, match="content hash differs"):
        SOURCE.load(replace(ALL[0], sha256="0" * 64))
    with pytest.raises(DataError, match="hold no task"):
        SOURCE.load(replace(ALL[0], id="train/nothing"))


@pytest.mark.parametrize("content", [b"", b"torn", lzma.compress(b"[1]"), lzma.compress(b'{"task": [1]}')])
def test_a_torn_store_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.xz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"store\.xz is no readable store"):
        embedded.read_store(path)
    with pytest.raises(DataError, match=r"nowhere\.xz"):
        embedded.read_store(tmp_path / "nowhere.xz")


def test_the_tables_agree_with_official_games(alfworld_root: Path) -> None:
    official = OfficialSource(alfworld_root)
    games = [official.load(task) for split in ("valid_seen", "valid_unseen") for task in official.tasks(split)[::3]]
    known = {kind for room in house.ROOMS.values() for kind in (*room.stock, *room.scenery)}
    predicates = set()
    for game in games:
        facts, _ = read_facts(game.problem)
        predicates |= set(facts)
        kinds = {o: kind.removesuffix("Type") for o, kind in facts["objectType"]}
        for r, o in facts["canContain"]:
            assert (
                o.removesuffix("Type") not in known or o.removesuffix("Type") in house.CONTAINS[r.removesuffix("Type")]
            )
        here = known & set(kinds.values())
        for ability, able in house.ABILITIES.items():
            stated = {kinds[o] for (o,) in facts.get(ability, ()) if o in kinds}
            assert stated & here == able & here, ability
        carried = {kinds[o] for (o,) in facts["pickupable"] if o in kinds}
        assert here - carried == here & house.FIXED
    ours = {predicate for task in ALL[::7] for predicate in read_facts(SOURCE.load(task).problem)[0]}
    assert ours <= predicates
