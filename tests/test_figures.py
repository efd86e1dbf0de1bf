"""Figures from run folders: what is drawn, what captions say, bytes that repeat, what is refused."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from report_runs import HOSTILE, episode, turn, with_images, write_run
from training_runs import learning, write_training

from harness import figures
from harness.html.curves import centred_mean
from harness.plots import bars, curves, episodes, look, reading
from harness.plots.skills import skills_table
from harness.stats import wilson
from seed_agent.methods import METHODS
from seed_agent.trajectory import Episode, Seen
from seed_envs.errors import ConfigError, DataError, SeedError

Cell = Callable[..., str]


def trained(folder: Path, method: str, seed: int = 0, total: int = 20, **settings: Any) -> str:
    rows = learning(total)
    for row in rows:
        if method == "grpo":
            row.pop("opd/loss", None)
    known = {"method": method, "seed": seed, "preset": f"alfworld/micro/{method}", **settings}
    return str(write_training(folder / f"{method}-{seed}-{settings.get('env', 'a')[-2:]}", rows, settings=known))


def attempts(wins: int, n: int = 20, splits: Sequence[str] = ("seen", "unseen")) -> list[Episode]:
    return [episode(i, "success" if i < wins else "failure", split=split) for split in splits for i in range(n)]


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    """Return a function that writes an evaluation of a sweep."""

    def write(method: str, found: list[Episode], seed: int | None = 0, fraction: float = 1.0, **about: Any) -> str:
        folder = tmp_path / f"{method}-{seed}-{fraction}"
        write_run(folder / "evaluation", found)
        config = {"method": method, "model": "micro", "seed": seed, "fraction": fraction, "fraction_mode": "budget"}
        (folder / "cell.json").write_text(json.dumps({"config": config | about}))
        return str(folder / "evaluation")

    return write


def caption(figure: Any) -> str:
    return " ".join(figure.texts[0].get_text().split())


# --- the look ---------------------------------------------------------------------------------------------------------


def test_every_method_has_its_own_look_and_unknown_ones_a_lasting_one() -> None:
    assert set(METHODS) == set(look.COLOURS) and len(set(look.COLOURS.values())) == len(look.COLOURS)
    assert look.colour_of("mine") == look.colour_of("mine") not in look.COLOURS.values()
    assert look.in_order(["mine", "seed", "grpo", "vanilla", "seed"]) == ["vanilla", "grpo", "seed", "mine"]
    assert look.label_of("skill-grpo-star") == "Skill-GRPO*" and look.label_of("mine") == "mine"


def test_text_means_nothing_to_the_library() -> None:
    assert look.plain("costs $5, not $6") == r"costs \$5, not \$6"
    assert look.plain("a\x07\U0001f600\\alpha漢") == "a\N{WHITE SQUARE}\N{WHITE SQUARE}\\alpha\N{WHITE SQUARE}"
    assert look.plain("_x") == " _x"


# --- curves -----------------------------------------------------------------------------------------------------------


def test_curves_are_raw_and_smooth_and_the_caption_says_how(tmp_path: Path) -> None:
    runs = [trained(tmp_path, "grpo"), trained(tmp_path, "seed", 0), trained(tmp_path, "seed", 1, total=15)]
    found = reading.trainings(runs)
    with look.styled():
        figure = curves.training_figure(found)
    left, right, *_ = figure.axes
    lines = {line.get_label(): line for line in left.get_lines()}
    columns = [dict(run.files.points("env/success")) for run in found[1:]]
    means = [(columns[0][at] + columns[1][at]) / 2 for at in range(1, 16)]  # iterations that both have
    assert list(lines["SEED"].get_ydata()) == pytest.approx(centred_mean(means))
    assert lines["SEED"].get_color() == look.ACCENT and left.get_ylim() == (0, 1) and right.get_ylim()[0] == 0
    pale = [line for line in left.get_lines() if line.get_alpha()]
    assert [len(line.get_xdata()) for line in pale] == [20, 20, 15]
    said = caption(figure)
    assert "GRPO: 20 iterations, n = 128 episodes each, training seed 0" in said
    assert "SEED: 15 to 20 iterations, n = 128 episodes each, training seeds 0, 1" in said
    assert "13 iterations (fewer at the ends)" in said and said.endswith("Code: c0ffeec.")


def test_a_grid_has_a_panel_per_environment_and_model(tmp_path: Path) -> None:
    sokoban = {"env": "seed_envs/Sokoban-v0"}
    runs = [trained(tmp_path, "seed"), trained(tmp_path, "grpo"), trained(tmp_path, "seed", **sokoban)]
    found = reading.trainings(runs)
    with look.styled():
        figure = curves.grid_figure(found, curves.LOSS)
    assert [axes.get_title() for axes in figure.axes] == ["ALFWorld-v0, micro", "Sokoban-v0, micro"]
    assert all([line.get_label() for line in axes.get_lines()][1:] == ["SEED"] for axes in figure.axes)  # no GRPO
    assert "GRPO" not in caption(figure)
    with pytest.raises(ConfigError, match=r"one environment, and .* is of ALFWorld-v0, .* of Sokoban-v0; draw them"):
        curves.training_figure(found)
    with pytest.raises(ConfigError, match="none of the runs has opd/loss"):
        curves.grid_figure(found[1:2], curves.LOSS)


# --- bars -------------------------------------------------------------------------------------------------------------


def test_bars_have_dots_and_the_interval_of_seeds_or_of_tasks(cell: Cell) -> None:
    runs = [cell("seed", attempts(wins), seed) for seed, wins in enumerate((10, 12, 14))]
    runs.append(cell("vanilla", attempts(5), None))
    with look.styled():
        figure = bars.overview_figure(reading.results(runs))
    seen, unseen = figure.axes
    assert [axes.get_title() for axes in (seen, unseen)] == ["toy/Room-v0 seen", "toy/Room-v0 unseen"]
    assert [text.get_text() for text in seen.get_xticklabels()] == ["Vanilla", "SEED"]
    assert [bar.get_height() for bar in seen.patches] == pytest.approx([0.25, 0.6]) and seen.get_ylim() == (0, 1)
    ends = [[segment[0][1], segment[1][1]] for c in seen.containers[1::2] for segment in c.lines[2][0].get_segments()]
    spread = 4.302652729911275 * 0.1 / 3**0.5  # Student's, two degrees of freedom, of 0.5, 0.6, 0.7
    assert ends[0] == pytest.approx(wilson(5, 20)) and ends[1] == pytest.approx([0.6 - spread, 0.6 + spread])
    dots = [line for line in seen.get_lines() if len(line.get_ydata()) == 3]
    assert [list(line.get_ydata()) for line in dots] == [[0.5, 0.6, 0.7]]
    said = caption(figure)
    assert "n = 20 episodes" in said and "SEED: training seeds 0, 1, 2" in said and "no training seed known" in said


def test_types_are_of_one_split_and_count_their_episodes(cell: Cell) -> None:
    found = reading.results([cell("seed", attempts(10)), cell("grpo", attempts(4))])
    with look.styled():
        figure = bars.types_figure(found, "unseen")
    (axes,) = figure.axes
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert ticks == ["put apple away\nn = 7", "put mug away\nn = 7", "put plate away\nn = 6", "all\nn = 20"]
    assert figure.legends[0].get_texts()[0].get_text() == "GRPO"
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(
        [2 / 7, 1 / 7, 1 / 6, 0.2, 4 / 7, 3 / 7, 0.5, 0.5]
    )
    with pytest.raises(SeedError, match="unknown split 'other'"):
        bars.types_figure(found, "other")


def test_fractions_are_read_from_the_runs(cell: Cell, tmp_path: Path) -> None:
    runs = [cell("seed", attempts(wins), 0, share) for share, wins in ((0.2, 4), (0.6, 8), (1.0, 12))]
    model = tmp_path / "run" / "milestones" / "iteration_000005"  # an evaluation that no sweep has made
    model.mkdir(parents=True)
    write_training(tmp_path / "run", learning(20), settings={"method": "grpo", "seed": 3})
    (model / "state.json").write_text(json.dumps({"iteration": 5}))
    state = json.loads((Path(runs[0]) / "run.json").read_text())
    alone = write_run(tmp_path / "alone", attempts(6), config={**state["config"], "policy": f"hf:{model}"})
    found = reading.results([*runs, str(alone)])
    assert (found[-1].whose.method, found[-1].whose.seed, found[-1].whose.fraction) == ("grpo", 3, 0.25)
    with look.styled():
        figure = bars.fraction_figure(found)
    line = next(line for line in figure.axes[0].get_lines() if line.get_label() == "SEED")
    assert list(line.get_xdata()) == [0.2, 0.6, 1.0] and list(line.get_ydata()) == pytest.approx([0.2, 0.4, 0.6])
    with pytest.raises(ConfigError, match=r"the runs had 0\.2, 0\.25, 0\.6, 1 of the data; draw them apart"):
        bars.overview_figure(found)
    with pytest.raises(ConfigError, match="all runs had 1 of the data"):
        bars.fraction_figure(found[4:6])
    subset = reading.results([*runs, cell("grpo", attempts(3), 0, 0.5, fraction_mode="subset")])
    with pytest.raises(ConfigError, match="a share of the budget and others of the tasks"):
        bars.fraction_figure(subset)


def test_a_training_runs_last_evaluation_is_a_result(tmp_path: Path) -> None:
    folder = Path(trained(tmp_path, "seed", 7))
    for iteration, wins in ((10, 2), (20, 9)):
        file = folder / "evaluations" / f"iteration_{iteration:06d}-valid_seen.jsonl"
        file.write_text("".join(f"{one.to_line()}\n" for one in attempts(wins, splits=("valid_seen",))))
    (found,) = reading.results([f"Mine={folder}"])
    assert (found.whose.method, found.whose.seed, found.split) == ("Mine", 7, "valid_seen")
    assert sum(row.success for row in found.rows) == 9


# --- episodes ---------------------------------------------------------------------------------------------------------


def test_the_same_task_side_by_side(cell: Cell) -> None:
    long = [turn(f"You see ${i}.", f"go to shelf {i}", admissible=i != 29) for i in range(30)]
    wins = [episode(0, "failure"), episode(1, "success"), episode(2, "success", turns=tuple(long))]
    loses = [episode(i, "failure") for i in range(3)]
    runs = [cell("grpo", loses), cell("seed", wins)]
    found = episodes.attempts(runs[::-1], None, None)
    assert [one.episode.task_id for one in found] == ["seen/mug-0001"] * 2  # the first one they end unlike
    chosen = episodes.attempts(runs, "seen", "seen/plate-0002")
    with look.styled():
        figure = episodes.side_by_side_figure(chosen, 5)
    left, right = (axes for axes in figure.axes)
    assert left.get_title("left") == "GRPO, seed 0: failure, 3 turns"
    lines = [text.get_text() for text in right.texts]
    shown = [line for line in lines if line.startswith(("  > ", "  ✗ "))]
    assert shown == [
        "  > go to shelf 0",
        "  > go to shelf 1",
        "  > go to shelf 2",
        "  > go to shelf 28",
        "  ✗ go to shelf 29",
    ]
    assert "(25 turns left out)" in lines and r" 1  You see \$0." in lines
    with pytest.raises(SeedError, match="unknown task of all runs 'x'"):
        episodes.attempts(runs, None, "x")


def test_pictures_in_a_row(tmp_path: Path, capsys: Any) -> None:
    run, out = tmp_path / "run", tmp_path / "strip.png"
    write_run(run, with_images(run, [episode(0, "success")]))
    assert figures.main(["strip", str(run), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG") and b"Software" not in out.read_bytes()
    shutil.rmtree(run / "images")
    with pytest.raises(DataError, match=r"\.png is missing; pictures are kept by python -m harness\.eval"):
        episodes.strip_figure(episodes.attempts([str(run)], None, None), 8)
    bare = write_run(tmp_path / "bare", [episode(0, "success")])
    with pytest.raises(ConfigError, match="has no pictures"):
        episodes.strip_figure(episodes.attempts([str(bare)], None, None), 8)


def test_whatever_an_agent_writes_is_drawn(tmp_path: Path) -> None:
    text = "\n".join(HOSTILE) + r" $\frac{1}{0}$ \N{x} "
    bad = turn(text, text, reply=f"<think>{text}</think><action>{text}</action>")
    run = write_run(tmp_path / "r$un", [episode(0, turns=(bad,), final=Seen.of(text), instruction=text)])
    out = tmp_path / "x.svg"
    assert figures.main(["side-by-side", str(run), f"$A$={run}", "--out", str(out)]) == 0
    first = out.read_bytes()
    assert figures.main(["side-by-side", str(run), f"$A$={run}", "--out", str(out)]) == 0
    assert out.read_bytes() == first and b"<dc:date>" not in first and first.count(b"<svg") == 1


# --- skills -----------------------------------------------------------------------------------------------------------


def _skill(iteration: int, category: str, success: bool, text: str, **changes: Any) -> str:
    row = {"iteration": iteration, "task_id": "t1", "category": category, "attempt": 0, "success": success}
    return json.dumps({**row, "source": "self", "summary": "", "text": text, **changes}) + "\n"


def test_skills_are_the_newest_of_each_category_and_outcome(tmp_path: Path, capsys: Any) -> None:
    lines = [
        _skill(1, "heat", True, "Old."),
        _skill(2, "heat", True, "Look | then *heat* <b>."),
        _skill(2, "cool", False, "No."),
    ]
    lines += [_skill(3, "heat", True, "Newest."), _skill(3, "heat", True, "Newest."), '{"torn']
    (tmp_path / "skills.jsonl").write_text("".join(lines))
    assert figures.main(["skills", str(tmp_path)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].endswith("3 of n = 5 usable skills, iterations 1 to 3, the newest first.")
    assert table[4:] == [
        "| cool | failure | No. | t1 | 2 |",
        "| heat | success | Newest. | t1 | 3 |",
        r"| heat | success | Look \| then \*heat\* &lt;b>. | t1 | 2 |",
    ]
    stage1 = tmp_path / "sft"
    stage1.mkdir()
    (stage1 / "trajectories.jsonl").write_text(episode(0).to_line() + "\n")
    known = {"task_id": "seen/apple-0000", "attempt": 0}
    (stage1 / "skills.jsonl").write_text(
        json.dumps({**known, "parse_ok": True, "success": True, "text": "Put it."})
        + "\n"
        + json.dumps({**known, "parse_ok": False, "kind": "no_json", "reason": "none"})
        + "\n"
    )
    assert "| put apple away | success | Put it. | seen/apple-0000 | stage 1 |" in skills_table([stage1], 2)
    with pytest.raises(
        ConfigError, match=r"has no skills\.jsonl; expected a run of harness\.train whose method writes"
    ):
        skills_table([tmp_path / "none"], 2)
    (stage1 / "skills.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"skills\.jsonl:1 cannot be read"):
        skills_table([stage1], 2)
    (stage1 / "trajectories.jsonl").write_text(episode(0).to_line() + "\n{}\n{torn")
    with pytest.raises(DataError, match=r"trajectories\.jsonl:2: not an episode record: task_id: Field required$"):
        skills_table([stage1], 2)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_drawn_is_one_line(tmp_path: Path, cell: Cell, capsys: Any) -> None:
    run, begun = trained(tmp_path, "seed"), str(write_training(tmp_path / "begun", [], exported=False))
    twin = str(shutil.copytree(run, tmp_path / "twin"))
    half = str(write_run(tmp_path / "half", attempts(3), missing=2, status="interrupted"))
    one, other = cell("seed", attempts(3)), cell("grpo", attempts(3))
    changed = [e.model_copy(update={"env": e.env.model_copy(update={"manifest_sha256": "x"})}) for e in attempts(3)]
    write_run(Path(other), changed)
    longer = [e.model_copy(update={"env": e.env.model_copy(update={"max_turns": 50})}) for e in attempts(3)]
    harder = [e.model_copy(update={"env": e.env.model_copy(update={"kwargs": {"size": 9}})}) for e in attempts(3)]
    stated = [
        e.model_copy(update={"env": e.env.model_copy(update={"kwargs": {"data": "embedded"}})}) for e in attempts(3)
    ]
    same, other_size = cell("opid", stated), cell("react", harder)
    fewer, slower = cell("opsd", attempts(3, 19)), cell("rlsd", longer)
    edited = cell("sdar", attempts(3))
    (Path(edited) / "summary.json").write_text("{}")
    out = ["--out", str(tmp_path / "x.svg")]
    for given, said in [
        (["training", run], "give a file to draw, such as --out training.svg or --out training.png"),
        (["training", run, "--out", "x.pdf"], "expected a file that ends in .png or .svg"),
        (["training", run, "--out", str(tmp_path / "no" / "x.svg")], "No such file or directory"),
        (["training", str(tmp_path / "none"), *out], "is no training run"),
        (["training", one, *out], "is no training run"),
        (["training", begun, *out], "has no metrics yet"),
        (["training", run, twin, *out], "are both SEED with seed 0; leave one out or give it another name, NAME=RUN"),
        (["overview", str(tmp_path / "none"), *out], "is no run"),
        (["overview", half, *out], "is not finished: 40 of 42 episodes are there"),
        (["overview", run, *out], "has no evaluation"),
        (["overview", one, other, *out], "not played alike on toy/Room-v0 seen: they differ in manifest; name"),
        (["overview", one, fewer, *out], "not played alike on toy/Room-v0 seen: they differ in tasks; name"),
        (["overview", one, other_size, *out], "they differ in arguments; name"),
        (["types", one, slower, *out], "they differ in turn limit; name runs of the same tasks under the same rules"),
        (["overview", edited, *out], "summary.json is not what trajectories.jsonl gives; one of the two was changed"),
        (["fraction", one, *out], "takes at least 2 runs"),
        (["overview", f"={one}", *out], "names no run; expected RUN or NAME=RUN"),
        (["overview", "mine=", *out], "names no run; expected RUN or NAME=RUN"),
        (["types", one, "--split", "", *out], "--split: the name is empty"),
        (["pie", one, *out], "invalid choice"),
        (["strip", one, "--most", "1", *out], "expected a whole number from 2 to 100"),
        (["skills", one], "has no skills.jsonl"),
        (["skills", one, "--out", "x.svg"], "has no skills.jsonl"),
    ]:
        assert figures.main(given) == 2, given
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1, (given, err)
    assert not (tmp_path / "x.svg").exists()
    assert figures.main(["training", f"A={run}", f"B={twin}", *out]) == 0
    assert figures.main(["overview", one, same, *out]) == 0  # the default, in words
