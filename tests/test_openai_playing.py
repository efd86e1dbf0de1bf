"""Episodes played by a model behind a server: right outcomes, nothing lost, no key in the records."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from openai_server import (
    BROKEN,
    DIES,
    MALFORMED,
    NO_CHOICES,
    OVERLOADED,
    RATE_LIMITED,
    TOO_LONG,
    StandIn,
    Trouble,
    planned,
    policy,
    prompt_text,
)

from harness.eval import main
from seed_agent.backends.openai import OpenAIPolicy
from seed_agent.chat import ChatPlayer, Language
from seed_agent.policy import Sampling
from seed_agent.rollout import Request, env_record, play
from seed_agent.trajectory import Episode, read_line
from seed_envs.presets import PRESETS
from seed_envs.prompting import builtin_template
from seed_envs.vector import EnvMaker, GroupVectorEnv

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture
def table() -> Iterator[Callable[..., list[Episode]]]:
    """Play the first tasks of the embedded split with a model behind a server."""
    opened: list[GroupVectorEnv] = []

    def run(
        policy: OpenAIPolicy, tasks: int = 3, turns: int = 2, max_tokens: int = 64, plan: list[Any] | None = None
    ) -> list[Episode]:
        maker = EnvMaker("seed_envs/ALFWorld-v0", {"split": "valid_seen", "max_episode_steps": turns})
        envs = GroupVectorEnv(maker, num_tasks=2)
        opened.append(envs)
        env = envs.prototype
        split = env.get_wrapper_attr("tasks")
        if plan is not None:
            env.reset(options={"task_id": split[0].id})
            plan.extend(env.get_wrapper_attr("oracle")())
        language = Language(builtin_template("alfworld"), PRESETS["alfworld"], Sampling(max_tokens=max_tokens))
        requests = [Request(task, run_seed=7) for task in split[:tasks]]
        found = list(play(requests, ChatPlayer(policy, language), envs, env_record(maker, env)))
        assert sorted(e.task_id for e in found) == sorted(r.task.id for r in requests)  # nothing is lost
        assert [read_line(e.to_line()) for e in found] == found
        return found

    yield run
    for envs in opened:
        envs.close()


def outcomes(episodes: Sequence[Episode]) -> list[str]:
    return [episode.outcome for episode in episodes]


@pytest.mark.parametrize("dialect", ["vllm", "openai", "plain"])
def test_a_model_that_follows_the_plan_wins(server: StandIn, table: Callable[..., list[Episode]], dialect: Any) -> None:
    plan: list[str] = []
    server.dialect, server.model = dialect, lambda body: planned(plan)(body)
    (episode,) = table(policy(server), tasks=1, turns=30, plan=plan)
    assert episode.outcome == "success" and [turn.action for turn in episode.turns] == plan
    assert all(turn.format_ok and turn.reply.endswith("</action>") for turn in episode.turns)
    assert all((turn.logp is not None) == (dialect == "vllm") for turn in episode.turns)
    assert episode.policy == f"openai:toy-model@{server.url}"


def test_outcomes_say_what_went_wrong(server: StandIn, table: Callable[..., list[Episode]]) -> None:
    assert outcomes(table(policy(server))) == ["step_limit"] * 3
    assert outcomes(table(policy(server), max_tokens=5)) == ["generation_truncated"] * 3
    server.model = lambda body: "I would rather not."
    assert outcomes(table(policy(server))) == ["invalid_format"] * 3
    server.model = lambda body: "<action>look</action>"
    assert outcomes(table(policy(server))) == ["invalid_format"] * 3


def test_cut_replies_execute_nothing(server: StandIn, table: Callable[..., list[Episode]]) -> None:
    episodes = table(policy(server), max_tokens=10)
    assert all(turn.reply.endswith("<action>") and turn.action == "" for e in episodes for turn in e.turns)


@pytest.mark.parametrize(
    "troubles", [[RATE_LIMITED], [BROKEN, MALFORMED], [DIES, OVERLOADED], [NO_CHOICES]], ids=["429", "500", "dies", "-"]
)
def test_passing_troubles_leave_no_trace_in_the_records(
    server: StandIn, table: Callable[..., list[Episode]], troubles: list[Trouble]
) -> None:
    calm = [episode.sha256 for episode in table(policy(server))]
    server.seen.clear()
    server.always(*troubles)
    assert [episode.sha256 for episode in table(policy(server, concurrency=1))] == calm
    assert len(server.requests) == 6 * 2 + 6 * len(troubles)


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [(BROKEN, "ServerError"), (DIES, "ConnectionLost"), (MALFORMED, "MalformedReply"), (TOO_LONG, "PromptTooLong")],
)
def test_lasting_troubles_end_only_the_episodes_they_happen_in(
    server: StandIn, table: Callable[..., list[Episode]], trouble: Trouble, kind: str
) -> None:
    server.trouble = lambda body, before: trouble if "This is turn 2." in prompt_text(body) else None
    hit = table(policy(server, retries=1), tasks=1)
    assert outcomes(hit) == ["policy_error"] and hit[0].failed_to_finish and len(hit[0].turns) == 1
    assert hit[0].error is not None and hit[0].error.type == kind
    bad_seed = server.requests[0]["seed"]
    server.trouble = lambda body, before: trouble if body["seed"] == bad_seed else None
    assert sorted(outcomes(table(policy(server, retries=1)))) == ["policy_error", "step_limit", "step_limit"]


def test_a_server_that_dies_for_good_leaves_policy_errors_and_a_later_run_is_whole(
    server: StandIn, table: Callable[..., list[Episode]]
) -> None:
    calm = table(policy(server))
    server.trouble = lambda body, before: DIES if len(server.requests) > 8 else None
    broken = table(policy(server, retries=1, concurrency=1))
    finished = [episode.sha256 for episode in broken if not episode.failed_to_finish]
    assert outcomes(broken).count("policy_error") and set(finished) < {episode.sha256 for episode in calm}
    server.always()
    assert [episode.sha256 for episode in table(policy(server))] == [episode.sha256 for episode in calm]


def evaluate(server: StandIn, *flags: str) -> int:
    spec = f"openai:toy-model@{server.url}?retries=1"
    given = ("--env", "ALFWorld-v0", "--split", "seen", "--limit", "1", "--max-turns", "2", "--out", "run")
    return main([*given, "--policy", spec, *flags])


def test_an_evaluation_without_its_server_ends_before_the_first_episode(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for trouble, expected in (
        (Trouble.error(401, "no such key"), "HTTP 401: no such key; set the environment variable OPENAI_API_KEY"),
        (Trouble.error(404, "no such model"), "HTTP 404: no such model; check the model's name and the URL"),
        (BROKEN, "an illegal memory access was encountered after 2 attempts; start a server there, such as vllm serve"),
    ):
        server.always(trouble, trouble)
        server.seen.clear()
        assert evaluate(server) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"error: openai:toy-model@{server.url} does not answer: ") and err.count("\n") == 1
        assert expected in err and not list(tmp_path.iterdir())
    server.trouble = lambda body, before: RATE_LIMITED if body["max_tokens"] == 1 else None  # busy, so it is there
    asked = len(server.requests)
    assert evaluate(server) == 0 and server.requests[asked]["max_tokens"] == 1
    asked = len(server.requests)
    assert evaluate(server) == 0 and len(server.requests) == asked  # nothing is left to play
    assert evaluate(server, "--dry-run") == 0
    capsys.readouterr()
    server.shutdown()
    server.server_close()
    assert evaluate(server, "--fresh") == 2
    assert "cannot connect, is the server running?" in capsys.readouterr().err
    assert Path("run/summary.json").exists()  # what was there is not given up for a run that cannot be


def test_the_key_is_nowhere_but_in_the_header(
    server: StandIn,
    table: Callable[..., list[Episode]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.key = "another key, so that the server repeats ours in its refusal"
    made = policy(server)
    refused = table(made, tasks=1)
    server.key = KEY
    played = table(made, tasks=1)
    assert (outcomes(refused), outcomes(played)) == (["policy_error"], ["step_limit"])
    assert refused[0].error is not None and "Bearer ***" in refused[0].error.message
    shown = [refused[0].to_line(), played[0].to_line(), json.dumps(made.facts()), made.name, repr(made), caplog.text]
    assert not any(KEY in text for text in shown)
