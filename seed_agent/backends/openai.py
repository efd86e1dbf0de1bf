"""``openai:MODEL@URL``: a model behind any server that speaks OpenAI's chat completions.

The requests of one ``generate`` run side by side on an event loop that lives as long as the call:
nothing stays open between calls, Ctrl-C ends them at once and a time-out covers a whole request.
"""

import asyncio
import json
import math
import os
import re
import ssl
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import httpx

from seed_agent.backends.openai_wire import complaint, content, logprobs_agree, read_completion, retry_after, too_long
from seed_agent.policy import Chat, Completion, Message, Prompt, Sampling
from seed_envs.errors import ConfigError
from seed_envs.seeding import Draws
from seed_envs.vector import Failure

T = TypeVar("T")

KEY_VARIABLE = "OPENAI_API_KEY"
EXAMPLE = "openai:my-model@http://localhost:8000/v1"
OPTIONS = {"concurrency": "a whole number from 1 to 256", "timeout": "seconds above 0", "retries": "0 to 20"}

_RETRIED = (429, 500, 502, 503, 504)
_LONGEST_BACKOFF_S, _LONGEST_RETRY_AFTER_S = 30.0, 60.0
_PROBE_S = 5.0
"""Seconds that ``check_server`` tries again; a request that is under way may take as long once more."""
_HINTS = {
    401: f"set the environment variable {KEY_VARIABLE}",
    403: f"check the environment variable {KEY_VARIABLE}",
    404: "check the model's name and the URL, which usually ends in /v1",
}


def make(rest: str) -> "OpenAIPolicy":
    """Make the policy of ``MODEL@URL[?concurrency=N&timeout=SECONDS&retries=N]``.

    Raises:
        ConfigError: when a part is missing, malformed or not known.
    """
    found = re.fullmatch(r"(.+)@(https?://.+)", rest, re.IGNORECASE | re.DOTALL)
    if found is None:  # what follows the model may hold a secret: it is not repeated
        raise ConfigError(f"openai:{rest.partition('@')[0]}... names no server; expected MODEL@URL, such as {EXAMPLE}")
    url, _, query = found[2].partition("?")
    options = _options(query)
    return OpenAIPolicy(
        found[1],
        url,
        concurrency=int(options.get("concurrency", 16)),
        timeout_s=options.get("timeout", 120.0),
        retries=int(options.get("retries", 4)),
    )


def _options(query: str) -> dict[str, float]:
    options: dict[str, float] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            raise ConfigError(
                f"openai: unknown option {name!r}; known: {', '.join(OPTIONS)}, as in {EXAMPLE}?retries=2"
            )
        try:
            options[name] = float(text) if name == "timeout" else int(text)
        except ValueError:
            raise ConfigError(f"openai: {name}={text!r} cannot be used; expected {OPTIONS[name]}") from None
    return options


