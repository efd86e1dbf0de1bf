"""Prompts: the same window, list and placeholders as upstream's; files replaceable; limits kept."""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from alfworld_games import packed_games

from seed_agent.chat import ChatPlayer, Language, with_limits
from seed_agent.policy import Chat, Completion, Decision, Prompt, Sampling, Situation
from seed_agent.trajectory import Seen, Turn
from seed_envs import ConfigError, DataError, UnknownName
from seed_envs.alfworld import engine
from seed_envs.alfworld.grammar import MOVE
from seed_envs.alfworld.problem import compile_game
from seed_envs.core import Info
from seed_envs.parsing import verl_agent
from seed_envs.presets import PRESETS, get_preset, preset_for
from seed_envs.prompting import STYLES, Past, Template, builtin_template, read_template
from seed_envs.sokoban import engine as sokoban
from seed_envs.vector import Failure


@dataclass
class Words:
    """A policy whose tokens are words, and that remembers what it was asked."""

    name: str = "test:words"
    replies: Sequence[str] = ()
    asked: list[str] = field(default_factory=list)
    context: int | None = None

    def prompt(self, chat: Chat) -> Prompt:
        return Prompt(chat, tuple(range(len(chat[-1].text.split()))))

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> list[Any]:
        self.asked += [prompt.chat[-1].text for prompt in prompts]
        return [Completion("<think>x</think><action>look</action>", "stop")] * len(prompts)

    def score(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        return {}


def info(**changes: Any) -> Info:
    known = {
        "task_id": "t", "split": "train", "category": "c", "instruction": "put a mug in desk.", "turn": 0,
        "success": False, "score": 0.0, "admissible": None, "effective": None,
        "admissible_actions": ["go to desk 1", "help", "look"], "reason": "", "extra": {},
    }  # fmt: skip
    return Info(**(known | changes))  # type: ignore[typeddict-item]


def situation(turns: Sequence[tuple[str, str]], observation: str, **changes: Any) -> Situation:
    past = tuple(
        Turn(observation=Seen.of(seen), reply=f"<think>why</think><action>{done}</action>", action=done, format_ok=True)
        for seen, done in turns
    )
    return Situation(0, "t", 0, 7, {"text": observation}, info(turn=len(past), **changes), past)


def player(kind: str = "alfworld", style: str = "plain", policy: Words | None = None, **limits: Any) -> ChatPlayer:
    preset = with_limits(PRESETS[kind], **limits)
    return ChatPlayer(policy or Words(), Language(builtin_template(kind, style), preset, Sampling(0.4)))


UPSTREAM = re.compile(
    r"(?:Your task is to: (?P<task>[^\n]*)\n)?"
    r"(?:Prior to this step, you have already taken (?P<taken>\d+) step\(s\)\. Below are the most recent (?P<k>\d+) "
    r"observations and the corresponding actions you took: (?P<history>.*?)\n"
    r"You are now at step (?P<step>\d+) and your|Your) current observation is: (?P<now>.*?)\n"
    r"Your admissible actions of the current situation are: \[(?P<actions>.*?)\]\.\n",
    re.S,
)


def golden(shared: Path, env: str) -> list[dict[str, Any]]:
    lines = (shared / "golden/llm_layer/prompts_seed.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["env"] == env]


def test_alfworld_prompts_carry_what_upstreams_carry(shared: Path) -> None:
    rows = golden(shared, "alfworld")
    games = packed_games(shared, {row["source"]["game"] for row in rows})
    prompts = 0
    for row in rows:
        game = compile_game(games[row["source"]["game"]]["pddl_problem"], games[row["source"]["game"]]["goal"], MOVE)
        state, text = game.start, engine.intro(game, game.start)
        past: list[tuple[str, str]] = []
        seat = player(history=row["history_length"], max_prompt_tokens=100_000)
        for number, wanted in enumerate(row["prompts"]):
            found = UPSTREAM.search(wanted)
            assert found, wanted[:300]
            offered = list(engine.admissible(game, state))
            here = situation(past, text, instruction=game.instruction, admissible_actions=offered)
            shown = min(row["history_length"], len(past))
            ours = seat.render(here, shown).chat[-1].text
            listed = [ast.literal_eval(item) for item in found["actions"].split("\n ")]
            assert listed == [a for a in offered if a != "help"]
            assert "".join(f"- {action}\n" for action in listed) in ours and "- help\n" not in ours
            assert text == found["now"] and f"You now observe: {text}\n" in ours
            if found["history"]:
                assert int(found["taken"]) == number == len(past) and int(found["k"]) == shown
                assert found["history"] in ours, "the history window is not upstream's"
                assert f"taken {number} turn(s)" in ours and f"This is turn {found['step']}." in ours
                assert found["task"] == game.instruction and f"Your task is to: {game.instruction}\n" in ours
            else:
                assert "[Observation" not in ours
            prompts += 1
            if number < len(row["replies"]):
                action = verl_agent(row["replies"][number], kind="alfworld").action
                past.append((text, action))
                outcome = engine.step(game, state, action)
                state, text = outcome.state, outcome.text
    assert len(rows) == 12 and prompts == sum(len(row["prompts"]) for row in rows)


SOKOBAN = re.compile(
    r"# Current Step\n(?:Prior to this step, you have already taken (?P<taken>\d+) step\(s\)\. Below are the most "
    r"recent "
    r"(?P<k>\d+) observations and the corresponding actions you took: (?P<history>.*?)\n"
    r"You are now at step (?P<step>\d+) and your|Your) current observation is:\n(?P<now>.*?)\n"
    r"Your admissible actions are \[(?P<actions>.*?)\]\.\n",
    re.S,
)


def plain(board: str) -> str:
    """Return verl-agent's tabbed board as ours: one symbol per cell."""
    return re.sub(r" (.) \t", r"\1", board)


def test_sokoban_prompts_carry_what_upstreams_carry(shared: Path) -> None:
    rows = golden(shared, "sokoban")
    for row in rows:
        seat = player("sokoban", history=row["history_length"])
        first = SOKOBAN.search(row["prompts"][0])
        assert first
        room, state = sokoban.parse(plain(first["now"]).split("\n"))
        past: list[tuple[str, str]] = []
        for number, wanted in enumerate(row["prompts"]):
            found = SOKOBAN.search(wanted)
            assert found, wanted
            text = "\n".join(sokoban.rows(room, state))
            offered = sorted(sokoban.DIRECTIONS)
            shown = min(row["history_length"], len(past))
            ours = seat.render(situation(past, text, admissible_actions=offered), shown).chat[-1].text
            assert plain(found["now"]) == text and f"\n{text}\n" in ours
            assert sorted(json.loads(f"[{found['actions']}]")) == offered and ", ".join(offered) in ours
            if found["history"]:
                assert int(found["taken"]) == number == len(past) and int(found["k"]) == shown
                window = re.sub(r"Action (\d+): '(\w+)'", lambda m: m[0].lower().replace("a", "A", 1), found["history"])
                assert plain(window) in ours, "the history window is not upstream's"
                assert f"taken {number} turn(s)" in ours and f"This is turn {found['step']}." in ours
            else:
                assert "[Observation" not in ours
            if number < len(row["replies"]):
                action = verl_agent(row["replies"][number], kind="sokoban").action
                past.append((text, action))
                moved = sokoban.DIRECTIONS.index(action) + 1 if action in sokoban.DIRECTIONS else sokoban.STILL
                state = sokoban.step(room, state, moved).state
    assert len(rows) == 10


def test_the_visual_sokoban_prompt_has_one_image_and_no_history(shared: Path) -> None:
    (row,) = golden(shared, "sokoban-visual")
    (wanted,) = row["prompts"]
    assert wanted.count("<image>") == 1
    seat = player("sokoban")
    here = situation([("The image shows the room.", "up")] * 3, "The image shows the room.", admissible_actions=["up"])
    here.observation["image"] = "pixels"
    message = seat.render(here, 2).chat[-1]
    assert message.text.count("<image>") == 1 and message.images == ("pixels",)
    assert "[Observation" not in message.text
    for feature in ("green", "antennae", "yellow", "orange X", "red diamond"):
        assert feature in message.text and feature.replace("orange X", "orange") in wanted


def test_a_published_template_can_be_used_letter_by_letter(shared: Path, tmp_path: Path) -> None:
    """What a user does for a published checkpoint: its template as a file, equal prompts out."""
    rows = golden(shared, "alfworld")
    source = next(p for row in rows for p in row["prompts"] if UPSTREAM.search(p)["history"])  # type: ignore[index]
    found = UPSTREAM.search(source)
    assert found
    file = tmp_path / "published.jinja"
    body = source
    for group, field_ in (
        ("actions", "{% for a in admissible %}'{{ a }}'{{ '' if loop.last else '\\n ' }}{% endfor %}"),
        ("now", "{{ observation }}"),
        ("step", "{{ taken + 1 }}"),
        ("history", "{% for h in history %}[Observation {{ h.number }}: '{{ h.observation }}', Action {{ h.number }}: "
                    "'{{ h.action }}']{{ '' if loop.last else '\\n' }}{% endfor +%}"),
        ("k", "{{ history | length }}"),
        ("taken", "{{ taken }}"),
        ("task", "{{ instruction }}"),
    ):  # fmt: skip
        body = body[: found.start(group)] + field_ + body[found.end(group) :]
    file.write_text(body, encoding="utf-8")
    template = read_template(file)
    checked = 0
    for row in rows:
        for prompt in row["prompts"]:
            match = UPSTREAM.search(prompt)
            assert match
            if not match["history"]:
                continue
            items = re.findall(r"\[Observation (\d+): '(.*?)', Action \1: '(.*?)'\](?=\n\[|$)", match["history"], re.S)
            ours = template.render(
                instruction=match["task"],
                observation=match["now"],
                taken=int(match["taken"]),
                history=[Past(int(n), seen, done) for n, seen, done in items],
                admissible=[ast.literal_eval(item) for item in match["actions"].split("\n ")],
            )
            assert ours.rstrip("\n") == prompt.rstrip("\n")
            checked += 1
    assert checked > 50


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", ["alfworld", "sokoban", "generic"])
@pytest.mark.parametrize("taken", [0, 1, 7])
def test_every_template_states_task_observation_choices_and_form(kind: str, style: str, taken: int) -> None:
    template = builtin_template(kind, style)
    past = [Past(i + 1, f"saw {i}", f"did {i}", f"thought {i}") for i in range(taken)][-3:]
    text = template.render(
        instruction="put a mug in desk.", observation="SEEN NOW", taken=taken, history=past, admissible=["up", "down"]
    )
    assert "SEEN NOW" in text and "<action>" in text and "</think>" in text
    assert "up" in text and "down" in text
    for row in past:
        assert row.observation in text and row.action in text
    if style == "react" and taken:
        assert "thought" in text
    if kind == "alfworld" and taken:
        assert "put a mug in desk." in text


@pytest.mark.parametrize("style", STYLES)
def test_an_image_stands_where_the_marker_is_and_no_text_history_is_shown(style: str) -> None:
    text = builtin_template("sokoban", style).render(
        instruction="", observation="unused", taken=2, history=[Past(2, "board", "up")], admissible=["up"], image=True
    )
    assert text.count("<image>") == 1 and "board" not in text and "antennae" in text


TURNS = [(f"seen{i} " + "w " * 40, f"do {i}") for i in range(6)]


def test_too_long_a_prompt_loses_its_oldest_whole_turns_and_nothing_else() -> None:
    seat = player(history=5, max_prompt_tokens=10_000)
    full = seat.render(situation(TURNS, "now"), 5)
    sizes = [len(seat.render(situation(TURNS, "now"), k).ids or ()) for k in range(6)]
    for keep in range(6):
        policy = Words()
        tight = player(policy=policy, history=5, max_prompt_tokens=sizes[keep])
        (decision,) = tight.act([situation(TURNS, "now")], None)  # type: ignore[arg-type]
        assert isinstance(decision, Decision)
        (text,) = policy.asked
        shown = re.findall(r"Observation (\d+):", text)
        assert shown == [str(n) for n in range(6 - keep + 1, 7)]
        assert "put a mug in desk." in text and text.endswith(full.chat[-1].text[-200:])
        assert decision.history_dropped == 5 - keep


def test_a_prompt_too_long_without_history_is_a_failure_that_says_what_to_raise() -> None:
    seat = player(max_prompt_tokens=20)
    (answer,) = seat.act([situation(TURNS, "now")], None)  # type: ignore[arg-type]
    assert isinstance(answer, Failure) and answer.type == "PromptTooLong" and "max_prompt_tokens" in answer.message


def test_the_context_of_the_model_bounds_the_prompt_and_leaves_room_for_the_reply() -> None:
    policy = Words()
    policy.context = len(player().render(situation(TURNS, "now"), 2).ids or ()) + 512
    seat = player(policy=policy, history=5, max_prompt_tokens=10_000)
    seat.act([situation(TURNS, "now")], None)  # type: ignore[arg-type]
    assert re.findall(r"Observation (\d+):", policy.asked[0]) == ["5", "6"]


def test_a_server_that_finds_a_prompt_too_long_is_asked_again_with_less_history() -> None:
    class Short(Words):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> list[Any]:
            good = super().generate(prompts, sampling, seeds)
            texts = [prompt.chat[-1].text for prompt in prompts]
            return [
                Failure("PromptTooLong", "no") if "Observation 4" in t else g for t, g in zip(texts, good, strict=True)
            ]

    policy = Short()
    seat = player(policy=policy, history=5, max_prompt_tokens=10_000)
    long, short = seat.act([situation(TURNS, "now"), situation(TURNS[:2], "now")], None)  # type: ignore[arg-type]
    assert isinstance(long, Decision) and long.history_dropped == 3
    assert isinstance(short, Decision) and short.history_dropped == 0
    assert len(policy.asked) == 5


def test_thoughts_reach_the_history_whatever_the_parser() -> None:
    preset = PRESETS["alfworld/seed"]
    seat = ChatPlayer(Words(), Language(builtin_template("alfworld", "react"), preset, Sampling(0.4)))
    assert "Thought 6: why" in seat.render(situation(TURNS, "now"), 2).chat[-1].text


def test_a_template_that_would_blind_a_vision_model_is_refused_for_that_row_alone() -> None:
    blind = Template("blind", "{{ observation }}")
    seat = ChatPlayer(Words(), Language(blind, PRESETS["sokoban"], Sampling(0.4)))
    seeing, reading = situation([], "now"), situation([], "now")
    seeing.observation["image"] = "pixels"
    refused, played = seat.act([seeing, reading], None)  # type: ignore[arg-type]
    assert isinstance(refused, Failure) and "<image>" in refused.message
    assert isinstance(played, Decision)


def test_a_limit_in_characters_drops_the_whole_history_at_once() -> None:
    policy = Words()
    seat = player(policy=policy, history=5, max_prompt_chars=900, max_prompt_tokens=100_000)
    seat.act([situation(TURNS, "now"), situation(TURNS[:2], "now")], None)  # type: ignore[arg-type]
    long, short = policy.asked
    assert "[Observation" not in long and "taken 6 turn(s)" in long
    assert short.count("[Observation") == 2


def test_history_is_a_window_and_hidden_actions_are_not_listed() -> None:
    text = player(history=2).render(situation(TURNS, "now"), 2).chat[-1].text
    assert re.findall(r"Action (\d+)", text) == ["5", "6"]
    assert "- help" not in text and "- look" in text


def test_braces_in_what_the_world_says_are_not_template_code() -> None:
    text = player().render(situation([("{{ instruction }}", "{% for %}")], "{{ 7 * 7 }}"), 1).chat[-1].text
    assert "{{ 7 * 7 }}" in text and "{{ instruction }}" in text and "49" not in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{{ observaton }}", "'observaton' is undefined; a template is given instruction"),
        ("{% for x in history %}", "line 1"),
        ("{{ taken + observation }}", "unsupported operand"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ history.append(1) }}", "unsafe"),
    ],
)
def test_a_wrong_template_is_answered_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text(content)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        read_template(file).render(instruction="i", observation="o", taken=1)
    assert "mine.jinja" in str(caught.value) and "\n" not in str(caught.value)


