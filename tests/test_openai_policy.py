"""The HTTP model policy against a stand-in server that behaves like real ones, bad days included."""

import asyncio
import base64
import io
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest
from openai_server import (
    BROKEN,
    DIES,
    MALFORMED,
    NO_CHOICES,
    NO_IMAGES,
    OVERLOADED,
    RATE_LIMITED,
    SAMPLING,
    SLOW,
    TOO_LONG,
    Body,
    StandIn,
    Trouble,
    ask,
    choice,
    complete,
    policy,
    prompt_text,
)
from PIL import Image

from seed_agent.backends.openai import OpenAIPolicy, make
from seed_agent.backends.openai_wire import retry_after
from seed_agent.policy import MODELS, Completion, Message, Prompt, Sampling
from seed_envs.errors import ConfigError
from seed_envs.prompting import IMAGE
from seed_envs.vector import Failure

KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


# --- the specification ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "model", "url"),
    [
        ("m@http://localhost:8000/v1", "m", "http://localhost:8000/v1"),
        ("m@http://localhost:8000", "m", "http://localhost:8000/v1"),
        ("m@HTTPS://API.Example.org/v1/", "m", "https://api.example.org/v1"),
        ("org/model@rev@https://h/openai/v1beta", "org/model@rev", "https://h/openai/v1beta"),
        ("@cf/org/m@https://h/v1/chat/completions", "@cf/org/m", "https://h/v1"),
        ("m@http://[::1]:8000", "m", "http://[::1]:8000/v1"),
    ],
)
def test_a_specification_names_model_and_server(rest: str, model: str, url: str) -> None:
    made = make(rest)
    assert (made.model, made.url, made.name) == (model, url, f"openai:{model}@{url}")
    assert (made.concurrency, made.timeout_s, made.retries) == (16, 120.0, 4)


