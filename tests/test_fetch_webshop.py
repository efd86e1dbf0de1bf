"""The WebShop files, from a stand-in that serves them as Google Drive does, pages of refusal included."""

from pathlib import Path

import pytest
from download_server import StandIn, Waits, serve  # noqa: F401 (a fixture, `server`)

from seed_envs import fetch, paths
from seed_envs.__main__ import main
from seed_envs.errors import DataError
from seed_envs.fetch import WEBSHOP
from seed_envs.webshop import official
from seed_envs.webshop.catalogue import open_catalogue
from seed_envs.webshop.generator import write_official

SMALL = ("small-products", "small-attributes", "human")
FULL = ("items_shuffle.json", "items_ins_v2.json")
PAGE = b"<!DOCTYPE html><html>Google Drive - Quota exceeded</html>"


@pytest.fixture
def drive(server: StandIn, tmp_path: Path) -> StandIn:
    """Serve a generated catalogue as the official files."""
    write_official(tmp_path / "made", 20)
    for path in sorted((tmp_path / "made").iterdir()):
        server.files[f"/{path.name}"] = path.read_bytes()
    for name, small in zip(FULL, ("items_shuffle_1000.json", "items_ins_v2_1000.json"), strict=True):
        server.files[f"/{name}"] = server.files[f"/{small}"]
    return server


def test_files_are_brought_once_to_where_they_are_read(drive: StandIn, tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = fetch.fetch(WEBSHOP, root, base_url=drive.url)
    assert first.new == (*SMALL, "full-products", "full-attributes")
    assert sorted(p.name for p in root.iterdir()) == sorted([*(a.path for a in WEBSHOP.archives), "fetched.json"])
    assert len(open_catalogue(str(root))) == 20
    asked = len(drive.ranges)
    assert fetch.fetch(WEBSHOP, root, base_url=drive.url).new == ()
    assert len(drive.ranges) == asked
    (root / "items_human_ins.json").unlink()
    assert fetch.fetch(WEBSHOP, root, base_url=drive.url).new == ("human",)
    assert fetch.fetch(WEBSHOP, root, base_url=drive.url, force=True, parts=["human"]).new == ("human",)


def test_only_the_small_catalogue(drive: StandIn, tmp_path: Path) -> None:
    fetch.fetch(WEBSHOP, tmp_path / "root", base_url=drive.url, parts=SMALL)
    assert not [name for name in FULL if (tmp_path / "root" / name).exists()]
    assert len(drive.ranges) == 3


def test_a_page_in_place_of_a_file_is_found_out(drive: StandIn, tmp_path: Path) -> None:
    good = drive.files["/items_human_ins.json"]
    drive.files["/items_human_ins.json"] = PAGE
    with pytest.raises(
        DataError, match=r"items_human_ins\.json is not what it should be: .*<!DOCTYPE html.*--by-hand"
    ) as told:
        fetch.fetch(WEBSHOP, tmp_path / "root", base_url=drive.url, parts=SMALL)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "root/items_human_ins.json").exists()
    assert len(drive.ranges) == 4  # once more before giving up
    drive.files["/items_human_ins.json"] = good
    assert fetch.fetch(WEBSHOP, tmp_path / "root", base_url=drive.url, parts=SMALL).new == ("human",)


def test_an_interrupted_download_goes_on(drive: StandIn, tmp_path: Path) -> None:
    drive.drops, drive.cut = 2, 500
    fetch.fetch(WEBSHOP, tmp_path / "root", base_url=drive.url, parts=SMALL, sleep=Waits())
    assert drive.ranges[:3] == [None, "bytes=500-", "bytes=1000-"]
    assert (tmp_path / "root/items_shuffle_1000.json").read_bytes() == drive.files["/items_shuffle_1000.json"]


def test_files_brought_by_hand_are_left_alone_and_torn_ones_are_not(drive: StandIn, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name in ("items_shuffle_1000.json", "items_ins_v2_1000.json", "items_human_ins.json"):
        (root / name).write_bytes(drive.files[f"/{name}"])
    assert fetch.fetch(WEBSHOP, root, base_url="http://127.0.0.1:9", parts=SMALL).new == ()
    (root / "items_ins_v2_1000.json").write_bytes(drive.files["/items_ins_v2_1000.json"][:1000])
    (root / "items_human_ins.json").write_bytes(PAGE)
    assert fetch.fetch(WEBSHOP, root, base_url=drive.url, parts=SMALL).new == ("small-attributes", "human")
    assert (root / "items_human_ins.json").read_bytes() == drive.files["/items_human_ins.json"]


def test_the_command(drive: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SEED_FETCH_BASE", drive.url)
    only = [word for part in SMALL for word in ("--only", part)]
    assert main(["fetch", "webshop", *only]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{paths.data_root('webshop')}: fetched {', '.join(SMALL)}"
    rows = {line.split()[0]: line.split(maxsplit=3)[1:] for line in out[2:]}
    found = official.count_goals(paths.data_root("webshop"), "small-synthetic")
    assert rows["small-synthetic"] == [str(found), "6910", f"{6910 - found} missing"]
    assert rows["small-human"] == ["20", "13", "7 more"]
    assert rows["full-human"] == ["0", "12087", "12087 missing"]


def test_as_released(drive: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch.fetch(WEBSHOP, tmp_path / "root", base_url=drive.url)
    monkeypatch.setattr(official, "RELEASED", {"small-human": 20, "full-human": 21})
    assert WEBSHOP.compare(tmp_path / "root") == [("small-human", 20, 20, ""), ("full-human", 20, 21, "1 missing")]


def test_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "webshop", "--by-hand", "--only", "small-products"]) == 0
    out = capsys.readouterr().out
    assert "https://drive.usercontent.google.com/download?id=1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib&" in out
    assert main(["fetch", "webshop", "--by-hand", "--base-url", "http://mirror/webshop/"]) == 0
    assert "   http://mirror/webshop/items_ins_v2.json  as items_ins_v2.json\n" in capsys.readouterr().out


def test_addresses_are_those_of_the_official_script() -> None:
    assert all("id=1" in a.address and a.path.startswith("items_") for a in WEBSHOP.archives)
    assert len({a.address for a in WEBSHOP.archives}) == len({a.part for a in WEBSHOP.archives}) == 5
