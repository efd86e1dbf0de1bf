"""The page of a training run without a browser: smoothing, scales, what it says, what damage it survives."""

import json
import math
import re
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from report_runs import HOSTILE
from test_report import Parsed
from training_runs import COMMAND, evaluated, learning, row, write_training

from harness.html import curves, training, training_reading
from harness.html.curves import axis, centred_mean, curve, finite, spaced, steps, thinned
from harness.report import main, write_training_report
from harness.stats import wilson
from seed_envs.errors import ConfigError, DataError, SeedError


def parsed(folder: Path) -> Parsed:
    return Parsed(write_training_report(folder).read_text(encoding="utf-8"))


def places(points: str) -> list[tuple[int, int]]:
    """Return the points of a polyline."""
    return [(int(x), int(y)) for x, y in (point.split(",") for point in points.split())]


def captions(found: Parsed) -> dict[str, str]:
    """Return what is written under each picture, by its label."""
    labels = [attrs["aria-label"] or "" for tag, attrs in found.tags if attrs.get("class") == "plot"]
    return dict(label.split(": last ", 1) for label in labels)


# --- the centred mean -------------------------------------------------------------------------------------------------


def test_the_centred_mean_of_five_by_hand():
    assert centred_mean([1, 2, 6, 3, 8], window=5) == [3, 3, 4, 4.75, 17 / 3]
    # 1 2 6 | 1 2 6 3 | 1 2 6 3 8 | 2 6 3 8 | 6 3 8: fewer at the edges, never values that are not there
    assert centred_mean([4], window=5) == [4] and centred_mean([], window=5) == []


def test_thirteen_points_are_six_to_either_side():
    spike = [0.0] * 30
    spike[10] = 13.0
    assert centred_mean(spike) == [0, 0, 0, 0, *[13 / 11, 13 / 12], *[1.0] * 11, *[0.0] * 13]
    edge = [13.0, *[0.0] * 29]
    assert centred_mean(edge) == [13 / 7, 13 / 8, 13 / 9, 13 / 10, 13 / 11, 13 / 12, 1.0, *[0.0] * 23]
    assert centred_mean([1.0, 2.0, 4.0]) == [7 / 3] * 3  # shorter than the window: the mean of all


def test_the_centred_mean_is_exact():
    values = [0.1 * i for i in range(40)]
    for i, found in enumerate(centred_mean(values)):
        near = [Fraction(value) for value in values[max(0, i - 6) : i + 7]]
        assert abs(Fraction(found) - sum(near) / len(near)) <= Fraction(math.ulp(found))


# --- scales and points ------------------------------------------------------------------------------------------------


def test_a_curve_by_hand():
    found = curve("k", "what", [(1, 0.0), (2, 4.0), (4, 2.0)], x=steps(4), unit="count")
    assert found.raw == "250,1000 500,0 1000,500" and found.mean == "250,500 500,500 1000,500"
    assert found.x_ticks == ((0, "0"), (25, "1"), (50, "2"), (75, "3"), (100, "4"))
    assert found.y_ticks == ((100, "0"), (75, "1"), (50, "2"), (25, "3"), (0, "4"))
    assert found.caption == "last 2, 13-point mean 2; lowest 0, highest 4; n = 3 iterations" and found.marks == ()


def test_shares_are_percent_and_some_scales_are_whole():
    points = [(1, 0.02), (2, 0.03)]
    whole, fitting = (curve("k", "what", points, x=steps(2), unit=unit) for unit in ("whole", "share"))
    assert [text for _, text in whole.y_ticks] == ["0 %", "25 %", "50 %", "75 %", "100 %"]
    assert [text for _, text in fitting.y_ticks] == ["0 %", "1 %", "2 %", "3 %"]
    assert "last 3 %, 13-point mean 2.5 %" in whole.caption


