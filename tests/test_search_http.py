"""The client of search servers against one as bad as told, and our own server."""

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

from seed_envs import ConfigError
from seed_envs.search import BM25Retriever, Passage, RetrievalError, build_retriever, server
from seed_envs.search.http import DIALECTS, HttpRetriever

PASSAGES = [
    Passage.of("p1", "Paris", "Paris is the capital of France."),
    Passage.of("p2", "Rome", "Rome is the capital of Italy."),
    Passage.of("p3", "", "Bananas are yellow \u2605."),
]


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


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, b'{"error": "bad"}', 'refused: HTTP 400 {"error": "bad"}'),
        (200, b"<html>", "cannot be read"),
        (200, b'{"result": [[], []]}', "2 result lists for 1 queries"),
        (200, b'{"result": [[{"document": {"id": "1"}}]]}', "cannot be read"),
        (200, b'{"results": []}', "cannot be read"),
        (200, b'{"result": [[{"text": "t", "score": 1' + b"0" * 400 + b"}]]}", "cannot be read"),
        (200, b'{"result": [[{"text": "t", "score": NaN}]]}', "the score nan is no finite number"),
        (200, b'{"result": [[{"document": {"contents": "t"}, "score": -Infinity}]]}', "the score -inf is no finite"),
        (200, b'{"result": [[{"text": "t", "score": 1e999}]]}', "the score inf is no finite number"),
        (200, b'{"result": [[{"text": "t", "score": null}]]}', "the score None is no finite number"),
        (200, b'{"result": [[{"text": "t", "score": "nan"}]]}', "the score 'nan' is no finite number"),
        (200, b'{"result": [[{"contents": null, "score": 1}]]}', "None where a text was expected"),
        (307, b"", "cannot be asked: Exceeded maximum allowed redirects"),
    ],
)
def test_what_cannot_be_read_is_said_at_once(
    status: int, body: bytes, message: str, dialect: str, stand: Stand
) -> None:
    stand.replies = [(status, body)]
    retriever = HttpRetriever(stand.url, dialect=dialect)
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


def test_no_more_passages_than_were_asked_for(stand: Stand) -> None:
    stand.replies = [
        (200, json.dumps({"result": [[{"id": n, "text": "t", "title": None} for n in range(5)]]}).encode())
    ]
    retriever = HttpRetriever(stand.url)
    assert retriever.search(["a"], 2) == [[Passage("0", "t"), Passage("1", "t")]]
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
