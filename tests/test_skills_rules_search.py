"""Skills by rules from search episodes: which searches led on or what was missing, never the answer."""

from typing import Any

import pytest
from skill_episodes import ENV, SEARCHQA, episode, played, turn

from seed_agent.skills.insert import insert_skill, remove_skill
from seed_agent.skills.rules import RulesAnnotator
from seed_agent.skills.skill import Skill
from seed_agent.trajectory import Turn
from seed_envs.prompting import builtin_template
from seed_envs.searchqa.env import SearchQAEnv
from seed_envs.searchqa.scoring import comparable

ONE = "who wrote the amber envoy"
TWO = "Where was the author of The Amber Envoy born?"
OR = "Who was born first, Ada Holt or Bea Rask?"
SAME = "Did Ada Holt and Bea Rask have the same profession?"
FOUND = 'Doc 1: "The Amber Envoy"\nThe Amber Envoy is a novel of 1911 by Ada Holt, published by Rask Mills.'
HOLT = 'Doc 1: "Ada Holt"\nAda Holt, born on 3 May 1880 in Aldermoor, worked as a poet.'
LOST: dict[str, Any] = {"success": False, "outcome": "failure", "score": 0.0}


def skill(question: str, *steps: tuple[str, str] | Turn, category: str = "nq", **changes: Any) -> str:
    turns = [step if isinstance(step, Turn) else turn(*step) for step in steps]
    env = ENV.model_copy(update={"id": SEARCHQA})
    known = {"task_id": "nq/1", "category": category, "instruction": question, "env": env}
    (found,) = RulesAnnotator().annotate([episode(turns, **(known | changes))])
    assert isinstance(found, Skill)
    return found.text


def holds(text: str, answer: str) -> bool:
    return f" {comparable(answer)} " in f" {comparable(text)} "


FACT = "Search for the name in the question with the fact that is missing, and answer with that fact alone."
STEPS = (
    "Answer in steps: search for the name that the question gives, then for what its passage names, and answer with "
    "the fact that the question's first words ask for."
)
COMPARE = (
    "Two things are compared here: search for each of them by its name, put the two facts side by side, and only "
    "then answer."
)


@pytest.mark.parametrize(
    ("question", "category", "steps", "answer", "wanted"),
    [
        (
            ONE, "nq", [("Go.", "search[The Amber Envoy]"), (FOUND, "answer[Ada Holt]")], "Ada Holt",
            f"{FACT} This order works: search for 'The Amber Envoy'; answer with the bare name that a passage states.",
        ),
        (
            TWO, "musique-like",
            [("Go.", "search[The Amber Envoy]"), (FOUND, "search[Ada Holt]"), (HOLT, "answer[Aldermoor]")],
            "Aldermoor",
            f"{STEPS} This order works: search for 'The Amber Envoy'; search for a name that a passage found before "
            "gives; answer with the bare name that a passage states.",
        ),
        (
            OR, "hotpotqa",
            [("Go.", "search[Bea Rask]"), ("Doc 1: x", "search[Ada Holt]"), (HOLT, "answer[Ada Holt]")], "Ada Holt",
            f"{COMPARE} This order works: search for 'Bea Rask'; search for a name that the question gives; answer "
            "with the bare name that a passage states.",
        ),
        (
            SAME, "2wikimultihopqa", [("Go.", "search[Bea Rask]"), ("Doc 1: x", "answer[yes]")], "yes",
            f"{COMPARE} This order works: search for 'Bea Rask'; answer with a single word.",
        ),
        (
            "when did the amber envoy come out", "popqa",
            [("Go.", "search[ ]"), ("Go.", "search[the amber envoy]"), (FOUND, "answer[1911]")], "1911",
            f"{FACT} This order works: search for 'the amber envoy'; answer with the bare year or number that a "
            "passage states.",
        ),
        (
            "when was ada holt born", "nq-like", [("Go.", "search[ada holt]"), (HOLT, "answer[3 May 1880]")],
            "3 May 1880",
            f"{FACT} This order works: search for 'ada holt'; answer with the date as a passage writes it.",
        ),
    ],
)  # fmt: skip
def test_a_success_becomes_its_searches_without_the_answer(
    question: str, category: str, steps: list[tuple[str, str]], answer: str, wanted: str
) -> None:
    turns = [turn(seen, action, admissible=action != "search[ ]") for seen, action in steps]
    found = skill(question, *turns, category=category)
    assert found == wanted and not holds(found, answer)


