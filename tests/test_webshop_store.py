"""Stores: the same shop as in memory, refused when torn or of other files, and never half there."""

import json
import multiprocessing
import os
import pickle
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from seed_envs import paths
from seed_envs.__main__ import main
from seed_envs.errors import DataError, SeedError, UnknownName
from seed_envs.search import build_index, seal
from seed_envs.webshop import store, store_build
from seed_envs.webshop.catalogue import MemoryCatalogue, embedded, open_catalogue
from seed_envs.webshop.generator import write_official
from seed_envs.webshop.product import Product
from seed_envs.webshop.store import StoredCatalogue, open_store, store_folder
from seed_envs.webshop.store_build import build_official, build_store

QUERIES = ("wireless headphones black", "x-large", "gluten free", "", "the of", "\ud800 \x00 \u2603", "hair " * 500)


def products(count: int = 60) -> list[Product]:
    return [embedded().product(asin) for asin in embedded().asins[:count]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "shop"
    build_store(products(), folder, name="some")
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the store to be damaged."""
    return Path(shutil.copytree(built, tmp_path / "shop"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a data root with official files of 40 generated products."""
    write_official(tmp_path / "data", 40)
    return tmp_path / "data"


def everything(shop: MemoryCatalogue | StoredCatalogue) -> list[object]:
    found: list[object] = [shop.search(query, k) for query in QUERIES for k in (0, 1, 10, 1_000)]
    found += [shop.in_category(name) for name in ("beauty", "garden", "", "\ud800")]
    found += [shop.with_query(name) for name in ("face moisturizers", "FACE moisturizers", "")]
    return [
        *found,
        len(shop),
        list(shop.asins),
        [shop.product(a) for a in shop.asins],
        list(shop.instructed()),
        shop.sha256,
    ]


def test_a_store_is_the_shop_it_was_made_from(built: Path) -> None:
    shop = open_store(built)
    assert everything(shop) == everything(MemoryCatalogue("some", products()))
    assert shop.name == "some"
    assert len(shop.search("face moisturizer for dry skin")) == 3
    assert (shop.asins[-1], shop.asins[1:3]) == (products()[-1].asin, [p.asin for p in products()[1:3]])
    with pytest.raises(IndexError):
        shop.asins[60]


def test_asins_that_do_not_exist(built: Path) -> None:
    shop, asin = open_store(built), products()[5].asin
    assert asin in shop
    assert asin.lower() not in shop
    assert 5 not in shop
    with pytest.raises(UnknownName, match=f"did you mean {asin}"):
        shop.product(asin[:-1])
    with pytest.raises(UnknownName, match="unknown asin ''"):
        shop.product("")


def test_only_products_with_instructions_are_instructed(tmp_path: Path) -> None:
    plain = [replace(p, instruction=None, human=() if n % 3 else p.human) for n, p in enumerate(products(10))]
    build_store(plain, tmp_path / "shop", name="some")
    assert [p.asin for p in open_store(tmp_path / "shop").instructed()] == [plain[n].asin for n in (0, 3, 6, 9)]


def test_texts_sqlite_would_not_take(tmp_path: Path) -> None:
    odd = replace(products(1)[0], asin="\ud800\x00\u2603", category="\ud801", query="", title="\udfff lamp")
    build_store([odd], tmp_path / "shop", name="some")
    shop = open_store(tmp_path / "shop")
    assert (shop.product(odd.asin), shop.search("lamp"), shop.in_category("\ud801")) == (odd, [odd.asin], [odd.asin])


def _ask(shop: StoredCatalogue, answers: "multiprocessing.SimpleQueue[object]") -> None:
    answers.put(everything(shop))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_processes_share_it(built: Path, method: str) -> None:
    shop = open_store(built)
    expected = everything(shop)  # the connection is open before the fork
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    process = context.Process(target=_ask, args=(shop, answers))
    process.start()
    assert answers.get() == expected
    process.join()
    assert everything(shop) == expected
    assert len(pickle.dumps(shop)) < 2_000


def test_threads_share_it(built: Path) -> None:
    shop, wrong = open_store(built), []
    expected = everything(shop)

    def ask() -> None:
        if everything(shop) != expected:
            wrong.append(1)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_same_products_make_the_same_store(built: Path, tmp_path: Path) -> None:
    build_store(products(), tmp_path / "again", name="some")
    for path in sorted(p.relative_to(built) for p in built.rglob("*") if p.is_file()):
        assert (tmp_path / "again" / path).read_bytes() == (built / path).read_bytes(), path


# --- what is refused --------------------------------------------------------------------------------------------------


def _edit(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda f: (f / "store.json").unlink(), "there is no WebShop store"),
    "torn manifest": (lambda f: (f / "store.json").write_text('{"format": 1,'), "store.json is damaged"),
    "no object": (lambda f: (f / "store.json").write_text("[]"), "store.json is damaged"),
    "other version": (lambda f: _edit(f / "store.json", lambda m: m.update(format=99)), "another version"),
    "lacks entries": (lambda f: _edit(f / "store.json", lambda m: m.pop("sources")), "store.json has changed"),
    "no database": (lambda f: _edit(f / "store.json", lambda m: m.update(database=None)), "store.json has changed"),
    "other count": (lambda f: _edit(f / "store.json", lambda m: m.update(products=59)), "store.json has changed"),
    "no products": (lambda f: (f / "products.sqlite").unlink(), r"products\.sqlite is missing, expected \d+ bytes"),
    "cut": (lambda f: os.truncate(f / "products.sqlite", 8_192), "has 8192 bytes, expected"),
    "one bit": (lambda f: _flip(f / "products.sqlite"), "has changed: its sha256 is"),
    "no index": (lambda f: shutil.rmtree(f / "index"), "no search index"),
    "cut index": (lambda f: os.truncate(f / "index/docs.bin", 4), "docs.bin has 4 bytes"),
    "index of others": (
        lambda f: _edit(f / "index/manifest.json", lambda m: m.update(meta={"shop_sha256": "0"})),
        "index/manifest.json has changed",
    ),
    "another shop's index": (
        lambda f: build_index(["red"] * 60, f / "index", meta={"shop_sha256": "0"}),
        "made from something else",
    ),
}


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_refused_in_one_line(folder: Path, kind: str) -> None:
    damage, message = DAMAGE[kind]
    damage(folder)
    with pytest.raises(DataError, match=message) as caught:
        open_store(folder)
    assert "\n" not in str(caught.value)
    assert "type: python -m seed_envs build webshop" in str(caught.value)