def test_prompt_files_that_cannot_be_read_and_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the prompt file"):
        read_template(tmp_path / "absent")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot read the prompt file"):
        read_template(tmp_path / "latin")
    with pytest.raises(UnknownName, match=r"did you mean alfworld\.plain"):
        builtin_template("alfworld", "plan")
    with pytest.raises(UnknownName, match="did you mean alfworld/seed"):
        get_preset("alfworld/sed")
    assert preset_for("toy/Counter-v0") is PRESETS["generic"]
    assert preset_for("seed_envs/ALFWorld-v0") is PRESETS["alfworld"]


def test_the_hash_names_the_template() -> None:
    assert Template("a", "x").sha256 == Template("b", "x").sha256 != Template("a", "y").sha256


def test_published_presets_carry_the_published_values() -> None:
    rows = {
        name: (p.history, p.max_turns, p.max_prompt_tokens, p.max_reply_tokens, p.parser) for name, p in PRESETS.items()
    }
    assert rows["alfworld/seed"] == (5, 30, 2048, 512, "verl_agent")
    assert rows["alfworld/sdar"] == (2, 50, 2048, 512, "verl_agent")
    assert rows["sokoban/seed"] == (2, 15, 1024, 512, "verl_agent")
    assert rows["alfworld"][-1] == rows["sokoban"][-1] == "strict"
    assert all(preset.source for preset in PRESETS.values())
