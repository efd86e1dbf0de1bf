"""``python -m harness.eval`` and ``python -m harness`` as a user types them."""

import contextlib
import importlib
import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import eval_plugin
import pytest
from toys import registered  # noqa: F401 (a fixture)

import harness.__main__
from harness import eval, runs
from harness.progress import Meter
from seed_agent.policy import POLICIES
from seed_envs.tasks import Task, TaskSet

SPELL = ("--env", "evaltoy/Spell-v0", "--set", "size=4")
TOY = Path(__file__).parent / "toy_plugin"


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Run the command in this process, in a folder of its own; returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        code = eval.main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Play what the command plays without naming anything; returns (its folder, exit code, stdout, stderr)."""
    folder = tmp_path_factory.mktemp("everything")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(folder)
        patch.setenv("SEED_CACHE", str(folder / "cache"))
        patch.setenv("SEED_DATA", str(folder / "data"))
        code = eval.main(["--limit", "6"])
    return folder / "runs", code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("name", "splits", "category"),
    [
        ("ALFWorld-v0", ("valid_seen", "valid_unseen"), "pick_two_obj_and_place"),
        ("SearchQA-v0", ("seen", "unseen"), "musique-like"),
        ("Sokoban-v0", ("seen", "unseen"), "medium"),
        ("WebShop-v0", ("dev", "test", "unseen"), "garden"),
    ],
)
def test_without_arguments_every_environment_is_played_and_scored(everything, name, splits, category):
    root, code, out, err = everything
    assert code == 0, err
    sections = [part for part in out.split("\n\n") if part.startswith(f"seed_envs/{name} ")]
    policies = ("scripted:oracle", "scripted:noisy-oracle:0.3", "scripted:random")
    for section, policy in zip(sections, policies, strict=True):
        assert re.match(rf"\S+ .*embedded.* {re.escape(policy)}\n", section)
        for word in (f"\n{splits[0]}, pooled", f"\n{splits[1]}, macro", f"\n  {category} ", "95 % interval"):
            assert word in section
        for rate in (
            "ill-formed",
            "inadmissible",
            "ineffective",
            "cut replies",
            "out of turns",
            "errors",
            "turns",
            "score",
        ):
            assert rate in section
    folders = sorted((root / name.lower()).glob("*/embedded-*"))
    assert len(folders) == 3 and all(str(folder.relative_to(root.parent)) in out for folder in folders)
    for folder in folders:
        summary = json.loads((folder / runs.SUMMARY).read_bytes())
        assert summary["records_sha256"] in out and summary["complete"] and summary["n"] == 6 * len(splits)
        assert tuple(summary["splits"]) == splits
    oracle = json.loads((next((root / name.lower()).glob("scripted-oracle/*")) / runs.SUMMARY).read_bytes())
    assert [oracle["splits"][split]["success"]["rate"] for split in splits] == [1.0] * len(splits)


def test_official_games_are_all_won_by_the_oracle(command, alfworld_root, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(alfworld_root))
    args = ["--env", "seed_envs/ALFWorld-v0", "--split", "valid_seen,valid_unseen", "--policy", "scripted:oracle"]
    code, out, err = command(*args, "--data", "official", "--json")
    assert code == 0, err
    found = json.loads(out)["runs"][0]["summary"]
    counts = {name: (split["success"]["count"], split["n"]) for name, split in found["splits"].items()}
    assert counts == {"valid_seen": (140, 140), "valid_unseen": (134, 134)}
    assert found["splits"]["valid_seen"]["categories"]["pick_two_obj_and_place"]["n"] == 24
    # The same games named by their folder are the same run, record for record.
    monkeypatch.delenv("ALFWORLD_DATA")
    code, out, err = command(*args, "--data", alfworld_root, "--json", "--limit", "5", "--out", "by-path")
    assert code == 0 and json.loads(out)["runs"][0]["summary"]["n"] == 10, err


def test_repeating_the_command_shows_the_same_result(command):
    first = command(*SPELL, "--policy", "spell:wavers")
    again = command(*SPELL, "--policy", "spell:wavers")
    assert first[0] == again[0] == 0 and first[1] == again[1]
    assert "8 of 8 episodes are there already" in again[2]


def test_run_json_says_what_why_and_where_from(command):
    code, _, err = command(*SPELL, "--policy", "spell:wavers", "--out", "r", "--limit", "0.5", "--seed", "3")
    assert code == 0, err
    state = json.loads(Path("r", runs.RUN).read_bytes())
    assert state["status"] == "finished" and len(state["digest"]) == 64
    assert state["config"]["env"] == {
        "id": "evaltoy/Spell-v0",
        "version": "1",
        "kwargs": {"size": 4, "data": "embedded"},
    }
    assert state["config"]["splits"]["seen"]["tasks"] == 2 and state["config"]["seed"] == 3
    assert state["options"]["limit"] == "0.5" and state["options"]["workers"] == 0
    [origin] = state["provenance"]
    assert origin["command"].startswith("python -m harness.eval --env evaltoy/Spell-v0 --set size=4")
    assert {"git_commit", "git_dirty", "python", "platform", "started", "finished"} < origin.keys()
    assert origin["packages"]["numpy"] and origin["finished"] >= origin["started"]
    assert Path("r", runs.TASKS).read_text().count("\tseen\t") == 2


def test_out_is_the_run_or_the_folder_of_runs(command):
    assert command(*SPELL, "--policy", "spell:wavers", "--out", "one")[0] == 0
    assert Path("one", runs.SUMMARY).exists()
    assert command(*SPELL, "--policy", "spell:wavers", "--policy", "spell:first=1", "--out", "two")[0] == 0
    found = sorted(str(path.parent) for path in Path("two").rglob(runs.SUMMARY))
    assert found == ["two/evaltoy-spell-v0/spell-first-1", "two/evaltoy-spell-v0/spell-wavers"]


def test_json_is_the_summary_and_nothing_else(command):
    code, out, _ = command(*SPELL, "--policy", "spell:wavers", "--json", "--out", "r")
    [run] = json.loads(out)["runs"]
    assert code == 0 and run["folder"] == "r"
    assert run["summary"] == json.loads(Path("r", runs.SUMMARY).read_bytes())


def test_attempts(command):
    code, out, _ = command(*SPELL, "--policy", "spell:wavers", "--attempts", "3", "--out", "r", "--split", "seen")
    split = json.loads(Path("r", runs.SUMMARY).read_bytes())["splits"]["seen"]
    assert code == 0 and (split["n"], split["n_tasks"], split["attempts"]) == (12, 4, 3)
    assert "seen: 4 tasks x 3 attempts; pass@3" in out
    assert (
        len({(e["attempt"], e["seed"]) for e in map(json.loads, Path("r", runs.RECORDS).read_text().splitlines())})
        == 12
    )


def test_dry_run_checks_and_writes_nothing(command, tmp_path):
    code, out, err = command(*SPELL, "--policy", "spell:wavers", "--attempts", "2", "--dry-run")
    assert code == 0 and not err and not list(tmp_path.iterdir())
    assert "seen 4 tasks, unseen 4 tasks, 2 x: 16 episodes of at most 6 turns" in out
    assert "0 episodes kept, 16 to play" in out and "trajectories.jsonl" in out
    assert command(*SPELL, "--policy", "spell:wavers", "--attempts", "2")[0] == 0
    before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
    code, out, _ = command(*SPELL, "--policy", "spell:wavers", "--attempts", "2", "--dry-run", "--json")
    [run] = json.loads(out)["runs"]
    assert code == 0 and (run["episodes"], run["kept"]) == (16, 16)
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--polcy", "x"], "unrecognized arguments: --polcy"),
        (["--env", "seed_envs/ALFWorld-v1"], "'seed_envs/ALFWorld-v1'; did you mean seed_envs/ALFWorld-v0"),
        (["--env", "ALFWord-v0"], "unknown environment 'ALFWord-v0'; did you mean seed_envs/ALFWorld-v0"),
        (["--env", ","], "--env has an empty name"),
        (["--env", "evaltoy/Broken-v0"], "evaltoy/Broken-v0 cannot be made: OSError: no such display"),
        (["--env", "evaltoy/Plain-v0"], "is no environment of this suite"),
        ([*SPELL, "--split", "sen"], "unknown split 'sen'; did you mean"),
        ([*SPELL, "--split", ""], "--split has an empty name"),
        ([*SPELL, "--policy", "oracle"], "'oracle' is no policy; expected kind:name"),
        ([*SPELL, "--policy", "scripted:oracel"], "unknown scripted policy 'oracel'; did you mean oracle"),
        ([*SPELL, "--policy", "model:x"], "unknown policy 'model'"),
        ([*SPELL, "--policy", "spell:broken"], "policy spell:broken cannot be made: RuntimeError: no weights"),
        ([*SPELL, "--policy", "scripted:replay:none.jsonl"], "cannot read none.jsonl"),
        ([*SPELL, "--backend", "textworld"], "evaltoy/Spell-v0 has no --backend"),
        (["--env", "WebShop-v0", "--backend", "pyserini"], "--set KEY=VALUE can change there: profile, split_scheme"),
        ([*SPELL, "--set", "colour=red"], "does not take 'colour'"),
        ([*SPELL, "--set", "colour"], "--set 'colour' is no setting; expected KEY=VALUE"),
        ([*SPELL, "--set", "split=train"], "--set split has a flag of its own: --split"),
        ([*SPELL, "--set", "colour=" + "[" * 100_000], "is nested too deeply"),
        ([*SPELL, "--set", "colour=\udcff"], "is no UTF-8 text"),
        ([*SPELL, "--policy", "spell:\udcff"], "holds a lone surrogate"),
        ([*SPELL, "--max-turns", "0"], "argument --max-turns: 0 is too few"),
        ([*SPELL, "--attempts", "two"], "argument --attempts: 'two' is not a whole number"),
        ([*SPELL, "--workers", "-1"], "--workers"),
        ([*SPELL, "--limit", "0"], "a limit of 0 tasks makes no run"),
        ([*SPELL, "--limit", "1.5"], "'1.5' is no share of a task set"),
        ([*SPELL, "--limit", "nan"], "is no share of a task set"),
        ([*SPELL, "--limit", "1", "--ids", "x"], "not allowed with argument"),
        ([*SPELL, "--ids", "none"], "cannot read none"),
        ([*SPELL, "--plugin", "no_such_module"], "plug-in 'no_such_module' cannot be loaded"),
        (["--env", "seed_envs/ALFWorld-v0", "--backend", "java"], "unknown backend 'java'"),
        (["--env", "seed_envs/ALFWorld-v0", "--data", "offical"], "offical does not exist"),
        (["--env", "seed_envs/ALFWorld-v0", "--data", "official"], "does not exist"),
        (["--env", "seed_envs/ALFWorld-v0", "--set", "goal_style=human"], "embedded games have no human goal"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_2(command, tmp_path, args, message):
    code, out, err = command(*args)
    assert (code, out) == (2, ""), err
    assert message in err and err.count("\n") == 1 and "Traceback" not in err
    assert not list(tmp_path.iterdir())


def _raises(*_args, **_kwargs):
    raise RuntimeError("boom")


def _exits(*_args, **_kwargs):
    sys.exit(0)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("identity", _raises, "cannot be planned: RuntimeError: boom"),
        ("identity", lambda self: None, "cannot be planned: TypeError"),
        ("identity", lambda self: {"version": 1, "manifest": "x", "manifest_sha256": "y"}, "identity() of"),
        ("split_names", _raises, "cannot be planned: RuntimeError: boom"),
        ("split_names", lambda **_: (), "has no splits"),
        ("split_names", lambda **_: (None,), "a split of evaltoy/Spell-v0 is NoneType"),
        ("notices", _exits, "cannot be planned: it called sys.exit(0)"),
        ("__init__", _exits, "cannot be made: it called sys.exit(0)"),
        ("tasks", property(lambda self: None, lambda *_: None), "cannot be planned: TypeError"),
        ("tasks", property(lambda self: [1, 2], lambda *_: None), "evaltoy/Spell-v0"),
        ("tasks", property(lambda self: TaskSet([]), lambda *_: None), "has no tasks"),
        ("tasks", property(lambda self: _tasks(id="\ud800"), lambda *_: None), "'\\ud800', holds a lone surrogate"),
        ("tasks", property(lambda self: _tasks(category=None), lambda *_: None), "the category of a task"),
    ],
)  # fmt: skip
def test_a_broken_environment_is_one_line_and_exit_2(command, monkeypatch, tmp_path, attribute, value, message):
    monkeypatch.setattr(eval_plugin.Spell, attribute, value, raising=False)
    monkeypatch.setattr(eval_plugin.Spell, "close", _raises)
    code, out, err = command("--env", "evaltoy/Spell-v0", "--policy", "spell:wavers")
    assert (code, out) == (2, ""), err
    assert message in err and err.count("\n") == 1 and "Traceback" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_exits, "policy odd:x cannot be made: it called sys.exit(0)"),
        (lambda rest: None, "policy odd:x cannot be made: AttributeError"),
        (lambda rest: SimpleNamespace(name=None), "the name of policy odd:x is NoneType; expected text"),
    ],
)
def test_a_broken_policy_is_one_line_and_exit_2(command, monkeypatch, make, message):
    monkeypatch.setitem(POLICIES._entries, "odd", make)
    code, out, err = command(*SPELL, "--policy", "odd:x")
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1


def _tasks(**fields):
    """Return a task set that cannot be recorded; a class that checks less than ``TaskSet`` may do."""
    task = Task(**{"id": "a", "split": "seen", "category": "c", "sha256": "0", **fields})
    tasks = TaskSet([])
    tasks._tasks, tasks._by_id = (task,), {task.id: task}
    return tasks


def test_traceback_is_shown_on_request(command):
    code, _, err = command("--env", "evaltoy/Broken-v0", "--traceback")
    assert code == 2 and "no such display" in err and "Traceback" in err


def test_help_says_what_there_is(command):
    code, out, _ = command("--help")
    assert code == 0
    for flag in ("--env", "--data", "--split", "--policy", "--fresh", "--json", "--dry-run"):
        assert flag in out


def test_policies_that_would_share_a_folder_are_refused(command):
    policies = ("--policy", "scripted:noisy-oracle:0.3", "--policy", "scripted:noisy-oracle:0.30")
    code, _, err = command(*SPELL, *policies, "--out", "r")
    assert code == 2 and "would share" in err


def test_notices_of_an_environment_are_shown_once(command, monkeypatch):
    monkeypatch.setenv("SPELL_NOTICE", "1")
    code, _, err = command(*SPELL, "--policy", "spell:wavers", "--out", "r")
    assert code == 0 and err.count("note: three words were skipped\n") == 1


def test_environments_of_third_parties(command, monkeypatch):
    """Ids with a module in front, classes without ``split_names``, environments not from ``AgentEnv``."""
    monkeypatch.setattr(sys, "path", [str(TOY), *sys.path])
    plugin = ("--plugin", "toy_suite:register", "--policy", "scripted:oracle", "--json")
    importlib.import_module("toy_suite").register()
    counter = importlib.import_module("toy_suite.counter")
    split, goals = sorted(counter.GOALS.items())[-1]
    monkeypatch.setattr(counter.Counter, "splits", tuple(counter.GOALS))
    code, out, err = command("--env", "toy/Counter-v0", *plugin, "--split", split)
    assert code == 0, err
    assert json.loads(out)["runs"][0]["summary"]["splits"][split]["success"]["count"] == len(goals)
    code, out, err = command("--env", "toy/Parrot-v0", *plugin)
    summary = json.loads(out)["runs"][0]["summary"]
    assert code == 0 and summary["splits"]["train"]["n"] == 4 and summary["env"]["kwargs"] == {}, err
    code, _, err = command("--env", "toy/Counter-v0", *plugin, "--split", "nowhere")
    assert code == 2 and "unknown split 'nowhere'" in err
    code, out, err = command("--env", "eval_plugin:evaltoy/Spell-v0", "--policy", "scripted:oracle", "--json")
    assert code == 0, err


def test_the_harness_lists_what_there_is(capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(TOY), *sys.path])
    assert harness.__main__.main(["--plugin", "toy_suite:register"]) == 0
    out = capsys.readouterr().out
    for name in ("python -m harness.eval", "seed_envs/ALFWorld-v0", "toy/Counter-v0", "scripted:replay:FILE", "toy:...",
                 "vanilla", "toy-method", "toy_suite:register"):  # fmt: skip
        assert f"  {name}" in out, name
    assert "CartPole" not in out
    assert harness.__main__.main(["--plugin", "no_such"]) == 2


def test_progress_is_a_plain_line_at_most_every_ten_seconds(capsys):
    times = iter(range(0, 4000, 4))
    now = [0.0]

    def clock():
        return now[0]

    with Meter("toy", 10, done=4, successes=2, terminal=False, clock=clock) as meter:
        for _ in range(6):
            now[0] = float(next(times))
            meter.add(True)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["toy: 8/10, success 75.0 %, 3 s/episode, 0:00:06 left"]


def test_progress_on_a_terminal_is_a_bar_that_goes_away(capsys):
    with Meter("toy", 2, terminal=True) as meter:
        meter.add(True)
        meter.add(False)
    assert capsys.readouterr().out == ""
