"""Passages, folders of retrievers, what is refused of them, and the commands that build and serve them."""

import gzip
import hashlib
import json
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from seed_envs import DataError, UnknownName
from seed_envs.__main__ import main
from seed_envs.search import (
    BM25Retriever,
    Passage,
    Passages,
    build_index,
    build_retriever,
    open_retriever,
    read_corpus,
    seal,
)
from seed_envs.search.passages import write_passages

RunCommand = Callable[..., tuple[int, str, str]]

PASSAGES = [
    Passage.of("p1", "Paris", "Paris is the capital of France."),
    Passage.of("p2", "Rome", "Rome is the capital of Italy."),
    Passage.of("p3", "", "Bananas are yellow \u2605."),
]


# --- passages ---------------------------------------------------------------------------------------------------------


def test_contents_and_their_parts() -> None:
    assert PASSAGES[0].contents == '"Paris"\nParis is the capital of France.'
    assert (PASSAGES[0].title, PASSAGES[0].text) == ("Paris", "Paris is the capital of France.")
    assert (PASSAGES[2].title, PASSAGES[2].text) == ("", "Bananas are yellow \u2605.")
    assert (Passage("x", "Title\nline\nline").title, Passage("x", "Title\nline\nline").text) == ("Title", "line\nline")
    assert Passage("x", 'She said "no"').title == ""


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz"])
def test_a_corpus_is_read(name: str, tmp_path: Path) -> None:
    rows = [{"id": 7, "contents": '"T"\nx'}, {"title": "T", "text": "y"}, {"text": "z"}]
    data = ("\n".join(map(json.dumps, rows)) + "\n\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert list(read_corpus(tmp_path / name)) == [
        Passage("7", '"T"\nx'),
        Passage("1", '"T"\ny'),
        Passage("2", "z"),
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"id": "1", "contents": "a"}\n{"id": "2"}', "line 2: no text"),
        (b"[1]", "line 1: list where an object belongs"),
        (b'{"contents": "a"', "line 1: "),
        (b'{"contents": "\xff"}', "line 1: .*utf-8"),
        (b'{"contents": "a"}\n' * 2 + b'{"contents": "\xe9"}', "line 3: .*utf-8"),
        (b'{"id": {"a": 1}, "contents": "a"}', r"line 1: id is \{'a': 1\}, neither a text nor a number"),
        (b'{"title": ["T"], "text": "a"}', r"line 1: title is \['T'\], neither"),
    ],
)
def test_a_bad_corpus_names_its_line(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(data)
    with pytest.raises(DataError, match=message):
        list(read_corpus(tmp_path / "c.jsonl"))


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.xz"])
def test_a_torn_archive_is_named(name: str, tmp_path: Path) -> None:
    line = b'{"id": null, "contents": "a"}\n'
    whole = gzip.compress(line * 999) if name.endswith("gz") else lzma.compress(line * 999)
    path = tmp_path / name
    path.write_bytes(whole)
    assert [p.id for p in read_corpus(path)][-1] == "998"
    for torn in (line, whole[:-20], whole[:30] + b"\xff" * 30 + whole[60:]):
        path.write_bytes(torn)
        with pytest.raises(DataError, match=rf"{name}, after line \d+: .*; expected a whole {path.suffix} file"):
            list(read_corpus(path))


def test_a_store_gives_back_what_was_written(tmp_path: Path) -> None:
    odd = [*PASSAGES, Passage("o", "a\u2028b\x00\r\nc\ud800")]
    assert write_passages(odd, tmp_path)[0] == 4
    stored = Passages(tmp_path)
    assert list(stored) == [*PASSAGES, Passage("o", "a\u2028b\x00\r\nc\ufffd")]
    assert pickle.loads(pickle.dumps(stored))[1] == PASSAGES[1]
    for number in (4, -1):
        with pytest.raises(IndexError, match="of 4"):
            stored[number]
    (tmp_path / "passages.jsonl").write_bytes(b"short")
    with pytest.raises(DataError, match="damaged"):
        Passages(tmp_path)
    (tmp_path / "offsets.bin").unlink()
    with pytest.raises(DataError, match="there are no passages"):
        Passages(tmp_path)


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_opens_as_what_it_was_built_as(tmp_path: Path) -> None:
    card = build_retriever(PASSAGES, tmp_path / "ix")
    retriever = open_retriever(tmp_path / "ix", corpus_sha256=card.corpus_sha256)
    queries = ["capital of France", "", "yellow capital"]
    found = retriever.search(queries, 2)
    assert [[p.id for p in row] for row in found] == [["p1", "p2"], [], ["p3", "p1"]]
    assert found == BM25Retriever.in_memory(PASSAGES).search(queries, 2)
    assert found[0][0].score > found[0][1].score > 0
    assert retriever.describe()["backend"] == "bm25"
    assert pickle.loads(pickle.dumps(retriever)).search(queries, 2) == found
    with pytest.raises(DataError, match="another corpus"):
        open_retriever(tmp_path / "ix", corpus_sha256="0" * 64)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda ix: (ix / "retriever.json").unlink(), "there is no search index in"),
        (lambda ix: (ix / "retriever.json").write_text('{"format": 9}'), "has format 9, expected 2"),
        (lambda ix: (ix / "retriever.json").write_text("no"), "is damaged"),
        (lambda ix: (ix / "passages" / "offsets.bin").write_bytes(b"\0" * 8), r"offsets\.bin has 8 bytes, expected 32"),
        (lambda ix: write_passages(PASSAGES[:2], ix / "passages"), r"has \d+ bytes, expected"),
        (
            lambda ix: _spoil(ix / "passages" / "passages.jsonl"),
            r"passages\.jsonl has changed: its sha256 is \w+, expec",
        ),
        (lambda ix: _shift(ix / "passages" / "offsets.bin"), r"offsets\.bin has changed"),
        (
            lambda ix: build_index(["a", "b", "c"], ix / "bm25"),
            r"bm25/manifest\.json has \d+ bytes, expected|has chang",
        ),
        (lambda ix: (ix / "bm25" / "docs.bin").unlink(), r"docs\.bin is missing"),
        (lambda ix: _edit_card(ix, passages=2), r"retriever\.json has changed: its entries do not give"),
        (lambda ix: (ix / "passages" / "segments_9").touch(), "segments_9 is no part of the index, expected 3 other"),
    ],
)
def test_a_damaged_folder_is_refused(spoil: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    build_retriever(PASSAGES, tmp_path / "ix")
    spoil(tmp_path / "ix")
    with pytest.raises(DataError, match=message + ".* python -m seed_envs build search --corpus ") as told:
        open_retriever(tmp_path / "ix")
    assert "\n" not in str(told.value)


def _edit_card(folder: Path, **values: object) -> None:
    path = folder / "retriever.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_what_lies_beside_an_index_is_no_damage(tmp_path: Path) -> None:
    build_retriever(PASSAGES, tmp_path / "ix")
    (tmp_path / "ix" / "passages" / ".nfs0001").touch()
    (tmp_path / "ix" / "lucene").mkdir()
    (tmp_path / "ix" / "lucene" / "write.lock").touch()
    assert "files" not in open_retriever(tmp_path / "ix").describe()


def test_a_card_that_is_a_folder_or_of_another_backend_is_told_as_such(tmp_path: Path) -> None:
    build_retriever(PASSAGES, tmp_path / "ix")
    path = tmp_path / "ix" / "retriever.json"
    card = json.loads(path.read_text())
    path.write_text(json.dumps(card | {"backend": "dense", "parameters": {"model": "m", "kind": "flat"}}))
    with pytest.raises(DataError, match=r"ix --force --backend dense --model m --kind flat$"):
        open_retriever(tmp_path / "ix")
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=r"retriever\.json is damaged .* --out \S+ix --force$"):
        open_retriever(tmp_path / "ix")


