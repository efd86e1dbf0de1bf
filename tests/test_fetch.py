"""Downloads that are dropped, cut, refused and damaged, against a stand-in server on this machine."""

import errno
import io
import json
import shutil
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gymnasium as gym
import pytest

from seed_envs import fetch, paths
from seed_envs.__main__ import main
from seed_envs.alfworld.official import OfficialSource
from seed_envs.errors import ConfigError, DataError, UnknownName

BODY = bytes(range(256)) * 1200
TRIALS = ["valid_seen/look/trial_1", "valid_seen/look/trial_2", "valid_unseen/pick/trial_3", "train/heat/trial_4"]


class StandIn(ThreadingHTTPServer):
    """Serves ``files`` and misbehaves as told; ``ranges`` records the Range headers asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.drops = 0  # answers still to be cut short
        self.cut = 100_000  # bytes sent before a drop
        self.failures: list[int] = []  # statuses still to be answered
        self.honours_range = True
        self.claims = 0  # the size a Content-Range states, where it is not the true one
        self.etag = '"one"'

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        server = self.server
        asked = self.headers.get("Range")
        server.ranges.append(asked)
        if server.failures:
            self.send_error(server.failures.pop(0))
            return
        body = server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        start = int(asked[6:-1]) if asked and server.honours_range else 0
        if self.headers.get("If-Range", server.etag) != server.etag:
            start = 0
        if start and start >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{server.claims or len(body)}")
        if server.etag:
            self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if server.drops:
            server.drops -= 1
            self.wfile.write(body[start : start + server.cut])
            self.close_connection = True
            return
        self.wfile.write(body[start:])

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def server() -> Iterator[StandIn]:
    stand_in = StandIn()
    stand_in.files["/a.zip"] = BODY
    thread = threading.Thread(target=stand_in.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield stand_in
    stand_in.shutdown()
    stand_in.server_close()


class Waits(list[float]):
    """A ``sleep`` that only notes how long it should have been."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


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
    games, notes = fetch.ALFWORLD
    server.files["/" + games.path] = zipped("game.tw-pddl", "json_2.1.3")
    server.files["/" + notes.path] = zipped("traj_data.json", extra={"json_2.1.1/tests_seen/x/y/traj_data.json": "{}"})
    return server


def get(server: StandIn, target: Path, waits: Waits | None = None) -> bytes:
    fetch.download(server.url + "/a.zip", target, sleep=Waits() if waits is None else waits)
    assert sorted(p.name for p in target.parent.iterdir()) == [target.name]
    return target.read_bytes()


def test_a_plain_download_reports_progress(server: StandIn, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None, str]] = []
    fetch.download(server.url + "/a.zip", tmp_path / "a.zip", report=lambda *told: seen.append(told))
    assert (tmp_path / "a.zip").read_bytes() == BODY
    assert seen[-1] == ("a.zip", len(BODY), len(BODY), "bytes")
    assert [told[1] for told in seen] == sorted(told[1] for told in seen)


