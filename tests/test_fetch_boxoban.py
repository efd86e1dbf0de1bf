"""The Boxoban levels, from a stand-in that serves them as GitHub does."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import pytest
from download_server import StandIn, Waits, serve  # noqa: F401 (a fixture, `server`)

from seed_envs import fetch, paths
from seed_envs.__main__ import main
from seed_envs.errors import DataError
from seed_envs.fetch import BOXOBAN
from seed_envs.sokoban import boxoban, health
from seed_envs.sokoban.boxoban import BoxobanLevels

ROOM = "\n".join(["#" * 10, "#@ ..    #", *["#        #"] * 4, "#  $$$$  #", "#   ..   #", "#        #", "#" * 10])
LEVELS = {"hard/000": 2, "medium/train/000": 1, "medium/train/001": 3, "unfiltered/test/000": 1}


def packed(levels: dict[str, int] = LEVELS, top: str = "boxoban-levels-master") -> bytes:
    """Return a zip like GitHub's of the repository, with so many levels per file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("README.md", "LICENSE", "hard.txt", "unfiltered/notes/000.txt"):
            file.writestr(f"{top}/{name}", "not wanted")
        for name, count in levels.items():
            file.writestr(f"{top}/{name}.txt", "".join(f"; {number}\n{ROOM}\n\n" for number in range(count)))
    return buffer.getvalue()


@pytest.fixture
def github(server: StandIn) -> StandIn:
    """Serve the archive as GitHub does: from another place, without a size."""
    server.moved["/" + BOXOBAN.archives[0].path] = f"{server.url}/codeload/zip/refs/heads/master"
    server.files["/codeload/zip/refs/heads/master"] = packed()
    server.sends = "chunked"
    return server


def test_boxoban_is_brought_once_to_where_it_is_read(github: StandIn, tmp_path: Path) -> None:
    first = fetch.fetch(BOXOBAN, tmp_path, base_url=github.url)
    counts = {"hard": 1, "medium/train": 2, "medium/valid": 0, "unfiltered/train": 0, "unfiltered/valid": 0}
    assert first.counts == {"levels": {**counts, "unfiltered/test": 1}}
    found = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert found == sorted([*(f"boxoban/{name}.txt" for name in LEVELS), "fetched.json"])
    levels = BoxobanLevels(tmp_path)
    sizes = {split: len(levels.tasks(split)) for split in levels.splits}
    assert sizes == {"hard": 2, "medium-train": 4, "unfiltered-test": 1}
    assert fetch.fetch(BOXOBAN, tmp_path, base_url="http://127.0.0.1:9").new == ()
    (tmp_path / "boxoban/hard/000.txt").unlink()
    assert fetch.fetch(BOXOBAN, tmp_path, base_url=github.url).new == ("levels",)
    assert (tmp_path / "boxoban/hard/000.txt").is_file()


def test_what_is_fetched_and_what_is_read_are_the_same_folders() -> None:
    assert BOXOBAN.groups == tuple(boxoban.FOLDERS.values())
    assert boxoban.FOLDERS.keys() == boxoban.RELEASED.keys()
    assert sum(boxoban.RELEASED.values()) == 1_504_332


def test_an_archive_cut_where_no_size_is_told_is_found_out_and_fetched_once_more(
    github: StandIn, tmp_path: Path
) -> None:
    github.sends, github.drops, github.cut = "closed", 1, 700
    assert fetch.fetch(BOXOBAN, tmp_path, base_url=github.url).counts["levels"]["hard"] == 1
    assert len(github.ranges) == 4
    github.drops = 2
    with pytest.raises(DataError, match=r"master\.zip is not what it should be.*no intact zip"):
        fetch.fetch(BOXOBAN, tmp_path / "new", base_url=github.url)
    assert not list((tmp_path / "new").rglob("*.txt"))


