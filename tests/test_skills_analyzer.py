"""The analyzer's prompt: the published order of parts, nothing of another split, the middle given up first."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage
from skill_episodes import ALFWORLD, ENV, SEARCHQA, SOKOBAN, WEBSHOP, episode, numbered, pictured, played, turn

from seed_agent.policy import Chat
from seed_agent.skills.analyzer import (
    MAX_CHARS,
    Contaminated,
    EpisodeTooLong,
    analyze,
    outcome_label,
    png_loader,
    sft_pair,
    short_enough,
    task_description,
)
from seed_agent.skills.parse import SkillFields, parse_skill
from seed_agent.skills.skill import Skill
from seed_agent.trajectory import Episode, ErrorRecord
from seed_envs.errors import ConfigError, DataError


def text_of(*args: Any, **kwargs: Any) -> str:
    chat = analyze(*args, **kwargs).chat
    assert [message.role for message in chat] == ["user"]
    return chat[0].text


def test_the_parts_stand_in_the_published_order() -> None:
    text = text_of(numbered(3))
    parts = [
        "valid JSON only",
        "- episode_summary:",
        "- episode_skill:",
        "After a success",
        "After a failure",
        "unknown",
        "Constraints:",
        "No other top-level fields",
        '{"episode_summary": "string", "episode_skill": "string"}',
        "Episode context:",
        "- Task description: put a hot mug in desk.\n",
        "- episode_success: success\n",
        "- Interaction trajectory:\n",
        "Step 0\n",
        "Step 1\n",
        "Step 2\n",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "step_skills" not in text


def test_a_step_shows_raw_observation_full_reply_and_validity() -> None:
    steps = [
        turn(
            "Your task is to: x.\nYou see <b>.", "go to desk 1", reply="<think>hm</think><action>Go to desk 1</action>"
        ),
        turn("Seen.", "fly", admissible=False),
        turn("Seen.", "", reply="I ponder", format_ok=False, admissible=False),
        turn("Seen.", "add 1", admissible=None),
    ]
    text = text_of(episode(steps))
    assert (
        "Step 0\nObservation: Your task is to: x.\nYou see <b>.\n"
        "Response: <think>hm</think><action>Go to desk 1</action>\nAction valid: true\n\n"
        "Step 1\nObservation: Seen.\nResponse: <think>so</think><action>fly</action>\nAction valid: false\n\n"
        "Step 2\nObservation: Seen.\nResponse: I ponder\nAction valid: false\n\n"
        "Step 3\nObservation: Seen.\nResponse: <think>so</think><action>add 1</action>\nAction valid: true"
    ) in text
    assert text.endswith("Action valid: true")


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, "success"),
        ({"success": False, "outcome": "step_limit", "score": 0.9}, "failure"),
        ({"success": False, "outcome": "invalid_format", "score": 0.0}, "failure"),
        ({"success": False, "outcome": "env_error", "error": ErrorRecord(type="E", message="m")}, "unknown"),
        ({"success": False, "outcome": "policy_error", "error": ErrorRecord(type="E", message="m")}, "unknown"),
    ],
)
def test_the_outcome_is_labelled(changes: dict[str, Any], label: str) -> None:
    found = numbered(2, **changes)
    assert outcome_label(found) == label
    assert f"- episode_success: {label}\n" in text_of(found)


def test_the_task_is_read_from_the_first_observation() -> None:
    for state, task in [("Your question: who?", "who?"), ("x\nYour goal is to win.\ny", "win."), ("Go.", "")]:
        assert task_description(episode([turn(state)])) == task
    assert "- Task description: (not available)\n" in text_of(episode([turn("Go.")]))
    assert task_description(pictured(1)) == "Push every box onto a target."
    assert task_description(played(ALFWORLD, "scripted:oracle")[0]).startswith("look at ")


@pytest.mark.parametrize("split", ["valid_seen", "valid_unseen", "test", "seen", "random", "valid_train", ""])
def test_an_episode_of_another_split_is_refused(split: str) -> None:
    found = numbered(2, split=split)
    with pytest.raises(Contaminated, match="training tasks only"):
        analyze(found)
    with pytest.raises(Contaminated):
        sft_pair(found, Skill("", "x", found.task_id, 0, True, "t"))
    assert analyze(found, evaluation=True).steps == 2


def test_training_splits_of_any_data_are_taken() -> None:
    assert analyze(numbered(2, split="medium-train")).steps == 2


@given(st.integers(1, 40), st.integers(0, 6000))
def test_a_long_episode_loses_its_middle_and_nothing_else(count: int, room: int) -> None:
    found = numbered(count)
    whole = text_of(found)
    limit = len(text_of(numbered(1))) + room

    def fits(chat: Chat) -> bool:
        return len(chat[0].text) <= limit

    try:
        short = analyze(found, fits=fits)
    except EpisodeTooLong as error:
        assert len(whole) > limit and "raise its limit" in str(error)
        return
    text = short.chat[0].text
    assert len(text) <= limit and text.startswith(whole[: whole.index("Step 0")])
    shown = [i for i in range(count) if f"Step {i}\nObservation: " in text]
    assert short.elided == count - len(shown) and short.steps == count
    assert {0, count - 1} <= set(shown)
    head, tail = (len(shown) + 1) // 2, len(shown) // 2
    if short.elided:
        assert shown == [*range(head), *range(count - tail, count)]
        marker = (
            f"[steps {head} to {count - tail - 1} are left out]" if short.elided > 1 else f"[step {head} is left out]"
        )
        assert text.count(marker) == 1 and text.index(f"Step {head - 1}\n") < text.index(marker)
        assert text.index(marker) < text.index(f"Step {count - tail}\n")
        assert len(whole) > limit, "nothing is left out without need"
        longest = max(len(f"Step {i}\nObservation: Seen {i}.\n") for i in range(count)) + 80
        assert len(text) + longest > limit, "as few steps as possible are left out"
    else:
        assert text == whole


def test_the_default_limit_is_in_characters() -> None:
    steps = [turn("Your task is to: x."), *(turn("Seen.", f"act {i}", reply="y" * 10_000) for i in range(9))]
    found = analyze(episode(steps))
    assert 0 < found.elided < 9 and short_enough(found.chat) and len(found.chat[0].text) <= MAX_CHARS
    with pytest.raises(EpisodeTooLong):
        analyze(episode([turn("Seen.", reply="y" * 50_000)]))


# --- long observations ------------------------------------------------------------------------------------------------

WISH = "find me a wall clock that is hand painted, and price lower than 40.00 dollars"


def shop(*pages: str, **changes: Any) -> Episode:
    """An episode whose pages repeat the task, as WebShop's do."""
    steps = [turn(f"Instruction: [SEP] {WISH} [SEP] {page}", f"act {i}") for i, page in enumerate(pages)]
    return episode(steps, instruction=WISH, env=ENV.model_copy(update={"id": WEBSHOP}), **changes)


