"""The published tables: what they say, what is recomputed from them, what a damaged one is told."""

import csv
import shutil
from pathlib import Path

import pytest

from harness.board.reported import (
    HEADER,
    Reported,
    ReportedTable,
    decode_bamboogle,
    mean_of,
    read_reported,
)
from seed_envs.errors import DataError

REPORTED = Path(__file__).parent.parent / "leaderboards" / "reported"
TYPES = ("pick", "look", "clean", "heat", "cool", "pick2")
SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wiki", "musique")


@pytest.fixture(scope="module")
def reported() -> Reported:
    return read_reported(REPORTED)


@pytest.fixture(scope="module")
def tables(reported: Reported) -> dict[str, ReportedTable]:
    return {table.name: table for table in reported.tables}


@pytest.fixture
def reference(shared: Path):
    def read(name: str) -> list[dict[str, str]]:
        path = shared / "reference" / f"{name}.csv"
        if not path.exists():
            pytest.skip(f"there is no {path}")
        with path.open(newline="") as file:
            return list(csv.DictReader(file))

    return read


# --- what the papers' columns give ------------------------------------------------------------------------------------


def test_bamboogle_is_decoded_by_hand():
    # SEED-3B: 44 of the 124 of one batch and the 1 of the other; (44/124 + 1)/2 = 67.74 was printed for 45/125.
    assert decode_bamboogle(67.7) == 36.0
    assert decode_bamboogle(0.0) == 0.0
    assert decode_bamboogle(12.5) == pytest.approx(100 * 31 / 125)  # 31 of 124, and 0 of 1
    assert decode_bamboogle(26.4) is None and decode_bamboogle(37.6) is None  # 33 and 47 of 125: no such mean
    assert decode_bamboogle(50.0) is None  # 124 of 124 and 0 of 1, or 0 and 1: nobody can tell


def test_34_of_36_bamboogle_cells_decode(tables):
    rows = tables["seed_table1_searchqa"].rows
    odd = [row.keys for row in rows if decode_bamboogle(row.cells["bamboogle"].value) is None]
    assert len(rows) == 36 and odd == [("Qwen2.5-3B", "GRPO"), ("Qwen2.5-7B", "GRPO")]
    for row in rows:
        cell, flags = row.cells["bamboogle"], row.cells["bamboogle"].problems
        decoded = decode_bamboogle(cell.value)
        if decoded is None:
            assert "bamboogle-other" in flags and cell.corrected is None
            assert abs(cell.value * 1.25 - round(cell.value * 1.25)) < 1e-9  # a count over 125
        else:
            assert "bamboogle-batch" in flags and decoded == pytest.approx(
                row.cells["bamboogle_pooled"].value, abs=1e-9
            )


def test_recomputed_columns_follow_from_the_printed_ones(tables):
    """To 0.1; the one exception is SEED-3B's average of search QA, whose cells give 45.86 and not the printed 45.7."""
    for row in tables["seed_table1_alfworld"].rows:
        assert row.cells["avg_macro"].value == pytest.approx(mean_of([row.cells[t].value for t in TYPES]), abs=0.1)
    off = {}
    for row in tables["seed_table1_searchqa"].rows:
        six = [row.cells[name].value for name in SETS]
        corrected = mean_of([*six, row.cells["bamboogle_pooled"].value])
        assert row.cells["avg_corrected"].value == pytest.approx(corrected, abs=0.1)
        printed = mean_of([*six, row.cells["bamboogle"].value])
        if abs(printed - row.cells["avg"].value) > 0.1:
            off[row.keys] = (round(printed, 2), row.cells["avg"].value)
            assert "average-off" in row.cells["avg"].problems
    assert off == {("Qwen2.5-3B", "SEED"): (45.86, 45.7)}


def test_the_alfworld_average_is_named_as_what_it_is(tables):
    """Pooled averages are counts over 128, macro ones the mean of six types; two cells are neither."""
    found: dict[str, list[tuple[str, ...]]] = {"pooled": [], "macro": [], "unknown": []}
    for row in tables["seed_table1_alfworld"].rows:
        average = row.cells["avg"]
        found[average.metric].append(row.keys)
        count = any(abs(100 * k / 128 - average.value) <= 0.05 + 1e-9 for k in range(129))
        macro = abs(mean_of([row.cells[t].value for t in TYPES]) - average.value) <= 0.1
        assert {"pooled": count, "macro": macro, "unknown": not count and not macro}[average.metric], row.keys
    assert {name: len(keys) for name, keys in found.items()} == {"pooled": 28, "macro": 6, "unknown": 2}
    assert {method for _, method in found["macro"]} == {"SEED", "OPID"}
    grpo = next(r for r in tables["seed_table1_alfworld"].rows if r.keys == ("Qwen2.5-3B", "GRPO")).cells["avg"]
    assert (grpo.value, grpo.corrected) == (75.0, 70.7) and "other-turn-limit" in grpo.problems


