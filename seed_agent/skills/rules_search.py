"""What the rule-based annotator knows of search QA: which searches led to an answer, or what was missing.

No skill holds an answer. From a success only searches are quoted that consist of the question's own
words and do not hold the answer; a failure quotes nothing, because nobody knows what is right.
"""

import re
from collections.abc import Iterator, Sequence

from seed_agent.trajectory import Episode, Turn
from seed_envs.searchqa.dialects import NOTHING, read_action
from seed_envs.searchqa.scoring import comparable

_COMPARE = (
    "Two things are compared here: search for each of them by its name, put the two facts side by side, and only "
    "then answer."
)
_STEPS = (
    "Answer in steps: search for the name that the question gives, then for what its passage names, and answer with "
    "the fact that the question's first words ask for."
)
_FACT = "Search for the name in the question with the fact that is missing, and answer with that fact alone."

_MANY_STEPS = ("hotpotqa", "2wiki", "musique", "bamboogle")
"""How the names of the sets begin whose questions take more than one search, ours included."""
_COMPARING = re.compile(r"\b(?:or|same|both)\b", re.IGNORECASE)
_YES_OR_NO = re.compile(r"(?:is|are|was|were|do|does|did|has|have|had|can|could)\b", re.IGNORECASE)
_LONG_ANSWER = 6
"""Words; golden answers are hardly ever longer."""


def rule(episode: Episode) -> str:
    """Return what decides in such a task."""
    if not episode.category.startswith(_MANY_STEPS):
        return _FACT
    return _COMPARE if _COMPARING.search(episode.instruction) else _STEPS


def told(turn: Turn, episode: Episode) -> str:
    """Return an action as a skill may quote it: its kind alone."""
    known = read_action(turn.action)
    return f"{known[0]}[...]" if known else "something else"


def key_actions(episode: Episode) -> list[str]:
    """Return the searches that brought something new and what was answered with, in words without the answer."""
    done = _done(episode)
    answer = next((argument for verb, argument in done if verb == "answer"), "")
    new = dict.fromkeys(argument for verb, argument in done if verb == "search")
    return [*(_search(query, episode.instruction, answer) for query in new), f"answer with {_kind(answer)}"]


def _search(query: str, question: str, answer: str) -> str:
    words, known = comparable(query).split(), set(comparable(question).split())
    if not set(words) <= known:
        return "search for a name that a passage found before gives"
    if _holds(query, answer):
        return "search for a name that the question gives"
    return f"search for '{query.strip()}'"


def _kind(answer: str) -> str:
    """Return what sort of answer it is, without telling it."""
    if comparable(answer) in ("yes", "no"):
        return "a single word"
    if re.fullmatch(r"\s*\d{3,4}\s*", answer):
        return "the bare year or number that a passage states"
    return "the date as a passage writes it" if re.search(r"\d", answer) else "the bare name that a passage states"


def mistakes(episode: Episode) -> Iterator[str]:
    """Yield what was missing for a right answer, the gravest first."""
    done = _done(episode)
    searches = [comparable(argument) for verb, argument in done if verb == "search"]
    answer = next((argument for verb, argument in done if verb == "answer"), None)
    if answer is None and not searches:
        yield f"Begin with a search and keep the last turn for the answer: neither was done. {rule(episode)}"
    elif answer is None:
        yield (
            "Answer before the turns run out: there were searches and never an answer. Keep the last turn for the best "
            "supported answer."
        )
    elif not searches:
        yield f"Search before you answer: an answer from memory was wrong. {rule(episode)}"
    else:
        yield from _unsupported(episode, answer)
    yield from _searched_badly(episode, searches)
    if answer is not None and len(answer.split()) > _LONG_ANSWER:
        yield "Answer with the bare name, date or number: a sentence never counts as right."


def _unsupported(episode: Episode, answer: str) -> Iterator[str]:
    found = [turn.observation.text for turn in episode.turns if turn.observation.text.startswith("Doc 1: ")]
    if comparable(answer) in ("yes", "no"):
        if _YES_OR_NO.match(episode.instruction):
            yield "Read both facts again before you say whether two things agree: the comparison was wrong."
        else:
            yield "Answer with the very name, date or number that is asked for, not with whether it is so."
    elif not any(_holds(text, answer) for text in found):
        yield "Answer only what a passage says that was found: the answer given stood in none. Search again first."
    else:
        yield (
            "Check that the sentence an answer is taken from is about the very thing asked for and states the very "
            "fact: another name or date beside it was answered."
        )


def _searched_badly(episode: Episode, searches: Sequence[str]) -> Iterator[str]:
    if not searches:
        return
    if len(set(searches)) < len(searches):
        yield "Do not repeat a search: it finds the same again. Search for another name, or with other words."
    elif len(searches) == 1 and episode.category.startswith(_MANY_STEPS):
        yield f"One search was not enough. {rule(episode)}"
    if any(turn.observation.text.startswith(NOTHING) for turn in episode.turns):
        yield "Use fewer and plainer words where a search finds nothing."
    elif comparable(episode.instruction) in searches:
        yield "Search for a name instead of the whole question: its other words lead away from the right passage."


def _holds(text: str, phrase: str) -> bool:
    """Whether ``phrase`` stands in ``text`` as whole words."""
    return bool(phrase.strip()) and f" {comparable(phrase)} " in f" {comparable(text)} "


def _done(episode: Episode) -> list[tuple[str, str]]:
    """Return verb and argument of the actions that were taken."""
    read = [read_action(turn.action) for turn in episode.turns if turn.admissible is not False]
    return [known for known in read if known]