@pytest.mark.parametrize("name", ["boxoban-levels-master.zip", "master.zip"])
def test_the_levels_brought_by_hand_under_either_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(packed())
    assert fetch.fetch(BOXOBAN, tmp_path, base_url="http://127.0.0.1:9").new == ("levels",)
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize("evil", ["hard/..\\x.txt", "medium/train/c:x.txt"])
def test_unsafe_level_names_are_refused(tmp_path: Path, evil: str) -> None:
    (tmp_path / "master.zip").write_bytes(packed({**LEVELS, evil.removesuffix(".txt"): 1}))
    with pytest.raises(DataError, match="unsafe"):
        fetch.fetch(BOXOBAN, tmp_path)
    assert not list(tmp_path.rglob("*.txt"))


def test_another_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "master.zip").write_bytes(packed({"soft/000": 1}))
    with pytest.raises(DataError, match=r"holds no \*\.txt in hard, medium/train, .*expected the official archive"):
        fetch.fetch(BOXOBAN, tmp_path)


def test_levels_that_somebody_else_unpacked_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxoban, "RELEASED", {"hard": 1_001, "medium-train": 999})
    groups = ("hard", "medium/train")
    monkeypatch.setattr(fetch, "BOXOBAN", replace(BOXOBAN, groups=groups))
    for name in ("hard/000", "hard/001", "medium/train/000"):
        path = tmp_path / f"boxoban/{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"; 0\n{ROOM}\n")
    assert fetch.fetch(fetch.BOXOBAN, tmp_path, base_url="http://127.0.0.1:9").new == ()
    path.unlink()
    with pytest.raises(DataError, match="cannot download"):
        fetch.fetch(fetch.BOXOBAN, tmp_path, base_url="http://127.0.0.1:9", sleep=Waits())


def test_another_data_set_in_the_same_folder_is_not_forgotten(github: StandIn, tmp_path: Path) -> None:
    (tmp_path / "fetched.json").write_text('{"annotations": {"train": 3}}')
    fetch.fetch(BOXOBAN, tmp_path, base_url=github.url)
    assert json.loads((tmp_path / "fetched.json").read_text()).keys() == {"annotations", "levels"}


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_fetches_levels_and_they_are_played(
    github: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "type: python -m seed_envs fetch sokoban" in f"type: {health.doctor()[0].remedy}"
    monkeypatch.setenv("SEED_FETCH_BASE", github.url)
    assert main(["fetch", "sokoban"]) == 0
    out, err = capsys.readouterr()
    root = paths.data_root("sokoban")
    assert out.splitlines()[0] == f"{root}: fetched levels"
    rows = {line.split()[0]: line.split(maxsplit=3)[1:] for line in out.splitlines()[2:]}
    assert rows["hard"] == ["2", "3332", "3330 missing"]
    assert rows["unfiltered-train"] == ["0", "900000", "900000 missing"]
    assert len(rows) == 6
    assert "boxoban-levels-master.zip: 0.0 MB of 0.0 MB\n" in err
    assert "unpacking boxoban-levels-master.zip: 4 of 4 files" in err
    (finding,) = health.doctor()
    assert (finding.status, "hard 2 of 3332, medium-train 4 of" in finding.message) == ("ok", True)
    env = gym.make("seed_envs:seed_envs/Sokoban-v0", data="official", split="medium-train")
    _, info = env.reset(options={"task_id": "boxoban/medium/train/001/002"})
    assert info["extra"]["boxes"] == 4
    env.close()
    assert main(["fetch", "sokoban"]) == 0
    assert "already there" in capsys.readouterr().out


def test_a_complete_split_is_as_released(
    github: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(boxoban, "RELEASED", {"hard": 2, "medium-train": 3})
    assert main(["fetch", "sokoban", "--base-url", github.url, "--dest", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=3)[3] for line in out[2:4]] == ["as released", "1 more"]
    assert out[-1] == f"use it with --data {tmp_path}"


def test_levels_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "sokoban", "--by-hand", "--dest", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    assert "https://github.com/google-deepmind/boxoban-levels/archive/refs/heads/master.zip" in out
    assert f"python -m seed_envs fetch sokoban --dest {tmp_path / 'new'}\n" in out
