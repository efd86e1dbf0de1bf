"""Run folders, in this process: resume at every byte, refusals, images, the lock."""

import json
from pathlib import Path

import eval_plugin  # noqa: F401  (registers the environment and policies)
import numpy as np
import pytest
from PIL import Image

from harness import config, eval, records, runs, summary
from harness.config import Options, make_plans
from seed_agent.train.rollouts import Stage
from seed_agent.train.settings import Settings
from seed_agent.trajectory import EnvRecord
from seed_envs.errors import ConfigError, DataError, UnknownName

SPELL = "evaltoy/Spell-v0"


def plan_of(folder: Path, policy: str = "spell:wavers", **options):
    chosen = {"envs": (SPELL,), "policies": (policy,), "out": folder, "settings": {"size": 4}, **options}
    return make_plans(Options(**chosen))[0]


def played(plan, **options):
    """Play a run to its end and return its summary bytes."""
    summary = eval._evaluate(plan, Options(**options), [], fresh=False)
    assert summary is not None
    return (plan.folder / runs.SUMMARY).read_bytes()


def lines(folder: Path):
    return (folder / runs.RECORDS).read_bytes().splitlines(keepends=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    return folder, played(plan_of(folder))


def copy_of(folder: Path, to: Path) -> Path:
    to.mkdir()
    for name in (runs.RUN, runs.RECORDS, runs.TASKS, runs.SUMMARY):
        (to / name).write_bytes((folder / name).read_bytes())
    return to


def test_summary_is_recomputable_from_the_records_alone(finished):
    folder, expected = finished
    again = summary.summarise(summary.read_records(folder / runs.RECORDS))
    assert summary.to_bytes(again) == expected
    assert again["n"] == 8 and again["complete"]


def test_resume_after_a_cut_at_any_byte(finished, tmp_path):
    """Whatever a kill leaves of the last lines, the run ends as if nothing had happened."""
    folder, expected = finished
    content = (folder / runs.RECORDS).read_bytes()
    tail = content.rfind(b"\n", 0, -1) + 1
    cuts = {0, 1, tail - 1, tail, tail + 1, len(content) - 2, len(content) - 1, *range(tail, len(content), 311)}
    for number, cut in enumerate(sorted(cuts)):
        run = copy_of(folder, tmp_path / f"cut{number}")
        (run / runs.RECORDS).write_bytes(content[:cut])
        assert played(plan_of(run)) == expected
        whole = content[: content.rfind(b"\n", 0, cut) + 1]
        assert len(lines(run)) == 8 and (run / runs.RECORDS).read_bytes().startswith(whole)


@pytest.mark.parametrize("tail", [b"\0" * 40, b'{"schema', b'{"schema"\n', b"\xff\xfe\n"])
def test_garbage_at_the_end_is_cut(finished, tmp_path, tail):
    run = copy_of(finished[0], tmp_path / "run")
    with (run / runs.RECORDS).open("ab") as file:
        file.write(tail)
    assert played(plan_of(run)) == finished[1]
    assert len(lines(run)) == 8


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda all_: [all_[0], b"oops\n", *all_[1:]], r"jsonl:2: not an episode record.*remove the line or.*--fresh"),
        (lambda all_: [all_[0], b"\xff\n", *all_[1:]], r"jsonl:2: "),
        (lambda all_: [*all_, all_[3]], r"jsonl:9: the episode .* is recorded twice"),
        (lambda all_: [all_[0].replace(b'"attempt":0', b'"attempt":7'), *all_[1:]], r"jsonl:1: .* is not one of this"),
        (lambda all_: [all_[0].replace(b'"policy":"spell', b'"policy":"tell'), *all_[1:]], r"jsonl:1: .* another task"),
        (lambda all_: [*all_, b"{}\n"], r"jsonl:9: not an episode record"),
    ],
)
def test_damaged_records_are_an_error_that_names_the_line(finished, tmp_path, edit, message):
    run = copy_of(finished[0], tmp_path / "run")
    content = b"".join(edit(lines(run)))
    (run / runs.RECORDS).write_bytes(content)
    with pytest.raises(DataError, match=message):
        played(plan_of(run))
    assert (run / runs.RECORDS).read_bytes() == content


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "spell:first=2"}, r'policy is "spell:wavers" there and "spell:first=2" now'),
        ({"seed": 1}, "seed is 0 there and 1 now"),
        ({"attempts": 2}, "attempts is 1 there and 2 now"),
        ({"max_turns": 5}, "max_turns is 6 there and 5 now"),
        ({"splits": ("seen",)}, r'splits is \["seen","unseen"\] there and \["seen"\] now'),
        ({"settings": {"size": 4, "image": True}}, "env.kwargs.image is null there and true now"),
        ({"settings": {"size": 5}}, r"tasks of seen now: 1 added \(seen/004\).*tasks of unseen now"),
        ({"settings": {"size": 1}}, r"3 missing \(seen/001, seen/002, seen/003\)"),
        ({"settings": {"size": 4, "edition": 2}}, r"4 changed \(seen/000, seen/001, seen/002 and 1 more\)"),
        ({"limit": "2"}, r"tasks of seen now: 2 missing"),
    ],
)
def test_a_folder_of_another_configuration_is_refused(finished, options, message):
    folder, expected = finished
    before = (folder / runs.RUN).read_bytes()
    with pytest.raises(ConfigError, match=message) as error:
        played(plan_of(folder, **options))
    assert "choose another --out, or start over with --fresh" in str(error.value)
    assert "\n" not in str(error.value)
    assert (folder / runs.RUN).read_bytes() == before and (folder / runs.SUMMARY).read_bytes() == expected


