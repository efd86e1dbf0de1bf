"""``SokobanEnv``: actions, flags, observations, the oracle, and the contract in every mode."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from seed_envs.check import Subject, check_env
from seed_envs.errors import ConfigError, SeedError, UnknownName
from seed_envs.seeding import Draws
from seed_envs.sokoban import engine
from seed_envs.sokoban.env import INSTRUCTION, PICTURE_TEXT, SokobanEnv
from seed_envs.sokoban.solver import Unreachable
from seed_envs.vector import GroupVectorEnv

MOVES = ["down", "left", "right", "up"]


def maker(turns: int = 15, **kwargs: Any) -> Callable[[], gym.Env[Any, Any]]:
    """Return a maker with a turn limit that a worker process can call."""
    entry = "seed_envs.sokoban.env:SokobanEnv"
    return functools.partial(gym.make, EnvSpec("test/Sokoban-v0", entry, max_episode_steps=turns, kwargs=kwargs))


def text_env(**kwargs: Any) -> SokobanEnv:
    return SokobanEnv(observation="text", **kwargs)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"split": "unseen", "observation": "tiny"},
        {"split": "seen", "observation": "text", "parity": "verl_agent"},
        {"size": "5x6", "boxes": 3, "observation": "text", "turns": 200},
    ],
    ids=str,
)
def test_every_mode_keeps_the_contract(kwargs: dict[str, Any]) -> None:
    report = check_env(maker(**kwargs), max_tasks=5)
    report.raise_if_failed()
    # Without a registered id the suite cannot make the other splits; see the next test.
    assert [finding.check for finding in report.findings if finding.status == "not applicable"] == ["splits"]


def test_splits_have_tasks_of_their_own() -> None:
    envs = {split: SokobanEnv(split=split) for split in SokobanEnv.split_names()}
    ids = [task.id for env in envs.values() for task in env.tasks]
    assert len(ids) == len(set(ids)) == 3_256
    assert {(name, task.split) for name, env in envs.items() for task in env.tasks} == {(name, name) for name in envs}
    assert SokobanEnv().split == "train"
    assert SokobanEnv(split="random").tasks.sha256 == SokobanEnv(size="6x6", boxes=1).tasks.sha256


@pytest.mark.parametrize("word", engine.DIRECTIONS)
def test_a_direction_is_admissible_even_where_it_is_blocked(word: str) -> None:
    env = text_env()
    seen = set()
    for seed in range(20):
        before, _ = env.reset(seed=seed)
        after, reward, terminated, truncated, info = env.step(word)
        assert info["admissible"] is True and info["reason"] == "" and truncated is False
        assert info["effective"] == (after["text"] != before["text"])
        assert reward == (10.9 if terminated else -0.1)
        assert info["success"] == terminated == (info["score"] == 1.0) == (info["extra"]["on_target"] == 1)
        seen.add(info["effective"])
    assert seen == {True, False}


@pytest.mark.parametrize("action", ["", "Up", " up", "up ", "upward", "right || up", "still", "1", "P", "\x00", "上"])
def test_anything_else_is_refused_and_costs_a_turn(action: str) -> None:
    env = text_env()
    before, _ = env.reset(seed=3)
    after, reward, terminated, truncated, info = env.step(action)
    assert (after, reward, terminated, truncated) == (before, -0.1, False, False)
    assert (info["admissible"], info["effective"], info["turn"]) == (False, False, 1)
    assert "expected up, down, left, right" in info["reason"]
    assert info["admissible_actions"] == MOVES


def test_refused_actions_run_out_of_turns() -> None:
    env = maker(observation="text")()
    env.reset(seed=0)
    answers = [env.step("nothing like it") for _ in range(15)]
    assert [truncated for _, _, _, truncated, _ in answers] == [False] * 14 + [True]
    assert not answers[-1][4]["success"]


@pytest.mark.parametrize(
    ("action", "word"),
    [
        ("right || up", "up"),
        ("support left", "up"),
        ("LEFT", "left"),
        ("leftover", "left"),
        ("stillness", "still"),
        ("down, then right", "down"),
        ("still up", "up"),
        ("", None),
        ("l e f t", None),
        ("jump", None),
    ],
)
def test_parity_reads_actions_as_verl_agent_does(action: str, word: str | None) -> None:
    strict, loose = text_env(), text_env(parity="verl_agent")
    for seed in range(10):
        strict.reset(seed=seed)
        loose.reset(seed=seed)
        ours, theirs = strict.step(word or ""), loose.step(action)
        assert theirs[:4] == ours[:4]
        assert theirs[4]["admissible"] == (word is not None)
        assert theirs[4]["effective"] == ours[4]["effective"]


def test_still_changes_nothing_but_the_turn() -> None:
    env = maker(observation="text", parity="verl_agent")()
    before, _ = env.reset(seed=0)
    for turn in range(1, 16):
        after, reward, terminated, truncated, info = env.step("still")
        assert (after, reward, terminated, info["turn"]) == (before, -0.1, False, turn)
        assert (info["admissible"], info["effective"]) == (True, False)
    assert truncated


@pytest.mark.parametrize(
    ("kwargs", "shape"),
    [
        ({"split": "train"}, (96, 96, 3)),
        ({"split": "unseen"}, (128, 128, 3)),
        ({"size": "7x9"}, (112, 144, 3)),
        ({"size": (7, 9), "observation": "tiny"}, (7, 9, 3)),
        ({"split": "seen", "observation": "tiny"}, (6, 6, 3)),
    ],
    ids=str,
)
def test_pictures_fit_their_space(kwargs: dict[str, Any], shape: tuple[int, ...]) -> None:
    env = SokobanEnv(**kwargs)
    assert env.observation_space["image"] == gym.spaces.Box(0, 255, shape, np.uint8)
    observation, info = env.reset(seed=0)
    assert observation in env.observation_space
    assert observation["text"] == PICTURE_TEXT
    assert info["instruction"] == INSTRUCTION
    changed = next(o for o, *_, i in map(env.step, MOVES) if i["effective"])
    assert (changed["image"] != observation["image"]).any()
    changed["image"][:] = 0  # an observation is the reader's own
    assert env.step("no such move")[0]["image"].any()


def test_a_smaller_room_of_a_mixed_split_is_shown_with_more_wall() -> None:
    env = SokobanEnv(split="unseen", observation="tiny")
    task = next(task for task in env.tasks if "7x7" in task.id)
    image = env.reset(options={"task_id": task.id})[0]["image"]
    alone = SokobanEnv(size="7x7", boxes=2, observation="tiny")._source.load(task)
    assert image.shape == (8, 8, 3)
    assert not image[7].any() and not image[:, 7].any()
    assert image[:7, :7].any(axis=2).sum() == alone.room.floor.bit_count()


def test_text_observations_have_no_picture() -> None:
    env = text_env()
    observation, info = env.reset(seed=1)
    assert set(observation) == {"text"} == set(env.observation_space)
    assert len(observation["text"].split("\n")) == 6
    assert 1 <= info["extra"].pop("difficulty") <= 12
    assert info["extra"] == {"difficulty_kind": "optimal", "size": "6x6", "boxes": 1, "on_target": 0.0}


def test_render_modes() -> None:
    env = SokobanEnv(render_mode="ansi")
    assert env.render() is None
    observation, _ = env.reset(seed=1)
    assert env.render() == text_env().reset(seed=1)[0]["text"]
    env = SokobanEnv(render_mode="rgb_array", observation="text")
    env.reset(seed=1)
    assert (env.render() == observation["image"]).all()


@pytest.mark.parametrize("split", ["train", "seen", "unseen"])
def test_the_oracle_solves_embedded_rooms_in_the_known_number_of_turns(split: str) -> None:
    env = text_env(split=split)
    for task in env.tasks[:: max(1, len(env.tasks) // 100)]:
        _, info = env.reset(options={"task_id": task.id})
        plan = env.oracle()
        assert len(plan) == info["extra"]["difficulty"] <= 12
        *_, (_, reward, terminated, _, info) = [env.step(move) for move in plan]
        assert terminated and info["success"] and info["score"] == 1.0 and reward == 10.9
        assert env.oracle() == []


@pytest.mark.parametrize(("size", "boxes", "turns"), [("7x7", 2, 25), ("10x10", 4, 300)])
def test_planning_anew_each_turn_never_goes_astray(size: str, boxes: int, turns: int) -> None:
    env = text_env(size=size, boxes=boxes)
    noisy, wandered = Draws("noise"), 0
    for seed in range(12):
        env.reset(seed=seed)
        try:
            for move in [noisy.choice(MOVES) for _ in range(4)]:
                env.step(move)
            wandered += env.oracle() != []
        except Unreachable:
            continue
        for _ in range(turns):
            if env.step(env.oracle()[0])[2]:
                break
        else:
            raise AssertionError(f"seed {seed}: not solved in {turns} turns")
    assert wandered > 5


def test_the_way_the_room_was_made_solves_it() -> None:
    env = text_env(size="10x10", boxes=5)
    _, info = env.reset(seed=0)
    plan = env.oracle()
    assert len(plan) == info["extra"]["difficulty"] and info["extra"]["difficulty_kind"] == "upper_bound"
    assert [env.step(move)[2] for move in plan] == [False] * (len(plan) - 1) + [True]


def test_a_stuck_box_is_out_of_the_oracles_reach() -> None:
    env = text_env(split="seen")
    stuck = 0
    for task in env.tasks[:40]:
        env.reset(options={"task_id": task.id})
        draws = Draws("stumble", task.id)
        while not stuck and env._turn < 40 and not env._over:
            env.step(draws.choice(MOVES))
            try:
                env.oracle()
            except Unreachable as error:
                stuck += 1
                assert str(error) == "no plan solves the room from here: a box is stuck"
    assert stuck


def test_the_oracle_needs_an_episode() -> None:
    with pytest.raises(ConfigError, match="reset"):
        text_env().oracle()


def test_a_seed_decides_the_room_and_unseeded_resets_differ() -> None:
    env = text_env(size="6x6")
    rooms = [env.reset(seed=seed)[0]["text"] for seed in range(200)]
    assert rooms == [text_env(size="6x6").reset(seed=seed)[0]["text"] for seed in range(200)]
    assert len(set(rooms)) >= 190
    assert len({text_env().reset(seed=seed)[0]["text"] for seed in range(200)}) >= 190
    env.reset(seed=7)
    later = [env.reset()[0]["text"] for _ in range(8)]
    assert len(set(later)) > 6
    env.reset(seed=7)
    assert later == [env.reset()[0]["text"] for _ in range(8)]


def test_a_group_has_one_room() -> None:
    envs = GroupVectorEnv(maker(), num_tasks=2, group_size=4)
    observations, infos = envs.reset(seed=5)
    first, second = observations["image"][:4], observations["image"][4:]
    assert all((image == first[0]).all() for image in first)
    assert all((image == second[0]).all() for image in second)
    assert len(set(infos["task_id"])) == 2
    envs.close()


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"split": "valid"}, UnknownName, "unknown split 'valid'"),
        ({"observation": "rbg"}, UnknownName, "did you mean rgb"),
        ({"parity": "ragen"}, UnknownName, "verl_agent"),
        ({"render_mode": "human"}, UnknownName, "rgb_array"),
        ({"size": "6"}, ConfigError, "rows and columns such as '6x6'"),
        ({"size": "6x6x6"}, ConfigError, "rows and columns"),
        ({"size": (6.0, 6)}, ConfigError, "rows and columns"),
        ({"size": "4x4"}, ConfigError, "expected a size from 5x5 to 32x32"),
        ({"boxes": 5}, ConfigError, "6x6 room with 5 boxes; expected 1 to 4"),
        ({"boxes": "two"}, ConfigError, "expected an integer"),
        ({"size": "6x6", "split": "train"}, UnknownName, "unknown split 'train'; did you mean random"),
        ({"split": "random", "data": "/no/such/folder"}, SeedError, "/no/such/folder does not exist"),
        ({"data": "official", "boxes": 4}, ConfigError, "levels from files have a size of their own"),
        ({"data": "/no/such/folder"}, SeedError, "/no/such/folder does not exist; expected hard, medium/train"),
    ],
    ids=str,
)
def test_wrong_arguments_say_what_to_type(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        SokobanEnv(**kwargs)
    assert "\n" not in str(caught.value)


def test_split_names() -> None:
    assert SokobanEnv.split_names() == ("train", "seen", "unseen")
    assert SokobanEnv.split_names(observation="text", size="7x7") == ("random",)


def test_a_task_id_of_another_set_is_refused() -> None:
    env = text_env(size="7x7", boxes=2)
    with pytest.raises(UnknownName, match="sokoban/7x7-2box/000000"):
        env.reset(options={"task_id": "sokoban/6x6-1box/000000"})
    assert env.reset(options={"task_id": "sokoban/7x7-2box/000042"})[1]["task_id"] == "sokoban/7x7-2box/000042"


def test_the_checks_notice_a_broken_sokoban(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SokobanEnv, "_word", lambda self, action: "up")
    report = check_env(maker(observation="text"), max_tasks=2, only=["junk"])
    assert not report.ok
    assert Subject(maker()).task_ids
