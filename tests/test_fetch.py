"""Official archives: brought once, unpacked safely, compared with the release, from a stand-in server."""

import errno
import functools
import io
import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import pytest
from download_server import StandIn, Waits, serve  # noqa: F401 (a fixture, `server`)

from seed_envs import fetch, paths
from seed_envs.__main__ import main
from seed_envs.alfworld.official import OfficialSource
from seed_envs.errors import DataError, UnknownName
from seed_envs.fetch import ALFWORLD

GAMES = ALFWORLD.archives[0]
TRIALS = ["valid_seen/look/trial_1", "valid_seen/look/trial_2", "valid_unseen/pick/trial_3", "train/heat/trial_4"]

fetch_alfworld = functools.partial(fetch.fetch, ALFWORLD)


def zipped(name: str, top: str = "json_2.1.1", *, extra: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for trial in TRIALS:
            file.writestr(f"{top}/{trial}/{name}", json.dumps({"trial": trial}))
            file.writestr(f"{top}/{trial}/initial_state.pddl", "not wanted")
        for path, text in (extra or {}).items():
            file.writestr(path, text)
    return buffer.getvalue()


@pytest.fixture
def official(server: StandIn) -> StandIn:
    _, notes = ALFWORLD.archives
    server.files["/" + GAMES.path] = zipped("game.tw-pddl", "json_2.1.3")
    server.files["/" + notes.path] = zipped("traj_data.json", extra={"json_2.1.1/tests_seen/x/y/traj_data.json": "{}"})
    return server


def test_fetch_puts_both_archives_in_one_place_and_once(official: StandIn, tmp_path: Path) -> None:
    first = fetch_alfworld(tmp_path, base_url=official.url)
    counts = {"train": 1, "valid_seen": 2, "valid_unseen": 1}
    assert first.counts == {"game-files": counts, "annotations": counts}
    assert first.new == ("game-files", "annotations")
    found = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    wanted = [f"json_2.1.1/{t}/{name}" for t in TRIALS for name in ("game.tw-pddl", "traj_data.json")]
    assert found == sorted([*wanted, "fetched.json"])
    asked = len(official.ranges)
    second = fetch_alfworld(tmp_path, base_url=official.url)
    assert (second.new, second.counts, len(official.ranges)) == ((), first.counts, asked)


def test_fetch_brings_back_what_was_deleted(official: StandIn, tmp_path: Path) -> None:
    fetch_alfworld(tmp_path, base_url=official.url)
    (tmp_path / "json_2.1.1" / TRIALS[0] / "game.tw-pddl").unlink()
    assert fetch_alfworld(tmp_path, base_url=official.url).new == ("game-files",)
    assert (tmp_path / "json_2.1.1" / TRIALS[0] / "game.tw-pddl").is_file()
    assert fetch_alfworld(tmp_path, base_url=official.url, force=True).new == ("game-files", "annotations")


def test_parts(official: StandIn, tmp_path: Path) -> None:
    assert fetch_alfworld(tmp_path, base_url=official.url, parts=["game-files"]).new == ("game-files",)
    assert not list(tmp_path.rglob("traj_data.json"))
    assert fetch_alfworld(tmp_path, base_url=official.url).new == ("annotations",)
    with pytest.raises(UnknownName, match="game-files"):
        fetch_alfworld(tmp_path, base_url=official.url, parts=["game-file"])


def test_zips_brought_by_hand_are_used_and_kept(official: StandIn, tmp_path: Path) -> None:
    for archive in ALFWORLD.archives:
        (tmp_path / archive.names[0]).write_bytes(official.files["/" + archive.path])
    fetch_alfworld(tmp_path, base_url="http://127.0.0.1:9")
    assert not official.ranges
    assert all((tmp_path / archive.names[0]).is_file() for archive in ALFWORLD.archives)
    steps = fetch.by_hand(ALFWORLD, tmp_path)
    assert sum(line.strip().startswith("https://github.com/alfworld/") for line in steps) == 2


def test_a_damaged_archive_is_fetched_once_more(official: StandIn, tmp_path: Path) -> None:
    good = official.files["/" + GAMES.path]
    bad = bytearray(good)
    bad[60] ^= 0xFF
    (tmp_path / ".fetch").mkdir()
    (tmp_path / ".fetch" / GAMES.names[0]).write_bytes(bytes(bad))
    assert fetch_alfworld(tmp_path, base_url=official.url).counts["game-files"]["valid_seen"] == 2


@pytest.mark.parametrize("kind", ["html", "cut", "flipped", "empty", "other"])
def test_an_archive_that_stays_damaged_puts_nothing_in_place(official: StandIn, tmp_path: Path, kind: str) -> None:
    path = "/" + GAMES.path
    good = official.files[path]
    flipped = bytearray(good)
    flipped[60] ^= 0xFF
    official.files[path] = {
        "html": b"<html>sign in</html>", "cut": good[: len(good) // 2], "flipped": bytes(flipped), "empty": b"",
        "other": zipped("something.else"),
    }[kind]  # fmt: skip
    with pytest.raises(DataError, match=r"json_2.1.3_tw-pddl.zip"):
        fetch_alfworld(tmp_path, base_url=official.url, sleep=Waits())
    assert len(official.ranges) == 2
    assert not list(tmp_path.rglob("game.tw-pddl"))
    assert not (tmp_path / "fetched.json").exists()
    official.files[path] = good
    assert fetch_alfworld(tmp_path, base_url=official.url).new == ("game-files", "annotations")


@pytest.mark.parametrize("inner", ["../evil", "a/..", "./b", "c\\..\\d/t", "/t"])
def test_unsafe_paths_are_refused(server: StandIn, tmp_path: Path, inner: str) -> None:
    path = tmp_path / GAMES.names[0]
    task = inner if inner.count("/") == 1 else f"{inner}/t"
    path.write_bytes(zipped("game.tw-pddl", extra={f"json/valid_seen/{task}/game.tw-pddl": "x"}))
    dest = tmp_path / "in" / "dest"
    dest.mkdir(parents=True)
    with pytest.raises(DataError, match="unsafe"):
        fetch.unpack(ALFWORLD, GAMES, path, dest)
    assert not list(tmp_path.rglob("game.tw-pddl"))


def test_folders_above_the_split_cannot_lead_out(tmp_path: Path) -> None:
    path = tmp_path / "z.zip"
    path.write_bytes(zipped("game.tw-pddl", "../../outside"))
    dest = tmp_path / "in" / "dest"
    dest.mkdir(parents=True)
    assert fetch.unpack(ALFWORLD, GAMES, path, dest) == len(TRIALS)
    assert all(p.is_relative_to(dest / "json_2.1.1") for p in tmp_path.rglob("game.tw-pddl"))


def test_a_disk_known_to_be_too_small_is_refused_before_the_download(
    official: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 5, 5))  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"full.*5 are free.*--dest"):
        fetch_alfworld(tmp_path, base_url=official.url)
    assert not [*tmp_path.rglob("*.part"), *tmp_path.rglob("*.zip")]


