"""The ALFWorld environment: arguments, reasons, limits and what an episode depends on."""

import gc
import tracemalloc

import gymnasium as gym
import pytest

from seed_envs import ConfigError, UnknownName
from seed_envs.alfworld.env import ALFWorldEnv


def started(task: int = 0, **kwargs: object) -> ALFWorldEnv:
    env = ALFWorldEnv(split="valid_seen", **kwargs)  # type: ignore[arg-type]
    env.reset(seed=0, options={"task_id": env.tasks[task].id})
    return env


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "test"}, "unknown split 'test'"),
        ({"backend": "textwold"}, "did you mean textworld"),
        ({"goal_style": "poetic"}, "unknown goal style"),
        ({"render_mode": "human"}, "unknown render mode"),
        ({"data": "/nowhere"}, "does not exist"),
    ],
)
def test_wrong_arguments_are_answered_in_one_line(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        ALFWorldEnv(**arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_embedded_games_have_no_human_goals() -> None:
    with pytest.raises(ConfigError, match="data='official'"):
        ALFWorldEnv(goal_style="human")


def test_splits_go_by_their_aliases() -> None:
    assert ALFWorldEnv(split="unseen").tasks.ids == ALFWorldEnv(split="valid_unseen").tasks.ids
    assert ALFWorldEnv.split_names() == ("train", "valid_seen", "valid_unseen")


def test_the_first_observation_ends_with_the_goal() -> None:
    env = ALFWorldEnv(split="valid_unseen")
    for task in env.tasks[::13]:
        observation, info = env.reset(seed=1, options={"task_id": task.id})
        assert observation["text"].startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.")
        assert observation["text"].endswith(f"\n\nYour task is to: {info['instruction']}")
        assert info["category"] == task.category
        assert info["turn"] == 0 and info["admissible"] is None and info["effective"] is None


def test_a_refused_command_prints_upstreams_words_and_explains_itself_aside() -> None:
    env = started()
    for command, reason in [
        ("put mug 1 in/on desk 1", "this game's grammar says 'move OBJECT to PLACE'"),
        ("", "empty command"),
        ("Look", "commands are lower case"),
        ("go to moon 1", "there is no place called 'moon 1' here"),
        ("dance", "not a command of this game: see the admissible actions"),
        (
            "take moon 1 from desk 1",
            "not possible now: see the admissible actions for what is reachable, open and in hand",
        ),
    ]:
        observation, reward, terminated, truncated, info = env.step(command)
        assert observation["text"] == "Nothing happens."
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert (info["admissible"], info["effective"], info["reason"]) == (False, False, reason)
    assert info["turn"] == 6


def test_places_that_share_a_spot_refuse_go_to_and_say_why() -> None:
    env = ALFWorldEnv(split="train")
    for task in env.tasks:
        env.reset(options={"task_id": task.id})
        game = env._game
        assert game is not None
        shared = next((group for group in game.at_location if len(group) > 1), None)
        if shared:
            break
    assert shared is not None, "no embedded house has places that share a spot"
    first, second = (game.receptacles[r] for r in shared[:2])
    env.step(f"go to {first}")
    _, _, _, _, info = env.step(f"go to {second}")
    assert not info["admissible"]
    assert info["reason"].startswith(f"already at {second} (it shares its spot with ")
    assert f"go to {second}" not in info["admissible_actions"]
    assert f"examine {second}" in info["admissible_actions"]


def test_looking_is_admissible_but_changes_nothing() -> None:
    env = started()
    for command in ("look", "inventory", "help"):
        _, _, _, _, info = env.step(command)
        assert (info["admissible"], info["effective"], info["reason"]) == (True, False, "")


def test_blanks_around_a_command_are_upstreams_to_strip() -> None:
    env = started()
    observation, *_ = env.step("  inventory \n")
    assert observation["text"] == "You are not carrying anything."


def test_the_limit_truncates_and_is_no_success_and_a_win_on_the_last_turn_is() -> None:
    env = gym.make("seed_envs/ALFWorld-v0", split="valid_seen", max_episode_steps=3)
    env.reset(seed=0)
    for turn in range(3):
        _, reward, terminated, truncated, info = env.step("look")
        assert (reward, terminated, truncated, info["success"]) == (0.0, False, turn == 2, False)
    tasks = env.unwrapped.tasks  # type: ignore[attr-defined]
    env.reset(seed=0, options={"task_id": tasks[0].id})
    plan = env.unwrapped.oracle()  # type: ignore[attr-defined]
    exact = gym.make("seed_envs/ALFWorld-v0", split="valid_seen", max_episode_steps=len(plan))
    exact.reset(seed=0, options={"task_id": tasks[0].id})
    for command in plan:
        _, reward, terminated, _, info = exact.step(command)
    assert (reward, terminated, info["success"], info["score"]) == (1.0, True, True, 1.0)


def test_rendering_shows_the_last_observation() -> None:
    env = started(render_mode="ansi")
    observation, *_ = env.step("inventory")
    assert env.render() == observation["text"]
    assert started().render() is None


def test_the_oracle_needs_an_episode_and_unknown_ids_name_near_ones() -> None:
    env = ALFWorldEnv(split="valid_seen")
    with pytest.raises(ConfigError, match="call reset"):
        env.oracle()
    with pytest.raises(UnknownName, match="did you mean"):
        env.reset(options={"task_id": env.tasks[5].id[:-1]})
    with pytest.raises(ValueError, match="unknown reset option 'task'"):
        env.reset(options={"task": env.tasks[5].id})


def test_memory_does_not_grow_with_resets() -> None:
    env = ALFWorldEnv(split="valid_seen")

    def play(episodes: int) -> int:
        for number in range(episodes):
            env.reset(seed=number, options={"task_id": env.tasks[number % 20].id})
            for command in ("look", "inventory", "dance"):
                env.step(command)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before, after = play(40), play(200)
    finally:
        tracemalloc.stop()
    assert after - before < 50_000, "a reset keeps something of the episode before"
