"""Making rows of runs: what they hold, what is refused, one row per method, and the commands around it."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import board_kit as kit
import committed
import eval_plugin  # noqa: F401  (registers the environment and policies)
import pytest

from harness import eval, leaderboard, runs, verify
from harness.board import entry
from harness.board.actions import of_run, read_log, rows_of, successes, write_log
from harness.board.adding import add
from harness.board.entry import read_entry
from harness.board.lineage import lineage, training
from harness.summary import summarise_rows, to_bytes
from seed_agent.train.settings import Settings
from seed_envs.errors import DataError
from seed_envs.seeding import canonical, sha256_text


@pytest.fixture(autouse=True)
def commit(monkeypatch):
    committed.pretend(monkeypatch)


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(module, *args):
        capsys.readouterr()
        code = module.main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


# --- the action log ---------------------------------------------------------------------------------------------------


def test_a_log_holds_hashes_and_actions_and_gives_every_number(tmp_path):
    folder = kit.play(tmp_path / "run", "--attempts", "2")
    for name in ("a", "b"):
        with of_run(folder / runs.RECORDS) as (header, _, episodes):
            assert write_log(tmp_path / name, header, episodes) == 16
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with read_log(tmp_path / "a") as (header, episodes):
        found = list(episodes)
    assert [one.key for one in found] == sorted(one.key for one in found) and len(found) == 16
    again = to_bytes(summarise_rows(rows_of(header, found).values(), planned=16))
    assert again == (folder / runs.SUMMARY).read_bytes()
    text = gzip.decompress((tmp_path / "a").read_bytes()).decode()
    assert "Spell " not in text and "Yes." not in text and '"actions":["' in text
    first = json.loads((folder / runs.RECORDS).read_text().splitlines()[0])
    [same] = [one for one in found if one.key == (first["split"], first["task_id"], first["attempt"])]
    seen = [*(turn["observation"]["sha256"] for turn in first["turns"]), first["final"]["sha256"]]
    assert same.observations == tuple(seen) and same.seed == first["seed"] and same.score == first["score"]
    assert same.actions == tuple(turn["action"] for turn in first["turns"])
    assert same.rewards == tuple(turn["reward"] for turn in first["turns"])
    wins = successes(tmp_path / "a")
    assert list(wins) == ["seen", "unseen"] and list(wins["seen"]) == [f"seen/{i:03}" for i in range(4)]
    rate = json.loads((folder / runs.SUMMARY).read_bytes())["splits"]["seen"]["success"]["rate"]
    assert sum(wins["seen"].values()) / 4 == rate


def test_the_order_of_play_does_not_change_a_log(tmp_path):
    logs = []
    for batch in ("1", "7"):
        folder = kit.play(tmp_path / batch, "--batch", batch)
        with of_run(folder / runs.RECORDS) as (header, _, episodes):
            write_log(tmp_path / f"{batch}.gz", header, episodes)
        logs.append((tmp_path / f"{batch}.gz").read_bytes())
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"policy":"p","schema_version":9,"splits":{}}', "has schema version 9; this version reads up to 1"),
        ("nonsense", "log.gz:1: cannot be: Invalid JSON"),
        ('{"policy":"p","splits":{}}\n{"split":"seen"}', "log.gz:2: cannot be: task_id: Field required"),
        ("", "log.gz:1: cannot be: policy: Field required"),
    ],
)
def test_a_file_that_is_no_log_is_refused(line, expected, tmp_path):
    (tmp_path / "log.gz").write_bytes(gzip.compress(line.encode()))
    with pytest.raises(DataError, match=expected), read_log(tmp_path / "log.gz") as (_, episodes):
        list(episodes)


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_row_says_what_was_run_and_where_it_comes_from(tmp_path):
    path = kit.listed(tmp_path, "--limit", "2")
    row, summary = read_entry(path), json.loads((tmp_path / "run" / runs.SUMMARY).read_bytes())
    assert path.parent == tmp_path / "board" / "measured" and path.stem == row.id
    assert row.id.startswith("spell-v0-spell-wavers-embedded-")
    env = row.environment
    assert (env.id, env.version, env.kwargs, env.data, env.max_turns) == (
        "evaltoy/Spell-v0", "1", {"size": 4}, "embedded", 6,
    )  # fmt: skip
    assert env.splits["seen"].n_tasks == 2 and not env.splits["seen"].whole
    assert row.protocol.model_dump() == {"name": "full", "attempts": 1, "seed": 0, "settings": {}}
    assert row.method.name == "spell-wavers" and row.training is None and row.model == "spell:wavers"
    [run] = row.runs
    assert run.training_seed is None and run.policy.kind == "spell" and run.policy.language is None
    assert run.provenance.commits == (committed.COMMIT,) and not run.provenance.dirty and run.provenance.starts == 1
    assert run.provenance.command.startswith("python -m harness.eval --env evaltoy/Spell-v0")
    assert run.provenance.packages["numpy"] and run.provenance.finished >= run.provenance.started
    assert json.loads(run.summary.model_dump_json()) == summary
    macro = row.aggregate["seen"].macro
    assert macro.mean == summary["splits"]["seen"]["macro"]["success"] and (macro.ci95, macro.of) == (None, "none")
    pooled = row.aggregate["seen"].pooled
    assert list(pooled.ci95 or ()) == summary["splits"]["seen"]["success"]["ci95"] and pooled.of == "episodes"
    assert row.flags == ("embedded", "subset")


def refuse_state(**changes):
    def spoil(folder: Path):
        state = json.loads((folder / runs.RUN).read_bytes())
        for key, value in changes.items():
            if key in state:
                state[key] = value
            else:
                state["provenance"][-1][key] = value
        (folder / runs.RUN).write_text(json.dumps(state))

    return spoil


def refuse_records(folder: Path):
    path = folder / runs.RECORDS
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")


def refuse_summary(folder: Path):
    path = folder / runs.SUMMARY
    path.write_text(path.read_text().replace('"count": ', '"count": 1', 1))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (refuse_state(status="interrupted"), "is interrupted, not finished; repeat its command to go on"),
        (refuse_state(git_commit=None), "has no provenance: git_commit is not recorded"),
        (refuse_state(packages={}), "has no provenance: packages is not recorded"),
        (refuse_state(digest="0" * 64), "is not as it was written"),
        (refuse_state(training={"unknown": "the run is gone"}), "no provenance of its training: the run is gone"),
        (refuse_records, "is not what trajectories.jsonl gives"),
        (refuse_summary, "one of the two was changed since"),
        (lambda folder: (folder / runs.SUMMARY).unlink(), "cannot be read"),
        (lambda folder: (folder / runs.RUN).unlink(), "is no run of this program"),
    ],
)
def test_a_run_nobody_could_check_is_refused(spoil, expected, tmp_path, command):
    folder = kit.play(tmp_path / "run")
    spoil(folder)
    code, out, err = command(leaderboard, "add", folder, "--to", tmp_path / "board")
    assert code == 2 and not out and len(err.splitlines()) == 1 and expected in err, err
    assert not list((tmp_path / "board").rglob("*.json"))


def test_a_row_is_made_once_unless_it_is_to_be_replaced(tmp_path, command):
    path = kit.listed(tmp_path)
    twice = kit.play(tmp_path / "again")
    for folders in ([tmp_path / "run"], [twice]):
        code, _, err = command(leaderboard, "add", *folders, "--to", tmp_path / "board")
        assert code == 2 and f"{path} is of the same run already" in err
    code, out, err = command(leaderboard, "add", twice, "--to", tmp_path / "board", "--replace", "--by", "Ada")
    assert code == 0 and str(path) in out and read_entry(path).submitter == "Ada", err
    assert len(list(path.parent.iterdir())) == 2
    code, _, err = command(leaderboard, "add", twice, twice)
    assert code == 2 and "is named twice; name every run once" in err
    # a copy under another name is found as well
    copied = json.loads(path.read_bytes()) | {"id": "another"}
    path.with_name("another.json").write_text(json.dumps(copied))
    code, out, _ = command(leaderboard, "validate", tmp_path / "board")
    assert code == 1 and "it is of the same run as" in out


@pytest.mark.parametrize(
    ("flag", "text", "said"),
    [
        ("--note", "caf\udce9", "--note cannot be used: it holds what UTF-8 cannot hold"),
        ("--note", "\x1b[2Jgone", "--note cannot be used: it holds the character U+001B"),
        ("--by", "Ada\nLovelace", "--by cannot be used: it has a line end or a tab"),
        ("--by", "x" * 201, "--by cannot be used: String should have at most 200 characters"),
    ],
)
def test_a_text_that_no_row_can_hold_changes_nothing(tmp_path, command, flag, text, said):
    path = kit.listed(tmp_path)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    code, _, err = command(leaderboard, "add", tmp_path / "run", "--to", tmp_path / "board", "--replace", flag, text)
    assert code == 2 and err.count("\n") == 1 and said in err
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_replaced_row_goes_when_the_new_one_is_there_and_not_before(tmp_path, command, monkeypatch):
    path = kit.listed(tmp_path)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}

    def full(folder, one):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(entry, "write_entry", full)
        assert command(leaderboard, "add", tmp_path / "run", "--to", tmp_path / "board", "--replace")[0] == 2
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    # a row under another id, of the same run, makes place with its log
    row = json.loads(path.read_bytes())
    for file in (path, kit.log_of(path)):
        file.rename(file.with_name(file.name.replace(row["id"], "old")))
    row["runs"][0]["log"]["file"] = "old.jsonl.gz"
    path.with_name("old.json").write_text(json.dumps(row | {"id": "old"}))
    assert command(leaderboard, "add", tmp_path / "run", "--to", tmp_path / "board", "--replace")[0] == 0
    assert sorted(file.name for file in path.parent.iterdir()) == sorted(before)


def test_a_leaderboard_that_cannot_be_written(tmp_path, command):
    folder = kit.play(tmp_path / "run")
    (tmp_path / "file").touch()
    code, _, err = command(leaderboard, "add", folder, "--to", tmp_path / "file")
    assert code == 2 and err.count("\n") == 1 and "expected a folder that can be written" in err
    assert "--out" not in err
    code, _, err = command(leaderboard, "add", tmp_path, "--to", tmp_path / "board")
    assert code == 2 and "name the folder of another run" in err and "--out" not in err


def test_runs_that_broke_are_taken_when_it_is_said(tmp_path, command):
    folder = kit.play(tmp_path / "run", policy="spell:fails=1", code=1)
    code, _, err = command(leaderboard, "add", folder, "--to", "board")
    assert code == 2 and "2 episodes of" in err and "or say --with-errors" in err
    assert command(leaderboard, "add", folder, "--to", "board", "--with-errors")[0] == 0
    [path] = Path("board/measured").glob("*.json")
    assert "errors" in read_entry(path).flags and command(leaderboard, "validate", "board")[0] == 0


def learnt(folder: Path, seed: int, **changes) -> dict:
    """Write what training leaves around its weights, and return what ``lineage`` finds."""
    first, final = folder / "sft" / "final", folder / f"rl-{seed}" / "final"
    settings = Settings(model=str(first), preset="spell/micro", iterations=4, tasks=2, group=3, seed=seed, **changes)
    for weights, state in (
        (first, {"stage": "sft"}),
        (final, {"stage": "rl", "iteration": 4, "digest": settings.digest}),
    ):
        weights.mkdir(parents=True, exist_ok=True)
        (weights / "DONE").touch()
        (weights / "state.json").write_text(json.dumps(state))
    plan = {"tasks": 24, "rollouts": 2, "temperature": 0.4, "annotator": "rules", "fit": {"epochs": 3}}
    base = Settings(model="tiny/base", seed=seed).model_dump(mode="json")
    (first.parent / "sft.json").write_text(json.dumps({"settings": base, "plan": plan}))
    content = {"settings": settings.model_dump(mode="json"), "digest": settings.digest}
    (final.parent / "train.json").write_text(json.dumps(content))
    metrics = [{"iteration": i, "env/success": i / 10, "rl/kl": 1.0, "note": "x"} for i in range(1, 6)]
    (final.parent / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    return lineage(str(final)) or {}


def test_how_a_model_was_trained_is_read_from_the_files_around_it(tmp_path):
    found = learnt(tmp_path, 3)
    assert (found["stage"], found["seed"], found["base"], found["iteration"]) == ("rl", 3, "tiny/base", 4)
    assert found["curve"] == [{"iteration": i, "values": {"env/success": i / 10}} for i in range(1, 5)]
    said = training(found)
    assert said["episodes"] == 4 * 2 * 3 and said["fraction"] == 1.0 and said["stage1"]["episodes"] == 48
    assert training(learnt(tmp_path, 4))["digest"] == said["digest"]
    assert training(learnt(tmp_path, 4, lr=1e-3))["digest"] != said["digest"]
    # a checkpoint on the way is a share of the budget
    milestone = tmp_path / "rl-3" / "milestones" / "iteration_000001"
    milestone.mkdir(parents=True)
    (milestone / "DONE").touch()
    digest = json.loads((tmp_path / "rl-3" / "train.json").read_bytes())["digest"]
    (milestone / "state.json").write_text(json.dumps({"stage": "rl", "iteration": 1, "digest": digest}))
    part = training(lineage(str(milestone)) or {})
    assert (part["iterations"], part["planned"], part["fraction"]) == (1, 4, 0.25)
    (milestone / "state.json").write_text(json.dumps({"stage": "rl", "iteration": 1, "digest": "other"}))
    with pytest.raises(DataError, match="weights of another run"):
        lineage(str(milestone))
    (tmp_path / "rl-3" / "train.json").unlink()
    with pytest.raises(DataError, match=r"train\.json of its run is not there"):
        lineage(str(milestone))
    assert lineage("Qwen/Qwen3-0.6B") is None and lineage(None) is None


def test_seeds_of_one_method_are_one_row(tmp_path):
    folders = []
    for seed, policy in ((0, "spell:first=2"), (1, "spell:first=3"), (2, "spell:first=4")):
        folders.append(kit.play(tmp_path / f"run-{seed}", policy=policy))
        refuse_state(training=learnt(tmp_path, seed))(folders[-1])
    [path] = add([folders[1], folders[0], folders[2]], tmp_path / "board")
    row = read_entry(path)
    assert [run.training_seed for run in row.runs] == [0, 1, 2] and row.method.name == "seed"
    assert [run.policy.name for run in row.runs] == ["spell:first=2", "spell:first=3", "spell:first=4"]
    assert row.model == "tiny/base" and row.training and row.training.stage1 and row.runs[0].curve
    pooled = row.aggregate["seen"].pooled
    assert pooled.values == (0.5, 0.75, 1.0) and pooled.mean == 0.75 and pooled.of == "training seeds"
    # Student's t at 2 degrees of freedom, 4.302653, times 0.25 / sqrt(3)
    assert pooled.ci95 == pytest.approx((0.75 - 0.621034, 0.75 + 0.621034), abs=1e-6)
    assert "single-seed" not in row.flags
    assert len(list(path.parent.glob("*.gz"))) == 3
    other = kit.play(tmp_path / "other", policy="spell:wavers")
    refuse_state(training=learnt(tmp_path, 5, lr=1e-3))(other)
    [single] = add([other], tmp_path / "board")
    assert "single-seed" in read_entry(single).flags


# --- the commands -----------------------------------------------------------------------------------------------------


SPELL = ("--env", "evaltoy/Spell-v0", "--set", "size=4", "--policy", "spell:wavers")


def test_eval_lists_its_result_or_says_how(tmp_path, command):
    code, _, err = command(eval, *SPELL, "--out", "run one")
    line = err.splitlines()[-1]
    assert code == 0 and line == "to list it: python -m harness.leaderboard add 'run one' --to leaderboards"
    code, _, err = command(eval, *SPELL, "--out", "run one", "--leaderboard", "board")
    [path] = Path("board/measured").glob("*.json")
    assert code == 0 and f"listed: {path}" in err and f"python -m harness.verify {path}" in err
    code, _, err = command(eval, *SPELL, "--out", "run one", "--leaderboard", "board")
    assert code == 0 and f"run one is listed already: {path}" in err
    code, _, err = command(eval, *SPELL[:-1], "spell:fails=1", "--out", "broke", "--leaderboard", "board")
    assert code == 1 and "no row was added to board: episodes broke" in err
    assert len(list(Path("board/measured").glob("*.json"))) == 1


def test_without_a_commit_nothing_is_played_for_a_row(command, monkeypatch):
    committed.pretend(monkeypatch, commit=None, dirty=None)
    code, _, err = command(eval, *SPELL, "--out", "run", "--leaderboard", "board")
    assert code == 2 and "--leaderboard needs the commit of the suite" in err and not Path("run").exists()
    Path("file").touch()
    code, _, err = command(eval, *SPELL, "--out", "run", "--leaderboard", "file")
    assert code == 2 and "--leaderboard file is a file" in err


def test_an_action_log_that_no_row_names_is_wrong(tmp_path, command):
    row = kit.listed(tmp_path)
    board, stray = tmp_path / "board", row.parent / "left-over.jsonl.gz"
    shutil.copy(kit.log_of(row), stray)
    expected = f"ok      {row}\nDIFFERS {stray}\n  no row names this action log; remove it, or add its run again\n"
    assert command(leaderboard, "validate", board, board / "measured")[:2] == (1, expected)
    assert json.loads(command(leaderboard, "validate", board, "--json")[1])["strays"] == [str(stray)]
    assert command(leaderboard, "validate", row)[0] == command(leaderboard, "build", board)[0] == 0
    stray.unlink()
    row.write_text("{}")  # whose log its own is cannot be read either: nothing to remove
    code, out, err = command(leaderboard, "validate", board)
    assert (code, out) == (2, "") and "cannot be read as a row" in err


def test_what_cannot_be_validated_is_said(command):
    assert command(leaderboard, "validate", "nowhere")[2].startswith("error: nowhere is not there")
    Path("empty").mkdir()
    code, _, err = command(leaderboard, "validate", "empty")
    assert code == 2 and "empty holds no rows" in err
    Path("empty/measured").mkdir()
    Path("empty/measured/x.json").write_text('{"schema_version": 1}')
    code, out, err = command(leaderboard, "validate", "empty")
    assert code == 2 and not out and "x.json is no row of a leaderboard: id: Field required" in err
    assert command(leaderboard, "frobnicate")[0] == 2


def test_from_a_killed_run_to_a_verified_row(cli_env, run_cli, tmp_path):
    """Eval, kill, resume, compare, report, add, validate, build, verify: as commands, with their exit codes."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), cli_env().get("PYTHONPATH")]))
    env = {"PYTHONPATH": path}

    def do(*command):
        return run_cli(*command, env=env, timeout=300)

    flags = ("--plugin", "eval_plugin", "--plugin", "committed:load")
    start = [sys.executable, "-m", "harness.eval", *SPELL, *flags, "--out", "a", "--batch", "1"]
    child = subprocess.Popen(
        start, cwd=tmp_path, env=cli_env(**env, SPELL_SLEEP="0.05"), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    records = tmp_path / "a" / runs.RECORDS
    end = time.monotonic() + 60
    while not (records.exists() and records.stat().st_size) and time.monotonic() < end:
        time.sleep(0.01)
    child.kill()
    child.wait()
    assert records.stat().st_size and not (tmp_path / "a" / runs.SUMMARY).exists()
    unfinished = do("harness.leaderboard", "add", "a", "--to", "board")
    assert unfinished[0] == 2 and "is started, not finished" in unfinished[2]

    resumed = do("harness.eval", *SPELL, *flags, "--out", "a")
    assert resumed[0] == 0 and "episodes are there already" in resumed[2], resumed
    second = (*SPELL[:-1], "spell:first=9")
    assert do("harness.eval", *second, *flags, "--out", "b", "--leaderboard", "board")[0] == 0
    compared = do("harness.compare", "a", "b")
    assert compared[0] == 0, compared
    assert do("harness.report", "a")[0] == 0
    added = do("harness.leaderboard", "add", "a", "--to", "board")
    assert added[0] == 0 and added[1].startswith("board/measured/spell-v0-"), added
    assert do("harness.leaderboard", "validate", "board")[0] == 0
    built = do("harness.leaderboard", "build", "board")
    assert built[0] == 0 and (tmp_path / "board" / "index.html").exists(), built
    verified = do("harness.verify", "board", "a", "--plugin", "eval_plugin")
    assert verified[0] == 0 and verified[1].count("ok ") == 3, verified


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("config",), {}), (("config", "seed"), "x"), (("config", "policy"), 5), (("config", "env"), "x"),
        (("config", "env", "kwargs"), None), (("config", "splits"), {}), (("config", "protocol"), "full"),
        (("ceilings",), []), (("provenance", 0, "policy"), None), (("provenance",), []),
        (("ceilings",), {"seen": {"n": 4, "below": 1}}), (("provenance", 0, "git_commit"), ["main"]),
        (("config", "protocol"), {}), (("config", "attempts"), 0),
    ],
)  # fmt: skip
def test_odd_values_in_a_run_are_one_line(tmp_path, capsys, place, value):
    folder = kit.play(tmp_path / "run")
    state = json.loads((folder / "run.json").read_bytes())
    found = state
    for key in place[:-1]:
        found = found[key]
    found[place[-1]] = value
    state["digest"] = sha256_text(canonical(state["config"]))
    (folder / "run.json").write_text(json.dumps(state))
    capsys.readouterr()
    assert leaderboard.main(["add", str(folder), "--to", str(tmp_path / "board")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "is not as it was written" in err, err
    assert verify.main([str(folder)]) == 2