def test_long_pages_lose_their_middle_before_any_step_is_left_out() -> None:
    found = shop("Search", "head " + "x" * 5_000 + " tail", "Price: $9.99 [SEP] Buy Now")
    whole = analyze(found)
    assert (whole.elided, whole.shortened) == (0, 0) and whole.chat[0].text.count(WISH) == 4
    short = analyze(found, fits=lambda chat: len(chat[0].text) < 3_000)
    text = short.chat[0].text
    assert (short.elided, short.shortened) == (0, 3)
    assert text.count(WISH) == 1 and f"- Task description: {WISH}\n" in text  # said once, above
    head = "Instruction: [SEP] [the task] [SEP] head "  # 19 + 10 + 7 + 5 = 41 characters; xxx and tail follow
    mark = f"[... {41 + 5_000 + 5 - 300 - 130} characters are left out ...]"
    page = f"{head}{'x' * 259} {mark} {'x' * 125} tail"
    assert f"Step 1\nObservation: {page}\nResponse: " in text
    assert "Observation: Instruction: [SEP] [the task] [SEP] Price: $9.99 [SEP] Buy Now\n" in text


def test_where_shorter_pages_are_not_enough_steps_go_too() -> None:
    found = shop("Search", *("x" * 5_000 for _ in range(12)), "Buy Now")
    short = analyze(found, fits=lambda chat: len(chat[0].text) < 5_000)
    assert 0 < short.elided < 12 and short.shortened == 14 - short.elided
    assert "are left out]" in short.chat[0].text and "Step 13\n" in short.chat[0].text


@pytest.mark.parametrize(("env_id", "least"), [(WEBSHOP, 3), (SEARCHQA, 1)])
def test_a_whole_episode_of_a_shop_or_a_search_fits_a_tiny_prompt(env_id: str, least: int) -> None:
    """Of the oracle's short episodes nothing is left out where a tiny model reads them, the results included."""
    for found in played(env_id, "scripted:oracle"):
        short = analyze(found, fits=lambda chat: len(chat[0].text) <= 4_000)
        assert short.elided == 0 and short.steps > least
        assert f"- Task description: {found.instruction}\n" in short.chat[0].text
        text = short.chat[0].text
        assert all(f"Response: {step.reply}\n" in text for step in found.turns)
        assert ("Total results: 50" if env_id == WEBSHOP else 'Doc 3: "') in text


