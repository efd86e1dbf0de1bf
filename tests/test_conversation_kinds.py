"""Conversations in WebShop and SearchQA: pages and passages are said once, and a whole episode is one sample."""

import math
from pathlib import Path
from typing import Any

import pytest
from test_conversation import Talker, language, played
from train_kit import FIXTURES, TALK, trainer, vary_returns

from seed_agent.skills.insert import HEADING
from seed_envs.parsing import read_reply
from seed_envs.presets import PRESETS
from seed_envs.prompting import builtin_template

torch, text_folder, vision_folder = FIXTURES
REPLIES = {
    "webshop": "<think>so</think><action>search[red lamp]</action>",
    "searchqa": "<think>so</think><search>town on a river</search>",
}
ENVS = {"webshop": "WebShop", "searchqa": "SearchQA"}


@pytest.mark.parametrize("kind", REPLIES)
def test_the_chat_grows_and_says_task_and_rules_once(kind: str) -> None:
    policy = Talker(REPLIES[kind])
    episodes = played(policy, language(kind), env=ENVS[kind], skill_for=lambda info: "Look twice.")
    assert [len(chat) for chat in policy.asked] == [1, 1, 3, 3, 5, 5]
    third = policy.asked[4]
    assert third[:3] == policy.asked[2] and third[:1] == policy.asked[0]
    texts = [message.text for message in third if message.role == "user"]
    task = episodes[0].instruction
    assert [text.count(task) for text in texts] == [1, 0, 0]
    assert [HEADING in text for text in texts] == [text.count("<think>") == 1 for text in texts] == [True, False, False]
    assert all(turn.format_ok and turn.admissible for turn in episodes[0].turns)
    last = episodes[0].turns[2].observation.text
    if kind == "webshop":
        assert "'Page 1 (Total results: " in texts[2] and "- click[next >]" in texts[2] and "search[" in texts[0]
        assert all(piece in texts[2] for piece in last.split(" [SEP] ")[2:])
    else:
        assert texts[2] == f"You now read:\n{last}\n\nDecide on the next step." and last.startswith("Doc 1: ")
    assert texts[2].endswith(("Decide on the next action.", "Decide on the next step."))


@pytest.mark.parametrize("kind", REPLIES)
def test_first_and_later_messages(kind: str) -> None:
    template = builtin_template(kind, PRESETS[f"{kind}/conversation"].style)
    goal = "find a lamp"
    seen = f"Instruction: [SEP] {goal} [SEP] Back to Search" if kind == "webshop" else "Nothing happens."
    given: dict[str, Any] = {"instruction": goal, "observation": seen, "admissible": ["click[back to search]"]}
    first, later = (template.render(taken=taken, **given) for taken in (0, 3))
    assert goal in first and goal not in later and len(later) < 150 < len(first)
    assert ("'Back to Search'" in later and "- click[back to search]" in later) == (kind == "webshop")
    assert kind == "webshop" or seen in later
    for text in (REPLIES[kind], "nothing"):  # what the first message asks for is what the parser takes
        assert read_reply(text, kind=kind).format_ok == (text == REPLIES[kind])


@pytest.mark.parametrize("kind", REPLIES)
def test_an_episode_is_one_sample_with_the_library_as_teacher(
    kind: str, text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vary_returns(monkeypatch)
    shop = {"env": f"seed_envs/{ENVS[kind]}-v0", "language": f"{kind}/conversation", "max_prompt_tokens": 3_900}
    run = trainer(text_folder, method="sdar", **{**TALK, **shop})
    found = run.iteration(0)
    run.close()
    assert found["rl/samples"] == 4 and found["rl/updates"] == 1 and found["opd/active_ratio"] == 1
    assert found["opd/loss"] != 0 and found["rl/logp_drift_max"] < 1e-4
    assert found["env/errors"] == found["env/unasked"] == found["skill/teacher_too_long"] == 0
    assert all(math.isfinite(value) for value in found.values())
