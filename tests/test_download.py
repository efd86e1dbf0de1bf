"""Downloads that are dropped, cut, refused and redirected, against a stand-in server on this machine."""

from pathlib import Path

import pytest
from download_server import BODY, StandIn, Waits, serve  # noqa: F401 (a fixture, `server`)

from seed_envs.download import RETRIES, download
from seed_envs.errors import ConfigError, DataError


def get(server: StandIn, target: Path, waits: Waits | None = None) -> bytes:
    download(server.url + "/a.zip", target, sleep=Waits() if waits is None else waits)
    assert sorted(p.name for p in target.parent.iterdir()) == [target.name]
    return target.read_bytes()


def test_a_plain_download_reports_progress(server: StandIn, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None, str]] = []
    download(server.url + "/a.zip", tmp_path / "a.zip", report=lambda *told: seen.append(told))
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
        download(server.url + "/a.zip", tmp_path / "a.zip", report=stop)
    have = (tmp_path / "a.zip.part").stat().st_size
    assert 100_000 < have < len(BODY)
    assert get(server, tmp_path / "a.zip") == BODY
    assert server.ranges == [None, f"bytes={have}-"]


def test_a_server_that_ignores_range_is_read_from_the_start(server: StandIn, tmp_path: Path) -> None:
    server.honours_range, server.drops = False, 2
    assert get(server, tmp_path / "a.zip") == BODY


def test_without_a_size_a_drop_is_noticed_and_the_download_starts_over(server: StandIn, tmp_path: Path) -> None:
    server.sends, server.drops, waits = "chunked", 2, Waits()
    seen: list[tuple[int, int | None]] = []
    download(server.url + "/a.zip", tmp_path / "a.zip", report=lambda *told: seen.append(told[1:3]), sleep=waits)
    assert (tmp_path / "a.zip").read_bytes() == BODY
    assert waits == [1.0, 2.0]  # the second drop brought nothing new
    assert len(server.ranges) == 3
    assert seen[0][1] is None
    assert seen[-1] == (len(BODY), len(BODY))


def test_without_a_size_drops_end_too_and_what_arrived_is_no_half_of_the_next(server: StandIn, tmp_path: Path) -> None:
    server.sends, server.drops = "chunked", 100
    with pytest.raises(DataError, match="if the server lets it"):
        download(server.url + "/a.zip", tmp_path / "a.zip", sleep=Waits())
    assert (tmp_path / "a.zip.part").stat().st_size == 100_000
    server.drops = 0
    assert get(server, tmp_path / "a.zip") == BODY


def test_redirects_are_followed(server: StandIn, tmp_path: Path) -> None:
    server.moved["/old.zip"], server.sends = server.url + "/a.zip", "chunked"
    download(server.url + "/old.zip", tmp_path / "a.zip", sleep=Waits())
    assert (tmp_path / "a.zip").read_bytes() == BODY


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
        download(server.url + "/a.zip", tmp_path / "a.zip", sleep=waits)
    assert len(waits) == RETRIES


def test_a_server_that_starts_over_every_time_ends_too(server: StandIn, tmp_path: Path) -> None:
    server.drops, server.honours_range = 100, False
    with pytest.raises(DataError, match=r"of 307200 bytes|peer closed"):
        download(server.url + "/a.zip", tmp_path / "a.zip", sleep=Waits())
    assert (tmp_path / "a.zip.part").stat().st_size == 100_000


def test_a_missing_file_is_not_asked_for_twice(server: StandIn, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"404.*--base-url"):
        download(server.url + "/gone.zip", tmp_path / "a.zip", sleep=Waits())
    assert len(server.ranges) == 1


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a.zip", "nowhere", "http://"])
def test_an_address_that_is_none_is_refused_at_once(tmp_path: Path, url: str) -> None:
    waits = Waits()
    with pytest.raises(ConfigError, match="http"):
        download(url, tmp_path / "a.zip", sleep=waits)
    assert not waits


def test_no_server_at_all(tmp_path: Path) -> None:
    gone = StandIn()
    url = gone.url
    gone.server_close()
    with pytest.raises(DataError, match="cannot download"):
        download(url + "/a.zip", tmp_path / "a.zip", sleep=Waits())