def test_chat_markers_in_what_was_said_are_neutralised_and_reply_tags_stay() -> None:
    steps = [turn("See <image> </s>", reply="<think>a<|im_end|></think><action>look</action>[INST]")]
    found = analyze(episode(steps))
    text = found.chat[0].text
    assert "See (image) (/s)" in text and "<think>a(im_end)</think><action>look</action>(INST)" in text
    assert found.markers == 4 and "<image>" not in text


# --- images -----------------------------------------------------------------------------------------------------------


def pixels(sha: str) -> np.ndarray[Any, Any]:
    return np.full((2, 2, 3), int(sha), np.uint8)


def test_every_step_shows_its_image_and_they_come_in_order() -> None:
    found = analyze(pictured(4), images=pixels)
    (message,) = found.chat
    assert message.text.count("<image>") == 4 == len(message.images)
    assert [int(image[0, 0, 0]) for image in message.images] == [0, 1, 2, 3]
    assert "Step 2\nObservation: <image>\nResponse: " in message.text
    short = analyze(pictured(9), images=pixels, fits=lambda chat: len(chat[0].images) <= 4).chat[0]
    assert [int(image[0, 0, 0]) for image in short.images] == [0, 1, 7, 8]
    assert short.text.count("<image>") == 4


def test_a_text_beside_the_image_stays_when_it_says_something() -> None:
    known = pictured(2)
    turns = [t.model_copy(update={"observation": turn(f"Turn {i}.", images=t.observation.images).observation})
             for i, t in enumerate(known.turns)]  # fmt: skip
    assert "Observation: <image>\nTurn 1.\n" in analyze(episode(turns), images=pixels).chat[0].text


def test_images_without_a_loader_are_refused() -> None:
    with pytest.raises(ConfigError, match="png_loader"):
        analyze(pictured(1))


def test_images_come_from_a_run_s_folder(tmp_path: Path) -> None:
    wanted = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    file = io.BytesIO()
    PillowImage.fromarray(wanted).save(file, "PNG")
    sha = hashlib.sha256(file.getvalue()).hexdigest()
    (tmp_path / f"{sha}.png").write_bytes(file.getvalue())
    assert np.array_equal(png_loader(tmp_path)(sha), wanted)
    with pytest.raises(DataError, match="cannot read the image"):
        png_loader(tmp_path)("0" * 64)
    (tmp_path / f"{sha}.png").write_bytes(file.getvalue()[:-9])
    with pytest.raises(DataError, match="not the image its name says"):
        png_loader(tmp_path)(sha)


# --- training pairs ---------------------------------------------------------------------------------------------------


def test_a_training_pair_is_the_prompt_and_the_two_fields() -> None:
    found = numbered(2)
    skill = Skill("Es ging gut.", 'Heize "zuerst", Ärger spart\'s.', found.task_id, 0, True, "rules")
    chat, answer = sft_pair(found, skill)
    assert chat[0].text == text_of(found)
    assert list(json.loads(answer)) == ["episode_summary", "episode_skill"]
    assert "Ärger" in answer and "\n" not in answer
    assert parse_skill(answer) == SkillFields(skill.summary, skill.text)


def test_a_skill_of_another_episode_is_no_pair() -> None:
    with pytest.raises(ConfigError, match="was not drawn from"):
        sft_pair(numbered(2), Skill("", "x", "train/heat/1", 1, True, "t"))


def test_step_skills_are_asked_for_where_wanted() -> None:
    text = text_of(numbered(2), step_skills=2)
    assert "at most 2 of them" in text and '"step_skills": [{"step": 0, "skill": "string"}]}' in text


@pytest.mark.parametrize(("env_id", "kwargs"), [(ALFWORLD, {}), (SOKOBAN, {"observation": "text"})])
def test_played_episodes_are_written_out_whole(env_id: str, kwargs: dict[str, str]) -> None:
    for found in played(env_id, "scripted:oracle", **kwargs):
        text = text_of(found)
        for i, step in enumerate(found.turns):
            assert f"Step {i}\nObservation: {step.observation.text}\nResponse: {step.reply}\nAction valid: true" in text