def _base_url(url: str) -> str:
    """Return ``url`` in one form, without a closing slash; a bare server gets ``/v1``."""
    if "@" in url:
        raise ConfigError(f"openai: no user or key belongs in the URL; set {KEY_VARIABLE} and write {EXAMPLE}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"openai: the URL is malformed ({error}); expected {EXAMPLE}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"openai: the URL is no plain http(s)://HOST[:PORT][/PATH]; expected {EXAMPLE}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{path}"


def _key() -> str:
    """Return the key of the environment, or nothing; refuse one that no header can carry."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ConfigError(f"{KEY_VARIABLE} holds blanks or characters beyond ASCII; expected one printable word")
    return key


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why an attempt gave no completion."""

    type: str
    message: str
    again: bool = True
    """Whether another attempt may succeed."""
    wait_s: float = 0.0
    """How long the server asks to wait first."""
    waits: bool = False
    """Whether there is a server and patience is all that it takes."""


class OpenAIPolicy:
    """A model that a server runs and whose chat template the server applies.

    Prompts carry no token ids. Completions carry them where the server returns them (vLLM);
    their log-probabilities are kept only at temperature 1 and top-p 1, because elsewhere servers
    differ in whether they report them before or after scaling.

    Servers cut the stop string off. It is put back where the server says that it ended the text
    (``stop_reason`` of vLLM, ``matched_stop`` of SGLang) and, where the server does not say,
    behind a tag that is still open: an end of text in mid-action cannot be told apart there.
    """

    def __init__(
        self,
        model: str,
        url: str,
        *,
        concurrency: int = 16,
        timeout_s: float = 120.0,
        retries: int = 4,
        backoff_s: float = 0.5,
    ) -> None:
        """Talk to ``model`` at ``url``; the key, if any, is read from ``OPENAI_API_KEY``.

        Args:
            model: The name the server knows the model by.
            url: ``http(s)://HOST[:PORT]``, with the path up to ``/chat/completions`` if it is not ``/v1``.
            concurrency: Requests at the same time, 1 to 256.
            timeout_s: Seconds one attempt may take from connecting to the last byte.
            retries: Attempts after the first, 0 to 20.
            backoff_s: Seconds before the first retry; they double with every further one.

        Raises:
            ConfigError: when a value cannot be used.
        """
        if not 1 <= concurrency <= 256 or not 0 <= retries <= 20 or not 0 < timeout_s < math.inf:
            wanted = ", ".join(f"{name}: {what}" for name, what in OPTIONS.items())
            raise ConfigError(f"openai: an option is out of range; expected {wanted}")
        self.model, self.url = model, _base_url(url)
        self.concurrency, self.timeout_s, self.retries, self.backoff_s = concurrency, timeout_s, retries, backoff_s
        self.name = f"openai:{model}@{self.url}"
        self._endpoint = f"{self.url}/chat/completions"
        self._secret = _key()
        self._takes_extras = True

    def facts(self) -> dict[str, Any]:
        """Return what a run records of the model; never the key."""
        return {
            "kind": "openai",
            "model": self.model,
            "url": self.url,
            "concurrency": self.concurrency,
            "timeout_s": self.timeout_s,
            "retries": self.retries,
        }

    def prompt(self, chat: Chat) -> Prompt:
        """Return ``chat`` as it is: the server renders it."""
        return Prompt(chat)

    def score(
        self, prompts: Sequence[Prompt], completions: Sequence[Sequence[int]], *, temperature: float = 1.0
    ) -> list[tuple[float, ...]]:
        """Refuse: chat completions return log-probabilities of what was sampled only.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{self.name} cannot score given completions; use a local model, hf:NAME_OR_PATH")

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]
    ) -> list[Completion | Failure]:
        """Complete every prompt, in order; a request that fails for good is a ``Failure`` in its place.

        Its type is PromptTooLong, RequestRefused, ServerError, ServerTimeout, ServerUnreachable,
        ConnectionLost or MalformedReply. May be called from several threads at once.
        """
        return _run(self._generate(list(zip(prompts, seeds, strict=True)), sampling))

    def check_server(self) -> None:
        """Ask for one token, so that a run without a server that answers ends before its first episode.

        Attempts are as a run's and end after a few seconds. A server that is there and slow, or busy, passes.

        Raises:
            ConfigError: when there is no server, or it refuses or cannot answer.
        """
        timeout_s = min(self.timeout_s, 2 * _PROBE_S)
        quick = OpenAIPolicy(self.model, self.url, timeout_s=timeout_s, retries=self.retries, backoff_s=self.backoff_s)
        trouble, tries = _run(quick._probe())
        if trouble is None or trouble.waits:
            return
        hint = "; start a server there, such as vllm serve MODEL, or correct MODEL@URL" if trouble.again else ""
        raise ConfigError(f"{self.name} does not answer: {self._endpoint}: {trouble.message}{tries}{hint}")

    async def _probe(self) -> tuple[_Trouble | None, str]:
        """Return what is wrong with the server, None for nothing, and how often it was tried."""
        until, sampling = asyncio.get_running_loop().time() + _PROBE_S, Sampling(max_tokens=1)
        body = self._body(Prompt((Message("user", "Say yes."),)), sampling, 0)
        async with self._client(connect_s=_PROBE_S) as client:
            answer, tries = await self._persist(client, body, sampling, 0, until=until)
        return (answer if isinstance(answer, _Trouble) else None), tries

    def _client(self, *, connect_s: float | None = None) -> httpx.AsyncClient:
        headers = {"Content-Type": "application/json"}
        if self._secret:
            headers["Authorization"] = f"Bearer {self._secret}"
        local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        return httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=connect_s),  # the time-out of _post covers the whole attempt
            limits=httpx.Limits(max_connections=self.concurrency),
            verify=_tls(),
            trust_env=not local,  # a proxy cannot reach this machine's own servers
        )

    async def _generate(self, requests: Sequence[tuple[Prompt, int]], sampling: Sampling) -> list[Completion | Failure]:
        turnstile = asyncio.Semaphore(self.concurrency)
        async with self._client() as client:

            async def one(prompt: Prompt, seed: int) -> Completion | Failure:
                async with turnstile:
                    return await self._ask(client, prompt, sampling, seed)

            return list(await asyncio.gather(*(one(prompt, seed) for prompt, seed in requests)))

    async def _ask(
        self, client: httpx.AsyncClient, prompt: Prompt, sampling: Sampling, seed: int
    ) -> Completion | Failure:
        """Return the completion of a prompt, or why there is none."""
        try:
            body = self._body(prompt, sampling, seed)
        except ConfigError as error:
            return Failure.of(error)
        answer, tries = await self._persist(client, body, sampling, seed)
        if isinstance(answer, _Trouble):
            return Failure(answer.type, f"{self._endpoint}: {answer.message}{tries}")
        return answer

    async def _persist(
        self,
        client: httpx.AsyncClient,
        body: dict[str, Any],
        sampling: Sampling,
        seed: int,
        *,
        until: float = math.inf,
    ) -> tuple[Completion | _Trouble, str]:
        """Try until there is a completion, the trouble is for good, or attempts or time (``until``) are used up."""
        attempt, clock = 0, asyncio.get_running_loop().time
        while isinstance(answer := await self._attempt(client, body, sampling), _Trouble):
            attempt += 1
            pause = self._pause(seed, attempt, answer.wait_s)
            if not answer.again or attempt > self.retries or clock() + pause > until:
                return answer, f" after {attempt} attempts" if attempt > 1 else ""
            await asyncio.sleep(pause)
        return answer, ""

    def _pause(self, seed: int, attempt: int, wait_s: float) -> float:
        """Return the seconds before a retry: doubling, spread by the seed, as long as the server asks."""
        spread = 0.5 + (Draws("retry", seed, attempt).random_raw() >> 11) / (1 << 54)
        backoff = min(self.backoff_s * 2.0 ** (attempt - 1), _LONGEST_BACKOFF_S)
        return max(backoff * spread, min(wait_s, _LONGEST_RETRY_AFTER_S))

    def _body(self, prompt: Prompt, sampling: Sampling, seed: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": message.role, "content": content(message)} for message in prompt.chat],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": seed & 0x7FFFFFFF,  # servers take 32 signed bits
            "n": 1,
        }
        return {**body, "stop": list(sampling.stop)} if sampling.stop else body

    async def _attempt(
        self, client: httpx.AsyncClient, body: dict[str, Any], sampling: Sampling
    ) -> Completion | _Trouble:
        """Send one request; a server that refuses its optional fields is asked again without them."""
        extras: dict[str, Any] = {"return_token_ids": True} if self._takes_extras else {}
        if extras and logprobs_agree(sampling):
            extras["logprobs"] = True
        response = await self._post(client, {**body, **extras})
        if extras and _refuses_fields(response):
            response = await self._post(client, body)
            if isinstance(response, httpx.Response) and response.status_code == 200:
                self._takes_extras = False
        if isinstance(response, _Trouble):
            return response
        if response.status_code != 200:
            return self._refusal(response)
        try:
            return read_completion(response.content, sampling)
        except ValueError as error:
            return _Trouble("MalformedReply", self._line(f"HTTP 200 with no usable completion: {error}"))

    async def _post(self, client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response | _Trouble:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await client.post(self._endpoint, content=json.dumps(body))
        except TimeoutError:
            return _Trouble("ServerTimeout", f"no answer within {self.timeout_s:g} s", waits=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return _Trouble("ServerUnreachable", self._line(f"cannot connect, is the server running? {error}"))
        except httpx.RequestError as error:
            return _Trouble("ConnectionLost", self._line(f"the connection broke: {type(error).__name__} {error}"))

    def _refusal(self, response: httpx.Response) -> _Trouble:
        status = response.status_code
        message = self._line(f"HTTP {status}: {complaint(response.text)}")
        if status in _RETRIED:
            wait_s = retry_after(response.headers.get("Retry-After", ""))
            return _Trouble("ServerError", message, wait_s=wait_s, waits=status == 429)
        if status in (400, 413, 422) and too_long(response.text):
            return _Trouble("PromptTooLong", message, again=False)
        hint = f"; {_HINTS[status]}" if status in _HINTS else ""
        return _Trouble("RequestRefused", message + hint, again=False)

    def _line(self, text: str) -> str:
        """Return a server's words as one short line that records can hold, without the key."""
        if self._secret:
            text = text.replace(self._secret, "***")
        line = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
        return line if len(line) <= 300 else f"{line[:297]}..."


@cache
def _tls() -> ssl.SSLContext:
    """Return the certificates to trust; reading them takes a tenth of a second."""
    return httpx.create_ssl_context()


def _refuses_fields(response: httpx.Response | _Trouble) -> bool:
    if isinstance(response, _Trouble):
        return False
    return response.status_code in (400, 422) and not too_long(response.text)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end, beside the caller's event loop if there is one (as in a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
