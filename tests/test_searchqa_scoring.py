"""Scores of answers and transcripts: Search-R1's own numbers, and where ours differ on purpose."""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seed_envs import DataError
from seed_envs.searchqa import parity
from seed_envs.searchqa.scoring import em, f1, golden, normalize, pooled, scores, sub_em


def rows(shared: Path, name: str) -> list[dict[str, Any]]:
    lines = (shared / "golden/searchqa" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def listed(answers: Any) -> list[str]:
    """Return a row's golden answers; some rows have one text, some have none."""
    return [answers] if isinstance(answers, str) else answers


def test_exact_match_is_search_r1s(shared: Path) -> None:
    found = rows(shared, "em_scores.jsonl")
    for row in found:
        answers, said = listed(row["golden_answers"]), row["prediction"]
        assert (normalize(said), [*map(normalize, answers)]) == (row["normalized"], row["normalized_gold"])
        assert em(said, answers, reference=True) == row["em"], row
        assert sub_em(said, answers, reference=True) == row["sub_em"], row
        two, one = parity.extract(row["solution"], least=2), parity.extract(row["solution"], least=1)
        assert (two, one) == (row["extracted"], row["verl_agent_extracted"])
        assert (0 if two is None else em(two, answers, reference=True)) == row["score_em"]
        assert (0 if two is None else sub_em(two, answers, reference=True)) == row["score_sub_em"]
        assert (0 if one is None else em(one, answers, reference=True)) == row["verl_agent_score_em"]
    assert len(found) == 500


def test_ours_differs_from_the_reference_only_where_nothing_is_left(shared: Path) -> None:
    differences = 0
    for row in rows(shared, "em_scores.jsonl"):
        answers, said = listed(row["golden_answers"]), row["prediction"]
        if (em(said, answers), sub_em(said, answers)) != (row["em"], row["sub_em"]):
            differences += 1
            assert not row["normalized"] or "" in row["normalized_gold"], row
            assert em(said, answers) <= row["em"] and sub_em(said, answers) <= row["sub_em"], row
    assert differences == 24


def test_format_scores_are_search_r1s(shared: Path) -> None:
    found = rows(shared, "format_scores.jsonl")
    for row in found:
        text, answers = row["solution"], row["golden_answers"]
        problem = parity.sequence_problem(text)
        assert (not problem, problem or "Valid sequence format") == (row["valid"], row["reason"])
        assert parity.retrieved_answer(text, answers) == row["retrieval_correct"]
        assert parity.format_score(text, answers) == row["score_default"]
        assert parity.format_score(text, answers, structure=0.2, final=0.1) == row["score_s02_f01_r00"]
        rewarded = parity.format_score(text, answers, structure=0.2, final=0.1, retrieval=0.1)
        assert rewarded == pytest.approx(row["score_s02_f01_r01"], abs=1e-12)
    assert len(found) == 200 and sum(row["valid"] for row in found) == 56


@pytest.mark.parametrize(("name", "count"), [("bamboogle_125", 125), ("nq_150", 150)])
def test_recorded_transcripts_get_the_scores_they_were_given(shared: Path, name: str, count: int) -> None:
    with lzma.open(shared / f"data/searchqa/search_r1_transcripts_{name}.json.xz", "rt", encoding="utf-8") as file:
        found = json.load(file)
    for row in found:
        said, given = row["output"]["pred"] or "", row["output"]["metric_score"]
        assert em(said, row["golden_answers"]) == given["em"]
        assert f1(said, row["golden_answers"]) == pytest.approx(given["f1"], abs=1e-12)
    assert len(found) == count


@pytest.mark.parametrize(
    ("said", "answer", "match"),
    [
        ("The Beatles.", "beatles", 1),
        ("U.S.", "US", 1),
        ("$1,000", "1000", 1),
        ("Jay Z", "Jay-Z", 0),
        ("1969-1970", "1969\u20131970", 0),
        ("Beyonce", "Beyonc\u00e9", 0),
        ("3 1/2", "312", 0),
        ("Paris, France", "Paris", 0),
        ("", "The", 0),
        ("", "", 0),
        ("the", "A", 0),
        ("A", "A.", 1),
        ("the", "The", 1),
        ("?", "?", 1),
        ("?", "!", 0),
    ],
)
def test_corner_cases(said: str, answer: str, match: int) -> None:
    assert em(said, [answer]) == match


def test_a_golden_article_is_not_found_in_everything() -> None:
    assert sub_em("Paris, France", ["Paris"]) == 1 and em("Paris, France", ["Paris"]) == 0
    assert sub_em("1978", ["the"]) == 0 and sub_em("1978", ["the"], reference=True) == 1
    assert sub_em("cat", ["A"]) == 0 and sub_em("vitamin A", ["A"]) == 1
    assert sub_em("anything", [""]) == 0


def test_the_reference_is_kept_for_comparison() -> None:
    assert em("", ["The"], reference=True) == 1 and em("the", ["A"], reference=True) == 1


def test_f1_by_hand() -> None:
    # said: "red big house" (the article goes), golden: "big house"; 2 of 3 and 2 of 2 words agree
    assert f1("the red big house", ["big house"]) == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert f1("house house", ["house"]) == pytest.approx(2 / 3)  # a word counts as often as the other side has it
    assert f1("", ["x"]) == f1("y", ["x"]) == 0
    assert f1("b", ["a b", "b"]) == 1
    assert scores("b", ["a b", "b"]) == {"em": 1, "sub_em": 1, "f1": 1}


@pytest.mark.parametrize(
    ("answers", "texts"),
    [
        ("Paris", ("Paris",)),
        (["Paris", "paris"], ("Paris", "paris")),
        (("Paris",), ("Paris",)),
        (np.array(["Paris", "Rome"], dtype=object), ("Paris", "Rome")),
        (np.array("Paris"), ("Paris",)),
        ([7], ("7",)),
        (7, ("7",)),
    ],
)
def test_golden_answers_come_in_many_forms(answers: Any, texts: tuple[str, ...]) -> None:
    assert golden(answers, "nq/1") == texts


@pytest.mark.parametrize("answers", [[], (), np.array([], dtype=object), [None], [["x"]], {"a": 1}, [True], None])
def test_no_answer_names_the_question(answers: Any) -> None:
    with pytest.raises(DataError, match="nq/1: "):
        golden(answers, "nq/1")


def test_scores_are_pooled_over_the_questions_of_a_set() -> None:
    # 2 of 3 and 1 of 1: batches of two would give (1/2 + 1) / 2 = 3/4 for the first set
    means, macro, overall = pooled([("nq", 1), ("nq", 0), ("nq", 1), ("bamboogle", 1)])
    assert means == {"bamboogle": 1, "nq": pytest.approx(2 / 3)}
    assert macro == pytest.approx(5 / 6) and overall == pytest.approx(3 / 4)
    with pytest.raises(DataError, match="no scores"):
        pooled([])
