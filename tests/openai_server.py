"""A stand-in for servers that speak OpenAI's chat completions, with the bad days of real ones."""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from seed_agent.backends.openai import OpenAIPolicy
from seed_agent.policy import Message, Prompt, Sampling

Body = dict[str, Any]
Model = Callable[[Body], str]
"""What the model would write if nothing stopped it; the server cuts it."""

LOGP = -0.125
SAMPLING = Sampling(max_tokens=64)


@dataclass(frozen=True)
class Trouble:
    """One answer that is not the model's."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    """Seconds before the answer."""
    dies: bool = False
    """Close the connection in the middle of the body."""
    drip: float = 0.0
    """Seconds between the bytes of the body."""

    @classmethod
    def error(cls, status: int, message: str, **headers: str) -> "Trouble":
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, json.dumps({"error": {"message": message}}).encode(), named)


RATE_LIMITED = Trouble.error(429, "slow down", Retry_After="0")
BROKEN = Trouble.error(500, "CUDA error: an illegal memory access was encountered")
OVERLOADED = Trouble(503, b"<html>upstream\nis away</html>")
MALFORMED = Trouble(200, b'{"choices": [{"message": {"content": "<think>')
NO_CHOICES = Trouble(200, b'{"object": "error", "choices": []}')
DIES = Trouble(200, b'{"choices": []}' + b" " * 500, dies=True)
SLOW = Trouble(200, b"{}", delay=5.0)
TOO_LONG = Trouble.error(400, "This model's maximum context length is 512 tokens. However, you requested 900 tokens.")
NO_IMAGES = Trouble.error(400, "this model does not take image input")


def tokens(text: str) -> list[str]:
    """Cut ``text`` into the stand-in's tokens: pieces of at most four characters."""
    return re.findall(r".{1,4}", text, re.DOTALL)


def prompt_text(body: Body) -> str:
    """Return the text of the last message, images left out."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def first_offered(body: Body) -> str:
    """Answer with the first command that the prompt lists, and go on talking."""
    commands = re.findall(r"^- (.+)$", prompt_text(body), re.MULTILINE)
    return f"<think>the first will do</think><action>{commands[0]}</action> and then"


class StandIn(ThreadingHTTPServer):
    """Serves ``model`` the way ``dialect`` does and misbehaves as ``trouble`` says.

    ``vllm`` says what stopped a text and returns token ids and log-probabilities when asked;
    ``openai`` does not say and refuses fields it does not know; ``plain`` ignores them.
    ``trouble`` is asked with the request and how often the same one came before.
    ``requests`` and ``headers`` keep what came in; ``most_at_once`` counts requests side by side.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, model: Model = first_offered, dialect: Literal["vllm", "openai", "plain"] = "vllm") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model, self.dialect = model, dialect
        self.trouble: Callable[[Body, int], Trouble | None] = lambda body, before: None
        self.key = ""  # wanted from every request
        self.requests: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.seen: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def always(self, *troubles: Trouble | None) -> None:
        """Meet every request with these in turn, then with the model."""
        self.trouble = lambda body, before: troubles[before] if before < len(troubles) else None

    def __enter__(self) -> "StandIn":
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing when a client leaves early."""

    def answer(self, body: Body, headers: dict[str, str]) -> Trouble:
        """Return what to send."""
        identity = json.dumps([body["messages"], body["seed"]])
        with self.lock:
            before = self.seen[identity]
            self.seen[identity] += 1
            self.requests.append(body)
            self.headers.append(headers)
        if self.key and headers.get("Authorization") != f"Bearer {self.key}":
            return Trouble.error(401, f"Incorrect API key provided: {headers.get('Authorization')}")
        if self.dialect == "openai" and "return_token_ids" in body:
            with self.lock:
                self.seen[identity] -= 1
            return Trouble.error(400, "Unrecognized request argument supplied: return_token_ids")
        return self.trouble(body, before) or Trouble(200, json.dumps(self.complete(body)).encode())

    def complete(self, body: Body) -> Body:
        """Return the model's answer, cut by stop strings and by length."""
        text, reason, stopped_by, kept = self.model(body), "stop", None, None
        ends = {stop: text.find(stop) for stop in body.get("stop", []) if stop in text}
        if ends:
            stopped_by = min(ends, key=lambda stop: ends[stop])
            kept = text[: ends[stopped_by]]
            text = text[: ends[stopped_by] + len(stopped_by)]
        made = tokens(text)
        if len(made) > body["max_tokens"]:
            made, reason, stopped_by = made[: body["max_tokens"]], "length", None
            kept = "".join(made)
        choice: Body = {
            "index": 0,
            "message": {"role": "assistant", "content": text if kept is None else kept},
            "finish_reason": reason,
        }
        if self.dialect == "vllm":
            choice["stop_reason"] = stopped_by
            choice["token_ids"] = [ord(t[0]) for t in made] if body.get("return_token_ids") else None
            rows = [{"token": token, "logprob": LOGP} for token in made]
            choice["logprobs"] = {"content": rows} if body.get("logprobs") else None
        return {"object": "chat.completion", "model": body["model"], "choices": [choice]}


class Handler(BaseHTTPRequestHandler):
    server: StandIn
    protocol_version = "HTTP/1.1"
    timeout = 10  # a connection nobody uses ends by itself

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            answer = Trouble.error(404, f"no such path: {self.path}")
        else:
            with server.lock:
                server.at_once += 1
                server.most_at_once = max(server.most_at_once, server.at_once)
            answer = server.answer(body, dict(self.headers))
            server.closing.wait(answer.delay)
            with server.lock:
                server.at_once -= 1
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        sent = answer.body[: len(answer.body) // 2] if answer.dies else answer.body
        for start in range(0, len(sent), 1 if answer.drip else len(sent)):
            self.wfile.write(sent[start : start + 1] if answer.drip else sent)
            server.closing.wait(answer.drip)
        self.close_connection = answer.dies

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test output clean."""


def planned(plan: Sequence[str]) -> Model:
    """Return a model that follows ``plan``, finding its turn in the built-in prompts."""

    def model(body: Body) -> str:
        turn = re.search(r"This is turn (\d+)\.", prompt_text(body))
        return f"<think>as planned</think><action>{plan[int(turn[1]) - 1 if turn else 0]}</action>"

    return model


def choice(**fields: Any) -> bytes:
    """Return a hand-made answer with one choice."""
    made = {"message": {"content": "<action>look"}, "finish_reason": "stop", **fields}
    return json.dumps({"choices": [made]}).encode()


def policy(server: StandIn, **changes: Any) -> OpenAIPolicy:
    """Return a policy that talks to ``server`` and does not wait long before it tries again."""
    return OpenAIPolicy("toy-model", server.url, **{"backoff_s": 0.001, "timeout_s": 10.0, **changes})


def ask(*texts: str) -> list[Prompt]:
    """Return one prompt per text."""
    return [Prompt((Message("user", text),)) for text in texts]


def complete(server: StandIn, text: str = "- look", sampling: Sampling = SAMPLING, **changes: Any) -> Any:
    """Return what comes of one request."""
    (answer,) = policy(server, **changes).generate(ask(text), sampling, [1])
    return answer
