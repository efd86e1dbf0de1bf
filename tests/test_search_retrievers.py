"""Passages, folders of retrievers, the HTTP client against a server as bad as told, our server."""

import gzip
import json
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from seed_envs import ConfigError, DataError, UnknownName
from seed_envs.__main__ import main
from seed_envs.search import (
    BM25Retriever,
    Passage,
    Passages,
    RetrievalError,
    build_retriever,
    open_retriever,
    read_corpus,
    server,
    store,
)
from seed_envs.search.http import HttpRetriever
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
    ],
)
def test_a_bad_corpus_names_its_line(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(data)
    with pytest.raises(DataError, match=message):
        list(read_corpus(tmp_path / "c.jsonl"))


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
        (lambda ix: (ix / "retriever.json").write_text('{"format": 9}'), "has format 9, expected 1"),
        (lambda ix: (ix / "retriever.json").write_text("no"), "is damaged"),
        (lambda ix: (ix / "passages" / "offsets.bin").write_bytes(b"\0" * 8), "damaged"),
        (lambda ix: write_passages(PASSAGES[:2], ix / "passages"), "has 2 passages, its card says 3"),
        (lambda ix: _spoil(ix / "passages" / "passages.jsonl"), "are not what the index was made from"),
        (lambda ix: _shift(ix / "passages" / "offsets.bin"), "are not what the index was made from"),
    ],
)
def test_a_damaged_folder_is_refused(spoil: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    build_retriever(PASSAGES, tmp_path / "ix")
    spoil(tmp_path / "ix")
    with pytest.raises(DataError, match=message):
        open_retriever(tmp_path / "ix")


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
    build_retriever(PASSAGES, tmp_path / "ix")
    monkeypatch.setattr(store, "VERIFIED_BYTES", 0)
    assert command("build", "search", "--out", "ix", "--check")[0] == 0
    _spoil(tmp_path / "ix" / "passages" / "passages.jsonl")
    with pytest.raises(DataError, match=r"passage 0 in .* is damaged"):
        open_retriever(tmp_path / "ix").search(["capital of France"], 1)
    code, out, err = command("build", "search", "--out", "ix", "--check")
    assert (code, out, "are not what the index was made from" in err) == (2, "", True)


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
    assert (code, "docs.bin has changed" in err) == (2, True)


# --- client -----------------------------------------------------------------------------------------------------------


class Stand(ThreadingHTTPServer):
    """Answers with ``replies`` (status, body) one after the other, then as Search-R1's server does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StandHandler)
        self.replies: list[tuple[int, bytes]] = []
        self.asked: list[dict[str, Any]] = []
        self.connections: set[int] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class StandHandler(BaseHTTPRequestHandler):
    server: Stand
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.connections.add(self.client_address[1])
        if self.server.replies:
            status, data = self.server.replies.pop(0)
        else:
            queries = body.get("queries", [body.get("query")])
            document = {"id": "d", "contents": '"T"\nx'}
            status, data = (
                200,
                json.dumps({"result": [[{"document": document, "score": 1.5}] for _ in queries]}).encode(),
            )
        self.send_response(status)
        if status == 307:  # in circles
            self.server.replies.insert(0, (status, data))
            self.send_header("Location", self.path)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def stand() -> Iterator[Stand]:
    with Stand() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_both_dialects(stand: Stand) -> None:
    found = Passage("d", '"T"\nx', 1.5)
    batch = HttpRetriever(stand.url)
    assert batch.search(["a", "b\ud800"], 2) == [[found], [found]]
    assert stand.asked == [{"queries": ["a", "b\ufffd"], "topk": 2, "return_scores": True}]
    stand.asked.clear()
    single = HttpRetriever(stand.url + "/retrieve", dialect="verl_agent")
    assert single.search(["a", "b"], 3) == [[found], [found]]
    assert stand.asked == [{"query": q, "topk": 3, "return_scores": True} for q in "ab"]
    assert batch.search([], 3) == []
    for retriever in (batch, single):
        retriever.close()
    assert len(stand.connections) == 2, "connections are kept"


def test_many_queries_go_in_batches(stand: Stand) -> None:
    retriever = HttpRetriever(stand.url)
    assert len(retriever.search(["q"] * 300, 1)) == 300
    assert [len(body["queries"]) for body in stand.asked] == [128, 128, 44]
    pickle.loads(pickle.dumps(retriever)).close()
    retriever.close()


def test_it_tries_again(stand: Stand) -> None:
    waits: list[float] = []
    stand.replies = [(500, b""), (429, b""), (503, b"later")]
    retriever = HttpRetriever(stand.url, sleep=waits.append)
    assert len(retriever.search(["a"], 1)[0]) == 1
    assert waits == [1, 2, 3]
    stand.replies = [(500, b"")] * 3
    with pytest.raises(RetrievalError, match=r"no answer in 3 attempts \(HTTP 500\).*serve-search"):
        HttpRetriever(stand.url, retries=3, sleep=waits.append).search(["a"], 1)
    assert waits == [1, 2, 3, 1, 2]
    retriever.close()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, b'{"error": "bad"}', 'refused: HTTP 400 {"error": "bad"}'),
        (200, b"<html>", "cannot be read"),
        (200, b'{"result": [[], []]}', "2 result lists for 1 queries"),
        (200, b'{"result": [[{"document": {"id": "1"}}]]}', "cannot be read"),
        (200, b'{"results": []}', "cannot be read"),
        (200, b'{"result": [[{"text": "t", "score": 1' + b"0" * 400 + b"}]]}", "cannot be read"),
        (307, b"", "cannot be asked: Exceeded maximum allowed redirects"),
    ],
)
def test_what_cannot_be_read_is_said_at_once(status: int, body: bytes, message: str, stand: Stand) -> None:
    stand.replies = [(status, body)]
    retriever = HttpRetriever(stand.url)
    with pytest.raises(RetrievalError, match="search server") as raised:
        retriever.search(["a"], 1)
    assert message in str(raised.value)
    assert len(stand.asked) == 1 or status == 307
    retriever.close()


def test_nothing_found_and_plain_documents(stand: Stand) -> None:
    retriever = HttpRetriever(stand.url, dialect="verl_agent")
    bodies = [b'{"result": []}', b'{"result": [[]]}', b'{"result": [[{"text": "t\\ud800"}]]}']
    stand.replies = [(200, body) for body in bodies]
    assert [retriever.search(["a"], 1) for _ in range(3)] == [[[]], [[]], [[Passage("", "t\ufffd")]]]
    retriever.close()


def test_a_server_that_is_away() -> None:
    waits: list[float] = []
    with Stand() as gone:
        url = gone.url
    with pytest.raises(RetrievalError, match=f"{url}/retrieve gave no answer in 2 attempts"):
        HttpRetriever(url, retries=2, sleep=waits.append).search(["a"], 1)
    assert waits == [1]


@pytest.mark.parametrize("url", ["", "localhost", "ftp://x", "http://", "http://[::1"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        HttpRetriever(url)


def test_a_name_that_no_host_can_have() -> None:
    with pytest.raises(RetrievalError, match=r"cannot be asked: .*label"):
        HttpRetriever(f"http://{'a' * 300}", retries=1).search(["a"], 1)


# --- server -----------------------------------------------------------------------------------------------------------


def test_requests_are_read() -> None:
    assert server.parse(b'{"queries": ["a", "b"], "topk": 5, "return_scores": true}') == (["a", "b"], 5, True)
    assert server.parse(b'{"query": "a"}') == (["a"], 3, False)
    assert server.parse(b'{"queries": []}') == ([], 3, False)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "no JSON"),
        (b"\xff", 400, "no JSON"),
        (b"[]", 400, "expected an object"),
        (b"{}", 400, 'expected "queries"'),
        (b'{"queries": "a"}', 400, 'expected "queries"'),
        (b'{"query": ["a"]}', 400, 'expected "queries"'),
        (b'{"query": "a", "topk": 0}', 400, "topk"),
        (b'{"query": "a", "topk": true}', 400, "topk"),
        (b'{"query": "a", "topk": 101}', 400, "topk"),
        (b'{"query": "a", "return_scores": 1}', 400, "return_scores"),
        (json.dumps({"queries": ["a"] * 513}).encode(), 413, "at most 512"),
        (json.dumps({"query": "a" * 10_001}).encode(), 413, "10000 characters"),
        (b'{"query": ' + b"[" * 100_000, 400, "no JSON"),
    ],
)
def test_requests_are_refused(body: bytes, status: int, message: str) -> None:
    with pytest.raises(server.BadRequest, match=message) as raised:
        server.parse(body)
    assert raised.value.status == status


@pytest.fixture
def served(tmp_path: Path, cli_env: Callable[..., dict[str, str]]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    pytest.importorskip("uvicorn", reason="needs pip install 'seed-suite[serve]'")
    pytest.importorskip("starlette", reason="needs pip install 'seed-suite[serve]'")
    build_retriever(PASSAGES, tmp_path / "ix")
    command = [sys.executable, "-m", "seed_envs", "serve-search", "ix", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=cli_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving at http://127.0.0.1:"), process.stderr.read() if process.stderr else ""
        yield line.split()[2].removesuffix("/retrieve;"), process
        if process.poll() is None:
            process.kill()


def test_our_server_speaks_both_dialects_and_ends_well(served: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = served
    expected = BM25Retriever.in_memory(PASSAGES).search(["capital of France", ""], 2)
    for dialect in ("search_r1", "verl_agent"):
        retriever = HttpRetriever(url, dialect=dialect, retries=1)
        assert retriever.search(["capital of France", ""], 2) == expected
        retriever.close()
    with httpx.Client(base_url=url) as client:
        health = client.get("/health").json()
        assert (health["status"], health["backend"], health["passages"]) == ("ok", "bm25", 3)
        plain = client.post("/retrieve", json={"query": "France", "topk": 1}).json()
        assert plain == {"result": [[{"id": "p1", "contents": PASSAGES[0].contents}]]}
        assert client.post("/retrieve", content=b"x" * (server.MAX_BODY_BYTES + 1)).status_code == 413
        assert client.post("/retrieve", json={"query": 1}).status_code == 400
        assert client.get("/retrieve").status_code == 405
        assert client.get("/docs").status_code == 404
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) in (0, -signal.SIGTERM)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


def test_serve_search_says_what_is_wrong(command: RunCommand) -> None:
    for words, message in [
        (("nothing",), "there is no search index in nothing"),
        (("nothing", "--port", "70000"), "--port goes up to 65535"),
        (("nothing", "--port", "x"), "'x' is no number"),
    ]:
        code, out, err = command("serve-search", *words)
        assert (code, out) == (2, "")
        assert message in err
        assert len(err.splitlines()) == 1