def test_a_single_point_is_a_mark():
    found = curve("k", "what", [(3, 0.5)], x=steps(3))
    assert len(found.marks) == 1 and found.marks[0].x == 100 and "n = 1 iteration" in found.caption


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (-1e99, 1e99), (1e16, 1e16 + 2), (3, 3.0001), (0, 5e-324), (-7, -7), (1e-300, 2e-300), (0, 1e100)],
)
def test_every_scale_holds_its_values(low, high):
    y = axis(low, high)
    assert y.low <= low and high <= y.high and y.low < y.high and list(y.ticks) == sorted(y.ticks)
    found = curve("k", "what", [(1, float(low)), (2, float(high))], x=steps(2))
    assert all(0 <= place <= 1000 for point in places(f"{found.raw} {found.mean}") for place in point)
    assert all(math.isfinite(place) for place, _ in found.y_ticks)


def test_labels_tell_ticks_apart():
    labels = [text for _, text in curve("k", "what", [(1, 3.0), (2, 3.0001)], x=steps(2)).y_ticks]
    assert labels == ["3", "3.00005", "3.0001"]
    assert [t for _, t in curve("k", "what", [(1, 0.0), (2, 12_345.0)], x=steps(2)).y_ticks] == [
        "0", "5,000", "10,000", "15,000",
    ]  # fmt: skip


def test_thinning_keeps_every_peak():
    points = [(i, 0.0) for i in range(10_000)]
    points[1234], points[8000] = (1234, 9.0), (8000, -5.0)
    kept = thinned(points, 100)
    assert len(kept) <= 200 and (1234, 9.0) in kept and (8000, -5.0) in kept
    assert all(one[0] < two[0] for one, two in pairwise(kept))
    assert thinned(points[:200], 100) == points[:200]


def test_evenly_spaced_with_both_ends():
    assert spaced(range(11), 3) == [0, 5, 10] and spaced([1, 2], 3) == [1, 2]
    assert spaced(range(10_001), 400)[-1] == 10_000


@pytest.mark.parametrize("value", [None, True, "1", math.nan, math.inf, -math.inf, 1e101, 10**400, [], {}])
def test_what_is_no_number_is_not_drawn(value):
    assert finite(value) is None


# --- what the page says -----------------------------------------------------------------------------------------------


def test_evaluations_stand_with_their_intervals(tmp_path):
    found = parsed(write_training(tmp_path / "run", learning(60)))
    low, high = wilson(98, 140)
    shown = f"95 % interval {100 * low:.1f} to {100 * high:.1f}"
    assert f"valid_seen iteration 60, 140 episodes 70.0 % success, pooled {shown}" in found.text
    assert "20.0 % before training" in found.text
    assert captions(found)["valid_seen: success"] == f"70 %, {shown}; n = 140 episodes, 7 evaluations"
    first = wilson(28, 140)
    marks = [
        attrs for tag, attrs in found.tags if tag == "line" and attrs["class"] == "interval" and attrs["x1"] == "0.00%"
    ]
    assert [(m["y1"], m["y2"]) for m in marks] == [(f"{100 - 100 * first[0]:.2f}%", f"{100 - 100 * first[1]:.2f}%")]
    assert f"valid_seen, 0 140 20.0 % {100 * first[0]:.1f} to {100 * first[1]:.1f} 20.0 % 17.2 0" in found.text
    links = [attrs["href"] for tag, attrs in found.tags if tag == "a" and not attrs["href"].startswith("#")]
    assert links == [f"evaluations/iteration_{i:06d}-valid_seen.jsonl" for i in (60, 50, 40, 30, 20, 10, 0)]
    assert all((tmp_path / "run" / link).is_file() for link in links)


def test_every_metric_has_a_curve_with_its_numbers(tmp_path):
    rows = learning(40)
    rows[5]["own/metric"] = 0.125  # of a method of somebody's own
    found = parsed(write_training(tmp_path / "run", rows))
    said = captions(found)
    known = {key: label for group in training.GROUPS.values() for key, (label, _) in group.items()}
    drawn = {known.get(key, key) for line in rows for key in line if key != "iteration" and not key.startswith("eval/")}
    assert drawn | {"valid_seen: success"} == said.keys() and len(drawn) > 20
    values = [line["rl/kl"] for line in rows[1:]]
    mean = sum(values[-7:]) / 7
    assert said["KL from the start"] == (
        f"{values[-1]:.4g}, 13-point mean {mean:.4g}; lowest {min(values):.4g}, highest {max(values):.4g}; "
        "n = 40 iterations"
    )
    assert said["own/metric"].endswith("n = 1 iteration")
    assert "13-point centred mean (the 6 before and after, fewer at the edges)" in found.text