def test_large_files_are_compared_by_their_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "BLOCK", 2)
    monkeypatch.setattr(seal, "BLOCKS", 3)
    monkeypatch.setattr(seal, "VERIFIED_BYTES", 9)
    path = tmp_path / "file"
    path.write_bytes(b"ab..ef..ij")
    kept = seal.of(path)
    assert kept == {
        "bytes": 10,
        "sha256": hashlib.sha256(b"ab..ef..ij").hexdigest(),
        "sample_sha256": hashlib.sha256(b"abefij").hexdigest(),
    }
    path.write_bytes(b"abX.efX.ij")  # between the blocks
    seal.check({path: kept}, "again")
    with pytest.raises(DataError, match=r"file has changed: its sha256 is \w{12}, expected \w{12}; again"):
        seal.check({path: kept}, "again", whole=True)
    for torn in (b"Xb..ef..ij", b"ab..eX..ij", b"ab..ef..iX"):
        path.write_bytes(torn)
        with pytest.raises(DataError, match="file has changed: its sample_sha256 is"):
            seal.check({path: kept}, "again")


def _spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"{", b"["))


def _shift(path: Path) -> None:
    """Let the second passage begin a character too early."""
    data = bytearray(path.read_bytes())
    data[8] -= 1
    path.write_bytes(data)


