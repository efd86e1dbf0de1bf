"""A stand-in for the servers that data come from, on this machine and as bad as told."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

BODY = bytes(range(256)) * 1200


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
        self.sends = ""  # "chunked" or "closed": without a size, from the start, and how the end is told
        self.moved: dict[str, str] = {}  # redirects

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
        if self.path in server.moved:
            self.send_response(302)
            self.send_header("Location", server.moved[self.path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        if server.sends:
            self.stream(body)
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

    def stream(self, body: bytes) -> None:
        """Answer as GitHub does for archives: packed while sending, with a weak tag."""
        server, chunked = self.server, self.server.sends == "chunked"
        dropped, self.close_connection = server.drops > 0, True
        server.drops -= dropped
        self.protocol_version = "HTTP/1.1"
        self.send_response(200)
        self.send_header("ETag", 'W/"one"')
        self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")))
        self.end_headers()
        part = body[: server.cut] if dropped else body
        self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        if chunked and not dropped:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture(name="server")
def serve() -> Iterator[StandIn]:
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
