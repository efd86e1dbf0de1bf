"""A client for search servers, in both published dialects.

``search_r1``: ``{"queries": [...], "topk": k, "return_scores": true}``; ``verl_agent`` (SkyRL's too):
``{"query": "...", ...}``, one request per query. Both answer ``{"result": [[{"document", "score"}, ...], ...]}``.

Source: Search-R1's retrieval server, verl-agent's and SkyRL's search environments.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx

from seed_envs.errors import ConfigError, UnknownName
from seed_envs.search.passages import Passage, without_surrogates
from seed_envs.search.retrievers import RetrievalError

DIALECTS = ("search_r1", "verl_agent")

RETRIES, TIMEOUT_S, WAIT_S = 10, 30.0, 1.0
"""Of the published environments: attempts, seconds for an answer, seconds to wait after the first."""

BATCH = 128
"""Queries of one request."""

ROUTE = "/retrieve"


class HttpRetriever:
    """Passages from a search server; connections are pooled and each process has its own."""

    def __init__(
        self,
        url: str,
        *,
        dialect: str = "search_r1",
        retries: int = RETRIES,
        timeout_s: float = TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Name a server; it is not asked yet.

        Args:
            url: its address; ``/retrieve`` is added where there is no path.
            dialect: one of ``DIALECTS``.
            retries: attempts in all, for a server that is away, slow or answers 5xx or 429.
            timeout_s: seconds for one answer.
            sleep: waits between attempts.

        Raises:
            ConfigError: when ``url`` is no address of a server, or a number is not positive.
        """
        self._client: httpx.Client | None = None
        self._process = 0
        if dialect not in DIALECTS:
            raise UnknownName("search dialect", dialect, DIALECTS)
        try:
            address = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise ConfigError(f"{url!r} is no address: {error}; expected such as http://127.0.0.1:8000") from error
        if address.scheme not in ("http", "https") or not address.host:
            raise ConfigError(f"{url!r} is no address of a server; expected such as http://127.0.0.1:8000")
        if retries < 1 or timeout_s <= 0:
            raise ConfigError(f"retries {retries} and timeout_s {timeout_s} must be positive")
        self.url = str(address.copy_with(path=ROUTE) if address.path in ("", "/") else address)
        self.dialect, self.retries, self.timeout_s, self._sleep = dialect, retries, timeout_s, sleep

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the ``k`` best passages for each query: the first ``k`` where the server sends more.

        Raises:
            RetrievalError: when the server cannot be reached, refuses or answers something else.
        """
        if not queries:
            return []
        return [found[:k] for request in self._requests(queries, k) for found in self._asked(*request)]

    def describe(self) -> dict[str, Any]:
        """Return what is known of the server: its address is not kept, for it says nothing of the result."""
        return {"backend": "http", "dialect": self.dialect}

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None and self._process == os.getpid():
            self._client.close()
        self._client = None

    def __del__(self) -> None:
        """Close what nobody closed."""
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without connections."""
        return {**self.__dict__, "_client": None, "_process": 0}

    def _requests(self, queries: Sequence[str], k: int) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the bodies to send and how many result lists each must bring."""
        clean = [without_surrogates(query) for query in queries]
        common = {"topk": k, "return_scores": True}
        if self.dialect == "verl_agent":
            yield from (({"query": query, **common}, 1) for query in clean)
        else:
            for at in range(0, len(clean), BATCH):
                yield {"queries": clean[at : at + BATCH], **common}, len(clean[at : at + BATCH])

    def _asked(self, body: Mapping[str, Any], expected: int) -> list[list[Passage]]:
        """Send one request as often as needed."""
        reason = ""
        for attempt in range(1, self.retries + 1):
            try:
                answer = self._connected().post(self.url, json=body)
                if answer.status_code < 500 and answer.status_code != 429:
                    return _read(answer, expected, self.url)
                reason = f"HTTP {answer.status_code}"
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
            except (httpx.RequestError, UnicodeError) as error:  # going in circles, torn, or a name no host can have
                raise RetrievalError(f"the search server {self.url} cannot be asked: {error}") from error
            if attempt < self.retries:
                self._sleep(WAIT_S * attempt)
        raise RetrievalError(
            f"the search server {self.url} gave no answer in {self.retries} attempts ({reason}); "
            "start one with: python -m seed_envs serve-search FOLDER"
        )

    def _connected(self) -> httpx.Client:
        """Return this process's client: connections must not be shared with a forked one."""
        if self._client is None or self._process != os.getpid():
            limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
            self._client = httpx.Client(timeout=self.timeout_s, limits=limits, follow_redirects=True)
            self._process = os.getpid()
        return self._client


def _read(answer: httpx.Response, expected: int, url: str) -> list[list[Passage]]:
    """Return the passages of an answer.

    Raises:
        RetrievalError: when it is a refusal or not what was agreed.
    """
    if not answer.is_success:
        raise RetrievalError(f"the search server {url} refused: HTTP {answer.status_code} {answer.text[:200].strip()}")
    try:
        lists = answer.json()["result"]
        if lists == []:  # what verl-agent's server means by "nothing found"
            return [[] for _ in range(expected)]
        if len(lists) != expected:
            raise ValueError(f"{len(lists)} result lists for {expected} queries")
        return [[_passage(entry) for entry in entries] for entries in lists]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RetrievalError(
            f"the search server {url} answered what cannot be read ({type(error).__name__}: {error}); expected "
            '{"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}'
        ) from error


def _passage(entry: Mapping[str, Any]) -> Passage:
    """Read a document with its score, or a plain one, whose score is 0.

    Raises:
        ValueError: when the score is no finite number, or contents or text are no texts.
    """
    document = entry.get("document", entry)
    score = entry.get("score", 0.0)
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ValueError(f"the score {score!r:.40} is no finite number")
    number = "" if document.get("id") is None else without_surrogates(str(document["id"]))
    if "contents" in document:
        return Passage(number, _text(document["contents"]), float(score))
    title = without_surrogates(str(document.get("title") or ""))
    return Passage.of(number, title, _text(document["text"]), float(score))


def _text(part: object) -> str:
    if not isinstance(part, str):
        raise ValueError(f"{part!r:.40} where a text was expected")
    return without_surrogates(part)