def test_a_changed_manifest_outside_the_tasks_played_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    ids = tmp_path / "ids"
    ids.write_text("seen/002\n")
    played(plan_of(folder, ids=ids))
    monkeypatch.setenv("SPELL_LESS", "1")
    with pytest.raises(ConfigError, match="tasks of seen now: others changed than those played"):
        played(plan_of(folder, ids=ids))


def test_what_does_not_decide_the_result_does_not_change_the_digest(tmp_path):
    base = plan_of(tmp_path)
    for options in (
        {"workers": 3},
        {"batch": 2},
        {"out": tmp_path / "x"},
        {"max_turns": 6},
        {"splits": ("unseen", "seen")},
    ):
        assert plan_of(**{"folder": tmp_path, **options}).digest == base.digest
    assert plan_of(tmp_path, settings={"size": 4, "image": False}).digest == base.digest  # typed, but the default
    different = [
        plan_of(tmp_path, **options).digest
        for options in ({"seed": 1}, {"attempts": 2}, {"max_turns": 5}, {"splits": ("seen",)}, {"limit": "3"})
    ]
    assert len({base.digest, *different}) == 6


def test_the_records_do_not_say_where_the_data_lie(tmp_path):
    here, there = (plan_of(tmp_path, data=f"/{name}") for name in "ab")
    assert here.splits[0].env.kwargs["data"] == "official" and here.digest == there.digest
    assert here.splits[0].maker.kwargs["data"] == "/a"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"data": "embedded"}, {"size": 4, "image": False}, {"data": "/a", "size": 6}],
    ids=["none", "data", "one at its default", "a folder"],
)
def test_training_records_the_environment_as_evaluation_does(arguments, tmp_path):
    others = {key: value for key, value in arguments.items() if key != "data"}
    plan = plan_of(tmp_path, settings=others, data=arguments.get("data", "embedded"), splits=("seen",), max_turns=5)
    stage = Stage(Settings(env=SPELL, env_args=arguments, max_turns=5), "seen", 1)
    stage.close()
    assert stage.record == plan.splits[0].env
    assert stage.record.kwargs == {
        "data": "official" if "/a" in arguments.values() else "embedded",
        "split": "seen",
        **({"size": 4} if others.get("size") == 4 else {}),
    }


def test_a_seed_reaches_tasks_and_episodes(tmp_path):
    """P34: every draw follows the seed."""
    plans = [plan_of(tmp_path, seed=seed, limit="3", settings={"size": 30}) for seed in (0, 1, 0)]
    ids = [plan.splits[0].tasks.ids for plan in plans]
    assert ids[0] == ids[2] != ids[1]
    seeds = [{request.seed for _, request in plan.episodes.values()} for plan in plans]
    assert seeds[0] == seeds[2] and not seeds[0] & seeds[1]


def test_fresh_starts_over_but_only_over_a_run(finished, tmp_path):
    run = copy_of(finished[0], tmp_path / "run")
    (run / "notes.txt").write_text("mine")
    assert eval._evaluate(plan_of(run, seed=1), Options(seed=1), [], fresh=True) is not None
    state = json.loads((run / runs.RUN).read_bytes())
    assert state["config"]["seed"] == 1 and len(state["provenance"]) == 1 and len(lines(run)) == 8
    assert (run / "notes.txt").read_text() == "mine"
    for name in ("data.csv", runs.SUMMARY, f"{runs.IMAGES}/x.png"):
        other = tmp_path / name.replace("/", "-")
        (other / name).parent.mkdir(parents=True)
        (other / name).write_text("precious")
        with pytest.raises(ConfigError, match="is no run of this program"):
            eval._evaluate(plan_of(other), Options(), [], fresh=True)
        assert (other / name).read_text() == "precious"


def test_a_start_killed_before_run_json_is_taken_up(finished, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / runs.RECORDS).touch()
    (folder / runs.TASKS).write_text("half")
    (folder / ".run.json.abc").write_text("{")
    assert played(plan_of(folder)) == finished[1]
    assert {path.name for path in folder.iterdir()} == {runs.RUN, runs.RECORDS, runs.SUMMARY, runs.REPORT, runs.TASKS}


