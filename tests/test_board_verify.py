"""Verifying: whatever is changed in a row, its log or a run's records is found, and where."""

import json
import shutil
from pathlib import Path

import board_kit as kit
import committed
import eval_plugin  # noqa: F401  (registers the environment and policies)
import pytest

from harness import leaderboard, runs, verify
from harness.board.actions import read_log
from harness.board.entry import read_entry

WORD = 3
"""In sorted order the fourth episode is attempt 1 at seen/001, a word of three letters that is spelled right."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A row of a run in which the plan is followed: pictures, two splits of four words, twice each."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        committed.pretend(monkeypatch)
        flags = ("--set", "image=true", "--attempts", "2")
        return kit.listed(tmp_path_factory.mktemp("board"), *flags, policy="spell:first=9")


@pytest.fixture
def row(made, tmp_path):
    """A copy of it that a test may spoil."""
    shutil.copytree(made.parent, tmp_path / "measured")
    return tmp_path / "measured" / made.name


@pytest.fixture
def command(capsys):
    def run(module, *args):
        capsys.readouterr()
        code = module.main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_row_is_verified_to_the_last_hash(row, command):
    code, out, err = command(verify, row)
    assert code == 0, out + err
    turns = 2 * 2 * (2 + 3 + 4 + 2)
    assert out == f"ok      {row}: 16 episodes, {turns} turns played again, all equal\n"
    assert command(leaderboard, "validate", row)[:2] == (0, f"ok      {row}\n")
    found = json.loads(command(verify, row.parent, "--json")[1])["verified"]
    assert [(one["sound"], one["episodes"], one["differences"]) for one in found] == [(True, 16, [])]


def test_workers_verify_alike(row, command):
    kit.edit_log(row, lambda episodes: episodes[WORD]["rewards"].__setitem__(1, 0.5))
    kit.sign(row)
    alone = command(verify, row)
    assert alone[0] == 1 and command(verify, row, "--workers", "1", "--plugin", "eval_plugin") == alone


def change(place, value):
    """Return an edit of the second episode: ``place`` is a key, or a key and a turn."""

    def edit(episodes):
        key, *turn = place
        if not turn:
            episodes[WORD][key] = value
        elif isinstance(episodes[WORD][key], str):
            letters = list(episodes[WORD][key])
            letters[turn[0]] = value
            episodes[WORD][key] = "".join(letters)
        else:
            episodes[WORD][key][turn[0]] = value

    return edit


def change_task(key, value):
    """Return an edit of both attempts at seen/001."""

    def edit(episodes):
        for one in episodes[WORD - 1 : WORD + 1]:
            one[key] = value

    return edit


def stop_early(episodes):
    one = episodes[WORD]
    for key in ("actions", "observations", "pixels", "rewards", "format_ok", "admissible", "effective", "stops"):
        one[key] = one[key][:-1]
    one |= {"outcome": "failure", "success": False, "score": 0.6666666666666667}


def go_on(episodes):
    one = episodes[WORD]
    for key in ("actions", "observations", "pixels", "rewards", "format_ok", "admissible", "effective", "stops"):
        one[key] = one[key] + one[key][-1:]


H = "0" * 64
FORGED = {
    "an action": (change(("actions", 1), "z"), "turn 2: admissible: expected True, got False"),
    "an observation": (change(("observations", 2), H), f"turn 2: sha256 of the observation: expected {H}, got "),
    "the first observation": (change(("observations", 0), H), "at its beginning: sha256 of the observation: "),
    "the last observation": (change(("observations", 3), H), "turn 3: sha256 of the observation: "),
    "a picture": (change(("pixels", 1), H), "turn 1: sha256 of the pixels: "),
    "a reward": (change(("rewards", 0), 1.0), "turn 1: reward: expected 1.0, got 0.0"),
    "a flag": (change(("effective", 1), "0"), "turn 2: effective: expected False, got True"),
    "a score": (change(("score",), 0.5), "turn 3: score: expected 0.5, got 1.0"),
    "an outcome": (
        lambda episodes: episodes[WORD].update(outcome="step_limit", success=False),
        "turn 3: success: expected False, got True",
    ),
    "an early end": (stop_early, "turn 2: the environment: expected the end of the episode, got the episode to go on"),
    "a turn too many": (
        go_on,
        "turn 3: the environment: expected the episode to go on, got the end of the episode",
    ),
    "a task": (change_task("task_sha256", H), f"sha256 of the task as it is installed here: expected {H}, got "),
    "a category": (change_task("category", "2 letters"), "category of the task as it is installed here: expected 2"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_log_forged_in_every_number_is_found_by_playing(name, row, command):
    edit, expected = FORGED[name]
    kit.edit_log(row, edit)
    kit.sign(row)
    code, out, _ = command(verify, row)
    assert code == 1 and out.startswith("DIFFERS")
    assert "task seen/001, attempt 1" in out and expected in out, out


def test_a_seed_that_was_not_given_is_found(row, command):
    kit.edit_log(row, change(("seed",), 7))
    kit.sign(row)
    code, out, _ = command(leaderboard, "validate", row)
    assert code == 1 and "task seen/001, attempt 1: seed: expected 7, got " in out


def drop(episodes):
    del episodes[WORD]


def double(episodes):
    episodes.insert(WORD, episodes[WORD])


def one_of_three(episodes):
    episodes[WORD]["attempt"] = 2


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (drop, "summary.n is 16; computed again: 15"),
        (double, "the episode (seen, seen/001, attempt 1) is logged twice"),
        (one_of_three, "task seen/001 of seen has the attempts [0, 2]; expected 2"),
        (change(("score",), 0.25), "splits.seen.score is 1.0; computed again: 0.90625"),
        (change(("record_sha256",), H), "records_sha256 is"),
    ],
    ids=["missing", "doubled", "another attempt", "score", "record"],
)
def test_a_log_that_does_not_give_the_numbers_is_found_without_playing(edit, expected, row, command):
    kit.edit_log(row, edit)
    code, out, _ = command(leaderboard, "validate", row)
    assert code == 1 and expected.removeprefix("summary.") in out, out
    assert command(verify, row)[0] == 1


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        (("runs", 0, "summary", "splits", "seen", "macro", "success"), 0.5, "splits.seen.macro.success is 0.5; comp"),
        (("runs", 0, "summary", "splits", "unseen", "success", "count"), 9, "splits.unseen.success.count is 9; comp"),
        (("runs", 0, "summary", "errors"), 3, "errors is 3; computed again: 0"),
        (("aggregate", "seen", "macro", "mean"), 0.25, "aggregate.seen.macro.mean is 0.25; computed again: 1.0"),
        (("flags",), [], "flags are none; computed from the row: embedded"),
        (("environment", "splits", "seen", "manifest_sha256"), H, f"environment.seen.manifest_sha256 is {chr(34)}{H}"),
        (("environment", "version"), "2", 'environment.seen.version is "2"; computed again: "1"'),
        (("environment", "max_turns"), 9, "environment.seen.max_turns is 9; computed again: 6"),
        (("environment", "data"), "official", "the row calls its data official; those of "),
        (("protocol", "seed"), 1, "attempt 0: seed: expected "),
        (("protocol", "attempts"), 1, "has the attempts [0, 1]; expected 1"),
        (("runs", 0, "policy", "name"), "spell:other", "is of the policy spell:first=9; the row says spell:other"),
        (("runs", 0, "log", "sha256"), H, f"the row says {H}"),
        (("runs", 0, "log", "episodes"), 15, "has 16 episodes; the row says 15"),
    ],
)
def test_an_edited_row_is_found(place, value, expected, row, command):
    kit.edit_row(row, *place, value=value)
    code, out, _ = command(leaderboard, "validate", row)
    assert code == 1 and expected in out, out
    assert command(verify, row)[0] == 1


def test_another_manifest_is_found_even_when_everything_is_signed(row, command):
    with read_log(kit.log_of(row)) as (header, _):
        splits = header.model_dump(mode="json")["splits"]
    splits["seen"]["manifest_sha256"] = H
    kit.edit_log(row, lambda episodes: None, header={"splits": splits})
    kit.sign(row)
    code, out, _ = command(verify, row)
    assert code == 1
    assert f"split seen: manifest_sha256 of evaltoy/Spell-v0 as it is installed here: expected {H}, got " in out


def test_a_committed_manifest_is_known_without_an_environment(row, command):
    content = json.loads(row.read_bytes())
    content["environment"]["splits"]["seen"]["manifest"] = "alfworld-embedded/valid_seen"
    row.write_text(json.dumps(content))
    out = command(leaderboard, "validate", row)[1]
    known = content["environment"]["splits"]["seen"]["manifest_sha256"]
    assert f"in this suite; the row says {known}" in out


def test_a_part_of_a_split_is_called_one(row, command):
    """Who leaves tasks out and signs everything has a sound row, of a subset, which is never ranked with whole ones."""
    kit.edit_log(row, lambda episodes: episodes.__delitem__(slice(0, 2)))
    kit.sign(row)
    assert command(verify, row)[0] == 0 and "subset" in read_entry(row).flags
    kit.edit_row(row, "flags", value=["embedded"])
    assert command(verify, row)[0] == 1


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda log: log.unlink(), "cannot read the action log"),
        (lambda log: log.write_bytes(log.read_bytes()[:-20]), "the row says"),
        (lambda log: log.write_bytes(b"{}"), "the row says"),
    ],
    ids=["missing", "torn", "no gzip"],
)
def test_a_log_that_cannot_be_read_is_no_sound_row(spoil, expected, row, command):
    spoil(kit.log_of(row))
    code, out, err = command(verify, row)
    assert code == 1 and expected in out and not err


def test_what_is_missing_here_is_said_and_the_others_are_verified(row, command, tmp_path):
    gone = tmp_path / "gone" / row.name
    shutil.copytree(row.parent, gone.parent)
    with read_log(kit.log_of(gone)) as (header, _):
        splits = header.model_dump(mode="json")["splits"]
    for split in splits.values():
        split |= {"id": "seed_envs/ALFWorld-v0", "kwargs": {"data": "official", "split": "valid_seen"}}
    kit.edit_log(gone, lambda episodes: None, header={"splits": splits})
    content = json.loads(gone.read_bytes())
    content["environment"] |= {"id": "seed_envs/ALFWorld-v0", "data": "official", "kwargs": {}}
    gone.write_text(json.dumps(content))
    kit.sign(gone)
    code, out, err = command(verify, gone, row)
    assert code == 2 and f"{gone} cannot be verified here: " in err and "python -m seed_envs fetch alfworld" in err
    assert out.startswith(f"ok      {row}:")


def test_local_data_need_their_folder(row, command):
    with read_log(kit.log_of(row)) as (header, _):
        splits = header.model_dump(mode="json")["splits"]
    for split in splits.values():
        split["kwargs"]["data"] = "local"
    kit.edit_log(row, lambda episodes: None, header={"splits": splits})
    kit.edit_row(row, "environment", "data", value="local")
    kit.sign(row)
    code, _, err = command(verify, row)
    assert code == 2 and "give their folder with --data DIR" in err
    assert command(verify, row, "--data", "anywhere")[0] == 0


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [("spell:mumbles", "invalid_format"), ("spell:first=1", "generation_truncated"), ("spell:wavers", "success")],
)
def test_runs_are_verified_too(policy, outcome, tmp_path, command):
    folder = kit.play(tmp_path / "run", policy=policy)
    summary = json.loads((folder / runs.SUMMARY).read_bytes())
    assert summary["splits"]["seen"]["outcomes"][outcome]
    assert command(verify, folder)[0] == 0


@pytest.mark.parametrize("fault", ["reset:seen/001", "step:seen/001"])
def test_episodes_that_broke_are_played_up_to_the_error(fault, tmp_path, command, monkeypatch):
    monkeypatch.setenv("SPELL_FAULT", fault)
    folder = kit.play(tmp_path / "run", policy="spell:first=9", code=1)
    monkeypatch.delenv("SPELL_FAULT")
    code, out, _ = command(verify, folder)
    assert code == 0 and "8 episodes, 19 turns" in out
    # now it is the environment here that breaks: the row is not reproduced
    whole = kit.play(tmp_path / "whole", policy="spell:first=9")
    monkeypatch.setenv("SPELL_FAULT", fault)
    code, out, _ = command(verify, whole)
    assert code == 1 and "the environment: expected to go on, got RuntimeError: the alphabet is gone" in out


def test_a_policy_that_failed_stands_as_recorded(tmp_path, command):
    folder = kit.play(tmp_path / "run", policy="spell:fails=1", code=1)
    assert command(verify, folder)[:2] == (0, f"ok      {folder}: 8 episodes, 16 turns played again, all equal\n")


def test_records_that_were_edited_are_found(tmp_path, command):
    folder = kit.play(tmp_path / "run")
    path = folder / runs.RECORDS
    path.write_text(path.read_text().replace('"action":"', '"action":"z', 1))
    code, out, _ = command(verify, folder)
    assert code == 1 and "summary.json is not what trajectories.jsonl gives (it says records_sha256 " in out
    path.write_text(path.read_text().replace('"text":"No."', '"text":"Yes."', 1))
    assert "the sha256 of an observation is not that of its text" in command(verify, folder)[1]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda run: (run / runs.SUMMARY).unlink(), "summary.json cannot be read (No such file or directory)"),
        (lambda run: (run / runs.SUMMARY).write_text('{"planned"'), "summary.json cannot be read (no JSON)"),
        (lambda run: (run / runs.SUMMARY).write_text("{}"), "summary.json is not as it was written"),
        (lambda run: (run / runs.RECORDS).unlink(), "trajectories.jsonl: No such file or directory"),
        (lambda run: (run / runs.RECORDS).write_text(""), "trajectories.jsonl holds no episodes"),
        (
            lambda run: (run / runs.RUN).write_text((run / runs.RUN).read_text().replace('"seed": 0', '"seed": 1')),
            "its configuration has another digest",
        ),
    ],
    ids=["no summary", "a torn one", "an empty one", "no records", "empty ones", "another seed"],
)
def test_a_finished_run_that_lacks_something_is_wrong_and_the_next_is_verified(spoil, said, tmp_path, command):
    folder = kit.play(tmp_path / "run")
    shutil.copytree(folder, tmp_path / "whole")
    spoil(folder)
    code, out, err = command(verify, folder, tmp_path / "whole")
    wrong, problem, sound = out.splitlines()
    assert (code, err) == (1, "") and wrong.startswith(f"DIFFERS {folder}: 0 episodes") and said in problem, out
    assert sound.startswith(f"ok      {tmp_path / 'whole'}: 8 episodes")


@pytest.mark.parametrize("what", ["nothing", "a folder", "a file", "an unfinished run"])
def test_what_is_no_row_is_refused_in_one_line(what, tmp_path, command):
    path = tmp_path / "it"
    if what == "a folder":
        path.mkdir()
    elif what == "a file":
        path.write_text("{}")
    elif what == "an unfinished run":
        kit.play(path)
        state = json.loads((path / runs.RUN).read_bytes())
        (path / runs.RUN).write_text(json.dumps({**state, "status": "interrupted"}))
    code, out, err = command(verify, path)
    assert code == 2 and not out and len(err.splitlines()) == 1 and str(path) in err


def test_a_drawn_protocol_is_drawn_again(tmp_path, command, monkeypatch):
    committed.pretend(monkeypatch)
    row = kit.listed(tmp_path, "--protocol", "paper", policy="spell:first=9")
    assert read_entry(row).protocol.draws and command(verify, row)[0] == 0

    def another(episodes):
        task = next(one for one in episodes if one["attempt"] == 0)
        last = max(one["attempt"] for one in episodes if one["task_id"] == task["task_id"])
        episodes[:] = [one for one in episodes if (one["task_id"], one["attempt"]) != (task["task_id"], last)]

    kit.edit_log(row, another)
    kit.sign(row)
    code, out, _ = command(verify, row)
    assert code == 1 and "split seen: task seen/000 was played " in out


def test_a_newer_row_is_refused(row, command):
    kit.edit_row(row, "schema_version", value=99)
    code, out, err = command(verify, row)
    assert code == 2 and "this version reads up to 1: pip install -U seed-suite" in err and not out
    assert Path(row).exists()


def test_a_success_without_a_turn_is_found(row, command):
    def edit(episodes):
        one = episodes[WORD]
        turns = len(one["actions"])
        one |= {"outcome": "success", "success": True, "score": 1.0}
        for key, value in one.items():
            if isinstance(value, (list, str)) and len(value) == turns and key not in ("task_id", "outcome"):
                one[key] = value[:0]
        one["observations"] = one["observations"][:1]
        if one.get("pixels"):
            one["pixels"] = one["pixels"][:1]

    kit.edit_log(row, edit)
    kit.sign(row)
    code, out, _ = command(verify, row)
    assert code == 1 and "attempt 1, at its beginning: an end without a turn: expected success" in out


def test_records_of_another_run_are_found(tmp_path, command):
    mine, other = kit.play(tmp_path / "mine"), kit.play(tmp_path / "other", policy="spell:first=9")
    for name in (runs.RECORDS, runs.SUMMARY):
        shutil.copy(other / name, mine / name)
    code, out, err = command(verify, mine)
    assert code == 1 and "is not of the run that" in out + err
    assert command(leaderboard, "add", mine, "--to", tmp_path / "board")[0] == 2


def test_a_report_overwrites_no_other_file_of_the_run(tmp_path, command):
    from harness import report

    folder = kit.play(tmp_path / "run")
    before = (folder / "run.json").read_bytes()
    code, _, err = command(report, folder, "--out", folder / "run.json")
    assert code == 2 and "ends in .html" in err and (folder / "run.json").read_bytes() == before