def test_copied_rows_are_named(tables):
    ablation = {row.keys[0]: row for row in tables["seed_table2_ablation"].rows}["w/o On-Policy Skill"]
    sdar = {row.keys: row for row in tables["seed_table1_alfworld"].rows}["Qwen2.5-3B", "SDAR"]
    assert [ablation.cells[key].value for key in TYPES] == [sdar.cells[key].value for key in TYPES]
    assert "ablation-is-sdar" in ablation.cells["avg"].problems
    vision = {row.keys[0]: row for row in tables["seed_table8_vision"].rows}
    gigpo = {row.keys[0]: row for row in tables["gigpo_vision"].rows}
    for ours, theirs in (("ReAct", "Prompting"), ("GRPO", "GRPO")):
        assert [vision[ours].cells[k].value for k in ("sokoban", "ezpoints")] == [
            gigpo[theirs].cells[k].value for k in ("sokoban", "ezpoints")
        ]
        assert vision[ours].cells["sokoban"].problems == ("copied-from-gigpo",)
    assert vision["SEED"].cells["sokoban"].problems == ()


def test_skill_sd_cells_are_counts(tables):
    for row in tables["skill_sd_main"].rows:
        for key, n in (("appworld", 57), ("sokoban", 64)):
            value = row.cells[key].value
            assert row.cells[key].metric == "pooled" and abs(100 * round(value * n / 100) / n - value) <= 0.06


def test_every_cell_says_where_it_is_from(reported):
    cells = list(reported.cells())
    assert len(cells) > 800
    for cell in cells:
        assert cell.source and cell.protocol in reported.protocols and set(cell.problems) <= set(reported.problems)
    used = {name for cell in cells for name in cell.problems}
    assert used == set(reported.problems)  # none is described that no cell has
    assert {row.paper for table in reported.tables for row in table.rows} == set(reported.papers)


# --- against the reference --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file", "keys", "columns"),
    [
        (
            "seed_table1_alfworld",
            "table1_main",
            ("backbone", "method"),
            {**{t: t for t in TYPES}, "avg": "alf_avg_printed", "avg_macro": "alf_macro_recomputed"},
        ),
        (
            "seed_table1_searchqa",
            "table1_main",
            ("backbone", "method"),
            {
                **{s: s for s in SETS},
                "bamboogle": "bamboogle_printed",
                "avg": "search_avg_printed",
                "bamboogle_pooled": "bamboogle_pooled_inferred",
                "avg_corrected": "search_avg_with_pooled_bamboogle",
            },
        ),
        (
            "seed_table1_webshop",
            "table1_main",
            ("backbone", "method"),
            {"score": "webshop_score", "success": "webshop_succ"},
        ),
        (
            "seed_table2_ablation",
            "table2_ablation_alfworld_3b",
            ("variant",),
            {**{t: t for t in TYPES}, "avg": "avg_printed"},
        ),
        (
            "seed_table6_fraction",
            "table6_data_fraction_3b",
            ("benchmark", "method"),
            {f: f for f in ("f20", "f40", "f60", "f80", "f100")},
        ),
        ("seed_table7_unseen", "table7_alfworld_unseen_3b", ("method",), {**{t: t for t in TYPES}, "avg": "avg_macro"}),
        (
            "seed_table8_vision",
            "table8_vision_qwen2.5-vl-3b",
            ("method",),
            {"sokoban": "sokoban_6x6", "ezpoints": "ezpoints", "avg": "avg"},
        ),
        (
            "seed_table3_data",
            "table3_dataset_sizes",
            ("benchmark",),
            {"sft_tasks": "sft_tasks", "rl_samples": "rl_samples"},
        ),
    ],
)
def test_a_table_equals_the_reference(tables, reference, name, file, keys, columns):
    lines = reference(file)
    rows = tables[name].rows
    assert [row.keys for row in rows] == [tuple(line[key] for key in keys) for line in lines]
    for row, line in zip(rows, lines, strict=True):
        for ours, theirs in columns.items():
            assert row.cells[ours].value == float(line[theirs]), (row.keys, ours)