def test_folders_inside_runs_and_files_are_refused(finished, tmp_path):
    for inside in (finished[0] / "a", finished[0] / "a" / "b"):
        with pytest.raises(ConfigError, match="lies inside the run"):
            played(plan_of(inside))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        played(plan_of(tmp_path / "file"))


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"schema_version": "x", "digest": 1, "config": 1}'])
def test_a_damaged_run_json_is_one_error(finished, tmp_path, content):
    run = copy_of(finished[0], tmp_path / "run")
    (run / runs.RUN).write_text(content)
    with pytest.raises(DataError, match=r"run\.json cannot be read"):
        played(plan_of(run))
    (run / runs.RUN).write_text('{"schema_version": 99, "digest": "", "config": {}, "provenance": []}')
    with pytest.raises(DataError, match="schema version 99"):
        played(plan_of(run))


def _without(key):
    def edit(state):
        del state[key]

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        _without("status"),
        lambda state: state.update(status=1),
        lambda state: state.update(provenance=[]),
        lambda state: state.update(provenance={}),
        lambda state: state.update(provenance=["x"]),
        lambda state: state["config"].update(seed=1),
        lambda state: state["config"].update(splits=[]),
        lambda state: state["config"]["splits"].update(seen=3),
        lambda state: state["config"]["splits"]["seen"].pop("manifest"),
        lambda state: state["config"].pop("splits"),
    ],
)
def test_an_edited_run_json_is_one_error(finished, tmp_path, edit):
    run = copy_of(finished[0], tmp_path / "run")
    state = json.loads((run / runs.RUN).read_bytes())
    edit(state)
    (run / runs.RUN).write_text(json.dumps(state))
    with pytest.raises(DataError, match=r"run\.json cannot be read"):
        played(plan_of(run))


def test_json_nested_too_deeply_is_no_traceback(finished, tmp_path):
    run = copy_of(finished[0], tmp_path / "run")
    with (run / runs.RECORDS).open("ab") as file:
        file.write(b"[" * 100_000 + b"\n")
    assert played(plan_of(run)) == finished[1]
    (run / runs.RUN).write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"run\.json cannot be read"):
        played(plan_of(run))


def test_records_changed_after_the_end_are_refused(finished, tmp_path):
    run = copy_of(finished[0], tmp_path / "run")
    content = (run / runs.RECORDS).read_bytes()
    changed = content.replace(b'"reply":"', b'"reply":"!', 1)
    (run / runs.RECORDS).write_bytes(changed)
    plan = plan_of(run)
    with pytest.raises(DataError, match=r"changed since the run was finished.*--fresh or choose another --out"):
        played(plan)
    with pytest.raises(DataError, match="changed since"):
        runs.kept(plan, runs.check(plan))  # --dry-run
    assert (run / runs.RECORDS).read_bytes() == changed and (run / runs.SUMMARY).read_bytes() == finished[1]
    (run / runs.RECORDS).write_bytes(content)
    assert played(plan) == finished[1]
    assert eval._evaluate(plan, Options(), [], fresh=True) is not None


def test_advice_is_given_once(finished, tmp_path):
    run = copy_of(finished[0], tmp_path / "run")
    content = (run / runs.RECORDS).read_bytes()
    (run / runs.RECORDS).write_bytes(content + lines(run)[0])
    with pytest.raises(DataError, match=r"twice; remove the line or start over with --fresh$"):
        played(plan_of(run))
    (run / runs.RECORDS).write_bytes(content.replace(b'"schema_version":1', b'"schema_version":99', 1))
    with pytest.raises(DataError, match=r"pip install -U seed-suite \(in a checkout: git pull\)$"):
        played(plan_of(run))


@pytest.mark.parametrize("name", [runs.SUMMARY, runs.RUN, runs.RECORDS])
def test_a_directory_in_the_place_of_a_file_is_refused(tmp_path, name):
    (tmp_path / "run" / name).mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"{name} is a directory; remove it or choose another --out"):
        played(plan_of(tmp_path / "run"))


def test_one_writer_at_a_time(tmp_path):
    plan = plan_of(tmp_path / "run")
    first = runs.Run(plan, options={}, provenance={"finished": None})
    with pytest.raises(ConfigError, match="another process is writing"):
        runs.Run(plan, options={}, provenance={"finished": None})
    first.close()
    played(plan)


def test_a_run_with_missing_episodes_cannot_be_finished(tmp_path):
    run = runs.Run(plan_of(tmp_path / "run"), options={}, provenance={"finished": None})
    with pytest.raises(DataError, match="0 of 8 episodes"):
        run.finish()
    run.close()
    assert not (tmp_path / "run" / runs.SUMMARY).exists()


