"""Scores of an answer: exact match, sub-match and F1, with Search-R1's normalisation.

Each score is the best over the golden answers and belongs to one question; over a set of questions
it is the plain mean (``pooled``), whatever the batches.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from seed_envs.errors import DataError

METRICS = ("em", "sub_em", "f1")
"""What the scores are called: exact match, golden answer contained, overlap of words."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Return ``text`` in lower case without ASCII punctuation, articles and repeated blanks.

    Source: Search-R1's ``normalize_answer`` at a14dc3a, as observed.
    """
    return " ".join(_ARTICLES.sub(" ", _bare(text)).split())


def _bare(text: str) -> str:
    return text.lower().translate(_PUNCTUATION)


def comparable(text: str) -> str:
    """Return ``normalize(text)``, or what is left before articles or punctuation went when that is empty.

    "The" stays "the" and "?" stays "?", so that only a blank text compares as empty.
    """
    return normalize(text) or " ".join(_bare(text).split()) or " ".join(text.lower().split())


def golden(answers: Any, item: str) -> tuple[str, ...]:
    """Return golden answers as texts, from a text, a number, or any sequence (numpy's too) of them.

    Args:
        answers: what a data file holds.
        item: names the question in an error.

    Raises:
        DataError: when there is no answer, or one that is neither text nor number.
    """
    listed = answers.tolist() if hasattr(answers, "tolist") else answers
    values = list(listed) if isinstance(listed, list | tuple) else [listed]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise DataError(f"{item}: golden answer {value!r:.60} is neither a text nor a number")
    if not values:
        raise DataError(f"{item}: no golden answers; expected a text or a list with at least one")
    return tuple(map(str, values))


def em(prediction: str, answers: Iterable[str], *, reference: bool = False) -> float:
    """Return 1.0 when ``prediction`` is one of the ``answers`` after normalisation, else 0.0.

    Without ``reference`` an empty prediction never matches, and a text of which the normalisation
    leaves nothing is compared as ``comparable`` has it; with it the score is Search-R1's.
    """
    if reference:
        return float(any(normalize(prediction) == normalize(answer) for answer in answers))
    said = comparable(prediction)
    return float(bool(said) and any(said == comparable(answer) for answer in answers))


def sub_em(prediction: str, answers: Iterable[str], *, reference: bool = False) -> float:
    """Return 1.0 when ``prediction`` contains one of the ``answers`` after normalisation, else 0.0.

    Without ``reference``, an answer that the normalisation would empty ("A") must be there as
    whole words; Search-R1 finds it in everything.
    """
    said, words = normalize(prediction), f" {' '.join(_bare(prediction).split())} "
    for answer in answers:
        wanted, left = normalize(answer), comparable(answer)
        if wanted or reference:
            found = wanted in said
        else:
            found = bool(left) and f" {left} " in words
        if found:
            return 1.0
    return 0.0


def f1(prediction: str, answers: Iterable[str]) -> float:
    """Return the best F1, 0 to 1, of the words of ``prediction`` against those of an answer (as SQuAD's)."""
    said = comparable(prediction).split()
    return max((_overlap(said, comparable(answer).split()) for answer in answers), default=0.0)


def _overlap(said: Sequence[str], wanted: Sequence[str]) -> float:
    common = (Counter(said) & Counter(wanted)).total()
    return 2 * common / (len(said) + len(wanted)) if common else 0.0


def scores(prediction: str, answers: Sequence[str], *, reference: bool = False) -> dict[str, float]:
    """Return every one of ``METRICS``."""
    return {
        "em": em(prediction, answers, reference=reference),
        "sub_em": sub_em(prediction, answers, reference=reference),
        "f1": f1(prediction, answers),
    }


def pooled(values: Iterable[tuple[str, float]]) -> tuple[dict[str, float], float, float]:
    """Return the mean of every set, the macro mean over sets and the mean over all questions.

    Args:
        values: (set, score) of each question; at least one.

    Raises:
        DataError: when there are none.
    """
    sets: dict[str, list[float]] = {}
    for name, value in values:
        sets.setdefault(name, []).append(value)
    if not sets:
        raise DataError("there are no scores to average; expected one per question")
    means = {name: sum(column) / len(column) for name, column in sorted(sets.items())}
    everything = [value for column in sets.values() for value in column]
    return means, sum(means.values()) / len(means), sum(everything) / len(everything)