def test_the_curves_are_those_of_the_metrics(tmp_path):
    rows = [{"iteration": i, "env/success": i / 4} for i in range(1, 5)]
    found = parsed(write_training(tmp_path / "run", rows))
    lines = [attrs for tag, attrs in found.tags if tag == "polyline"]
    assert [(line["class"], line["points"]) for line in lines] == [
        ("raw", "250,750 500,500 750,250 1000,0"),
        ("mean", "250,375 500,375 750,375 1000,375"),
    ]


def test_health_is_of_the_last_iterations(tmp_path):
    rows = [
        {"iteration": i, "env/ill_formed": 1.0 if i <= 7 else 0.5, "rl/groups": 4, "rl/tied": 1} for i in range(1, 21)
    ]
    text = parsed(write_training(tmp_path / "run", rows)).text
    assert (
        "Over the last 13 iterations, or as many as there are: ill-formed replies 50.0 % groups that tie 25.0 %" in text
    )


def test_where_it_comes_from(tmp_path):
    text = parsed(write_training(tmp_path / "run", learning(10), player={"kind": "fast"})).text
    for part in ("Trained with", COMMAND, "c0ffee", "d1" * 32, "aa" * 32, "iterations 10", "preset alfworld/seed",
                 "task order task order, 0, round", "seed-suite 0.1.0", "kind fast"):  # fmt: skip
        assert part in text
    assert "seed on seed_envs/ALFWorld-v0" in text and re.search("10 of 10 iterations of 16 tasks . 8 episodes", text)
    for worry in ("not finished", "not closed", "torn", "broke in", "broke while", "none."):
        assert worry not in text


def test_the_page_is_a_pure_function_of_the_files(tmp_path, run_cli):
    run = write_training(tmp_path / "run", learning(30))
    content = write_training_report(run).read_bytes()
    for seed in ("0", "1"):
        code, out, err = run_cli("harness.report", run, env={"PYTHONHASHSEED": seed})
        assert (code, out, err) == (0, f"{run / 'report.html'}\n", "")
        assert (run / "report.html").read_bytes() == content
    assert str(tmp_path).encode() not in content


def test_the_names_of_the_files_are_those_of_the_trainer():
    pytest.importorskip("torch", reason="needs torch: pip install 'seed-suite[train]'")
    from seed_agent.train import checkpoint, run

    ours = (training_reading.RUN, training_reading.METRICS, training_reading.EVALS, training_reading.DIVERGED)
    assert ours == (run.RUN, run.METRICS, run.EVALS, run.DIVERGED)
    assert f"{run.FINAL}/{checkpoint.DONE}" == training_reading.FINAL


# --- damage -----------------------------------------------------------------------------------------------------------


def test_an_unfinished_run_says_so(tmp_path):
    text = parsed(write_training(tmp_path / "a", learning(20), iterations=150, exported=False)).text
    assert "This run is not finished. 20 of 150 iterations are here" in text and "not closed" not in text
    assert "This run was not closed." in parsed(write_training(tmp_path / "b", learning(20), exported=False)).text
    half = write_training(tmp_path / "c", learning(20), iterations=40, settings={"fraction": 0.5})
    assert "not finished" not in parsed(half).text


def test_what_broke_is_said(tmp_path):
    rows = learning(20)
    rows[3]["env/errors"], rows[4]["env/errors"], rows[10]["eval/valid_seen/errors"] = 2, 1, 5
    run = write_training(tmp_path / "run", rows)
    (run / "diverged.json").touch()
    text = parsed(run).text
    assert "3 episodes broke while training." in text and "5 episodes broke in evaluations." in text
    assert "This run met a number that is none." in text