def test_table_3_equals_the_reference(tables, reference):
    """Its test column is prose there."""
    prose = {line["benchmark"]: line["test"] for line in reference("table3_dataset_sizes")}
    sizes = {row.keys[0]: [cell.printed for key, cell in row.cells.items() if key.startswith("test")]
             for row in tables["seed_table3_data"].rows}  # fmt: skip
    assert (
        prose["ALFWorld"] == "{} seen / {} unseen".format(*sizes["ALFWorld"])
        and prose["WebShop"] == sizes["WebShop"][0]
    )
    questions = "; ".join(
        f"{row.keys[0]} {row.cells['questions'].printed}" for row in tables["seed_table3_questions"].rows
    )
    assert prose["Search-QA"] == f"{sizes['Search-QA'][0]} ({questions})"
    assert sum(row.cells["questions"].value for row in tables["seed_table3_questions"].rows) == 51713


# --- damage -----------------------------------------------------------------------------------------------------------


def damaged(folder: Path, name: str, old: str, new: str) -> Path:
    copy = folder / "reported"
    shutil.copytree(REPORTED, copy)
    text = (copy / name).read_text()
    assert text.count(old) >= 1
    (copy / name).write_text(text.replace(old, new, 1))
    return copy


TABLE8 = "seed_table8_vision.csv"


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (TABLE8, "GRPO,67.1", "GRPO,abc", "csv:3: sokoban: 'abc' is no number; expected percent"),
        (TABLE8, "GRPO,67.1", "GRPO,671", "csv:3: sokoban: '671' is no number"),
        (TABLE8, "GRPO,67.1", "GRPO,nan", "csv:3: sokoban: 'nan' is no number"),
        (TABLE8, "GRPO,67.1,", "GRPO,", "csv:3: 7 values; expected 8"),
        (TABLE8, "GRPO,67.1", "ReAct,67.1", "csv:3: a second row ReAct"),
        (TABLE8, "sokoban,ezpoints", "ezpoints,sokoban", "csv:1: the columns are not those"),
        (TABLE8, "copied-from-gigpo", "copied-from-nowhere", "csv:2: unknown problem 'copied-from-nowhere'"),
        (TABLE8, "seed,table 8", "sead,table 8", "csv:2: unknown paper 'sead'"),
        (TABLE8, ",vision,", ",version,", "csv:2: unknown protocol 'version'"),
        ("seed_table6_fraction.csv", ",pooled,", ",mean,", "csv:2: unknown metric 'mean'"),
        ("seed_table1_alfworld.csv", "75.0,70.7,", "75.0,75.0,", "csv:4: avg_macro is 75.0; expected 70.7"),
        ("seed_table1_searchqa.csv", "67.7,36.0,", "67.7,67.7,", "csv:12: bamboogle_pooled is 67.7; expected 36.0"),
        (HEADER, "[tables.gigpo_vision]", "[tables.gigpo]", "tables.gigpo.columns"),
        (HEADER, 'title = "GiGPO: vision"', 'titel = "GiGPO: vision"', "tables.gigpo_vision"),
        (
            HEADER,
            'corrects = "avg", mean_of = ["pick"',
            'corrects = "avg", mean_of = ["pik"',
            "columns.avg_macro: expected",
        ),
        (HEADER, "[papers.seed]", "[papers.seed", "cannot be read"),
    ],
)
def test_damage_is_named(tmp_path, name, old, new, said):
    with pytest.raises(DataError) as caught:
        read_reported(damaged(tmp_path, name, old, new))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_table_without_a_header_and_a_header_without_a_table(tmp_path):
    copy = damaged(tmp_path, HEADER, "papers", "papers")
    (copy / "extra.csv").write_text("a,b\n")
    with pytest.raises(DataError, match="extra: expected one CSV file for every table"):
        read_reported(copy)
    (copy / "extra.csv").unlink()
    (copy / TABLE8).unlink()
    with pytest.raises(DataError, match="seed_table8_vision: expected"):
        read_reported(copy)
    with pytest.raises(DataError, match="cannot be read"):
        read_reported(tmp_path / "nowhere")