def test_large_stores_are_hashed_by_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "VERIFIED_BYTES", 0)
    monkeypatch.setattr(seal, "BLOCK", 16)
    folder = tmp_path / "shop"
    build_store(products(), folder, name="some")
    store.verify(folder)
    _flip(folder / "products.sqlite")  # between two of the blocks that opening looks at
    open_store(folder)
    with pytest.raises(DataError, match="has changed: its sha256 is"):
        store.verify(folder)


def test_a_torn_row_is_an_error_of_the_data(folder: Path) -> None:
    shop = open_store(folder)
    first, second = (p.asin for p in products(2))
    for asin, body in ((first, b"torn"), (second, store_build.zlib.compress(b"[1]"))):
        with sqlite3.connect(folder / "products.sqlite") as database:
            database.execute("UPDATE product SET body = ? WHERE asin = ?", (body, asin.encode()))
        database.close()
    for asin in (first, second):
        with pytest.raises(DataError, match="damaged product"):
            shop.product(asin)
    (folder / "products.sqlite").write_bytes(b"no database" * 10_000)
    with pytest.raises(SeedError, match="cannot read"):
        StoredCatalogue(folder, shop.manifest, shop._index, ("full", None)).product(first)


def test_a_store_goes_with_its_files(root: Path) -> None:
    folder = build_official(root, "small", human=True)
    assert folder == store_folder(root, "small")
    assert folder.is_relative_to(paths.cache_root())
    shop = open_catalogue(str(root))
    assert isinstance(shop, StoredCatalogue)
    assert shop is open_catalogue(str(root))
    items = root / "items_shuffle_1000.json"
    os.utime(items, ns=(1, 1))
    assert len(open_store(folder, root=root, size="small")) == 40  # another time, the same hash
    content = items.read_text()
    items.write_text(content.replace("Fair", "Dark", 1).replace("a", "b", 1))
    advice = re.escape(f"--profile small-synthetic --data {root} --force")
    with pytest.raises(DataError, match=r"items_shuffle_1000\.json is not the file .* " + advice):
        open_store(folder, root=root, size="small")
    worker = pickle.loads(pickle.dumps(shop))  # which does not look at the sources again
    worker.rows("SELECT 1")
    worker._local.connection.close()
    with pytest.raises(DataError, match=advice):
        worker.rows("SELECT 1")
    items.unlink()
    assert len(open_store(folder, root=root, size="small")) == 40  # the files are not needed any more
    items.write_text(content)
    human = (root / "items_human_ins.json").read_text()
    (root / "items_human_ins.json").unlink()
    build_official(root, "small")
    (root / "items_human_ins.json").write_text(human)
    with pytest.raises(DataError, match="items_human_ins"):
        open_store(folder, root=root, size="small")


@pytest.mark.parametrize("name", ["store.json", "index/manifest.json"])
def test_a_folder_where_a_manifest_was(name: str, folder: Path) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(DataError, match=r"is damaged .*; type: python -m seed_envs build webshop"):
        open_store(folder)


def test_data_by_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED_DATA", str(root.parent / "elsewhere"))
    with pytest.raises(DataError, match="elsewhere/webshop has no items_shuffle_1000"):
        open_catalogue("official")
    shutil.copytree(root, root.parent / "elsewhere/webshop")
    shop = open_catalogue("official")
    assert isinstance(shop, MemoryCatalogue)
    assert everything(shop) == everything(MemoryCatalogue("x", products(40)))
    assert open_catalogue() is embedded()
    with pytest.raises(
        DataError, match=r"no WebShop store in .*type: python -m seed_envs build webshop --profile full"
    ):
        open_catalogue("official", "full")
    with pytest.raises(UnknownName, match="full, small"):
        open_catalogue("official", "middling")