def test_large_passages_are_hashed_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: RunCommand
) -> None:
    monkeypatch.setattr(seal, "VERIFIED_BYTES", 0)
    monkeypatch.setattr(seal, "BLOCK", 1)
    monkeypatch.setattr(seal, "BLOCKS", 2)
    build_retriever(PASSAGES, tmp_path / "ix")
    assert command("build", "search", "--out", "ix", "--check")[0] == 0
    path = tmp_path / "ix" / "passages" / "passages.jsonl"
    path.write_bytes(path.read_bytes().replace(b":", b"~"))
    with pytest.raises(DataError, match=r"passage 0 in .* is damaged"):
        open_retriever(tmp_path / "ix").search(["capital of France"], 1)
    code, out, err = command("build", "search", "--out", "ix", "--check")
    assert (code, out, "passages.jsonl has changed" in err) == (2, "", True)


def test_what_cannot_be_built_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean bm25"):
        build_retriever(PASSAGES, tmp_path / "ix", backend="bm52")
    with pytest.raises(DataError, match="no passages"):
        build_retriever([], tmp_path / "ix")
    with pytest.raises(DataError, match="there is no search index"):
        open_retriever(tmp_path / "ix")


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """``python -m seed_envs`` in this process and in a folder of the test's own: (code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        return code, *capsys.readouterr()

    return run


def test_build_search(tmp_path: Path, command: RunCommand) -> None:
    lines = "".join(json.dumps({"id": p.id, "contents": p.contents}) + "\n" for p in PASSAGES)
    (tmp_path / "c.jsonl").write_text(lines)
    build = ("build", "search", "--corpus", "c.jsonl", "--out")
    code, out, err = command(*build, "ix")
    assert (code, "bm25 index of 3 passages" in out) == (0, True), err
    assert "merging" in err
    assert command("build", "search", "--out", "ix", "--check")[0] == 0
    for words, message in [
        ((*build, "ix"), "exists already; --force replaces it"),
        (build, "expected one argument"),
        (("build", "serach"), "did you mean search?"),
        (("build", "search", "--corpus", "none", "--out", "ix2"), "there is no corpus in none"),
        ((*build, "ix2", "--model", "x"), "--model belong to --backend dense"),
        ((*build, "ix2", "--threads", "2"), "--threads belong to --backend pyserini, not to bm25"),
        ((*build, "ix2", "--threads", "0", "--backend", "pyserini"), "--threads goes from 1"),
        (("build", "search", "--out", "ix2"), "--corpus is missing"),
    ]:
        code, out, err = command(*words)
        assert (code, out) == (2, ""), err
        assert message in err
        assert len(err.splitlines()) == 1
    assert command(*build, "ix", "--force", "--limit", "2")[0] == 0
    assert len(Passages(tmp_path / "ix" / "passages")) == 2
    (tmp_path / "ix" / "bm25" / "docs.bin").write_bytes(b"")
    code, out, err = command("build", "search", "--out", "ix", "--check")
    assert (code, "docs.bin has 0 bytes, expected" in err) == (2, True)


def test_serve_search_says_what_is_wrong(tmp_path: Path, command: RunCommand) -> None:
    build_retriever(PASSAGES, tmp_path / "ix")
    for words, message in [
        (("ix", "--device", "cuda"), "ix, an index of bm25 takes no device"),
        (("http://127.0.0.1:9", "--device", "cuda"), "a server takes no device"),
        (("nothing",), "there is no search index in nothing"),
        (("nothing", "--port", "70000"), "--port goes up to 65535"),
        (("nothing", "--port", "x"), "'x' is no number"),
    ]:
        code, out, err = command("serve-search", *words)
        assert (code, out) == (2, "")
        assert message in err
        assert len(err.splitlines()) == 1
