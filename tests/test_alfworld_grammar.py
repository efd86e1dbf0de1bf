"""``grammar.parse`` on the real grammar file, on variants of it and on broken ones."""

import json
import re
from pathlib import Path

import pytest

from seed_envs.alfworld.grammar import MOVE, PUT, parse
from seed_envs.errors import DataError

GOAL = "put some mug on desk."


@pytest.fixture(scope="module")
def unfilled(shared: Path) -> str:
    """The released grammar as it comes, before a goal is written into it."""
    return (shared / "data/alfworld/alfred.twl2").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(unfilled: str) -> str:
    return unfilled.replace("UNKNOWN GOAL.", GOAL)


def edited(text: str, *changes: tuple[str, str]) -> str:
    """Apply replacements, each of which must find something to replace."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


PUT_VERB = ('"move {o} to {r}"', '"put {o} in/on {r}"')
PUT_FEEDBACK = ("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}.")
LOCATION_NAMED = ("You arrive at {r.name}. ", "You arrive at {lend.name}. ")


def without_help(text: str) -> str:
    return text[: text.index("action help")]


def test_the_released_grammar_is_move(text: str) -> None:
    grammar, goal = parse(text)
    assert grammar is MOVE
    assert goal == GOAL
    assert grammar.has_help


def test_help_may_stand_in_a_rule_of_its_own(text: str) -> None:
    rule = json.dumps({"help.feedback": [{"rhs": "\n" + MOVE.feedback["help"]}]})
    lines = ['template :: "help";', 'feedback :: "#help.feedback#";', f'grammar :: """{rule}""";']
    assert parse(without_help(text) + "action help {\n" + "\n".join(lines) + "\n}\n")[0] is MOVE


def test_the_old_grammar_is_put(text: str) -> None:
    grammar, _ = parse(edited(without_help(text), PUT_VERB, PUT_FEEDBACK, LOCATION_NAMED))
    assert grammar is PUT
    assert not grammar.has_help


def test_any_other_wording_is_custom_and_named_by_what_it_says(text: str) -> None:
    grammar, _ = parse(edited(text, PUT_VERB))
    assert re.fullmatch(r"custom-[0-9a-f]{8}", grammar.tag)
    assert grammar.templates == {**MOVE.templates, "PutObject": "put {o} in/on {r}"}
    assert grammar.feedback == MOVE.feedback
    assert parse(edited(text, PUT_VERB, (GOAL, "another goal.")))[0] == grammar
    other, _ = parse(edited(text, PUT_VERB, PUT_FEEDBACK))
    assert other.tag != grammar.tag
    assert other.feedback["PutObject"] == "You put the {o} in/on the {r}."


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('Look at the \\"red\\" mug.', 'Look at the "red" mug.'),
        ('Look at the "red" mug.', 'Look at the "red" mug.'),  # pasted in without escaping
        ("Caf\\u00e9 mug, 100 % [clean] {now} #1", "Café mug, 100 % [clean] {now} #1"),
        ("put a mug in desk", "put a mug in desk"),
    ],
)
def test_the_goal_is_read_as_it_was_meant(text: str, written: str, read: str) -> None:
    assert parse(edited(text, (GOAL, written))) == (MOVE, read)


@pytest.mark.parametrize("goal", ["UNKNOWN GOAL.", "", " . "])
def test_a_goal_never_filled_in_is_refused(text: str, goal: str) -> None:
    with pytest.raises(DataError, match="never filled in"):
        parse(edited(text, (GOAL, goal)))


@pytest.mark.parametrize("text", ["", "no grammar at all", '{"rhs": "You see: a mug."}'])
def test_a_text_without_a_goal_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="no goal sentence"):
        parse(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"openable(r:receptacle) & opened(r:receptacle)"', '"opened(r:receptacle)"'), "'examineReceptacle.feedback'"),
        (('"iscool(o:object)"', '"isbroken(o:object)"'), "'examineObject.feedback'"),
        (('"holdsany(a:agent)"', '"atlocation(a:agent, l:location)"'), "'inventory.feedback'"),
    ],
)
def test_unknown_conditions_are_refused_not_guessed(text: str, change: tuple[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        parse(edited(text, change))
    assert "expected the grammar of alfworld 0.3 or 0.4" in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("action OpenObject", "action UnlockObject"), "lacks the action OpenObject"),
        (('template :: "open {r}";', ""), "no template"),
        (('"#CloseObject.feedback#"', '"#Shut.feedback#"'), "no rule 'Shut.feedback'"),
        (('"notImplemented": [', '"notImplemented": ['[:-1]), "not JSON"),
    ],
)
def test_a_torn_grammar_is_refused(text: str, change: tuple[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(edited(text, change))


@pytest.mark.parametrize("rule", ["intro", "look.feedback", "look-variations", "inventory.feedback"])
def test_a_missing_rule_is_refused(text: str, rule: str) -> None:
    with pytest.raises(DataError):
        parse(edited(text, (f'"{rule}": [', f'"no {rule}": [')))