def test_dropped_connections_are_resumed(server: StandIn, tmp_path: Path) -> None:
    server.drops, waits = 3, Waits()
    assert get(server, tmp_path / "a.zip", waits) == BODY
    assert server.ranges == [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"]
    assert waits == [1.0] * 3


def test_an_interrupted_download_is_resumed_by_the_next_call(server: StandIn, tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int | None, unit: str) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.download(server.url + "/a.zip", tmp_path / "a.zip", report=stop)
    have = (tmp_path / "a.zip.part").stat().st_size
    assert 100_000 < have < len(BODY)
    assert get(server, tmp_path / "a.zip") == BODY
    assert server.ranges == [None, f"bytes={have}-"]


def test_a_server_that_ignores_range_is_read_from_the_start(server: StandIn, tmp_path: Path) -> None:
    server.honours_range, server.drops = False, 2
    assert get(server, tmp_path / "a.zip") == BODY


def test_a_file_that_changed_meanwhile_is_not_joined_to_the_old_half(server: StandIn, tmp_path: Path) -> None:
    (tmp_path / "a.zip.part").write_bytes(b"old" * 100)
    (tmp_path / "a.zip.part.tag").write_text('"older"')
    assert get(server, tmp_path / "a.zip") == BODY


@pytest.mark.parametrize("size", [len(BODY), len(BODY) + 5])
def test_416_means_complete_or_start_again(server: StandIn, tmp_path: Path, size: int) -> None:
    (tmp_path / "a.zip.part").write_bytes((BODY + b"trash")[:size])
    assert get(server, tmp_path / "a.zip") == BODY
    assert len(server.ranges) == (1 if size == len(BODY) else 2)


def test_a_range_answered_with_the_wrong_size_is_asked_about_again(server: StandIn, tmp_path: Path) -> None:
    server.claims = len(BODY) - 7
    (tmp_path / "a.zip.part").write_bytes(BODY[:1000])
    assert get(server, tmp_path / "a.zip") == BODY
    assert server.ranges == ["bytes=1000-", f"bytes={len(BODY)}-"]


def test_passing_server_errors_are_waited_out(server: StandIn, tmp_path: Path) -> None:
    server.failures, waits = [503, 429, 500], Waits()
    assert get(server, tmp_path / "a.zip", waits) == BODY
    assert waits == [2.0, 4.0, 8.0]


def test_attempts_that_bring_nothing_end(server: StandIn, tmp_path: Path) -> None:
    server.drops, server.cut, waits = 100, 0, Waits()
    with pytest.raises(DataError, match="--by-hand"):
        fetch.download(server.url + "/a.zip", tmp_path / "a.zip", sleep=waits)
    assert len(waits) == fetch.RETRIES


def test_a_server_that_starts_over_every_time_ends_too(server: StandIn, tmp_path: Path) -> None:
    server.drops, server.honours_range = 100, False
    with pytest.raises(DataError, match=r"of 307200 bytes|peer closed"):
        fetch.download(server.url + "/a.zip", tmp_path / "a.zip", sleep=Waits())
    assert (tmp_path / "a.zip.part").stat().st_size == 100_000


def test_a_missing_file_is_not_asked_for_twice(server: StandIn, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"404.*--base-url"):
        fetch.download(server.url + "/gone.zip", tmp_path / "a.zip", sleep=Waits())
    assert len(server.ranges) == 1


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a.zip", "nowhere", "http://"])
def test_an_address_that_is_none_is_refused_at_once(tmp_path: Path, url: str) -> None:
    waits = Waits()
    with pytest.raises(ConfigError, match="http"):
        fetch.download(url, tmp_path / "a.zip", sleep=waits)
    assert not waits


def test_no_server_at_all(tmp_path: Path) -> None:
    gone = StandIn()
    url = gone.url
    gone.server_close()
    with pytest.raises(DataError, match="cannot download"):
        fetch.download(url + "/a.zip", tmp_path / "a.zip", sleep=Waits())


def test_fetch_puts_both_archives_in_one_place_and_once(official: StandIn, tmp_path: Path) -> None:
    first = fetch.fetch_alfworld(tmp_path, base_url=official.url)
    counts = {"train": 1, "valid_seen": 2, "valid_unseen": 1}
    assert first.counts == {"game-files": counts, "annotations": counts}
    assert first.new == ("game-files", "annotations")
    found = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    wanted = [f"json_2.1.1/{t}/{name}" for t in TRIALS for name in ("game.tw-pddl", "traj_data.json")]
    assert found == sorted([*wanted, "fetched.json"])
    asked = len(official.ranges)
    second = fetch.fetch_alfworld(tmp_path, base_url=official.url)
    assert (second.new, second.counts, len(official.ranges)) == ((), first.counts, asked)


def test_fetch_brings_back_what_was_deleted(official: StandIn, tmp_path: Path) -> None:
    fetch.fetch_alfworld(tmp_path, base_url=official.url)
    (tmp_path / "json_2.1.1" / TRIALS[0] / "game.tw-pddl").unlink()
    assert fetch.fetch_alfworld(tmp_path, base_url=official.url).new == ("game-files",)
    assert (tmp_path / "json_2.1.1" / TRIALS[0] / "game.tw-pddl").is_file()
    assert fetch.fetch_alfworld(tmp_path, base_url=official.url, force=True).new == ("game-files", "annotations")


def test_parts(official: StandIn, tmp_path: Path) -> None:
    assert fetch.fetch_alfworld(tmp_path, base_url=official.url, parts=["game-files"]).new == ("game-files",)
    assert not list(tmp_path.rglob("traj_data.json"))
    assert fetch.fetch_alfworld(tmp_path, base_url=official.url).new == ("annotations",)
    with pytest.raises(UnknownName, match="game-files"):
        fetch.fetch_alfworld(tmp_path, base_url=official.url, parts=["game-file"])


def test_zips_brought_by_hand_are_used_and_kept(official: StandIn, tmp_path: Path) -> None:
    for archive in fetch.ALFWORLD:
        (tmp_path / archive.name).write_bytes(official.files["/" + archive.path])
    fetch.fetch_alfworld(tmp_path, base_url="http://127.0.0.1:9")
    assert not official.ranges
    assert all((tmp_path / archive.name).is_file() for archive in fetch.ALFWORLD)
    steps = fetch.by_hand(tmp_path)
    assert sum(line.strip().startswith("https://github.com/alfworld/") for line in steps) == 2


def test_a_damaged_archive_is_fetched_once_more(official: StandIn, tmp_path: Path) -> None:
    games = fetch.ALFWORLD[0]
    good = official.files["/" + games.path]
    bad = bytearray(good)
    bad[60] ^= 0xFF
    (tmp_path / ".fetch").mkdir()
    (tmp_path / ".fetch" / games.name).write_bytes(bytes(bad))
    assert fetch.fetch_alfworld(tmp_path, base_url=official.url).counts["game-files"]["valid_seen"] == 2


@pytest.mark.parametrize("kind", ["html", "cut", "flipped", "empty", "other"])
def test_an_archive_that_stays_damaged_puts_nothing_in_place(official: StandIn, tmp_path: Path, kind: str) -> None:
    path = "/" + fetch.ALFWORLD[0].path
    good = official.files[path]
    flipped = bytearray(good)
    flipped[60] ^= 0xFF
    official.files[path] = {
        "html": b"<html>sign in</html>", "cut": good[: len(good) // 2], "flipped": bytes(flipped), "empty": b"",
        "other": zipped("something.else"),
    }[kind]  # fmt: skip
    with pytest.raises(DataError, match=r"json_2.1.3_tw-pddl.zip"):
        fetch.fetch_alfworld(tmp_path, base_url=official.url, sleep=Waits())
    assert len(official.ranges) == 2
    assert not list(tmp_path.rglob("game.tw-pddl"))
    assert not (tmp_path / "fetched.json").exists()
    official.files[path] = good
    assert fetch.fetch_alfworld(tmp_path, base_url=official.url).new == ("game-files", "annotations")


@pytest.mark.parametrize("inner", ["../evil", "a/..", "./b", "c\\..\\d/t", "/t"])
def test_unsafe_paths_are_refused(server: StandIn, tmp_path: Path, inner: str) -> None:
    archive = fetch.ALFWORLD[0]
    path = tmp_path / archive.name
    task = inner if inner.count("/") == 1 else f"{inner}/t"
    path.write_bytes(zipped("game.tw-pddl", extra={f"json/valid_seen/{task}/game.tw-pddl": "x"}))
    dest = tmp_path / "in" / "dest"
    dest.mkdir(parents=True)
    with pytest.raises(DataError, match="unsafe"):
        fetch.unpack(archive, path, dest)
    assert not list(tmp_path.rglob("game.tw-pddl"))


def test_folders_above_the_split_cannot_lead_out(tmp_path: Path) -> None:
    archive = fetch.ALFWORLD[0]
    path = tmp_path / "z.zip"
    path.write_bytes(zipped("game.tw-pddl", "../../outside"))
    dest = tmp_path / "in" / "dest"
    dest.mkdir(parents=True)
    assert fetch.unpack(archive, path, dest) == len(TRIALS)
    assert all(p.is_relative_to(dest / "json_2.1.1") for p in tmp_path.rglob("game.tw-pddl"))


def test_a_disk_known_to_be_too_small_is_refused_before_the_download(
    official: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 5, 5))  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"full.*5 are free.*--dest"):
        fetch.fetch_alfworld(tmp_path, base_url=official.url)
    assert not [*tmp_path.rglob("*.part"), *tmp_path.rglob("*.zip")]