def test_a_torn_last_line_and_foreign_lines_do_not_count(tmp_path):
    run = write_training(tmp_path / "run", learning(9), iterations=10)
    lines = ["[]", "{}", '{"iteration": true}', '{"iteration": -1}', "\udcff", "[" * 100_000, '{"iteration": 10']
    with (run / "metrics.jsonl").open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join(lines))
    found = parsed(run)
    assert "The last line of metrics.jsonl is torn" in found.text and "9 of 10 iterations" in found.text
    assert "6 lines of metrics.jsonl cannot be read" in found.text
    assert captions(found)["success"].endswith("n = 9 iterations")


def test_an_iteration_that_is_there_twice_counts_once_and_order_does_not_matter(tmp_path):
    rows = learning(12)
    content = write_training_report(write_training(tmp_path / "a", rows)).read_bytes()
    other = write_training(tmp_path / "b", [{**rows[4], "env/success": 0.99}, *reversed(rows)])
    assert write_training_report(other).read_bytes() == content


def test_numbers_that_are_none_are_left_out_and_counted(tmp_path):
    rows = learning(20)
    rows[3]["rl/kl"], rows[4]["rl/kl"], rows[5]["rl/kl"] = math.nan, math.inf, None
    rows[6]["rl/kl"] = "0.1"
    del rows[7]["rl/kl"]
    for line in rows:
        line["rl/odd"] = math.nan
    rows[10] |= {"eval/valid_seen/success": 7.0, "eval/nan/success": math.nan, "eval/none/success": None}
    rows[10] |= {"eval/bare/success": 0.5}
    found = parsed(write_training(tmp_path / "run", rows))
    said = captions(found)
    assert said["KL from the start"].endswith("n = 15 iterations, 4 more without a number")
    assert "rl/odd" not in found.text and "n = 140 episodes, 2 evaluations" in said["valid_seen: success"]
    assert said["bare: success"] == "50 %; n = 0 episodes, 1 evaluation"
    assert not re.search(r"\b(nan|inf)\b", " ".join(said.values()))
    for tag, attrs in found.tags:
        if tag in ("polyline", "circle", "line", "text"):
            assert not re.search("nan|inf", " ".join(str(v) for k, v in attrs.items() if k != "class"))


@pytest.mark.parametrize(
    "rows", [[], [{"iteration": 0}], [{"iteration": 1}], [row(1, 1)], [{"iteration": 0, **evaluated("s", 0.0, 1)}]]
)
def test_hardly_anything_is_still_a_page(tmp_path, rows):
    found = parsed(write_training(tmp_path / "run", rows, iterations=5, exported=False))
    assert "This run is not finished" in found.text
    assert ("No iteration has ended yet" in found.text) == (len(rows) == 0 or len(rows[0]) in (1, 6))
    assert ("There is no evaluation yet" in found.text) == ("eval/s/success" not in (rows or [{}])[0])


def test_a_run_of_another_version_is_shown(tmp_path):
    run = write_training(tmp_path / "run", learning(10), settings={"new_setting": 3}, provenance=[{}])
    assert "10 iterations of 16 tasks" in parsed(run).text  # how many were planned is not known
    assert "new_setting 3" in parsed(run).text
    for odd in (
        '{"settings": [], "provenance": 3, "model": []}',
        '{"settings": {"lr": NaN}, "provenance": [{"packages": 1}]}',
    ):
        (run / "train.json").write_text(odd)
        assert "success" in captions(parsed(run))