def test_a_disk_that_fills_up_keeps_what_arrived(
    official: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(what: str, done: int, total: int | None, unit: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="is full"):
        fetch_alfworld(tmp_path, base_url=official.url, report=full)
    assert list(tmp_path.rglob("*.part"))
    assert fetch_alfworld(tmp_path, base_url=official.url).new == ("game-files", "annotations")


def test_a_destination_that_is_a_file(official: StandIn, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="--dest"):
        fetch_alfworld(tmp_path / "file", base_url=official.url)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def three_games(server: StandIn, alfworld_root: Path) -> StandIn:
    """Serve three real valid_unseen games in the two official archives."""
    folder = alfworld_root / "json_2.1.1"
    trials = sorted((folder / "valid_unseen").glob("*/*"))[:3]
    for archive in ALFWORLD.archives:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            for trial in trials:
                name = archive.files.rpartition("/")[2]
                file.write(trial / name, f"json_2.1.2/{trial.relative_to(folder)}/{name}")
        server.files["/" + archive.path] = buffer.getvalue()
    return server


def test_the_command_fetches_compares_and_says_how_to_use_it(
    three_games: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEED_FETCH_BASE", three_games.url)
    dest = tmp_path / "data"
    assert main(["fetch", "alfworld", "--dest", str(dest)]) == 0
    out, err = capsys.readouterr()
    assert f"{dest}: fetched game-files, annotations\n" in out
    rows = [line.split(maxsplit=3) for line in out.splitlines()[2:5]]
    assert rows == [
        ["train", "0", "3553", "missing"],
        ["valid_seen", "0", "140", "missing"],
        ["valid_unseen", "3", "134", "131 missing"],
    ]
    assert f"--data {dest}" in out
    assert "unpacking json_2.1.3_tw-pddl.zip: 3 of 3 files" in err
    assert "\r" not in err
    env = gym.make("seed_envs:seed_envs/ALFWorld-v0", data=str(dest), split="valid_unseen", goal_style="human")
    env.reset(seed=1)
    env.close()
    assert main(["fetch", "alfworld", "--dest", str(dest)]) == 0
    assert "already there" in capsys.readouterr().out
    assert len(three_games.ranges) == 2


def test_the_command_goes_to_the_default_root(
    three_games: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", "alfworld", "--base-url", three_games.url + "/", "--only", "annotations"]) == 0
    assert "no game files yet" in capsys.readouterr().out
    assert main(["fetch", "alfworld", "--base-url", three_games.url, "--only", "game-files"]) == 0
    assert "export ALFWORLD_DATA" not in capsys.readouterr().out
    assert len(OfficialSource(paths.data_root("alfworld")).tasks("valid_unseen")) == 3


def test_a_root_that_another_program_filled_is_left_alone(alfworld_root: Path, tmp_path: Path) -> None:
    splits = ("valid_seen", "valid_unseen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "ALFWORLD", replace(ALFWORLD, groups=splits))
        for split in splits:
            (tmp_path / ALFWORLD.folder).mkdir(exist_ok=True)
            shutil.copytree(alfworld_root / ALFWORLD.folder / split, tmp_path / ALFWORLD.folder / split)
        assert fetch.fetch(fetch.ALFWORLD, tmp_path, base_url="http://127.0.0.1:9").new == ()
        next(tmp_path.rglob("game.tw-pddl")).unlink()
        with pytest.raises(DataError, match="cannot download"):
            fetch.fetch(fetch.ALFWORLD, tmp_path, base_url="http://127.0.0.1:9", sleep=Waits())


def test_the_command_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "alfworld", "--by-hand", "--only", "game-files", "--dest", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    assert "https://github.com/alfworld/alfworld/releases/download/0.4.2/json_2.1.3_tw-pddl.zip" in out
    assert f"python -m seed_envs fetch alfworld --dest {tmp_path / 'new'} --only game-files" in out
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["alfwold"], "did you mean alfworld?"),
        (["alfworld", "--only", "games"], "did you mean game-files?"),
        (["sokoban", "--only", "game-files"], "known: levels"),
        (["sales"], "known: alfworld, "),
        (["alfworld", "--base-url", "nowhere"], "expected an http or https address"),
    ],
)
def test_the_command_refuses_in_one_line(
    args: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", *args, "--dest", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
