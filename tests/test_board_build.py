"""The leaderboard's pages from its files: who is ranked with whom, what is refused, what is escaped."""

import gzip
import shutil
from pathlib import Path

import pytest
from board_entries import HASH, write_row
from board_rows import CEILING, contest, result, several
from report_runs import HOSTILE

from harness.board import markdown
from harness.board.build import build
from harness.board.entry import Protocol, read_entry, rows
from harness.board.standing import rankings
from seed_envs.errors import ConfigError, DataError

LEADERBOARDS = Path(__file__).parent.parent / "leaderboards"


def wins(*solved: int, n: int = 40) -> list[bool]:
    """Return which of ``n`` tasks are solved: those from the first to before the second number."""
    return [solved[0] <= number < solved[1] for number in range(n)]


def readme(board: Path) -> str:
    build(board)
    return (board / "README.md").read_text(encoding="utf-8")


# --- ranks ------------------------------------------------------------------------------------------------------------


def test_ranks_and_neighbours_that_cannot_be_told_apart():
    """20 and 15 tasks apart with 0 the other way; then 5 against 1, whose exact p of 0.22 says nothing."""
    best, middle, worst = result("a", 60, 80), result("b", 40, 80), result("c", 36, 80)
    (ranking,) = rankings([(contest(), worst), (contest(), best), (contest(), middle)])
    first, second, third = ranking.standings
    assert [row.result.method for row in ranking.standings] == ["a", "b", "c"]
    assert [row.rank for row in ranking.standings] == [1, 2, 3]
    assert first.against is None and first.comparison == "" and not first.tied
    assert second.p == pytest.approx(2 * 2 * 0.5**20) and not second.tied  # McNemar of (20, 0), times two by Holm
    assert third.p == pytest.approx(2 * 0.5**4) and third.tied  # (4, 0): 0.125, the larger of the two
    assert third.comparison.startswith("Cannot be told apart from the row ranked above: pooled success -5.0 points")
    assert "better on 0, worse on 4; p = 0.125 (mcnemar, Holm)" in third.comparison


def test_equal_success_has_an_equal_rank():
    (ranking,) = rankings([(contest(), result(name, 10, 20)) for name in "ba"] + [(contest(), result("c", 5, 20))])
    assert [(row.rank, row.result.method) for row in ranking.standings] == [(1, "a"), (1, "b"), (3, "c")]
    assert ranking.standings[1].tied and ranking.standings[1].p == 1.0


CHANGES = {
    "version": {"version": "2"},
    "environment": {"id": "toy/Hall-v0"},
    "settings": {"kwargs": {"observation": "rich"}},
    "split": {"split": "valid_unseen"},
    "manifest": {"manifest_sha256": "f" * 64},
    "data": {"data_sha256": "e" * 64},
    "turn limit": {"max_turns": 9},
    "embedded": {"data": "embedded"},
    "protocol": {"protocol": Protocol(name="paper", attempts=1, seed=0)},
    "attempts": {"protocol": Protocol(name="full", attempts=2, seed=0)},
    "tasks": {},
}


@pytest.mark.parametrize("differs", CHANGES)
def test_rows_that_differ_in_anything_are_not_ranked_together(tmp_path, differs):
    write_row(tmp_path, "one", [wins(0, 20)])
    write_row(tmp_path, "two", [wins(0, 10, n=30 if differs == "tasks" else 40)], **CHANGES[differs])
    text = readme(tmp_path)
    assert text.count("\n| 1 | [") == 2 and "| 2 | [" not in text
    assert text.count("### ") == 2 and text.count("## Measured on embedded data") == (differs == "embedded")


def test_rows_that_differ_in_nothing_that_matters_are(tmp_path):
    write_row(tmp_path, "one", [wins(0, 20)])
    write_row(tmp_path, "two", [wins(0, 10)], protocol=Protocol(name="full", attempts=1, seed=7), note="hello")
    text = readme(tmp_path)
    assert "| 1 | [one](<measured/one.json>) | toy | 50.0 % | 50.0 % | 35.2 to 64.8 | 0.500 | 1.0 | 40 |" in text
    assert "| 2 | [two](<measured/two.json>) | toy | 25.0 % |" in text


def test_several_training_seeds_are_one_row(tmp_path):
    """0.5, 0.6 and 0.55: mean 0.55, Student's half width 4.303 x 0.05 / sqrt 3 = 0.124."""
    write_row(tmp_path, "trained", [wins(0, 20), wins(0, 24), wins(0, 22)])
    write_row(tmp_path, "scripted", [wins(0, 22)])
    text = readme(tmp_path)
    assert "| 1 | [scripted]" in text and "| 1 ≈ | [trained](<measured/trained.json>) | hf:tiny | 55.0 % " in text
    assert "| 42.6 to 67.4 |" in text and "| 120 |" in text
    page = (tmp_path / "index.html").read_text()
    assert "seed 2: macro 55.0 %" in page and "Student&#39;s t over 3 training seeds" in page
    assert page.count('class="plot"') == 3 and "hierarchical" in page


