"""Rows with odd content: every field is bounded, what follows from others is computed again, nothing is a traceback."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import board_kit as kit
import committed
import eval_plugin
import numpy as np
import pytest
from board_entries import write_row
from board_rows import CEILING

from harness import leaderboard, verify
from harness.board import markdown
from harness.board.entry import Best, Ceiling, Entry, read_entry
from harness.board.measured import results
from harness.board.standing import rankings
from harness.runs import flat
from seed_envs.errors import DataError

ODD: tuple[Any, ...] = ("\x1b[31m", "x" * 20_000, -1, 1e308, 10**30, None, [], {"a": [None]}, "", "\u202e", 2, "2")


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    return [at, *(place for key, item in items for place in places(item, (*at, key)))]


def put(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    changed = found = copy.deepcopy(content)
    for key in place[:-1]:
        found = found[key]
    found[place[-1]] = value
    return changed


def show(entry: Entry) -> str:
    outcomes = {split: np.ones((len(entry.runs), 4)) for split in entry.environment.splits}
    return markdown.render(rankings(results(entry, outcomes)), [])


def test_no_odd_value_anywhere_in_a_row_breaks_the_board(tmp_path: Path) -> None:
    """Each is refused in one short line, or the row can be shown all the same."""
    wins = [[i < n for i in range(4)] for n in (2, 3)]
    write_row(tmp_path, "one", wins, ceiling=CEILING, note="a note", submitter="Ada")
    row = tmp_path / "measured" / "one.json"
    content = json.loads(row.read_bytes())
    refused = shown = 0
    for i, place in enumerate(places(content)[1:]):
        row.write_text(json.dumps(put(content, place, ODD[i % len(ODD)])))
        try:
            entry = read_entry(row)
        except DataError as error:
            refused += 1
            assert len(str(error)) < 700 and str(error).isprintable(), place
            continue
        shown += 1
        assert "\x1b" not in show(entry), place
    assert refused > 100 and shown > 20


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("submitted",), "yesterday", "submitted: String should match"),
        (("submitted",), "2026-13-02T03:04:05+00:00", "submitted: month must be in 1..12"),
        (("method", "label"), "SE\nED", "method.label: it has a line end or a tab"),
        (("note",), "\x1b[2J", "note: it holds the character U+001B, which no reader would see"),
        (("runs", 0, "provenance", "commits"), ["main"], "runs.0.provenance.commits.0: String should match"),
        (("runs", 0, "policy", "weights_sha256"), "abc", "runs.0.policy.weights_sha256: String should match"),
        (("environment", "splits", "valid_seen", "ceiling"), {"n": 4}, "ceiling.success: Field required"),
        (("environment", "splits", "valid_seen", "ceiling", "below"), 501, "501 of 500 tasks are below 1"),
        (("aggregate", "valid_seen", "macro", "values"), [0.5], "the aggregate is not of 2 runs"),
        (("runs", 1, "training_seed"), None, "a training seed belongs to every run"),
        (("training",), None, "method.trained is True, and training is not there"),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, capsys: Any, place: Any, value: Any, said: str) -> None:
    write_row(tmp_path, "one", [[True] * 4, [False] * 4], ceiling=CEILING)
    row = tmp_path / "measured" / "one.json"
    row.write_text(json.dumps(put(json.loads(row.read_bytes()), place, value)))
    for args in (["validate", str(row)], ["build", str(tmp_path)]):
        assert leaderboard.main(args) == 2
        out, err = capsys.readouterr()
        assert not out and err.count("\n") == 1 and said in err, err


# --- what follows from the rest ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The row of a real run in which two of four words are spelled, in each split."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        committed.pretend(monkeypatch)
        return kit.listed(tmp_path_factory.mktemp("board"), policy="spell:first=2")


@pytest.fixture
def row(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may spoil."""
    shutil.copytree(made.parent, tmp_path / "measured")
    return tmp_path / "measured" / made.name