def test_options_come_after_the_url_and_are_no_part_of_the_name() -> None:
    made = MODELS.get("openai")("m@http://h:1?concurrency=8&timeout=2.5&retries=0")
    assert made.name == "openai:m@http://h:1/v1"
    assert made.facts() == {
        "kind": "openai",
        "model": "m",
        "url": "http://h:1/v1",
        "concurrency": 8,
        "timeout_s": 2.5,
        "retries": 0,
    }


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("gpt", "names no server"),
        ("gpt@localhost:8000", "names no server"),
        ("@http://h", "names no server"),
        (f"gpt@{KEY}@h", "names no server"),
        (f"gpt@http://:{KEY}@h/v1", "no user or key"),
        (f"gpt@http://user:{KEY}/x@h/v1", "no user or key"),
        ("gpt@http://", "names no server"),
        ("gpt@http:///v1", "no plain"),
        ("gpt@http://h:port/v1", "malformed"),
        ("gpt@http://[::1/v1", "malformed"),
        ("gpt@http://h/v1#top", "no plain"),
        (f"gpt@http://h/v1?api_key={KEY}", "unknown option 'api_key'"),
        ("gpt@http://h?concurrency=many", "concurrency='many'"),
        ("gpt@http://h?retries=1.5", "retries='1.5'"),
        ("gpt@http://h?concurrency=0", "out of range"),
        ("gpt@http://h?timeout=nan", "out of range"),
        ("gpt@http://h?timeout=inf", "out of range"),
        ("gpt@http://h?retries=-1", "out of range"),
    ],
)
def test_a_bad_specification_is_one_line_without_secrets(rest: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        make(rest)
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_key_no_header_can_carry_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\nX-Other: 1")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as caught:
        make("m@http://h")
    assert KEY not in str(caught.value)


def test_scoring_is_refused(server: StandIn) -> None:
    with pytest.raises(ConfigError, match="cannot score"):
        policy(server).score(ask("x"), [[1]])


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_a_request_says_everything(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    chat = (Message("system", "be brief"), Message("user", "- look \U0001f600"))
    made = policy(server)
    made.generate([made.prompt(chat)], Sampling(0.4, 0.9, 7, ("</action>", "END")), [(1 << 62) + (1 << 31) + 5])
    assert server.requests == [
        {
            "model": "toy-model",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "- look \U0001f600"}],
            "temperature": 0.4,
            "top_p": 0.9,
            "max_tokens": 7,
            "stop": ["</action>", "END"],
            "seed": 5,
            "n": 1,
            "return_token_ids": True,
        }
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_without_a_key_there_is_no_header_and_without_stops_no_field(server: StandIn) -> None:
    complete(server, sampling=Sampling(stop=()))
    assert "Authorization" not in server.headers[0]
    assert "stop" not in server.requests[0]


def test_images_stand_where_the_markers_are(server: StandIn) -> None:
    rng = np.random.default_rng(0)
    images = tuple(rng.integers(0, 256, shape, dtype=np.uint8) for shape in [(96, 96, 3), (7, 5, 3)])
    text = f"before {IMAGE} between {IMAGE}\n- look\n{IMAGE} is only a word"
    (answer,) = policy(server).generate([Prompt((Message("user", text, images),))], SAMPLING, [1])
    assert isinstance(answer, Completion)
    parts = server.requests[0]["messages"][0]["content"]
    assert [p.get("text", p["type"]) for p in parts] == [
        "before ",
        "image_url",
        " between ",
        "image_url",
        f"\n- look\n{IMAGE} is only a word",
    ]
    for part, pixels in zip([p for p in parts if "image_url" in p], images, strict=True):
        head, _, data = part["image_url"]["url"].partition(",")
        assert head == "data:image/png;base64"
        with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as image:
            assert (image.format, image.mode) == ("PNG", "RGB")
            assert np.array_equal(np.asarray(image), pixels)


def test_an_image_without_a_marker_fails_alone(server: StandIn) -> None:
    lost = Prompt((Message("user", "no marker", (np.zeros((2, 2, 3), np.uint8),)),))
    bad, good = policy(server).generate([lost, *ask("- look")], SAMPLING, [1, 2])
    assert isinstance(bad, Failure) and bad.type == "ConfigError" and "1 images and 0" in bad.message
    assert isinstance(good, Completion)


# --- bad days ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (RATE_LIMITED, "ServerError"),
        (BROKEN, "ServerError"),
        (OVERLOADED, "ServerError"),
        (MALFORMED, "MalformedReply"),
        (NO_CHOICES, "MalformedReply"),
        (Trouble(200, b"[" * 50_000), "MalformedReply"),
        (Trouble(200, choice(message={"content": 7})), "MalformedReply"),
        (Trouble(200, b'{"choices": [{"message": {"content": "\\ud800"}}]}'), "MalformedReply"),
        (DIES, "ConnectionLost"),
        (SLOW, "ServerTimeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_passing_trouble_is_tried_again_and_a_lasting_one_is_a_failure(
    server: StandIn, trouble: Trouble, kind: str
) -> None:
    timeout_s = 0.5 if trouble is SLOW else 10.0
    server.always(trouble, trouble)
    assert complete(server, retries=2, timeout_s=timeout_s).text.endswith("<action>look</action>")
    server.seen.clear()
    failed = complete(server, retries=1, timeout_s=timeout_s)
    assert isinstance(failed, Failure) and failed.type == kind
    assert failed.message.startswith(f"{server.url}/chat/completions: ")
    assert failed.message.endswith(" after 2 attempts")
    assert "\n" not in failed.message
    assert len(server.requests) == 5
    if trouble.status != 200:
        assert f"HTTP {trouble.status}" in failed.message


@pytest.mark.parametrize(
    ("trouble", "kind", "says", "requests"),
    [
        (TOO_LONG, "PromptTooLong", "maximum context length", 1),
        (Trouble(400, b'{"error": {"code": "context_length_exceeded"}}'), "PromptTooLong", "HTTP 400", 1),
        (NO_IMAGES, "RequestRefused", "image input", 2),  # the second without optional fields
        (Trouble(422, b'{"detail": [{"loc": ["body"], "msg": "bad"}]}'), "RequestRefused", "bad", 2),
        (Trouble.error(401, "who are you?"), "RequestRefused", "set the environment variable OPENAI_API_KEY", 1),
        (Trouble.error(403, "no"), "RequestRefused", "HTTP 403", 1),
        (Trouble.error(404, "The model `toy-model` does not exist."), "RequestRefused", "check the model's name", 1),
        (Trouble(404, b"[" * 50_000), "RequestRefused", "HTTP 404", 1),
        (Trouble(302, b"", {"Location": "http://localhost:1/"}), "RequestRefused", "HTTP 302", 1),
        (Trouble.error(418, "a \ud800 surrogate"), "RequestRefused", "a ? surrogate", 1),
    ],
)
def test_what_will_not_change_is_not_tried_again(
    server: StandIn, trouble: Trouble, kind: str, says: str, requests: int
) -> None:
    server.always(*[trouble] * 9)
    failed = complete(server)
    assert isinstance(failed, Failure) and failed.type == kind
    assert says in failed.message and len(failed.message) < 500
    assert len(server.requests) == requests


def test_a_failure_leaves_the_others_unharmed_and_in_order(server: StandIn) -> None:
    server.trouble = lambda body, before: BROKEN if prompt_text(body)[-1] in "37" else None
    answers = policy(server, retries=1).generate(ask(*(f"- command {i}" for i in range(10))), SAMPLING, range(10))
    for i, answer in enumerate(answers):
        if i in (3, 7):
            assert isinstance(answer, Failure)
        else:
            assert isinstance(answer, Completion) and f"<action>command {i}</action>" in answer.text


def test_a_server_that_is_not_there_fails_every_request() -> None:
    with socket.socket() as taken:  # bound, not listening: nobody else gets the port, nobody answers
        taken.bind(("127.0.0.1", 0))
        made = OpenAIPolicy("m", f"http://127.0.0.1:{taken.getsockname()[1]}", retries=1, backoff_s=0.001)
        answers = made.generate(ask("a", "b"), SAMPLING, [1, 2])
    assert [answer.type for answer in answers if isinstance(answer, Failure)] == ["ServerUnreachable"] * 2


def test_the_time_out_covers_an_answer_that_drips(server: StandIn) -> None:
    server.always(Trouble(200, b" " * 50, drip=0.05))
    start = time.monotonic()
    failed = complete(server, retries=0, timeout_s=0.3)
    assert isinstance(failed, Failure) and failed.type == "ServerTimeout"
    assert time.monotonic() - start < 2  # dripping on would take 2.5 s


def test_retry_after_is_obeyed(server: StandIn) -> None:
    server.always(Trouble.error(429, "later", Retry_After="0.3"))
    start = time.monotonic()
    assert isinstance(complete(server), Completion)
    assert 0.3 <= time.monotonic() - start < 3


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [("7", 7, 7), ("", 0, 0), ("soon", 0, 0), ("-3", 0, 0), ("nan", 0, 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0)],
)
def test_retry_after_is_read(value: str, low: float, high: float) -> None:
    assert low <= retry_after(value) <= high