def test_no_run_and_damaged_runs_are_one_line(tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"is no training run: it holds no train.json"):
        write_training_report(tmp_path)
    run = write_training(tmp_path / "run", learning(3))
    for content in ("{", "[]", "[" * 100_000):
        (run / "train.json").write_text(content)
        with pytest.raises(DataError, match=r"cannot be read|is damaged"):
            write_training_report(run)
    assert main([str(run)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    write_training(run, learning(3))
    (run / "report.html").mkdir()
    with pytest.raises(SeedError, match="cannot write"):
        write_training_report(run)


def test_ten_thousand_iterations_are_small_and_lose_no_peak(tmp_path, monkeypatch):
    rows = learning(10_000, every=5)
    rows[7_777]["rl/grad_norm"] = 1e6
    run = write_training(tmp_path / "run", rows)
    content = write_training_report(run).read_bytes()
    assert len(content) < 1_000_000
    found = Parsed(content.decode())
    assert captions(found)["gradient norm"].endswith("highest 1,000,000; n = 10,000 iterations")
    line = next(
        a["points"] for t, a in found.tags if t == "polyline" and a["class"] == "raw" and "778,0" in a["points"]
    )
    assert len(places(line)) <= 2 * curves.MOST
    assert captions(found)["valid_seen: success"].endswith("2,001 evaluations, of which 100 are drawn")
    assert "50 of 2,001, evenly spaced" in found.text


def test_very_many_metrics_are_cut_off_and_said(tmp_path):
    rows = [{"iteration": i, **{f"x/{n:04}": n for n in range(5_000)}} for i in (1, 2)]
    run = write_training(tmp_path / "run", rows)
    found = parsed(run)
    assert len(captions(found)) == training.MOST_OTHERS and "4,940 more metrics are in metrics.jsonl" in found.text


# --- what it must never do --------------------------------------------------------------------------------------------


def hostile(folder: Path) -> Path:
    rows = learning(3)
    for i, text in enumerate(HOSTILE):
        rows[1][text] = i
        rows[2] |= evaluated(text, 0.5)
    settings = {"method": HOSTILE[0], "env": HOSTILE[1], "model": HOSTILE[2], "seed": HOSTILE[3], "tasks": HOSTILE[4]}
    start = {
        "command": HOSTILE[0],
        "git_commit": HOSTILE[1],
        "python": HOSTILE[2],
        "packages": {HOSTILE[3]: HOSTILE[4]},
    }
    return write_training(
        folder, rows, settings=settings, digest=HOSTILE[0], provenance=[start], odd={HOSTILE[1]: "\ud800"}
    )


def test_hostile_texts_add_no_tag(tmp_path):
    found = parsed(hostile(tmp_path / "run"))
    kinds = {tag for tag, _ in found.tags}
    assert "script" not in kinds and "img" not in kinds and "b" in kinds  # the numbers of the cards
    assert {tag for tag, attrs in found.tags if any(name.startswith("on") for name in attrs)} == set()
    from harness.html.packing import visible

    for text in HOSTILE:
        shown = re.sub(r"\s+", " ", visible(text)).strip()
        assert shown in found.text


def test_the_page_is_self_contained_and_runs_nothing(tmp_path):
    found = parsed(write_training(tmp_path / "run", learning(20)))
    (policy,) = [a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "script-src" not in policy
    assert not [t for t, _ in found.tags if t in ("script", "link", "iframe", "object", "embed", "base", "img")]
    for tag, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset")], tag
        assert re.match("#|evaluations/iteration_", attributes.get("href", "#"))


def test_links_stay_in_the_folder(tmp_path):
    rows = [{"iteration": 1, **evaluated("../../etc", 0.5), **evaluated("a b&c", 0.5)}]
    run = write_training(tmp_path / "run", rows)
    (run / "evaluations").mkdir(exist_ok=True)
    (run / "evaluations" / "iteration_000001-a b&c.jsonl").touch()
    links = [attrs["href"] for tag, attrs in parsed(run).tags if tag == "a" and not attrs["href"].startswith("#")]
    assert links == ["evaluations/iteration_000001-a%20b%26c.jsonl"]


def test_evaluations_and_trainings_are_told_apart(tmp_path, capsys):
    from report_runs import mixed, write_run

    one, two = write_run(tmp_path / "one", mixed(10)), write_training(tmp_path / "two", learning(4))
    assert main([str(one), str(two)]) == 0
    assert capsys.readouterr().out == f"{one / 'report.html'}\n{two / 'report.html'}\n"
    assert "Played with" in (one / "report.html").read_text() and "Trained with" in (two / "report.html").read_text()
    json.loads((two / "train.json").read_text())