BEST = {"n": 4, "below": 1, "success": 0.75, "score": 0.75, "macro": {"success": 0.8, "score": 0.8}}


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("method", "label"), "SEED", 'method.label is "SEED"; computed again: "spell:first=2"'),
        (("method", "name"), "seed", 'method.name is "seed"; computed again: "spell-first-2"'),
        (("method", "fields"), {"rl": "grpo"}, "method.fields has rl, which no method has"),
        (("environment", "splits", "seen", "ceiling"), {**BEST, "n": 5}, "is of 5 tasks; the row is of 4"),
        (
            ("environment", "splits", "seen", "ceiling"),
            {**BEST, "success": 0.25},
            "pooled success of seen is 0.5, above its ceiling of 0.25",
        ),
    ],
)
def test_what_a_row_says_is_computed_again(row: Path, capsys: Any, place: Any, value: Any, said: str) -> None:
    row.write_text(json.dumps(put(json.loads(row.read_bytes()), place, value)))
    assert leaderboard.main(["validate", str(row)]) == 1
    out = capsys.readouterr().out
    assert said in out, out


def test_a_row_and_its_logs_are_called_after_their_runs(row: Path, capsys: Any) -> None:
    content = json.loads(row.read_bytes())
    content["id"] = content["id"][:-8] + "00000000"
    forged = row.with_name(f"{content['id']}.json")
    forged.write_text(json.dumps(content))
    assert leaderboard.main(["validate", str(forged)]) == 1
    out = capsys.readouterr().out
    assert "does not end in -" in out and f"expected {content['id']}.jsonl.gz" in out


def test_ceilings_are_asked_of_the_environment(
    row: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row may neither keep quiet about a ceiling nor make one up."""
    best = {"seen/001": 0.5, "seen/002": 0.9}
    monkeypatch.setattr(eval_plugin.Spell, "ceiling", lambda self, task: best.get(task.id, 1.0), raising=False)
    assert verify.main([str(row)]) == 1
    assert "split seen: the ceiling is none; by the environment as it is installed here: {" in capsys.readouterr().out
    committed.pretend(monkeypatch)
    [listed] = kit.add([kit.play(tmp_path / "again", policy="spell:first=1")], tmp_path / "other")
    # categories: seen/000 and 003 of 2 letters, 001 of 3, 002 of 4
    means = Best(success=1 / 3, score=(1 + 0.5 + 0.9) / 3)
    stated = Ceiling(n=4, below=2, success=0.5, score=0.85, macro=means)
    found = read_entry(listed).environment.splits["seen"].ceiling
    assert found is not None and flat(found.model_dump()) == pytest.approx(flat(stated.model_dump()), abs=1e-9)
    assert verify.main([str(listed)]) == 0
    kit.edit_row(listed, "environment", "splits", "seen", "ceiling", "score", value=0.9)
    assert verify.main([str(listed)]) == 1


@pytest.mark.parametrize("content", ["{", "[]", '{"schema_version": 1}'])
def test_one_rule_of_exit_codes(row: Path, tmp_path: Path, capsys: Any, content: str) -> None:
    """2: missing or unreadable; 1: read and wrong, whatever else could not be read; the others are checked anyway."""
    bad = tmp_path / "x.json"
    bad.write_text(content)
    capsys.readouterr()
    for command in (["validate"], []):
        main = leaderboard.main if command else verify.main
        assert main([*command, str(bad), str(row)]) == 2
        out, err = capsys.readouterr()
        assert out.startswith("ok      ") and err.count("\n") == 1 and "x.json" in err
        assert main([*command, str(tmp_path / "nowhere.json")]) == 2
        assert "nowhere.json is not there" in capsys.readouterr().err
    kit.edit_row(row, "flags", value=[])
    assert leaderboard.main(["validate", str(bad), str(row)]) == 1
    assert verify.main([str(bad), str(row)]) == 1
