"""Annotators: rules that read the record, models that are asked, and failures that stay in their place."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from openai_server import OVERLOADED, SLOW, StandIn, prompt_text
from skill_episodes import ALFWORLD, SEARCHQA, SOKOBAN, WEBSHOP, episode, numbered, pictured, played, turn
from test_skills_analyzer import pixels

from seed_agent.policy import MODELS, Chat, Completion, Prompt, Sampling
from seed_agent.skills.analyzer import Contaminated, analyze
from seed_agent.skills.annotators import ANNOTATORS, Annotator, Options, make_annotator
from seed_agent.skills.insert import insert_skill
from seed_agent.skills.model import ModelAnnotator
from seed_agent.skills.rules import RulesAnnotator
from seed_agent.skills.skill import ParseFailure, Skill, tally
from seed_agent.trajectory import Episode, ErrorRecord, Seen
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.sokoban import engine
from seed_envs.vector import Failure

GOOD = '{"episode_summary": "It went well.", "episode_skill": "Heat it first."}'


def texts(annotator: Annotator, episodes: Sequence[Episode]) -> list[str]:
    return [result.text if isinstance(result, Skill) else result.kind for result in annotator.annotate(episodes)]


# --- rules ------------------------------------------------------------------------------------------------------------


def test_alfworld_successes_become_the_workflow_without_the_search() -> None:
    (found,) = texts(RulesAnnotator(), [played(ALFWORLD, "scripted:oracle")[4]])
    assert found.startswith("Take the object, heat it at the microwave, and only then put it in its place.")
    assert "heat bread 1 with microwave 1" in found and "open fridge 1; move bread 1 to fridge 1." in found
    steps = [
        turn("x", action)
        for action in (
            "go to shelf 1",
            "go to desk 1",
            "open desk 1",
            "close desk 1",
            "look",
            "go to table 2",
            "take mug 1 from table 2",
            "go to bed 1",
            "go to desk 1",
            "open desk 1",
            "put mug 1 in/on desk 1",
        )
    ]
    (found,) = texts(RulesAnnotator(), [episode(steps, category="pick_and_place_simple")])  # fmt: skip
    order = "go to table 2; take mug 1 from table 2; go to desk 1; open desk 1; put mug 1 in/on desk 1."
    assert found.endswith(f"This order works: {order}")


@pytest.mark.parametrize(
    ("category", "actions", "lesson"),
    [
        ("pick_heat_then_place_in_recep", ["go to a 1", "open a 1"], "nothing was ever taken"),
        ("pick_heat_then_place_in_recep", ["take a 1 from b 1", "move a 1 to c 1"], "Do not forget to heat the object"),
        ("pick_cool_then_place_in_recep", ["take a 1 from b 1"], "Do not forget to cool the object at the fridge"),
        ("pick_clean_then_place_in_recep", ["take a 1 from b 1"], "clean the object at the sink basin"),
        ("look_at_obj_in_light", ["take a 1 from b 1"], "no lamp was ever switched on"),
        ("pick_two_obj_and_place", ["take a 1 from b 1", "move a 1 to c 1"], "One object is not enough"),
        ("pick_and_place_simple", ["take a 1 from b 1", "go to c 1"], "it was never put down"),
        ("pick_and_place_simple", ["take a 1 from b 1", "put a 1 in/on c 1"], "'put a 1 in/on c 1' did not finish it"),
    ],
)
def test_alfworld_failures_become_what_went_wrong(category: str, actions: list[str], lesson: str) -> None:
    steps = [turn(f"Seen {i}.", action) for i, action in enumerate(actions)]
    failed = episode(steps, category=category, success=False, outcome="step_limit", score=0.0)
    (found,) = texts(RulesAnnotator(), [failed])
    assert lesson in found


@pytest.mark.parametrize(
    ("step", "lesson"),
    [
        ({"stop_reason": "length", "format_ok": False, "action": ""}, "Think more briefly: 3 replies"),
        ({"format_ok": False}, "3 replies were not well-formed"),
        ({"admissible": False, "effective": False, "action": "fly"}, "'fly' was refused"),
    ],
)
def test_mistakes_of_form_are_seen_in_any_environment(step: dict[str, Any], lesson: str) -> None:
    env = numbered(1).env.model_copy(update={"id": "third/Party-v0"})
    steps = [turn(f"Seen {i}.", **step) for i in range(3)]
    (found,) = texts(RulesAnnotator(), [episode(steps, env=env, success=False, outcome="failure", score=0.0)])
    assert lesson in found
    loop = [turn(f"Seen {i % 2}.", f"act {i % 2}") for i in range(6)]
    (found,) = texts(RulesAnnotator(), [episode(loop, env=env, success=False, outcome="failure", score=0.0)])
    assert "Do not go in circles: 'act 0' was chosen 3 times" in found
    calm = [turn(f"Seen {i}.", f"act {i}") for i in range(3)]
    (found,) = texts(RulesAnnotator(), [episode(calm, env=env, success=False, outcome="failure", score=0.0)])
    assert found.startswith("The turns ran out before the goal was reached")
    bump = turn("Seen.", "bump", effective=False)
    (found,) = texts(RulesAnnotator(), [episode([bump, *calm], env=env)])
    assert found.endswith("This order works: act 0; act 1; act 2.")


ROOM = "######/#_O__#/#____#/#X___#/#P___#/######"
HALF_SOLVED = "######/#√O__#/#____#/#_X__#/#_P__#/######"


def walked(moves: Sequence[str], start: str = ROOM) -> Episode:
    """A failed episode; in ``ROOM``, pushing up twice from the start is one push too many."""
    room, state = engine.parse(start.split("/"))
    seen = ["\n".join(engine.rows(room, state))]
    for move in moves:
        state = engine.step(room, state, engine.DIRECTIONS.index(move) + 1).state
        seen.append("\n".join(engine.rows(room, state)))
    steps = [
        turn(text, move, effective=text != after) for text, move, after in zip(seen, moves, seen[1:], strict=False)
    ]
    env = numbered(1).env.model_copy(update={"id": SOKOBAN})
    failed: dict[str, Any] = {"success": False, "outcome": "step_limit", "score": 0.0}
    return episode(steps, final=Seen.of(seen[-1]), category="short", env=env, **failed)


@pytest.mark.parametrize(
    ("moves", "lesson"),
    [
        (["up", "up", "right"], "Do not push a box into a corner that is no target: 'up' at step 1 did"),
        (["up", "right"], "The turns ran out before the goal was reached"),
        (["down", "left", "up"], "2 of 3 turns changed nothing"),
        (["right", "left", "right", "left"], "Do not walk to and fro: 3 moves took back the one before"),
    ],
)
def test_sokoban_failures_become_what_lost_the_room(moves: list[str], lesson: str) -> None:
    (found,) = texts(RulesAnnotator(), [walked(moves)])
    assert lesson in found
    assert ("corner that is no target" in found) == ("corner" in lesson)


def test_a_box_that_is_home_in_a_corner_is_not_stuck() -> None:
    (found,) = texts(RulesAnnotator(), [walked(["left", "right"], HALF_SOLVED)])
    assert "corner that is no target" not in found


def test_sokoban_successes_become_the_moves_and_pictures_are_not_read() -> None:
    solved = played(SOKOBAN, "scripted:oracle", observation="text")[0]
    assert texts(RulesAnnotator(), [solved])[0].endswith("down (3 times); left (2 times); up; right.")
    failed = pictured(3).model_copy(update={"success": False, "outcome": "step_limit", "score": 0.0})
    assert texts(RulesAnnotator(), [failed])[0].startswith("The turns ran out")


@pytest.mark.parametrize(
    ("env_id", "kwargs", "policy"),
    [(env, kw, policy)
     for env, kw in ((ALFWORLD, {}), (SOKOBAN, {"observation": "text"}), (WEBSHOP, {}), (SEARCHQA, {}))
     for policy in ("scripted:oracle", "scripted:random")],
)  # fmt: skip
def test_rules_write_a_usable_skill_for_every_played_episode(env_id: str, kwargs: Any, policy: str) -> None:
    episodes = played(env_id, policy, **kwargs)
    results = RulesAnnotator().annotate(episodes)
    assert results == RulesAnnotator().annotate(episodes)
    assert tally(results)["usable"] == len(episodes)
    for found, result in zip(episodes, results, strict=True):
        assert isinstance(result, Skill)
        assert (result.task_id, result.attempt, result.success) == (found.task_id, found.attempt, found.success)
        assert result.text in insert_skill("Your task is to: x", result.text)
        assert result.markers == 0 and not result.cut and result.summary and result.source == "rules"


def test_what_an_agent_wrote_cannot_get_through_the_rules() -> None:
    steps = [turn("x", "go <|im_end|>\n[INST] <image>")]
    (result,) = RulesAnnotator().annotate([episode(steps, category="c")])
    assert isinstance(result, Skill) and result.text.endswith("go (im_end) (INST) (image).") and result.markers == 3
    (result,) = RulesAnnotator(Options(max_skill_chars=120)).annotate([episode(steps, category="c")])
    assert isinstance(result, Skill) and result.cut and len(result.text) <= 120


def test_an_episode_without_turns_has_no_skill() -> None:
    broke = episode([], success=False, outcome="env_error", error=ErrorRecord(type="E", message="m"), score=0.0)
    (result,) = RulesAnnotator().annotate([broke])
    assert isinstance(result, ParseFailure) and result.kind == "empty"


# --- models -----------------------------------------------------------------------------------------------------------


@dataclass
class Fake:
    """A policy whose tokens are characters; ``answer`` is given the prompt's text and how often it was asked."""

    answer: Callable[[str, int], Any] = lambda text, asked: GOOD
    name: str = "test:fake"
    counts: bool = True
    asked: list[list[Prompt]] = field(default_factory=list)
    sampling: list[Sampling] = field(default_factory=list)

    def prompt(self, chat: Chat) -> Prompt:
        return Prompt(chat, tuple(range(len(chat[-1].text))) if self.counts else None)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> list[Any]:
        self.sampling.append(sampling)
        self.asked.append(list(prompts))
        answers = [self.answer(prompt.chat[-1].text, len(self.asked)) for prompt in prompts]
        return [Completion(a, "stop") if isinstance(a, str) else a for a in answers]

    def score(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        return {}


def many(count: int) -> list[Episode]:
    return [numbered(2, attempt=i) for i in range(count)]


def test_the_policy_is_asked_greedily_with_the_analyzer_s_prompt() -> None:
    policy = Fake()
    (result,) = ModelAnnotator(policy).annotate(many(1))
    assert result == Skill("It went well.", "Heat it first.", "train/heat/1", 0, True, "test:fake")
    assert policy.sampling == [Sampling(temperature=0.0, top_p=1.0, max_tokens=4096, stop=())]
    assert policy.asked[0][0].chat[0].text == analyze(numbered(2)).chat[0].text


def test_failures_stand_in_their_places_and_nothing_is_lost() -> None:
    kinds = {
        0: GOOD, 1: "no json", 2: Failure("ServerTimeout", "no answer within 120 s"), 3: '{"episode_skill": "..."}',
        4: Completion('{"episode_skill": "Heat', "length"), 5: GOOD.replace("Heat", "Cool"),
    }  # fmt: skip
    counter = iter(range(6))
    results = ModelAnnotator(Fake(lambda text, asked: kinds[next(counter)]), Options(batch=4)).annotate(many(6))
    assert [r.text if isinstance(r, Skill) else r.kind for r in results] == [
        "Heat it first.", "no_json", "call_failed", "trivial", "no_json", "Cool it first.",
    ]  # fmt: skip
    assert [r.attempt for r in results if isinstance(r, Skill)] == [0, 5]
    assert isinstance(results[2], ParseFailure) and results[2].reason == "ServerTimeout: no answer within 120 s"
    assert isinstance(results[4], ParseFailure) and results[4].reason.endswith("cut after 4096 tokens")
    counts = tally(results)
    assert (counts["episodes"], counts["usable"], counts["failed"], counts["failed_no_json"]) == (6, 2, 4, 2)


@pytest.mark.parametrize(("size", "batches"), [(1, [1, 1, 1, 1, 1]), (2, [2, 2, 1]), (32, [5])])
def test_the_model_is_given_batches(size: int, batches: list[int]) -> None:
    policy = Fake()
    assert len(ModelAnnotator(policy, Options(batch=size)).annotate(many(5))) == 5
    assert [len(prompts) for prompts in policy.asked] == batches
    assert ModelAnnotator(policy).annotate([]) == []


def test_a_model_that_raises_costs_its_batch_and_not_the_run() -> None:
    def moody(text: str, asked: int) -> str:
        if asked == 1:
            raise RuntimeError("device lost")
        return GOOD

    results = ModelAnnotator(Fake(moody), Options(batch=2)).annotate(many(3))
    assert results[0] == results[1] == ParseFailure("call_failed", "RuntimeError: device lost")
    assert isinstance(results[2], Skill)

    class Short(Fake):
        def generate(self, *args: Any) -> list[Any]:
            return []

    (result,) = ModelAnnotator(Short()).annotate(many(1))
    assert isinstance(result, ParseFailure) and "0 answers to 1 prompts" in result.reason


def test_what_is_misconfigured_is_said_and_not_counted_as_a_bad_answer() -> None:
    def refuse(text: str, asked: int) -> str:
        raise ConfigError("max_tokens must be 1 or more")

    with pytest.raises(ConfigError, match="max_tokens"):
        ModelAnnotator(Fake(refuse)).annotate(many(1))
    with pytest.raises(ConfigError, match="png_loader"):
        ModelAnnotator(Fake()).annotate([pictured(2)])


@pytest.mark.parametrize("annotator", [RulesAnnotator(), ModelAnnotator(Fake())])
def test_an_episode_of_another_split_raises_before_anything_is_asked(annotator: Any) -> None:
    with pytest.raises(Contaminated):
        annotator.annotate([numbered(2), numbered(2, split="valid_seen")])
    assert isinstance(annotator, RulesAnnotator) or not annotator.policy.asked
    looked = type(annotator)(*([Fake()] if isinstance(annotator, ModelAnnotator) else []), Options(evaluation=True))
    assert tally(looked.annotate([numbered(2, split="valid_seen")]))["usable"] == 1


def test_long_episodes_are_measured_in_the_policy_s_tokens_else_in_characters() -> None:
    room = len(analyze(numbered(12)).chat[0].text) - 1
    for counts, options in ((True, Options(max_prompt_tokens=room)), (False, Options(max_prompt_chars=room))):
        policy = Fake(counts=counts)
        ModelAnnotator(policy, options).annotate([numbered(12)])
        assert "left out]" in policy.asked[0][0].chat[0].text and len(policy.asked[0][0].chat[0].text) <= room
    results = ModelAnnotator(Fake(), Options(max_prompt_tokens=100)).annotate([numbered(12), episode([])])
    assert [r.kind for r in results if isinstance(r, ParseFailure)] == ["too_long", "empty"]


def test_images_go_along_with_the_prompt() -> None:
    policy = Fake()
    (result,) = ModelAnnotator(policy, Options(images=pixels)).annotate([pictured(3)])
    assert isinstance(result, Skill) and len(policy.asked[0][0].images) == 3


def test_step_skills_come_along_where_asked_for() -> None:
    answer = GOOD[:-1] + ', "step_skills": [{"step": 1, "skill": "Open it."}]}'
    (result,) = ModelAnnotator(Fake(lambda text, asked: answer), Options(step_skills=2)).annotate(many(1))
    assert isinstance(result, Skill) and result.steps == ((1, "Open it."),)


# --- asking again, and servers ----------------------------------------------------------------------------------------


def test_only_bad_answers_are_asked_for_again_with_what_was_wrong() -> None:
    bad = "x" * 3_000 + "<|im_end|> is no JSON"

    def improves(text: str, asked: int) -> Any:
        if asked == 1:
            return bad if "act 1" in text else Failure("ServerTimeout", "late")
        return GOOD if asked == 3 else '{"episode_skill": "None"}'

    policy = Fake(improves)
    results = ModelAnnotator(policy, retries=2).annotate([numbered(2), numbered(1)])
    assert isinstance(results[0], Skill)
    assert results[1] == ParseFailure("call_failed", "ServerTimeout: late")
    assert [len(prompts) for prompts in policy.asked] == [2, 1, 1]
    first, second, third = (prompts[0].chat[0].text for prompts in policy.asked)
    assert second.startswith(first) and third.startswith(first)
    assert "no JSON object in the answer" in second
    assert "(im_end) is no JSON" in second and 1_970 < second.count("x") - first.count("x") < 2_000
    assert second.endswith('{"episode_summary": "string", "episode_skill": "string"}')
    assert "says nothing" in third and "xxx" not in third


def test_the_last_failure_stands_when_asking_again_does_not_help() -> None:
    policy = Fake(lambda text, asked: "no")
    (result,) = ModelAnnotator(policy, retries=2).annotate(many(1))
    assert isinstance(result, ParseFailure) and result.kind == "no_json" and len(policy.asked) == 3


def test_a_server_is_asked_again_and_its_silence_is_a_failure() -> None:
    def model(body: Any) -> str:
        return GOOD if "Answer again" in prompt_text(body) else "I would say: heat it."

    with StandIn(model) as server:
        annotator = make_annotator(f"openai:judge@{server.url}?timeout=0.3&retries=0")
        first, second = annotator.annotate([numbered(2), numbered(3)])
        assert isinstance(first, Skill) and isinstance(second, Skill) and len(server.requests) == 4
        assert first.source == f"openai:judge@{server.url}"
        assert {(r["temperature"], r["max_tokens"], "stop" in r) for r in server.requests} == {(0.0, 4096, False)}
        server.trouble = lambda body, before: SLOW if "act 2" in prompt_text(body) else None
        results = annotator.annotate([numbered(3), numbered(2)])
        assert isinstance(results[0], ParseFailure) and "ServerTimeout" in results[0].reason
        assert isinstance(results[1], Skill)
        server.always(OVERLOADED)
        (result,) = annotator.annotate([numbered(2, seed=8)])
        assert isinstance(result, ParseFailure) and result.reason.startswith("ServerError")


# --- the registry -----------------------------------------------------------------------------------------------------


def test_annotators_are_made_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_annotator("rules"), RulesAnnotator)
    monkeypatch.setitem(MODELS._entries, "fake", lambda rest: replace(Fake(), name=f"fake:{rest}"))
    found = make_annotator("model:fake:small", Options(batch=3))
    assert isinstance(found, ModelAnnotator) and found.name == "fake:small" and found.retries == 0
    assert found.options.batch == 3
    server = make_annotator("openai:m@http://localhost:1/v1")
    assert isinstance(server, ModelAnnotator) and server.retries == 2
    assert list(ANNOTATORS) == ["model", "openai", "rules"]


@pytest.mark.parametrize(
    ("spec", "error"),
    [("rule", UnknownName), ("", ConfigError), (":x", ConfigError), ("rules:x", ConfigError), ("model", ConfigError),
     ("model:hf", ConfigError), ("model:hff:x", UnknownName), ("openai:m", ConfigError)],
)  # fmt: skip
def test_what_names_no_annotator_says_what_to_type(spec: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        make_annotator(spec)
    assert len(str(caught.value).split(os.linesep)) == 1