def test_what_cannot_be_reached_is_stated(tmp_path):
    """Rows of a split with tasks that cannot be solved, such as WebShop's, say what the best play would reach."""
    write_row(tmp_path, "one", [wins(0, 20)], ceiling=CEILING)
    text = readme(tmp_path)
    assert (
        "20 of 500 tasks cannot be solved whole: the best play reaches 96.0 % success pooled, 95.0 % macro, and" in text
    )
    assert "and a score of 0.994." in (tmp_path / "index.html").read_text()


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_same_files_give_the_same_bytes(tmp_path):
    for name, solved in (("one", 20), ("two", 10)):
        write_row(tmp_path, name, [wins(0, solved)])
    shutil.copytree(LEADERBOARDS / "reported", tmp_path / "reported")
    paths = build(tmp_path)
    assert [path.name for path in paths] == ["README.md", "index.html"]
    before = [path.read_bytes() for path in paths]
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "measured", copy / "measured")
    shutil.copytree(tmp_path / "reported", copy / "reported")
    assert [path.read_bytes() for path in build(copy)] == before
    assert b"## Published elsewhere" in before[0] and str(tmp_path).encode() not in before[1]


def test_the_committed_pages_are_those_of_the_committed_files(tmp_path):
    copy = tmp_path / "leaderboards"
    shutil.copytree(LEADERBOARDS, copy)
    for path in build(copy):
        assert path.read_bytes() == (LEADERBOARDS / path.name).read_bytes(), (
            f"leaderboards/{path.name} is not what its files give; type: python -m harness.leaderboard build"
        )


def test_every_committed_row_is_shown():
    text = (LEADERBOARDS / "README.md").read_text(encoding="utf-8")
    assert text.startswith("<!-- Generated by `python -m harness.leaderboard build`")
    for path in rows(LEADERBOARDS):
        for split in read_entry(path).environment.splits:
            assert f"(<measured/{path.name}>)" in text, (path.name, split)


def lose(board: Path) -> None:
    (board / "measured" / "one-0.jsonl.gz").unlink()


def tear(board: Path) -> None:
    path = board / "measured" / "one-0.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])


def shorten(board: Path) -> None:
    path = board / "measured" / "one-0.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-1])))


def garble(board: Path) -> None:
    (board / "measured" / "one.json").write_text("{")


def misreport(board: Path) -> None:
    table = board / "reported" / "seed_table8_vision.csv"
    table.write_text(table.read_text().replace("67.1", "671"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lose, "cannot read"),
        (tear, "cannot read"),
        (shorten, "do not hold the 40 tasks of valid_seen"),
        (garble, "one.json cannot be read as a row"),
        (misreport, "csv:3: sokoban: '671' is no number"),
    ],
)
def test_damage_is_refused_and_the_old_pages_stay(tmp_path, damage, said):
    write_row(tmp_path, "one", [wins(0, 20)])
    shutil.copytree(LEADERBOARDS / "reported", tmp_path / "reported")
    before = [(path, path.read_bytes()) for path in build(tmp_path)]
    damage(tmp_path)
    with pytest.raises(DataError) as caught:
        build(tmp_path)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert all(path.read_bytes() == content for path, content in before)


def test_a_folder_that_is_no_leaderboard(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="is no leaderboard"):
            build(folder)


# --- texts ------------------------------------------------------------------------------------------------------------


def test_hostile_texts_in_a_row(tmp_path):
    write_row(tmp_path, "one", [wins(0, 20)], note=HOSTILE[0], submitter=HOSTILE[1], kwargs={"x": HOSTILE[0]})
    write_row(tmp_path, "two", [wins(0, 20)], method={"name": "m", "label": HOSTILE[0], "trained": False})
    text = readme(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<script>window" not in text and "<script>window" not in page and "<img" not in page
    assert "&lt;script&gt;window.pwned = 1" in text and "&lt;script&gt;window.pwned = 1" in page


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a|b", r"a\|b"),
        ("skill_grpo*", r"skill\_grpo\*"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("two\nlines", "two lines"),
        ("[x](javascript:y)", r"\[x\](javascript:y)"),
        ("`code` ~~no~~", r"\`code\` \~\~no\~\~"),
        ("over\u202eride", "over⟨U+202E⟩ride"),
    ],
)
def test_markdown_shows_texts_as_they_are(raw, shown):
    assert markdown.text(raw) == shown


def test_a_table_of_markdown_has_as_many_cells_as_columns():
    text = markdown.render(rankings(several()), [])
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len(tables) > 15 and {line.replace("\\|", "").count("|") for line in tables} == {11}
    assert "HASH" not in text and HASH not in text
