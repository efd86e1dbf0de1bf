"""Lucene's English analysis: recorded tokens, hand-made corners, texts made to hurt."""

import json
import time
from pathlib import Path

import pytest

from seed_envs.search import analysis as a
from seed_envs.search import analyze
from seed_envs.seeding import Draws


def test_recorded_tokens(shared: Path) -> None:
    lines = (shared / "golden" / "searchqa" / "analyzer_tokens.jsonl").read_text(encoding="utf-8").splitlines()
    wrong = [row["text"] for row in map(json.loads, lines) if analyze(row["text"]) != row["tokens"]]
    assert len(lines) == 368
    assert not wrong, wrong[:3]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("the of and", []),
        ("Running ponies' caresses", ["run", "poni", "caress"]),
        ("women's men\u2019s boss\uff07S o'clock", ["women", "men", "boss", "o'clock"]),
        ("3.5mm 1,000 12:30 a:b x.y", ["3.5mm", "1,000", "12", "30", "a:b", "x.y"]),
        ("foo_bar ___ _x", ["foo_bar", "_x"]),
        ("\u0130stanbul \u03a3\u03a3", ["istanbul", "\u03c3\u03c3"]),  # one character at a time, as Java lowers
        ("caf\u00e9 e\u0301t", ["caf\u00e9", "e\u0301t"]),
        ("\u6771\u4eac \u3072\u3089 \u30ab\u30ca", ["\u6771", "\u4eac", "\u3072", "\u3089", "\u30ab\u30ca"]),
        ("\u2605 \U0001f469\u200d\U0001f469\u200d\U0001f467 #\ufe0f\u20e3", None),
        # Porter's revision, which the plain algorithm lacks: -bli and -logi are endings.
        ("possibly archaeology geology", ["possibl", "archaeolog", "geologi"]),
        ("trekking trekked revved fizzed falling hopping", ["trek", "trek", "rev", "fizz", "fall", "hop"]),
        ("as is us by", ["us"]),
        ("\ud800 a\x00b \x1f", ["b"]),
    ],
)
def test_corners(text: str, terms: list[str] | None) -> None:
    assert analyze(text) == (text.split(" ") if terms is None else terms)


def test_long_tokens_are_split_as_a_window_of_255_splits_them() -> None:
    assert [len(t) for t in a.tokenize("x" * 600)] == [255, 255, 90]
    assert [len(t) for t in a.tokenize("x" * 254 + "'" + "y" * 10)] == [254, 10]
    wide = a.tokenize("\U00020000\u0301" * 3 + "\U00010400" * 200)  # two UTF-16 units each
    assert [len(t) for t in wide] == [2, 2, 2, 127, 73]


def test_the_fast_way_finds_what_the_grammar_finds() -> None:
    draws = Draws("ascii tokens")
    alphabet = "aZ09__..,;::''\"#*-\n\t "
    for _ in range(3_000):
        text = "".join(draws.choice(alphabet) for _ in range(draws.below(24)))
        fast = [token for token in a.tokenize(text) if token.strip("_")]
        assert fast == [token for token in a._any_tokens(text) if token.strip("_")], ascii(text)


@pytest.mark.parametrize(
    "unit", ["_", "_\u0301", "\u200d", "\u0301", "a'", "1,", "\U0001f600\u200d", '\u05d0"', "#", " ", "\u0e01", "'"]
)
def test_time_grows_with_the_text_not_faster(unit: str) -> None:
    def cost(count: int) -> float:
        began = time.process_time()
        list(a._any_tokens(unit * count + " end"))
        return time.process_time() - began

    cost(100)
    small, large = cost(2_000), cost(40_000)
    assert large < 200 * max(small, 1e-4)  # 20 times the text; a square would be 400 times the time


def test_words_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["\u05d0'b " + "x" * 300 + " c.d " * 90, "a 1,000.5 " * 40 + "y" * 256]
    whole = [a.tokenize(text) for text in texts]
    with monkeypatch.context() as patched:
        patched.setattr(a, "LONGEST_WORD", 320)  # cut at blanks: the tokens stay the same
        assert [a.tokenize(text) for text in texts] == whole
    monkeypatch.setattr(a, "_split", lambda text, start, end: [end - start])
    assert a.tokenize("w" * 600_000) == [1 << 18, 1 << 18, 600_000 - (1 << 19)], "four million at once: MemoryError"
