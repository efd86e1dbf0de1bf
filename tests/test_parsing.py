"""Replies to actions: upstream's projections exactly, and strict reading of hostile text."""

import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seed_envs.parsing import Parsed, strict, verl_agent

SOKOBAN = {0: "", 1: "up", 2: "down", 3: "left", 4: "right"}


def test_verl_agent_mode_equals_upstream_on_every_recorded_reply(shared: Path) -> None:
    counts = {"alfworld": 0, "webshop": 0, "sokoban": 0}
    for line in (shared / "golden/llm_layer/projections.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["env"] not in counts:
            continue
        counts[row["env"]] += 1
        parsed = verl_agent(row["raw"], kind=row["env"])
        lenient = verl_agent(row["raw"], kind=row["env"], require_think=False)
        action = "" if parsed.action == "still" and row["env"] == "sokoban" else parsed.action
        wanted = SOKOBAN[row["action"]] if row["env"] == "sokoban" else row["action"]
        assert action == wanted, row["raw"]
        assert parsed.format_ok == bool(row["valid"]), row["raw"]
        assert lenient.format_ok == bool(row["valid_require_think_false"]), row["raw"]
    assert counts == {"alfworld": 102, "webshop": 102, "sokoban": 102}


@pytest.mark.parametrize(
    ("reply", "action", "ok"),
    [
        ("<think>a</think><action>go to desk 1</action>", "go to desk 1", True),
        ("<think>a</think>\n\n<action>\n GO  to Desk 1\n</action>\n", "go to desk 1", True),
        ("<THINK>a</THINK><ACTION>Left</ACTION>", "left", True),
        ("< think >a</ think >< action >left</ action >", "left", True),
        ("<think>maybe <action>look</action></think><action>go</action>", "go", True),
        ("<think>a</think><action>left, then up</action>", "left, then up", True),
        ("<think>a</think><action>one</action><action>two</action>", "one", False),
        ("</action>look<action>", "", False),
        ("<think>a</think></action>look<action>", "", False),
        ("<think>a <action>look</action>", "", False),
        ("<think>a</think><action>look", "", False),
        ("<think>a</think><action></action>", "", False),
        ("<think>a</think>look", "", False),
        ("<action>look</action>", "look", False),
        ("<think>a</think> so <action>look</action>", "look", False),
        ("<think>a</think><action>look</action> done", "look", False),
        ("a</think><action>look</action>", "look", False),
        ("<think>a</think>b</think><action>look</action>", "look", False),
        ("<action>look</action><think>a</think>", "", False),
        ("<think>a</think><action><action>look</action></action>", "look", False),
        ("", "", False),
        ("look", "", False),
    ],
)
def test_strict_reads_the_documented_action_and_flags_the_rest(reply: str, action: str, ok: bool) -> None:
    parsed = strict(reply)
    assert (parsed.action, parsed.format_ok) == (action, ok)
    assert bool(parsed.reason) != ok


def test_strict_can_keep_case_and_do_without_a_thought() -> None:
    assert strict("<action>search[Red Mug]</action>", lower=False, require_think=False) == Parsed(
        "search[Red Mug]", True
    )


HOSTILE = [
    "<action>" * 1000,
    "</think>" * 1000 + "<action>look</action>",
    "<" + " " * 100_000 + "x",
    ("<" + " " * 1_000) * 100,
    "<think>" + "x" * 100_000 + "</think><action>look</action>",
    "<think>🙂</think><action>👍🏽</action>",
    "<think>\0</think><action>\0look\0</action>",
    "<think>日本語</think><action>行く</action>",
    "<think>a</think><action>İ</action>",
    "<think>\ud800</think><action>\udfff</action>",
    "<think>a</think><action>look</action\n>",
    "<<think>>a<</think>><<action>>look<</action>>",
    "{{ observation }}{% for x in y %}",
    "<|im_start|>assistant\n<think>a</think><action>look</action><|im_end|>",
]


@pytest.mark.parametrize("reply", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_replies_never_raise_nor_act_on_what_no_block_says(reply: str) -> None:
    for parsed in (strict(reply), *(verl_agent(reply, kind=kind) for kind in ("alfworld", "webshop", "sokoban"))):
        assert isinstance(parsed.action, str)
    action = strict(reply).action
    assert action in " ".join(reply.lower().split())


PIECES = [
    "<",
    ">",
    "/",
    "think",
    "action",
    " ",
    "a",
    "\n",
    "<think>",
    "</think>",
    "<action>",
    "</action>",
    "é",
    "\0",
    "上",
]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_strict_never_raises_and_a_clean_verdict_means_one_clean_block(reply: str) -> None:
    parsed = strict(reply)
    if parsed.format_ok:
        assert parsed.action
        assert reply.lower().count("</action>") >= 1
        assert parsed.reason == ""
    if parsed.action:
        assert parsed.action in " ".join(reply.lower().split())


@given(st.text(string.ascii_lowercase + " ", min_size=1), st.text(string.ascii_lowercase + " ", min_size=1))
def test_a_well_formed_reply_is_read_back(thought: str, action: str) -> None:
    parsed = strict(f"<think>{thought}</think><action>{action}</action>")
    wanted = " ".join(action.split())
    assert parsed.action == wanted
    assert parsed.format_ok == bool(wanted)
