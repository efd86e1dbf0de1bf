"""What OpenAI-compatible servers answer, read as what the model wrote."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai_server import LOGP, SAMPLING, Body, StandIn, Trouble, ask, choice, complete, policy, tokens

from seed_agent.policy import Completion, Sampling


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with StandIn() as stand_in:
        yield stand_in


@pytest.mark.parametrize(
    ("dialect", "writes", "max_tokens", "text", "reason"),
    [
        ("vllm", "<action>look</action> more", 64, "<action>look</action>", "stop"),
        ("openai", "<action>look</action> more", 64, "<action>look</action>", "stop"),
        ("plain", "<Action>look</action> more", 64, "<Action>look</action>", "stop"),
        ("vllm", "<action>look", 64, "<action>look", "stop"),  # the model ended; vLLM says so
        ("plain", "<action>look", 64, "<action>look</action>", "stop"),  # cannot be told apart
        ("plain", "<think>done</think>", 64, "<think>done</think>", "stop"),
        ("plain", "<action>look< /action>", 64, "<action>look< /action>", "stop"),
        ("plain", "no tag at all", 64, "no tag at all", "stop"),
        ("vllm", "<action>examine desk 1</action>", 3, "<action>exam", "length"),
        ("plain", "<action>examine desk 1</action>", 3, "<action>exam", "length"),
        ("vllm", "", 64, "", "stop"),
    ],
)
def test_stop_strings_return_and_cut_texts_stay_cut(
    server: StandIn, dialect: Any, writes: str, max_tokens: int, text: str, reason: str
) -> None:
    server.dialect, server.model = dialect, lambda body: writes
    answer = complete(server, sampling=Sampling(max_tokens=max_tokens))
    assert (answer.text, answer.stop_reason) == (text, reason)


def test_the_stop_string_is_the_one_that_fits(server: StandIn) -> None:
    server.dialect, server.model = "plain", lambda body: "<search>tea</search> and"
    assert complete(server, sampling=Sampling(stop=("</answer>", "</search>"))).text == "<search>tea</search>"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (choice(matched_stop="</action>"), "<action>look</action>"),
        (choice(matched_stop=151645), "<action>look"),
        (choice(stop_reason=None, matched_stop=None), "<action>look"),
        (choice(stop_reason="</other>"), "<action>look"),
        (choice(stop_reason="</action>", message={"content": "<action>look</action>"}), "<action>look</action>"),
        (choice(finish_reason="content_filter"), "<action>look"),
        (choice(finish_reason=None), "<action>look"),
        (choice(message={"content": None, "refusal": "no"}), ""),
        (choice(message={}), ""),
        (choice(token_ids="no", logprobs=["no"]), "<action>look</action>"),
    ],
)
def test_other_servers_ways_of_saying_it(server: StandIn, body: bytes, text: str) -> None:
    server.always(Trouble(200, body))
    answer = complete(server)
    assert (answer.text, answer.stop_reason) == (text, "stop")


def test_token_ids_and_log_probabilities_are_kept_where_they_mean_one_thing(server: StandIn) -> None:
    answer = complete(server)
    made = tokens("<think>the first will do</think><action>look</action>")
    assert answer.token_ids == tuple(ord(token[0]) for token in made)
    assert answer.logp == (LOGP,) * len(made)
    for sampling in (Sampling(temperature=0.4), Sampling(top_p=0.9)):  # scaled or not? servers differ
        answer = complete(server, sampling=sampling)
        assert answer.token_ids and answer.logp is None
        assert "logprobs" not in server.requests[-1]
    server.always(Trouble(200, choice(token_ids=[1], logprobs={"content": [{"logprob": -1}]})))
    answer = complete(server, "- unasked", Sampling(temperature=0.4))
    assert (answer.token_ids, answer.logp) == ((1,), None)


@pytest.mark.parametrize(
    ("fields", "ids", "logp"),
    [
        ({"token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1}, {"logprob": -2.5}]}}, (1, 2), (-1.0, -2.5)),
        ({"token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1}]}}, None, None),
        ({"token_ids": [1, 2], "logprobs": None}, (1, 2), None),
        ({"token_ids": [1], "logprobs": {"content": [{"logprob": float("nan")}]}}, (1,), None),
        ({"token_ids": None, "logprobs": {"content": [{"logprob": -1}]}}, None, None),
    ],
)
def test_ids_and_log_probabilities_that_do_not_fit_are_dropped(
    server: StandIn, fields: Body, ids: object, logp: object
) -> None:
    server.always(Trouble(200, choice(**fields)))
    answer = complete(server)
    assert (answer.token_ids, answer.logp) == (ids, logp)


def test_optional_fields_are_dropped_once_and_for_all_where_they_are_refused(server: StandIn) -> None:
    server.dialect = "openai"
    made = policy(server)
    for _ in range(2):
        (answer,) = made.generate(ask("- look"), SAMPLING, [1])
        assert isinstance(answer, Completion) and answer.token_ids is answer.logp is None
    assert ["return_token_ids" in body for body in server.requests] == [True, False, False]