SEARCHED = ("Go.", "search[The Amber Envoy]")
MEMORY = "Search before you answer: an answer from memory was wrong."
NEITHER = "Begin with a search and keep the last turn for the answer: neither was done."
SILENT = "Answer before the turns run out: there were searches and never an answer."
UNSEEN = "Answer only what a passage says that was found: the answer given stood in none. Search again first."
BESIDE = "Check that the sentence an answer is taken from is about the very thing asked for"
AGAIN = "Do not repeat a search: it finds the same again."
ONCE = "One search was not enough."
EMPTY = "Use fewer and plainer words where a search finds nothing."
WHOLE = "Search for a name instead of the whole question"
LENGTHY = "Answer with the bare name, date or number: a sentence never counts as right."
AGREE = "Read both facts again before you say whether two things agree: the comparison was wrong."
WORD = "Answer with the very name, date or number that is asked for, not with whether it is so."
LESSONS = (MEMORY, NEITHER, SILENT, UNSEEN, BESIDE, AGAIN, ONCE, EMPTY, WHOLE, LENGTHY, AGREE, WORD)


@pytest.mark.parametrize(
    ("question", "category", "steps", "lessons"),
    [
        (ONE, "nq", [("Go.", "answer[Ada Holt]")], {MEMORY}),
        (ONE, "nq", [("Go.", "")], {NEITHER}),
        (ONE, "nq", [SEARCHED, (FOUND, "search[Rask]"), (FOUND, "search[Holt]")], {SILENT}),
        (ONE, "nq", [SEARCHED, (FOUND, "search[the amber envoy!]")], {SILENT, AGAIN}),
        (ONE, "nq", [SEARCHED, (FOUND, "answer[Charles Dickens]")], {UNSEEN}),
        (ONE, "nq", [SEARCHED, (FOUND, "answer[Rask Mills]")], {BESIDE}),
        (ONE, "nq", [SEARCHED, (FOUND, "answer[yes]")], {WORD}),
        (SAME, "hotpotqa", [SEARCHED, ("Doc 1: x", "search[Ada Holt]"), (HOLT, "answer[no]")], {AGREE}),
        (TWO, "bamboogle", [SEARCHED, (FOUND, "answer[Ada Holt]")], {BESIDE, ONCE}),
        (ONE, "nq", [("Go.", f"search[{ONE}]"), ("No search results found.", "answer[x]")], {UNSEEN, EMPTY}),
        (ONE, "nq", [("Go.", f"search[{ONE.title()}?]"), (FOUND, "answer[x]")], {UNSEEN, WHOLE}),
        (ONE, "nq", [SEARCHED, (FOUND, "answer[It was written by Ada Holt in 1911]")], {UNSEEN, LENGTHY}),
    ],
)
def test_a_failure_becomes_what_to_do_instead(
    question: str, category: str, steps: list[tuple[str, str]], lessons: set[str]
) -> None:
    found = skill(question, *steps, category=category, **LOST)
    assert {lesson for lesson in LESSONS if lesson in found} == lessons
    for quoted in ("Dickens", "Holt", "Rask", "Mills", "1911", "Amber"):  # any of it might be the answer
        assert quoted not in found


def test_replies_that_are_ill_formed_or_refused_are_told_without_their_words() -> None:
    refused = turn(FOUND, "search[Ada Holt]", admissible=False, effective=False)
    found = skill(ONE, SEARCHED, refused, **LOST)
    assert "'search[...]' was refused" in found and "Holt" not in found
    bad = turn(FOUND, "", reply="Ada Holt", format_ok=False, admissible=False)
    found = skill(ONE, SEARCHED, bad, bad, bad, **LOST)
    assert SILENT in found and "3 replies were not well-formed" in found
    cut = turn(FOUND, "", reply="Ada", format_ok=False, admissible=False, stop_reason="length")
    assert "Think more briefly: 1 replies" in skill(ONE, SEARCHED, cut, **LOST)
    same = skill(ONE, ("Go.", "answer[Ada Holt"), *[(FOUND, "look up Holt")] * 3, **LOST)
    assert "'something else' was chosen 3 times" in same and "Holt" not in same


@pytest.mark.parametrize("policy", ["scripted:oracle", "scripted:noisy-oracle:0.5", "scripted:random"])
def test_no_skill_holds_the_answer_to_its_question(policy: str) -> None:
    env = SearchQAEnv(split="train")
    chosen = list(env.tasks)[:: len(env.tasks) // 6]
    answers = {task.id: env._source.load(task).answers for task in chosen}
    episodes = played(SEARCHQA, policy)
    for found, result in zip(episodes, RulesAnnotator().annotate(episodes), strict=True):
        assert isinstance(result, Skill)
        assert not any(holds(result.text, answer) for answer in answers[found.task_id])


@pytest.mark.parametrize("style", ["plain", "react", "compact", "search_r1", "conversation"])
def test_the_skill_stands_behind_the_question_of_every_prompt(style: str) -> None:
    text = builtin_template("searchqa", style).render(instruction=TWO.lower(), observation="Go.", taken=0)
    added = insert_skill(text, "Search in steps.")
    assert f"Your question: {TWO.lower()}\n\n**Skill for this episode**" in added and remove_skill(added) == text
