"""Grids of sweeps: flags and files, and everything that is refused in one line."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import sweep
from harness.sweeps.grid import cells_of, grid_json, make_grid, read_file
from seed_envs.errors import DataError, MissingDependency, SeedError

FLAGS = {"--envs": "alfworld", "--models": "micro=m", "--methods": "grpo", "--out": "sweep"}


def command(**changes: str | None) -> list[str]:
    flags = FLAGS | {f"--{key.replace('_', '-')}": value for key, value in changes.items()}
    return [text for flag, value in flags.items() if value is not None for text in (flag, value)]


@pytest.mark.parametrize(
    ("changes", "settings", "expected"),
    [
        ({"methods": "grpoo"}, [], "unknown method 'grpoo'; did you mean grpo"),
        ({"methods": None}, [], "a sweep needs --methods, for example --methods grpo,seed"),
        ({"methods": "grpo,all"}, [], "--methods all already names every method"),
        ({"methods": "grpo,,seed"}, [], "methods has an empty entry"),
        ({"envs": "alfwrld"}, [], "unknown environment of a preset 'alfwrld'; did you mean alfworld?"),
        ({"models": "qwen2.5-vl-3b"}, [], "unknown model of a preset 'qwen2.5-vl-3b'"),
        ({"models": "micro="}, [], "'micro=' is no model; expected NAME, NAME=FOLDER or ENV/NAME=FOLDER"),
        ({"models": "sokoban/micro=m"}, [], "unknown environment of a model 'sokoban'; known: alfworld"),
        ({"envs": "alfworld,sokoban", "models": "alfworld/micro=m"}, [], "no model is named for sokoban"),
        ({"fractions": "0"}, [], "fraction 0 cannot be used; expected a share above 0 and at most 1"),
        (
            {"fractions": "20"},
            [],
            "fraction 20 cannot be used; expected a share above 0 and at most 1, for example 0.2 for 20 %",
        ),
        ({"fractions": "20%"}, [], "fraction 20% cannot be used"),
        ({"fractions": "0.2,nan"}, [], "fraction nan cannot be used"),
        ({"fractions": "0.5,1,0.5"}, [], "fractions names 0.5 twice"),
        ({"fractions": "0.5,0.50"}, [], "fractions names 0.5 twice"),
        (
            {"fractions": "0.01,0.02"},
            ["iterations=30"],
            "fractions 0.01 and 0.02 of 30 iterations are both iteration 1; leave one out",
        ),
        ({"fraction_mode": "half"}, [], "unknown fraction mode 'half'; known: budget, subset"),
        ({"methods": "grpo,grpo"}, [], "methods names grpo twice"),
        ({"models": "micro=a,micro=b"}, [], "two cells of the grid are alfworld/grpo/micro/f1-s0"),
        ({"seeds": "0,1.5"}, [], "seed '1.5' cannot be used; expected a whole number from 0 on"),
        ({"seeds": "one"}, [], "seed 'one' cannot be used"),
        ({"seeds": "1,2,1"}, [], "seeds names 1 twice"),
        ({"seeds": "1,01"}, [], "seeds names 1 twice"),
        ({"eval_seed": "-1"}, [], "eval_seed '-1' cannot be used"),
        ({"limit": "0"}, [], "a limit of 0 tasks makes no run"),
        ({"splits": "sean"}, [], "unknown split 'sean'"),
        ({"data": "nowhere"}, [], "nowhere"),
        (
            {"protocol": "paper", "limit": None},
            ["max_turns=9"],
            "--protocol paper has at most 20 turns here, not 9; leave the turn limit out",
        ),
        ({}, ["history=3"], "history= cannot be set in a sweep"),
        ({"methods": "opid"}, ["samples=episode"], "alfworld/opid cannot be run: samples=episode needs a conversation"),
        ({"methods": "all"}, ["samples=episode"], "no method can be trained in alfworld: samples=episode needs a conv"),
        ({}, ["lr=-1"], "lr='-1' cannot be used"),
        ({}, ["lrr=1"], "unknown setting 'lrr'; did you mean lr?"),
        ({}, ["minibatch=100000"], "minibatch=100000 can never be filled"),
        ({"jobs": "0"}, [], "'0' is no number of jobs; expected 1 to 1024"),
        ({"gpus": "x"}, [], "'x' is no list of devices; expected numbers such as 0,1, each once"),
        ({"gpus": "0,0"}, [], "'0,0' is no list of devices"),
        ({}, ["lr=1e-4", "lr=1e-3"], "settings names lr twice"),
        ({}, ["seed=3"], "seed= cannot be set in a sweep: --seeds says it"),
        ({}, ["milestones=1"], "milestones= cannot be set in a sweep: --fractions says it"),
        ({}, ['env_args={"data": "official"}'], "env_args= cannot set data or split in a sweep"),
        ({"methods": "seed"}, ["sft.zork=1"], "unknown setting of stage 1 'zork'"),
        ({"methods": "grpo"}, ["sft.zork=1"], "unknown setting of stage 1 'zork'"),
        (
            {"methods": "grpo"},
            ["sft.tasks=2"],
            "sft.tasks=2 is for stage 1, and none of the methods starts from it (grpo)",
        ),
        ({"methods": "seed"}, ["sft.tasks=100000"], "cannot take 100000 of"),
        ({"methods": "seed"}, ["sft.annotator=nobody"], "unknown annotator 'nobody'"),
        ({"methods": "seed"}, ["rollout_backend=vllm"], "stage 1 plays on transformers"),
        ({"splits": "valid_seen,train"}, [], "splits names train, which trainings learn from"),
        ({"models": "micro=./m"}, [], "there is no folder ./m"),
        ({"out": "afile/sweep"}, [], "afile; choose another --out"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    changes: dict[str, str | None], settings: list[str], expected: str, capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("afile").touch()
    for dry in ([], ["--dry-run"]):  # what a run refuses at its start a dry run refuses, too
        assert sweep.main([*command(**changes), *settings, *dry]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and expected in err
        assert not Path("sweep").exists()


def test_folders_that_are_no_sweep_are_refused(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert sweep.main(command(out="file")) == 2
    assert "file is a file; a sweep needs a folder" in capsys.readouterr().err
    cell = Path("sweep/alfworld/grpo/micro/f1-s0")
    cell.mkdir(parents=True)
    (cell / "thesis.tex").write_text("")
    assert sweep.main(command()) == 2
    assert f"{cell} is no cell of a sweep (it holds thesis.tex); choose another --out" in capsys.readouterr().err
    for content, expected in (("{}", "is not as it was written"), ("[", "cannot be read (JSONDecodeError)")):
        Path("sweep/sweep.json").write_text(content)
        assert sweep.main(command()) == 2
        assert f"sweep/sweep.json {expected}" in capsys.readouterr().err
    Path("sweep/sweep.json").write_text(json.dumps({"schema_version": 2, "grid": {}, "provenance": []}))
    assert sweep.main(command()) == 2
    assert "has schema version 2; this version reads up to 1: pip install -U seed-suite" in capsys.readouterr().err
    assert sweep.main(["--show", "--out", "nothing"]) == 2
    assert "nothing holds no cell of a sweep" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    def refuse(self: Path, *given: Any, **more: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)  # the tests may run as root, who may write anywhere
    assert sweep.main(command(out=str(tmp_path / "sweep"))) == 2
    assert "sweep: Permission denied; choose another --out" in capsys.readouterr().err


def test_one_process_at_a_time_runs_a_sweep(tmp_path: Path, capsys: Any) -> None:
    with sweep._locked(tmp_path):
        assert sweep.main(command(out=str(tmp_path))) == 2
    assert f"another process runs the sweep in {tmp_path}" in capsys.readouterr().err


def test_a_dry_run_shows_cells_and_commands_and_writes_nothing(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    changes = ["iterations=30", "tasks=16", "group=8"]
    assert sweep.main(["--dry-run", *command(methods="grpo,seed", models="micro", fractions="0.2,1"), *changes]) == 0
    lines = capsys.readouterr().out.splitlines()
    cell = "alfworld/grpo/micro/f0.2-s0 missing 0 768 iteration 6 of alfworld/grpo/micro/f1-s0/train"
    assert lines[1].split() == [*cell.split(), "valid_seen", "140,", "valid_unseen", "134"]
    assert lines[5] == "sweep: 4 cells, 0 done; 8 commands to run:"
    assert lines[6] == "python -m harness.train --stage base --env alfworld --out sweep/alfworld/_base/micro/run"
    assert lines[7] == (
        "python -m harness.train --preset alfworld/micro/grpo --seed 0 iterations=30 tasks=16 group=8 "
        "model=sweep/alfworld/_base/micro/run milestones=6 --out sweep/alfworld/grpo/micro/f1-s0/train"
    )
    assert [line.split()[2] for line in lines[6:]].count("harness.eval") == 4 and not list(tmp_path.iterdir())


def test_what_this_machine_lacks_is_a_note_of_the_plan_and_stops_a_run(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("torch", "accelerate"):
        monkeypatch.setitem(sys.modules, name, None)
    needs = "not installed here: torch, accelerate; a run needs the extra 'train': pip install 'seed-suite[train]'"
    named = "there is no folder m here; it is taken for a name on the Hugging Face hub"
    assert sweep.main([*command(), "--dry-run", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["notices"] == [named, needs] and f"note: {needs}\n" in err
    assert sweep.main(command()) == 2
    assert capsys.readouterr().err == f"note: {named}\nerror: {needs}\n" and not list(tmp_path.iterdir())


def test_a_file_gives_the_grid_and_flags_win(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="YAML needs PyYAML, which comes with the extra train")
    text = """
    envs: alfworld
    methods: [grpo, seed]
    models: {}
    fractions: [0.2, 1]
    seeds: [0, 1]
    limit: 10
    settings: {lr: 1.0e-4, sft.tasks: 4, eval_splits: [valid_seen, valid_unseen], language: alfworld/seed}
    """.replace("{}", "micro=m", 1)
    (tmp_path / "grid.yaml").write_text(text)
    grid = make_grid(read_file(tmp_path / "grid.yaml") | {"seeds": "5"})
    assert (grid.envs, grid.methods, grid.models) == (("alfworld",), ("grpo", "seed"), ("micro=m",))
    assert (grid.fractions, grid.seeds, grid.limit) == ((0.2, 1.0), (5,), "10")
    assert grid.settings == (
        *("lr=0.0001", "sft.tasks=4", "eval_splits=valid_seen,valid_unseen", "language=alfworld/seed"),
    )
    (tmp_path / "grid.json").write_text(json.dumps(grid_json(grid)))
    assert make_grid(read_file(tmp_path / "grid.json")) == grid
    assert [cell.name for cell in cells_of(grid)][:2] == ["alfworld/grpo/micro/f0.2-s5", "alfworld/grpo/micro/f1-s5"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("g.json", "{", "g.json is no json ("),
        ("g.json", "[1]", "g.json holds no grid"),
        ("g.yaml", "a: [", "g.yaml is no yaml ("),
        ("g.yaml", "methods", "g.yaml holds no grid"),
        ("none.yaml", None, "none.yaml: No such file or directory"),
        ("g.yaml", "seeds: [0]\nseeds: [1]", "g.yaml is no yaml (the entry 'seeds' is there twice; remove one)"),
        ("g.yaml", "settings: {lr: 1, kl: 0, lr: 2}", "the entry 'lr' is there twice"),
        ("g.json", '{"settings": {"lr": 1, "lr": 2}}', "the entry 'lr' is there twice"),
        ("g.yaml", "settings: {annotator: 2024-01-01}", "settings holds a date (2024-01-01); expected text, a number"),
    ],
)
def test_files_that_hold_no_grid_are_refused(tmp_path: Path, name: str, text: str | None, expected: str) -> None:
    pytest.importorskip("yaml", reason="YAML needs PyYAML, which comes with the extra train")
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as error:
        read_file(tmp_path / name)
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_yaml_without_its_package_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "g.yaml").write_text("methods: [grpo]")
    with pytest.raises(
        MissingDependency, match=r"needs the extra 'train' \(no pyyaml here\): .*; or write it as JSON in a file"
    ):
        read_file(tmp_path / "g.yaml")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"method": ["grpo"]}, "unknown entry of a sweep 'method'; did you mean methods or models?"),
        ({"seeds": [0.5]}, "seed '0.5' cannot be used"),
        ({"seeds": [True]}, "seeds: [True] is no list of names or numbers"),
        ({"fractions": {"a": 1}}, "is no list of names or numbers"),
        ({"splits": []}, "splits is an empty list; name something, or leave the entry out"),
        ({"seeds": []}, "seeds is an empty list"),
    ],
)
def test_entries_of_a_file_that_cannot_be_used(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(SeedError) as error:
        make_grid({"envs": "alfworld", "models": "micro=m", "methods": "grpo", **values})
    assert expected in str(error.value)
