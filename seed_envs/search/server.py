"""A search server in both published dialects, around any retriever.

``POST /retrieve`` takes ``queries`` (Search-R1) or ``query`` (verl-agent, SkyRL); ``GET /health``
tells what is served.
"""

import json
from collections.abc import Callable
from typing import Any

from seed_envs.errors import ConfigError, MissingDependency, SeedError
from seed_envs.search.http import ROUTE
from seed_envs.search.passages import Passage
from seed_envs.search.retrievers import Retriever

MAX_BODY_BYTES, MAX_QUERIES, MAX_TOPK, MAX_QUERY_CHARS = 1 << 20, 512, 100, 10_000
"""Limits of one request; what is over them is refused with 413 or 400."""

DEFAULT_TOPK = 3


class BadRequest(ValueError):
    """A request that cannot be answered."""

    def __init__(self, message: str, status: int = 400) -> None:
        """Say what is wrong, and the HTTP status."""
        super().__init__(message)
        self.status = status


def parse(body: bytes) -> tuple[list[str], int, bool]:
    """Return the queries of a request, how many passages each gets, and whether with scores.

    Raises:
        BadRequest: saying what was expected.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadRequest('expected an object with "queries" or "query"')
    queries = data["queries"] if "queries" in data else [data.get("query")]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise BadRequest('expected "queries", a list of texts, or "query", a text')
    if len(queries) > MAX_QUERIES or any(len(query) > MAX_QUERY_CHARS for query in queries):
        raise BadRequest(f"at most {MAX_QUERIES} queries of {MAX_QUERY_CHARS} characters", 413)
    k = data.get("topk")
    k = DEFAULT_TOPK if k is None else k
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MAX_TOPK:
        raise BadRequest(f'expected "topk" from 1 to {MAX_TOPK}')
    scores = data.get("return_scores", False)
    if not isinstance(scores, bool):
        raise BadRequest('expected "return_scores" true or false')
    return queries, k, scores


def answer(found: list[list[Passage]], scores: bool) -> dict[str, Any]:
    """Return the answer to a request."""

    def entry(passage: Passage) -> dict[str, Any]:
        document = {"id": passage.id, "contents": passage.contents}
        return {"document": document, "score": passage.score} if scores else document

    return {"result": [[entry(passage) for passage in passages] for passages in found]}


def make_app(retriever: Retriever, *, workers: int = 4) -> Any:
    """Return an ASGI application that serves a retriever.

    Args:
        retriever: what searches; its ``search`` runs in threads.
        workers: searches at the same time; further requests wait.

    Raises:
        MissingDependency: when starlette is not installed.
    """
    try:
        import anyio
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.requests import ClientDisconnect, Request
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError as error:
        raise MissingDependency("starlette", extra="serve", purpose="the search server") from error
    gate = anyio.CapacityLimiter(workers)

    async def retrieve(request: Request) -> JSONResponse:
        try:
            queries, k, scores = parse(await _body(request))
            async with gate:
                found = await run_in_threadpool(retriever.search, queries, k)
        except BadRequest as error:
            return JSONResponse({"error": str(error)}, status_code=error.status)
        except ClientDisconnect:
            return JSONResponse({"error": "the client went away"}, status_code=400)
        except SeedError as error:
            return JSONResponse({"error": str(error)}, status_code=503)
        return JSONResponse(answer(found, scores))

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", **retriever.describe()})

    return Starlette(routes=[Route(ROUTE, retrieve, methods=["POST"]), Route("/health", health)])


async def _body(request: Any) -> bytes:
    """Read a body piece by piece, so that one that is too large is never held."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise BadRequest(f"the body has more than {MAX_BODY_BYTES} bytes", 413)
    return bytes(body)


def serve(
    retriever: Retriever, *, host: str, port: int, workers: int, ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serve until SIGINT or SIGTERM; requests that have begun are answered first.

    Args:
        retriever: what searches.
        host: address to listen on.
        port: 0 for a free one.
        workers: searches at the same time.
        ready: told the address once connections are taken.

    Raises:
        MissingDependency: when uvicorn or starlette is not installed.
        ConfigError: when the address cannot be used.
    """
    app = make_app(retriever, workers=workers)
    try:
        import uvicorn
    except ImportError as error:
        raise MissingDependency("uvicorn", extra="serve", purpose="the search server") from error
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=10, limit_concurrency=1_000)
    try:
        with _socket(host, port) as listener:
            address = listener.getsockname()
            ready(f"http://{f'[{address[0]}]' if ':' in address[0] else address[0]}:{address[1]}")
            uvicorn.Server(config).run(sockets=[listener])
    except (OSError, UnicodeError) as error:  # the second for a name that no host can have
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]  # which says it twice
        raise ConfigError(f"cannot listen on {host}:{port} ({reason}); give another --host or --port") from error


def _socket(host: str, port: int) -> Any:
    import socket

    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family, backlog=256)
