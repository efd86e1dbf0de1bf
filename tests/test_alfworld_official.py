"""The official games: counts, order, what is skipped and why, and every way they can be broken."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from seed_agent.policy import make_player
from seed_agent.rollout import Request, env_record, play
from seed_envs import DataError, EnvMaker, GroupVectorEnv, UnknownName, paths
from seed_envs.alfworld.env import ALFWorldEnv
from seed_envs.alfworld.grammar import MOVE, PUT
from seed_envs.alfworld.official import GAME_FILE, OfficialSource, open_source, released

COUNTS = {  # pick, look, clean, heat, cool, pick two
    "train": (790, 308, 650, 459, 533, 813),
    "valid_seen": (35, 13, 27, 16, 25, 24),
    "valid_unseen": (24, 18, 31, 23, 21, 17),
}
TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)


def win_all(root: Path, split: str) -> int:
    maker = EnvMaker("seed_envs/ALFWorld-v0", {"data": str(root), "split": split})
    envs = GroupVectorEnv(maker, num_tasks=8)
    tasks = envs.prototype.unwrapped.tasks
    record = env_record(maker, envs.prototype)
    episodes = list(play((Request(t) for t in tasks), make_player("scripted:oracle"), envs, record))
    envs.close()
    assert [e.task_id for e in episodes if not e.success] == []
    return len(episodes)


@pytest.mark.parametrize("split", COUNTS)
def test_the_committed_manifest_has_the_known_counts(split: str) -> None:
    wanted = dict(sorted(zip(TYPES, COUNTS[split], strict=True)))
    assert released(split).categories == wanted
    assert len(released(split)) == {"train": 3553, "valid_seen": 140, "valid_unseen": 134}[split]


def test_unseen_means_four_floor_plans_that_train_lacks() -> None:
    def plans(split: str) -> set[str]:
        return {task.id.split("/")[1].rsplit("-", 1)[1] for task in released(split)}

    assert plans("valid_unseen") == {"10", "219", "308", "424"}
    assert not plans("valid_unseen") & plans("train")


@pytest.mark.parametrize("split", ["valid_seen", "valid_unseen"])
def test_the_release_is_recognised_and_the_oracle_wins_every_game(alfworld_root: Path, split: str) -> None:
    source = OfficialSource(alfworld_root)
    assert source.tasks(split).sha256 == released(split).sha256
    assert source.tasks(split).name == f"alfworld-official/{split}"
    assert source.describe(split)["skipped"] == {}
    assert win_all(alfworld_root, split) == sum(COUNTS[split])


@pytest.mark.slow
def test_the_oracle_wins_every_training_game_and_opening_again_is_quick(alfworld_train_root: Path) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in alfworld_train_root.rglob("*"))
    assert win_all(alfworld_train_root, "train") == 3553
    assert OfficialSource(alfworld_train_root).tasks("train").sha256 == released("train").sha256
    started = time.perf_counter()
    OfficialSource(alfworld_train_root).tasks("train")
    assert time.perf_counter() - started < 1.0
    assert sorted((p, p.stat().st_mtime_ns) for p in alfworld_train_root.rglob("*")) == before


def some_games(root: Path, dest: Path, count: int, *, backwards: bool = False) -> Path:
    tasks = list(OfficialSource(root).tasks("valid_seen"))[::11][:count]
    for task in reversed(tasks) if backwards else tasks:
        shutil.copytree(root / "json_2.1.1" / task.id, dest / "json_2.1.1" / task.id)
    return dest


def edit(game: Path, **changes: Any) -> None:
    content = json.loads(game.read_text()) | changes
    game.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def games(root: Path) -> list[Path]:
    return sorted(root.rglob(GAME_FILE))


def test_order_ids_and_hash_do_not_depend_on_the_machine(alfworld_root: Path, tmp_path: Path) -> None:
    one = OfficialSource(some_games(alfworld_root, tmp_path / "one", 12)).tasks("valid_seen")
    two = OfficialSource(some_games(alfworld_root, tmp_path / "two", 12, backwards=True)).tasks("valid_seen")
    assert one.ids == two.ids == tuple(sorted(one.ids))
    assert one.sha256 == two.sha256
    assert one.limit(5).ids == two.limit(5).ids
    assert not any(str(tmp_path) in task_id for task_id in one.ids)
    assert one.name == "alfworld-local/valid_seen"


def test_games_are_skipped_as_upstream_does_and_counted_by_reason(alfworld_root: Path, tmp_path: Path) -> None:
    root = some_games(alfworld_root, tmp_path, 6)
    first, second, third, *_ = games(root)
    edit(first, solvable=None)
    edit(second, solvable=False)
    third.unlink()
    split = root / "json_2.1.1" / "valid_seen"
    shutil.copytree(games(root)[-1].parent, split / "pick_and_place_simple-Mug-movable_recep-Desk-1" / "trial_1")
    shutil.copytree(games(root)[-1].parent, split / "pick_and_place_simple-AppleSliced-None-Desk-1" / "trial_1")
    source = OfficialSource(root)
    assert source.describe("valid_seen") == {
        "tasks": 3,
        "categories": source.tasks("valid_seen").categories,
        "skipped": {
            "movable or sliced": 2,
            "unsolvable": 1,
            "without a game file": 1,
            "without a solvable mark": 1,
        },
        "missing": 137,
        "added": 0,
        "changed": 0,
    }
    notices = ALFWorldEnv(data=str(root), split="seen").notices()
    assert "valid_seen: skipped 1 games unsolvable" in notices
    assert any("137 missing" in line for line in notices)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda game: game.write_text(game.read_text()[:5000]), "not valid JSON"),
        (lambda game: game.write_bytes(b""), "not valid JSON"),
        (lambda game: game.write_text("[]"), "holds no game"),
        (lambda game: edit(game, pddl_problem=None), "no 'pddl_problem'"),
        (lambda game: edit(game, grammar=17), "no 'grammar'"),
        (lambda game: edit(game, grammar="grammar :: nothing"), "no goal sentence"),
        (lambda game: edit(game, pddl_problem="(define (problem x) (:init))"), "no (:goal"),
    ],
)
def test_a_spoilt_game_is_named_in_one_line(alfworld_root: Path, tmp_path: Path, spoil: Any, message: str) -> None:
    root = some_games(alfworld_root, tmp_path, 3)
    spoil(games(root)[1])
    with pytest.raises(DataError) as caught:
        OfficialSource(root).tasks("valid_seen")
    assert message in str(caught.value)
    assert games(root)[1].parent.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_grammars_in_one_split_are_refused_and_either_alone_is_played(alfworld_root: Path, tmp_path: Path) -> None:
    root = some_games(alfworld_root, tmp_path, 4)
    olds = games(root)

    def to_put(game: Path) -> None:
        content = json.loads(game.read_text())
        old = content["grammar"].replace("move {o} to {r}", "put {o} in/on {r}")
        old = old.replace("You move the {o.name} to the {r.name}", "You put the {o.name} in/on the {r.name}")
        old = old.replace("You arrive at {r.name}.", "You arrive at {lend.name}.")
        edit(game, grammar=old[: old.index("action help")])

    to_put(olds[0])
    with pytest.raises(DataError, match=r"mixes grammars \(3 move, 1 put\)"):
        OfficialSource(root).tasks("valid_seen")
    for game in olds[1:]:
        to_put(game)
    source = OfficialSource(root)
    task = source.tasks("valid_seen")[0]
    assert source.load(task).grammar == PUT != MOVE
    assert win_all(root, "valid_seen") == 4


def test_changing_a_file_changes_the_task_and_a_stale_task_is_refused(alfworld_root: Path, tmp_path: Path) -> None:
    root = some_games(alfworld_root, tmp_path, 3)
    source = OfficialSource(root)
    before = source.tasks("valid_seen")
    game = games(root)[0]
    content = json.loads(game.read_text())
    edit(game, pddl_problem=content["pddl_problem"].replace("Apple", "Pear"), walkthrough=[])
    with pytest.raises(DataError, match="changed since"):
        source.load(before[0])
    after = OfficialSource(root).tasks("valid_seen")
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True, True]


def test_white_space_and_walkthrough_are_not_content(alfworld_root: Path, tmp_path: Path) -> None:
    root = some_games(alfworld_root, tmp_path, 2)
    before = OfficialSource(root).tasks("valid_seen")
    game = games(root)[0]
    problem = json.loads(game.read_text())["pddl_problem"]
    edit(game, pddl_problem=problem.replace("\n", "\n\n "), walkthrough=["look"])
    assert OfficialSource(root).tasks("valid_seen").sha256 == before.sha256


@pytest.mark.parametrize("torn", [b"", b"{", b'{"version": 1}', b"[]", b'{"version": 0, "rows": {}}'])
def test_a_torn_index_is_made_anew(alfworld_root: Path, tmp_path: Path, torn: bytes) -> None:
    root = some_games(alfworld_root, tmp_path / "data", 2)
    folder = paths.cache_root() / "alfworld-index"
    others = set(folder.iterdir())
    before = OfficialSource(root).tasks("valid_seen")
    (index,) = set(folder.iterdir()) - others
    index.write_bytes(torn)
    assert OfficialSource(root).tasks("valid_seen").sha256 == before.sha256
    assert index.read_bytes() != torn


def test_missing_data_name_the_place_and_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for root in (tmp_path / "absent", tmp_path):
        with pytest.raises(DataError, match="python -m seed_envs fetch alfworld") as caught:
            OfficialSource(root)
        assert str(root) in str(caught.value)
    (tmp_path / "json_2.1.1" / "valid_seen").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no playable game .*empty folder"):
        OfficialSource(tmp_path).tasks("valid_seen")
    with pytest.raises(UnknownName, match="known: valid_seen"):
        OfficialSource(tmp_path).tasks("train")
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match="elsewhere does not exist"):
        ALFWorldEnv(data="official", split="valid_seen")


def test_a_split_folder_itself_can_be_the_root(alfworld_root: Path) -> None:
    assert len(OfficialSource(alfworld_root / "json_2.1.1").tasks("valid_unseen")) == 134


def test_human_goals_come_from_the_trial_and_depend_on_the_seed_alone(alfworld_root: Path) -> None:
    env = ALFWorldEnv(data=str(alfworld_root), split="valid_seen", goal_style="human")
    task = env.tasks[3]
    told = {}
    for seed in range(12):
        observation, info = env.reset(seed=seed, options={"task_id": task.id})
        told[seed] = info["instruction"]
        assert observation["text"].endswith("Your task is to: " + info["instruction"])
        again, _ = env.reset(seed=seed, options={"task_id": task.id})
        assert again == observation
    goals = OfficialSource(alfworld_root).human_goals(task)
    assert {told[s].rstrip(".") for s in told} == {goal.rstrip(".") for goal in goals}
    for _ in range(30):
        _, _, terminated, _, info = env.step(env.oracle()[0])
        if terminated:
            break
    assert info["success"]


def test_human_goals_without_annotations_say_what_to_do(alfworld_root: Path, tmp_path: Path) -> None:
    root = some_games(alfworld_root, tmp_path, 1)
    (games(root)[0].parent / "traj_data.json").unlink()
    env = ALFWorldEnv(data=str(root), split="valid_seen", goal_style="human")
    with pytest.raises(DataError, match="fetch alfworld"):
        env.reset(seed=0)
    with pytest.raises(DataError, match="fetch alfworld"):
        env.identity()


def test_human_sentences_are_part_of_the_data_identity(alfworld_root: Path, tmp_path: Path) -> None:
    def identity(style: str) -> object:
        open_source.cache_clear()
        return ALFWorldEnv(data=str(root), split="valid_seen", goal_style=style).identity()

    root = some_games(alfworld_root, tmp_path, 2)
    before = identity("human"), identity("templated")
    notes = games(root)[0].parent / "traj_data.json"
    notes.write_text(notes.read_text().replace('"task_desc": "', '"task_desc": "please '))
    assert identity("human") != before[0]
    assert identity("templated") == before[1]