def test_a_disk_that_fills_up_keeps_what_arrived(
    official: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(what: str, done: int, total: int | None, unit: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="is full"):
        fetch.fetch_alfworld(tmp_path, base_url=official.url, report=full)
    assert list(tmp_path.rglob("*.part"))
    assert fetch.fetch_alfworld(tmp_path, base_url=official.url).new == ("game-files", "annotations")


def test_a_destination_that_is_a_file(official: StandIn, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="--dest"):
        fetch.fetch_alfworld(tmp_path / "file", base_url=official.url)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def three_games(server: StandIn, alfworld_root: Path) -> StandIn:
    """Serve three real valid_unseen games in the two official archives."""
    folder = alfworld_root / "json_2.1.1"
    trials = sorted((folder / "valid_unseen").glob("*/*"))[:3]
    for archive in fetch.ALFWORLD:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            for trial in trials:
                file.write(trial / archive.member, f"json_2.1.2/{trial.relative_to(folder)}/{archive.member}")
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
    games = fetch.ALFWORLD[0]
    splits = ("valid_seen", "valid_unseen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "ALFWORLD_SPLITS", splits)
        for split in splits:
            (tmp_path / fetch.FOLDER).mkdir(exist_ok=True)
            shutil.copytree(alfworld_root / fetch.FOLDER / split, tmp_path / fetch.FOLDER / split)
        assert fetch.fetch_alfworld(tmp_path, base_url="http://127.0.0.1:9").new == ()
        next(tmp_path.rglob(games.member)).unlink()
        with pytest.raises(DataError, match="cannot download"):
            fetch.fetch_alfworld(tmp_path, base_url="http://127.0.0.1:9", sleep=Waits())


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
