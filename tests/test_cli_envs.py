"""``python -m seed_envs``: list, info, doctor, export and check, their exit codes and their one-line errors."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import toys
from toys import registered  # noqa: F401 (a fixture)

import seed_envs
from seed_envs.__main__ import COMMANDS, main
from seed_envs.alfworld import health as alfworld_health
from seed_envs.cli import catalogue, common
from seed_envs.cli.common import guarded
from seed_envs.errors import ConfigError, DataError, SeedError, UnknownName
from seed_envs.health import Finding, plays
from seed_envs.vector import EnvMaker

ALFWORLD, SEARCHQA, SOKOBAN, WEBSHOP = OURS = (
    "seed_envs/ALFWorld-v0",
    "seed_envs/SearchQA-v0",
    "seed_envs/Sokoban-v0",
    "seed_envs/WebShop-v0",
)
TOY = ("--plugin", "toy_suite:register")


CALLED = (
    "error: a plug-in, environment or policy called sys.exit({}); it is to raise an error instead; "
    "add --traceback to see where\n"
)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command in this process: (code, stdout, stderr)."""

    def run(*args: str | Path) -> tuple[int, str, str]:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(autouse=True)
def without_other_tests_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what modules of other tests registered when they were collected; one of them cannot be made."""
    for env_id in [env_id for env_id in gym.registry if env_id.startswith("evaltoy/")]:
        monkeypatch.delitem(gym.registry, env_id)


# --- exit codes and errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("two\nlines"), 2, "error: two lines\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "error: Permission denied: /x\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (BrokenPipeError(), 141, ""),
        (common.ParserExit(0), 0, ""),
        (SystemExit(0), 2, CALLED.format("0")),
        (SystemExit(), 2, CALLED.format("")),
        (SystemExit("no"), 2, CALLED.format("'no'")),
    ],
)
def test_guarded(capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str) -> None:
    def command() -> int:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "dup2", lambda *_: None)  # stdout is pytest's here
        assert guarded(command) == code
    assert capsys.readouterr().err == said


def test_guarded_leaves_bugs_alone_and_shows_tracebacks_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 // 0)

    def command() -> int:
        raise SeedError("no")

    assert guarded(command, show_traceback=True) == 2
    assert "Traceback" in capsys.readouterr().err


def test_usage(cli: Any) -> None:
    code, out, err = cli()
    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert cli("--version") == (0, seed_envs.__version__ + "\n", "")
    assert cli("dotcor") == (2, "", "error: unknown command 'dotcor'; did you mean doctor?\n")
    for name in COMMANDS:
        code, out, err = cli(name, "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"usage: python -m seed_envs {name}")


@pytest.mark.parametrize(
    "args", [("list", "--jsn"), ("info",), ("export", "alfworld"), ("fetch", "alfworld", "--dest")]
)
def test_wrong_arguments_are_one_line(cli: Any, args: tuple[str, ...]) -> None:
    code, out, err = cli(*args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.endswith(f"'python -m seed_envs {args[0]} --help' shows what can be given\n")


@pytest.mark.parametrize("command", [("list",), ("--help",), ("list", "--help"), ("info", "alfworld")])
def test_a_reader_that_leaves_is_no_error(cli_env: Any, tmp_path: Path, command: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "seed_envs", *command],
        cwd=tmp_path, env=cli_env(), stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, timeout=60,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_as_a_program_with_a_plugin_from_the_current_folder(run_cli: Any) -> None:
    code, out, _ = run_cli("seed_envs", "list", *TOY, cwd=toys.TOY_PLUGIN)
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert list(rows) == [*OURS, "toy/Counter-v0", "toy/Parrot-v0"]
    assert "valid_seen=140 valid_unseen=134" in rows[ALFWORLD]
    assert "train=3000 seen=128 unseen=160" in rows[SEARCHQA]
    assert "train=1074 dev=128 test=128 unseen=127" in rows[WEBSHOP]
    assert "train=3000 seen=128 unseen=128" in rows[SOKOBAN]
    assert "train=4" in rows["toy/Parrot-v0"]
    assert run_cli("seed_envs", "list", *TOY)[:2] == (2, "")


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [ALFWORLD, "ALFWorld-v0", "alfworld", "alfworld-v0", "seed_envs/alfworld", "seed_envs:seed_envs/ALFWorld-v0"],
)
def test_names_an_environment_answers_to(name: str) -> None:
    assert catalogue.resolve(name, catalogue.environment_ids()) == ALFWORLD


def test_names_that_fit_nothing_or_too_much() -> None:
    for env_id in ("a/Thing-v0", "a/Thing-v2", "b/Thing-v1"):
        if env_id not in gym.registry:
            gym.register(env_id, entry_point="nowhere:Thing")
    try:
        assert catalogue.resolve("thing", ["a/Thing-v0", "a/Thing-v2"]) == "a/Thing-v2"
        assert catalogue.resolve("THING-V0", ["a/Thing-v0", "a/Thing-v2"]) == "a/Thing-v0"
        with pytest.raises(ConfigError, match="a/Thing-v0 or b/Thing-v1"):
            catalogue.resolve("thing", ["a/Thing-v0", "b/Thing-v1"])
        with pytest.raises(UnknownName, match="a/Thing-v0"):
            catalogue.resolve("thign", ["a/Thing-v0", ALFWORLD])
    finally:
        for env_id in ("a/Thing-v0", "a/Thing-v2", "b/Thing-v1"):
            del gym.registry[env_id]


def test_gymnasiums_own_environments_are_not_listed() -> None:
    assert not [env_id for env_id in catalogue.environment_ids() if "CartPole" in env_id]


def test_settings() -> None:
    assert catalogue.parse_settings(ALFWORLD, ["data=3", "max_episode_steps=7"]) == {
        "data": "3",
        "max_episode_steps": 7,
    }
    for wrong in ("max_episode_steps=0", "max_episode_steps=true", "max_episode_steps=1.5", "split", "=x"):
        with pytest.raises(ConfigError):
            catalogue.parse_settings(ALFWORLD, [wrong])
    with pytest.raises(UnknownName, match="goal_style"):
        catalogue.parse_settings(ALFWORLD, ["goal_styel=human"])


# --- list and info ----------------------------------------------------------------------------------------------------


def test_list_json(cli: Any) -> None:
    code, out, err = cli("list", "--json")
    assert (code, err) == (0, "")
    rows = {row["id"]: row for row in json.loads(out)}
    row = rows[ALFWORLD]
    assert (row["max_episode_steps"], row["backends"], row["problem"]) == (30, ["native", "textworld"], "")
    assert row["splits"]["train"] >= 500
    assert (row["splits"]["valid_seen"], row["splits"]["valid_unseen"]) == (140, 134)
    row = rows[SOKOBAN]
    assert (row["max_episode_steps"], row["backends"], row["problem"]) == (15, ["native"], "")
    assert row["splits"] == {"train": 3000, "seen": 128, "unseen": 128}


def test_a_broken_environment_does_not_hide_the_others(cli: Any) -> None:
    gym.register("seed_envs/Broken-v0", entry_point="no_such_module:Broken", max_episode_steps=3)
    try:
        code, out, err = cli("list")
        assert code == 0
        assert all(env_id in out for env_id in OURS)
        assert "seed_envs/Broken-v0" in out
        assert "no_such_module" in err
        code, out, _ = cli("doctor", "broken", "--json")
        finding = next(f for f in json.loads(out) if f["subject"].startswith("seed_envs/Broken-v0"))
        assert (code, finding["status"]) == (1, "wrong")
        assert cli("info", "broken")[0] == 2
    finally:
        del gym.registry["seed_envs/Broken-v0"]


def test_info(cli: Any) -> None:
    code, out, err = cli("info", "alfworld")
    assert (code, err) == (0, "")
    for text in ("(version 0)", "## Action Space", "turn limit    30", "native, textworld", "goal_style", "Utf8("):
        assert text in out
    facts = json.loads(cli("info", "alfworld", "--json")[1])
    assert facts["arguments"] == {
        "data": "embedded", "split": "train", "backend": "native", "goal_style": "templated", "render_mode": None,
    }  # fmt: skip
    env = gym.make(ALFWORLD, split="valid_seen")
    split = facts["splits"]["valid_seen"]
    assert split["manifest_sha256"] == env.unwrapped.tasks.sha256  # type: ignore[attr-defined]
    assert sum(split["categories"].values()) == split["n"] == 140
    env.close()


def test_info_of_one_split_and_limit(cli: Any) -> None:
    facts = json.loads(cli("info", "alfworld", "--json", "max_episode_steps=50", "--split", "unseen")[1])
    assert list(facts["splits"]) == ["valid_unseen"]
    assert facts["max_episode_steps"] == 50


def test_info_of_official_data(cli: Any, alfworld_root: Path) -> None:
    facts = json.loads(cli("info", "alfworld", "--json", "--data", alfworld_root)[1])
    assert {split: row["n"] for split, row in facts["splits"].items()} == {"valid_seen": 140, "valid_unseen": 134}
    assert facts["splits"]["valid_seen"]["manifest"] == "alfworld-official/valid_seen"


# --- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_on_a_bare_machine(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> dict[str, str]:
        raise SeedError("no textworld here")

    monkeypatch.setattr(alfworld_health, "check_installed", absent)
    code, out, _ = cli("doctor", "alfworld")
    assert code == 0
    assert f"ok        {ALFWORLD} (default arguments): plays: the oracle reached the goal" in out
    assert (
        f"missing*  {ALFWORLD} data=official: {os.environ['SEED_DATA']}/alfworld (from SEED_DATA) does not exist" in out
    )
    assert "type: python -m seed_envs fetch alfworld" in out
    assert f"missing*  {ALFWORLD} backend=textworld: no textworld here" in out
    assert "type: pip install 'seed-suite[alfworld]'" in out
    assert "Java is not needed" in out
    assert not Path(os.environ["SEED_DATA"]).exists()
    assert not Path(os.environ["SEED_CACHE"]).exists()


def doctor(cli: Any) -> dict[str, Finding]:
    _, out, _ = cli("doctor", "alfworld", "--json")
    return {row["subject"]: Finding(**row) for row in json.loads(out)}


def test_doctor_on_official_data(cli: Any, alfworld_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(alfworld_root))
    findings = doctor(cli)
    official = f"{ALFWORLD} data=official"
    assert findings[official].message == f"{alfworld_root} (from ALFWORLD_DATA)"
    assert findings[f"{official} split=valid_seen"].status == "ok"
    assert findings[f"{official} split=valid_unseen"].message == "134 games, as released"
    assert findings[f"{official} split=train"].status == "missing"
    assert "3553" in findings[f"{official} split=train"].message


def test_doctor_on_half_a_root(cli: Any, alfworld_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    official = f"{ALFWORLD} data=official"
    assert doctor(cli)[official].message.endswith("has no json_2.1.1")
    games = sorted((alfworld_root / "json_2.1.1").glob("valid_*/*/*/game.tw-pddl"))
    seen = [game for game in games if "valid_seen" in game.parts]
    unseen = [game for game in games if "valid_unseen" in game.parts]
    for game, text in ((seen[0], None), (unseen[0], "{ torn")):
        copy = tmp_path / "json_2.1.1" / game.relative_to(alfworld_root / "json_2.1.1")
        copy.parent.mkdir(parents=True)
        copy.write_text(game.read_text() if text is None else text)
    findings = doctor(cli)
    assert findings[f"{official} split=valid_seen"].message == "1 games, the release has 140: 139 missing"
    assert findings[f"{official} split=valid_unseen"].status == "wrong"
    assert "not valid JSON" in findings[f"{official} split=valid_unseen"].message
    assert findings[f"{official} split=valid_unseen"].remedy.endswith("--force")


def test_doctor_on_a_cache_that_cannot_be_written(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEED_CACHE", str(tmp_path / "file" / "cache"))
    finding = doctor(cli)["cache folder"]
    assert (finding.status, finding.base) == ("missing", False)
    assert "SEED_CACHE" in finding.remedy


def test_doctor_finds_an_environment_whose_oracle_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    toys.toy_suite.register()
    assert plays(EnvMaker("toy/Counter-v0")).status == "ok"
    monkeypatch.setattr(toys.Counter, "oracle", lambda self: ["take 1"])
    assert plays(EnvMaker("toy/Counter-v0")).status == "wrong"
    monkeypatch.setattr(toys.Counter, "oracle", lambda self: 1 // 0)
    assert "ZeroDivisionError" in plays(EnvMaker("toy/Counter-v0")).message
    monkeypatch.delattr(toys.Counter, "oracle")
    assert "has no oracle" in plays(EnvMaker("toy/Counter-v0")).message


# --- export and check -------------------------------------------------------------------------------------------------


def test_export_and_play_what_was_written(cli: Any, shared: Path, tmp_path: Path) -> None:
    out_dir = tmp_path / "games"
    logic = shared / "data" / "alfworld"
    code, out, err = cli("export", "alfworld", "--split", "unseen", "--limit", "3", "--out", out_dir, "--logic", logic)
    assert code == 0
    assert "writing valid_unseen: 3 of 3 games" in err
    assert f"wrote 3 games of valid_unseen to {out_dir}\n" in out
    assert f"python -m seed_envs play {ALFWORLD} --data {out_dir} --split valid_unseen" in out
    assert len(list(out_dir.rglob("game.tw-pddl"))) == 3
    finding = plays(EnvMaker(ALFWORLD, {"data": str(out_dir), "split": "valid_unseen"}))
    assert finding.status == "ok", finding


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--split", "tests"), "unknown split 'tests'"),
        (("--split", "train", "--limit", "0"), "limit of 0"),
        (("--split", "train", "--limit", "some"), "'some'"),
        (("--split", "train", "--data", "nowhere"), "does not exist"),
        (("--split", "train", "--logic", "."), "alfred.pddl"),
    ],
)
def test_what_cannot_be_exported(cli: Any, tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    code, out, err = cli("export", "alfworld", "--out", tmp_path / "games", *args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert not (tmp_path / "games").exists()


def test_only_alfworld_is_exported(cli: Any, tmp_path: Path) -> None:
    code, _, err = cli("export", "counter", *TOY, "--split", "train", "--out", tmp_path)
    assert code == 2
    assert "no official format" in err


def test_check_passes_and_fails(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("check", "counter", *TOY, "--tasks", "2", "--only", "info", "--only", "oracle")
    code, out, _ = cli(*args)
    assert code == 0
    assert out.splitlines()[-1] == "toy/Counter-v0: keeps the contract"
    monkeypatch.setattr(toys.Counter, "oracle", lambda self: ["take 1"])
    code, out, _ = cli(*args, "--json")
    report = json.loads(out)
    assert (code, report["ok"]) == (1, False)
    assert [f["status"] for f in report["findings"]] == ["ok", "failed"]
    assert cli("check", "counter", *TOY, "--only", "everything")[0] == 2


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [30, 200])
def test_ids_are_whole_in_a_terminal_of_any_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    name = "package/" + "x" * 60
    common.table(("id", "text"), [(name, "words " * 30), ("[bold]", "a\nb")])
    out = capsys.readouterr().out
    assert name in out
    assert "[bold]" in out


def test_a_piped_table_has_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    common.table(("id", "text"), [("a", "words " * 90 + "end"), ("bb", "x\ny")])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:4] for line in lines] == ["id  ", "a   ", "bb  "]
    assert lines[2] == "bb  x y"


@pytest.mark.parametrize("terminal", [False, True])
def test_control_characters_reach_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    hostile = "\x1b[2J\x07\x9b1m\rover\u202eride"
    common.say(hostile)
    common.note(f"error: {hostile}")
    common.table(("name", "n"), [(hostile, "1")])
    common.say_json({hostile: [hostile]})
    out, err = capsys.readouterr()
    out = re.sub("\x1b\\[[0-9;]*m", "", out) if terminal else out  # our own, of the table's head
    assert all(text.replace("\n", "").isprintable() for text in (out, err))
    assert out.startswith("\\x1b[2J\\x07\\x9b1m\\x0dover\\u202eride\n")
    assert json.loads(out[out.index("{") :]) == {hostile: [hostile]}
    common.say("two\nlines\tand a tab, é 漢 😀")
    assert capsys.readouterr().out == "two\nlines\tand a tab, é 漢 😀\n"


def test_data_errors_keep_their_advice() -> None:
    assert common.one_line(DataError("a\n  b")) == "a b"
    assert common.one_line(ValueError()) == "ValueError"