def test_retry_after_may_be_a_date_and_is_capped() -> None:
    soon = retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True))
    assert 25 <= soon <= 30
    assert make("m@http://h")._pause(1, 1, 1e9) == 60


def test_pauses_double_and_depend_on_the_seed_alone() -> None:
    made = make("m@http://h")
    pauses = [[made._pause(seed, attempt, 0) for attempt in range(1, 9)] for seed in (1, 2, 1)]
    assert pauses[0] == pauses[2] != pauses[1]
    for attempt, pause in enumerate(pauses[0]):
        assert 0.5 <= pause / min(0.5 * 2**attempt, 30) <= 1


# --- side by side -----------------------------------------------------------------------------------------------------


def test_requests_run_side_by_side_within_the_limit_and_answers_keep_their_order(server: StandIn) -> None:
    def model(body: Body) -> str:
        number = int(prompt_text(body))
        time.sleep(0.02 + 0.02 * (number % 3 == 0))
        return f"<action>{number}</action>"

    server.model = model
    prompts = ask(*map(str, range(20)))
    answers = policy(server, concurrency=4).generate(prompts, SAMPLING, range(20))
    assert [a.text for a in answers if isinstance(a, Completion)] == [f"<action>{i}</action>" for i in range(20)]
    assert 2 <= server.most_at_once <= 4


def test_waiting_for_a_turn_is_no_time_out(server: StandIn) -> None:
    def model(body: Body) -> str:
        time.sleep(0.2)
        return "done"

    server.model = model
    answers = policy(server, concurrency=1, timeout_s=0.7, retries=0).generate(ask(*"abcde"), SAMPLING, range(5))
    assert [type(answer) for answer in answers] == [Completion] * 5


def test_several_threads_and_a_running_loop_may_generate(server: StandIn) -> None:
    made = policy(server)

    def work(name: str) -> list[Completion | Failure]:
        return made.generate(ask(f"- {name}", f"- {name}!"), SAMPLING, [1, 2])

    async def notebook() -> list[Completion | Failure]:
        return work("loop")

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, "abcd"))
    for name, answers in zip([*"abcd", "loop"], [*found, asyncio.run(notebook())], strict=True):
        assert [re.findall("<action>(.*)</action>", a.text) for a in answers if isinstance(a, Completion)] == [
            [name],
            [f"{name}!"],
        ]
    assert made.generate([], SAMPLING, []) == []


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread only"
)
def test_ctrl_c_ends_a_call_at_once(server: StandIn) -> None:
    def trouble(body: Body, before: int) -> Trouble:
        os.kill(os.getpid(), signal.SIGINT)
        return SLOW

    server.trouble = trouble
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        complete(server)
    assert time.monotonic() - start < SLOW.delay / 2
