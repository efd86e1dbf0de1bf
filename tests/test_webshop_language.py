"""WebShop at the language layer: the pieces of upstream's prompts, presets, and what a reply may click."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_prompting import Words, info
from webshop_kit import golden, golden_goal, official, webshop_root  # noqa: F401 (fixtures)

from seed_agent.chat import ChatPlayer, Language, with_limits
from seed_agent.policy import Sampling, Situation
from seed_agent.trajectory import Seen, Turn
from seed_envs.parsing import read_reply, verl_agent
from seed_envs.presets import PRESETS, preset_for
from seed_envs.prompting import STYLES, Past, builtin_template
from seed_envs.webshop import engine, pages
from seed_envs.webshop.actions import click, reachable
from seed_envs.webshop.product import Catalogue

UPSTREAM = re.compile(
    r"Your task is to: (?P<task>[^\n]*)\.\n"
    r"(?:Prior to this step, you have already taken (?P<taken>\d+) step\(s\)\. Below are the most recent (?P<k>\d+) "
    r"observations and the corresponding actions you took: (?P<history>.*?)\n"
    r"You are now at step (?P<step>\d+) and your|Your) current observation is: (?P<now>.*?)\.\n"
    r"Your admissible actions of the current situation are: ?\n\[\n(?P<actions>.*?)\n\]\.\n",
    re.S,
)


def player(preset: str = "webshop", style: str = "plain", **limits: Any) -> ChatPlayer:
    chosen = with_limits(PRESETS[preset], **{"max_prompt_tokens": 100_000, **limits})
    return ChatPlayer(Words(), Language(builtin_template("webshop", style), chosen, Sampling(0.4)))


def situation(goal: str, past: list[tuple[str, str]], text: str, admissible: list[str] | None) -> Situation:
    turns = tuple(
        Turn(observation=Seen.of(seen), reply=f"<think>why</think><action>{done}</action>", action=done, format_ok=True)
        for seen, done in past
    )
    told = info(instruction=goal, admissible_actions=admissible, turn=len(past))
    return Situation(0, "t", 0, 7, {"text": text}, told, turns)


@pytest.mark.parametrize("name", ["prompts_seed.jsonl", "prompts_verl_agent.jsonl"])
def test_prompts_carry_what_upstreams_carry(shared: Path, official: Catalogue, name: str) -> None:  # noqa: F811
    lines = (shared / "golden/llm_layer" / name).read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["env"] == "webshop"]
    episodes = {episode["episode"]: episode for episode in golden(shared, "episodes.jsonl.xz")}
    prompts = 0
    for row in rows:
        trace = episodes[row["source"]["episode"]]
        goal = golden_goal(trace["goal"])
        visit = engine.Visit(official, goal.instruction, lambda asin, options: 0.0)
        state, past = engine.State(), list[tuple[str, str]]()
        seat = player(history=row["history_length"])
        for number, wanted in enumerate(row["prompts"]):
            if state.page == engine.DONE:
                break  # upstream resets within the step, so what it shows then is another episode's
            found = UPSTREAM.search(wanted)
            assert found, wanted[:400]
            text = pages.text(pages.parts(visit, state))
            listed = None if state.page == engine.INDEX else sorted(map(click, engine.clickables(visit, state)))
            shown = min(row["history_length"], len(past))
            ours = seat.render(situation(goal.instruction, past, text, listed), shown).chat[-1].text
            assert found["task"] == goal.instruction and f"Your task is to: {goal.instruction}\n" in ours
            assert f"You now observe: {found['now']}\n" in ours
            theirs = [item[1:-2] for item in found["actions"].split("\n")]
            if state.page == engine.INDEX:
                assert theirs == ["search[<your query>]", "click[search]"], "the second does nothing, so it isn't ours"
                assert "- search[<your query>]\n" in ours and "click[" not in ours.partition("possible now:")[2]
            else:
                assert sorted(theirs) == listed and all(f"- {action}\n" in ours for action in theirs)
            if found["history"]:
                assert int(found["taken"]) == number and int(found["k"]) == shown
                assert found["history"] in ours, "the history window is not upstream's"
                assert f"taken {number} turn(s)" in ours and f"This is turn {found['step']}." in ours
            else:
                assert "[Observation" not in ours
            prompts += 1
            if number < len(row["replies"]):
                action = verl_agent(row["replies"][number], kind="webshop").action
                past.append((text, action))
                taken = trace["steps"][number]["action"]  # the recorder replayed the trace, capitals and all
                assert action == taken.strip().lower()
                state = engine.step(visit, state, taken).state
    assert len(rows) == 14 and prompts >= 100


@pytest.mark.parametrize("style", [*STYLES, "compact"])
@pytest.mark.parametrize("taken", [0, 1, 7])
def test_every_template_states_task_observation_choices_and_form(style: str, taken: int) -> None:
    seen = "Instruction: [SEP] Find me mugs [SEP] Back to Search [SEP] Tin Mug"
    past = [Past(i + 1, f"Instruction: [SEP] Find me mugs [SEP] saw {i}", f"did {i}", f"why {i}") for i in range(taken)]
    given: dict[str, Any] = {"instruction": "Find me mugs", "taken": taken, "history": past[-2:]}
    template = builtin_template("webshop", style)
    text = template.render(**given, observation=seen, admissible=["click[back to search]", "click[red]"])
    assert text.count("Find me mugs") == 1 and ("tin mug" if style == "compact" else "Tin Mug") in text
    for row in past[-2:]:
        assert row.action in text and (style == "compact" or row.observation.rpartition(" [SEP] ")[2] in text)
    if style != "compact":
        assert "- click[red]\n" in text and "<action>" in text and "</think>" in text and "search[" not in text
    first = template.render(
        **given, observation="WebShop [SEP] Instruction: [SEP] Find me mugs [SEP] Search", admissible=None
    )
    assert "search[" in first
    rich = template.render(
        **given, observation="Instruction:\nFind me mugs\n[button] x [button_]\n", admissible=["click[x]"]
    )
    assert "[button] x [button_]" in rich


def test_presets_carry_the_published_values() -> None:
    rows = {
        name: (p.history, p.max_turns, p.max_prompt_tokens, p.max_reply_tokens, p.max_prompt_chars, p.parser)
        for name, p in PRESETS.items()
        if p.kind == "webshop"
    }
    assert rows["webshop/seed"] == (2, 15, 4096, 512, 20_000, "verl_agent")
    assert rows["webshop/verl-agent"] == (2, 15, 4096, 512, 13_000, "verl_agent")
    assert rows["webshop"] == (2, 15, 4096, 512, None, "strict")
    assert preset_for("seed_envs/WebShop-v0") is PRESETS["webshop"]
    assert PRESETS["webshop/micro"].style == "compact" and PRESETS["webshop/micro"].source


def test_a_long_prompt_of_the_published_presets_loses_its_whole_history() -> None:
    long = "Instruction: [SEP] goal [SEP] " + "word " * 2_500
    here = situation(
        "goal", [(long, "click[a]"), (long, "click[b]")], "Instruction: [SEP] goal [SEP] now", ["click[x]"]
    )
    for preset, kept in (("webshop/seed", 0), ("webshop/verl-agent", 0), ("webshop", 2)):
        seat = player(preset)
        seat.act([here], None)  # type: ignore[arg-type]
        assert seat.policy.asked[0].count("[Observation") == kept  # type: ignore[attr-defined]


def test_the_strict_parser_keeps_blanks_that_a_value_has() -> None:
    """Some values of official products hold two blanks in a row; a reply must be able to name them."""
    parsed = read_reply("<think>x</think><action> Click[8.4 ounce  |  250 ml] </action>", kind="webshop")
    assert (parsed.action, parsed.format_ok) == ("click[8.4 ounce  |  250 ml]", True)
    assert read_reply("<think>x</think><action>go  to</action>", kind="alfworld").action == "go to"


def test_every_value_of_the_official_products_can_be_clicked_by_a_strict_reply(official: Catalogue) -> None:  # noqa: F811
    for asin in official.asins:
        for values in official.product(asin).options.values():
            for value in values:
                reply = f"<think>x</think><action>{click(value)}</action>"
                assert reachable(value) and read_reply(reply, kind="webshop").action == click(value)