def test_a_failed_write_takes_the_line_back(tmp_path, monkeypatch):
    file = records.Records(tmp_path / runs.RECORDS)
    file.append("first")
    real = records.os.write

    def half(fd, data):
        if len(data) > 3:
            return real(fd, data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records.os, "write", half)
    with pytest.raises(records.WriteFailed, match=r"No space left on device.*repeat the command"):
        file.append("second")
    monkeypatch.undo()
    assert (tmp_path / runs.RECORDS).read_text() == "first\n"
    file.append("third")
    file.close()
    assert (tmp_path / runs.RECORDS).read_text() == "first\nthird\n"


def test_images_are_kept_once_and_named_by_content(tmp_path):
    plan = plan_of(tmp_path / "run", "scripted:oracle", settings={"size": 4, "image": True})
    played(plan)
    files = sorted((plan.folder / runs.IMAGES).iterdir())
    assert len(files) == 5  # the pixels tell the letters left: 4 to 0
    seen = [e for e in summary.read_records(plan.folder / runs.RECORDS)]
    named = {
        image.file_sha256 for e in seen for s in (*(t.observation for t in e.turns), e.final) for image in s.images
    }
    assert {path.stem for path in files} == named
    with Image.open(files[0]) as image:
        assert image.size == (4, 4) and len(np.unique(np.asarray(image))) == 1
    assert eval._evaluate(plan, Options(), [], fresh=True) is not None
    assert sorted((plan.folder / runs.IMAGES).iterdir()) == files


def test_finished_episodes_are_not_played_again(finished, tmp_path):
    run = copy_of(finished[0], tmp_path / "run")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for _ in range(2):
        assert played(plan_of(run)) == finished[1]
        after = {path.name: path.read_bytes() for path in run.iterdir()}
        assert after == {**before, "report.html": after["report.html"]}
    (run / runs.SUMMARY).unlink()
    assert played(plan_of(run)) == finished[1]


def test_every_batch_size_plays_every_task_once(tmp_path):
    """P29: 10 tasks, 3 solved, whatever is played side by side."""
    found = set()
    for batch in (1, 3, 4, 10, 16):
        plan = plan_of(tmp_path / str(batch), "spell:first=3", splits=("seen",), settings={"size": 10})
        found.add(played(plan, batch=batch))
        ids = [json.loads(line)["task_id"] for line in lines(plan.folder)]
        assert sorted(ids) == [f"seen/{i:03}" for i in range(10)]
    split = json.loads(found.pop())["splits"]["seen"]
    assert not found and split["success"]["count"] == 3 and split["n"] == 10
    assert split["outcomes"]["generation_truncated"] == 7 and split["turn_rates"]["inadmissible"] > 0.5


def test_ids(tmp_path):
    path = tmp_path / "ids"
    path.write_text("# two of them\nunseen/003\n\nseen/001\n")
    plan = plan_of(tmp_path / "run", ids=path)
    assert [split.tasks.ids for split in plan.splits] == [("seen/001",), ("unseen/003",)]
    path.write_text("unseen/003\n", encoding="utf-8-sig")
    assert [split.name for split in plan_of(tmp_path / "run", ids=path).splits] == ["unseen"]
    for content, error, message in (
        ("", ConfigError, "lists no task"),
        ("# none\n", ConfigError, "lists no task"),
        ("seen/001\nseen/001\n", ConfigError, "lists seen/001 twice"),
        ("seen/00l\n", UnknownName, "did you mean seen/00"),
    ):
        path.write_text(content)
        with pytest.raises(error, match=message):
            plan_of(tmp_path / "run", ids=path)
    path.write_bytes(b"\xff")
    for bad in (path, tmp_path / "missing", tmp_path):
        with pytest.raises(ConfigError, match="cannot read"):
            plan_of(tmp_path / "run", ids=bad)


def test_slugs_are_safe_file_names():
    assert config.slug("scripted:noisy-oracle:0.3") == "scripted-noisy-oracle-0.3"
    long = config.slug("scripted:replay:" + "/very/long" * 30)
    assert len(long) == 80 and long != config.slug("scripted:replay:" + "/very/long" * 31)
    assert config.slug("../x") == "x"


@pytest.mark.parametrize(
    ("manifest", "where"),
    [
        ("alfworld-2.1.1/valid_seen", "official"),
        ("boxoban-local/unfiltered-test", "local"),
        ("webshop-local-small-synthetic-fixed/test", "local"),
        ("webshop-small-synthetic-fixed/test-local-", "official"),
    ],
)
def test_data_that_no_manifest_lists_are_called_local(manifest: str, where: str) -> None:
    record = EnvRecord(id="x", version="1", max_turns=None, manifest=manifest, manifest_sha256="")
    assert record.local == (where == "local")