# --- builds that fail -------------------------------------------------------------------------------------------------


def test_a_failed_build_leaves_the_old_store_and_the_next_one_nothing_else(folder: Path) -> None:
    def failing() -> Iterator[Product]:
        yield from islice(products(), 30)
        raise OSError("disk")

    before = everything(open_store(folder))
    with pytest.raises(OSError, match="disk"):
        build_store(failing(), folder, name="some")
    assert everything(open_store(folder)) == before
    with pytest.raises(DataError, match="no products"):
        build_store([], folder, name="some")
    build_store(products(20), folder, name="some")
    assert len(open_store(folder)) == 20
    assert sorted(path.name for path in folder.parent.iterdir()) == ["shop"]


BUILD = """
import sys, time
from pathlib import Path
from seed_envs.webshop.catalogue import embedded
from seed_envs.webshop.store_build import build_store
def slow():
    for asin in embedded().asins[:50]:
        yield embedded().product(asin)
    print("waiting", flush=True)
    time.sleep(60)
build_store(slow(), Path(sys.argv[1]), name="some")
"""


def test_a_killed_build_is_built_anew(tmp_path: Path, cli_env: Callable[..., dict[str, str]]) -> None:
    folder = tmp_path / "cache" / "shop"
    with subprocess.Popen(
        [sys.executable, "-c", BUILD, str(folder)], env=cli_env(), stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGKILL)
    assert [path.name for path in folder.parent.iterdir()] == [".shop.partial"]
    with pytest.raises(DataError, match="there is no WebShop store"):
        open_store(folder)
    build_store(products(), folder, name="some")
    assert len(open_store(folder)) == 60
    assert [path.name for path in folder.parent.iterdir()] == ["shop"]


def test_builds_of_one_store_wait_for_each_other(tmp_path: Path) -> None:
    began, order = threading.Event(), []

    def slow() -> Iterator[Product]:
        began.set()
        time.sleep(0.3)
        order.append("slow")
        yield from products(5)

    thread = threading.Thread(target=build_store, args=(slow(), tmp_path / "shop"), kwargs={"name": "slow"})
    thread.start()
    began.wait()
    build_store((order.append("quick") or p for p in products(1)), tmp_path / "shop", name="quick")  # type: ignore[func-returns-value]
    thread.join()
    assert order == ["slow", "quick"]
    assert open_store(tmp_path / "shop").name == "quick"


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "webshop", "--data", str(root)]) == 0
    folder = store_folder(root, "small")
    assert capsys.readouterr().out == f"{folder}: 40 products\n"
    assert main(["build", "webshop", "--data", str(root)]) == 0
    assert capsys.readouterr().out == f"{folder}: undamaged, 40 products (--force builds it again)\n"
    _flip(folder / "products.sqlite")
    assert main(["build", "webshop", "--data", str(root), "--check"]) == 2
    told = capsys.readouterr().err
    assert f"type: python -m seed_envs build webshop --profile small-synthetic --data {root} --force\n" in told
    assert main(shlex.split(told.partition("-m seed_envs ")[2])) == 0  # what it says to type mends it
    assert capsys.readouterr().out == f"{folder}: 40 products\n"
    assert main(["build", "webshop", "--data", str(root), "--force", "--profile", "small-human"]) == 0
    assert len(open_store(folder)) == 40


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--profile", "small"], "did you mean small-human or small-synthetic?"),
        (["--profile", "full-human"], "has no items_shuffle.json and no items_ins_v2.json and no items_human_ins.json"),
        (["--check"], "there is no WebShop store"),
    ],
)
def test_the_command_refuses_in_one_line(
    args: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "webshop", "--data", str(tmp_path), *args]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert not list(tmp_path.iterdir())


def test_items_left_out_are_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = json.loads((root / "items_shuffle_1000.json").read_text())
    (root / "items_shuffle_1000.json").write_text(json.dumps([*items, items[0], {"asin": "nan"}]))
    assert main(["build", "webshop", "--data", str(root)]) == 0
    out = capsys.readouterr().out
    assert out.endswith(": 40 products; left out as upstream does: 1 asin repeated, 1 no asin\n")


# --- the real index ---------------------------------------------------------------------------------------------------


def test_the_real_searches(shared: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(shared / "data" / "unpack.py"), str(tmp_path), "--only", "webshop"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    memory = open_catalogue(str(tmp_path / "webshop"))
    stored = open_store(build_official(tmp_path / "webshop", "small"))
    assert (isinstance(memory, MemoryCatalogue), stored.sha256) == (True, memory.sha256)
    rows = [json.loads(line) for line in (shared / "golden/webshop/search_top50.jsonl").read_text().splitlines()]
    assert len(rows) == 305
    for row in rows:
        assert memory.search(row["query"]) == row["asins"], row["query"]
        assert stored.search(row["query"]) == row["asins"], row["query"]
