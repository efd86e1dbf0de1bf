"""The rollout loop and the scripted policies: every task once, errors kept, nothing dropped."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seed_agent.policy import Decision, Situation, make_player
from seed_agent.rollout import Request, env_record, play
from seed_agent.trajectory import (
    OUTCOMES,
    EnvRecord,
    Episode,
    Seen,
    Turn,
    decide_outcome,
    read_line,
    records_sha256,
)
from seed_envs import ConfigError, DataError, EnvMaker, GroupVectorEnv, SeedError, UnknownName
from seed_envs.core import AgentEnv, View
from seed_envs.errors import WorkerDied
from seed_envs.tasks import Task, TaskSet
from seed_envs.vector import Failure

MAKER = EnvMaker("seed_envs/ALFWorld-v0", {"split": "valid_seen"})


def run(player: Any, *, batch: int = 4, workers: int = 0, count: int = 12, attempts: int = 1) -> list[Episode]:
    envs = GroupVectorEnv(MAKER, num_tasks=batch, workers=workers)
    tasks = envs.prototype.unwrapped.tasks.sample(count)  # type: ignore[attr-defined]
    requests = [Request(task, attempt) for task in tasks for attempt in range(attempts)]
    try:
        return list(play(requests, player, envs, env_record(MAKER, envs.prototype)))
    finally:
        envs.close()


@pytest.mark.parametrize("spec", ["scripted:oracle", "scripted:random", "scripted:noisy-oracle:0.5"])
def test_records_do_not_depend_on_batch_or_workers(spec: str) -> None:
    hashes = {
        records_sha256(e.sha256 for e in run(make_player(spec), batch=batch, workers=workers, attempts=2))
        for batch, workers in ((1, 0), (7, 0), (24, 0), (5, 2))
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("batch", [1, 3, 4, 10, 16])
def test_every_task_is_played_exactly_once(batch: int) -> None:
    episodes = run(make_player("scripted:oracle"), batch=batch, count=10)
    assert len({e.key for e in episodes}) == len(episodes) == 10
    assert all(e.success and e.outcome == "success" and e.score == 1.0 for e in episodes)


def test_attempts_differ_in_seed_and_the_run_seed_reaches_them() -> None:
    one, two = run(make_player("scripted:random"), count=1, attempts=2)
    assert one.seed != two.seed
    assert [t.action for t in one.turns] != [t.action for t in two.turns]
    assert Request(MAKER().unwrapped.tasks[0], 0, 1).seed != Request(MAKER().unwrapped.tasks[0], 0, 2).seed  # type: ignore[attr-defined]


def test_a_turn_holds_what_was_seen_before_the_action_and_the_end_what_came_of_it() -> None:
    (episode,) = run(make_player("scripted:oracle"), count=1)
    assert episode.turns[0].observation.text.startswith("-= Welcome")
    assert [t.reward for t in episode.turns] == [0.0] * (len(episode.turns) - 1) + [1.0]
    assert episode.final == Seen.of(episode.final.text) if episode.final else False
    assert all(t.stop_reason == "scripted" and t.format_ok and t.admissible for t in episode.turns)
    assert episode.env.max_turns == 30 and episode.env.kwargs == {"split": "valid_seen", "data": "embedded"}


def test_a_record_survives_its_line_and_timing_is_not_hashed() -> None:
    (episode,) = run(make_player("scripted:oracle"), count=1)
    again = read_line(episode.to_line())
    assert again == episode and again.sha256 == episode.sha256
    assert again.model_copy(update={"timing": {"seconds": 99.0}}).sha256 == episode.sha256
    assert again.model_copy(update={"score": 0.5}).sha256 != episode.sha256


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
        ("{", "Invalid JSON: EOF while parsing an object at line 1 column 1"),
        ("[]", "Input should be an object"),
        ('{"schema_version": 1}', "task_id: Field required"),
        ("null", "Input should be an object"),
    ],
)
def test_a_line_that_is_no_record_is_refused_in_one_plain_line(line: str, said: str) -> None:
    with pytest.raises(DataError) as refused:
        read_line(line)
    assert str(refused.value) == f"not an episode record: {said}"


def test_a_newer_schema_is_refused_with_what_to_type() -> None:
    (episode,) = run(make_player("scripted:oracle"), count=1)
    with pytest.raises(DataError, match="pip install -U"):
        read_line(episode.model_copy(update={"schema_version": 99}).to_line())


class Stubborn:
    """Raises, fails or repeats itself, as told by the task's position."""

    name = "test:stubborn"

    def __init__(self, what: str) -> None:
        self.what = what

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        if self.what == "raise":
            raise RuntimeError("no idea")
        if self.what == "fail":
            return [Failure("Timeout", "the server is gone")] * len(situations)
        if self.what == "short":
            return []
        if self.what == "odd":
            return [Decision("x", None)] * len(situations)  # type: ignore[arg-type]
        if self.what == "stop":
            return [Decision("x", "x", stop_reason="later")] * len(situations)  # type: ignore[arg-type]
        if self.what == "tokens":
            return [Decision("x", "x", token_ids="abc")] * len(situations)  # type: ignore[arg-type]
        if self.what == "exit":
            raise SystemExit("bye")
        if self.what == "surrogates":
            return [Decision("<action>\ud800</action>", "go \udfff")] * len(situations)
        return [Decision("I ponder", "", format_ok=False, stop_reason="length")] * len(situations)


@pytest.mark.parametrize(
    ("what", "outcome"), [("raise", "policy_error"), ("fail", "policy_error"), ("ramble", "generation_truncated")]
)
def test_a_broken_policy_ends_its_episodes_with_the_reason(what: str, outcome: str) -> None:
    episodes = run(Stubborn(what), count=5)
    assert [e.outcome for e in episodes] == [outcome] * 5
    assert all(not e.success and e.score == 0.0 for e in episodes)
    if outcome == "policy_error":
        assert all(e.error is not None and e.failed_to_finish and e.final is None for e in episodes)
    else:
        assert all(e.error is None and len(e.turns) == 30 for e in episodes)


@pytest.mark.parametrize("what", ["short", "odd", "stop", "tokens", "exit"])
def test_a_policy_that_answers_nonsense_is_a_policy_error_not_a_crash(what: str) -> None:
    episodes = run(Stubborn(what), count=3)
    assert [e.outcome for e in episodes] == ["policy_error"] * 3


def test_text_that_utf8_cannot_hold_is_stored_as_a_question_mark() -> None:
    (episode,) = run(Stubborn("surrogates"), count=1)
    assert (episode.turns[0].reply, episode.turns[0].action) == ("<action>?</action>", "go ?")
    assert read_line(episode.to_line().encode().decode()) == episode


def test_the_outcome_is_the_first_class_that_applies() -> None:
    seen = Seen.of("x")
    cut = Turn(observation=seen, reply="", action="", format_ok=False, stop_reason="length")
    ill = Turn(observation=seen, reply="", action="", format_ok=False)
    fine = Turn(observation=seen, reply="", action="", format_ok=True)
    decided = [
        decide_outcome(error="env_error", success=True, truncated=True, last_turn=cut),
        decide_outcome(error="policy_error", success=True, truncated=True, last_turn=cut),
        decide_outcome(error=None, success=True, truncated=True, last_turn=cut),
        decide_outcome(error=None, success=False, truncated=True, last_turn=cut),
        decide_outcome(error=None, success=False, truncated=True, last_turn=ill),
        decide_outcome(error=None, success=False, truncated=True, last_turn=fine),
        decide_outcome(error=None, success=False, truncated=False, last_turn=fine),
    ]
    assert tuple(decided) == OUTCOMES


def test_a_noisy_oracle_without_noise_is_the_oracle_and_noise_costs_turns() -> None:
    calm = run(make_player("scripted:noisy-oracle:0"), count=6)
    wild = run(make_player("scripted:noisy-oracle:1"), count=6)
    assert [len(e.turns) for e in calm] == [len(e.turns) for e in run(make_player("scripted:oracle"), count=6)]
    assert sum(len(e.turns) for e in wild) > sum(len(e.turns) for e in calm)


def test_replay_repeats_a_run_exactly(tmp_path: Path) -> None:
    first = run(make_player("scripted:noisy-oracle:0.4"), count=6, attempts=2)
    file = tmp_path / "trajectories.jsonl"
    file.write_text("".join(e.to_line() + "\n" for e in first))
    second = run(make_player(f"scripted:replay:{file}"), count=6, attempts=2, batch=3)

    def core(episodes: list[Episode]) -> list[Any]:
        return sorted((e.key, e.turns, e.final, e.outcome) for e in episodes)

    assert [c[:2] for c in core(first)] == [c[:2] for c in core(second)]
    assert core(first) == core(second)


def test_a_worker_that_dies_under_the_oracle_is_the_environments_error() -> None:
    class Fatal(Stubborn):
        def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
            return [Failure.of(WorkerDied("gone"))] * len(situations)

    assert [e.outcome for e in run(Fatal(""), count=2)] == ["env_error"] * 2


def test_the_name_of_a_noisy_oracle_keeps_every_digit() -> None:
    assert make_player("scripted:noisy-oracle:0.3").name == "scripted:noisy-oracle:0.3"
    assert make_player("scripted:noisy-oracle:0.3000004").name == "scripted:noisy-oracle:0.3000004"


def test_a_replay_that_lacks_an_episode_or_ends_early_says_so(tmp_path: Path) -> None:
    first = run(make_player("scripted:random"), count=3)
    file = tmp_path / "trajectories.jsonl"
    short = first[0].model_copy(update={"turns": first[0].turns[:2]})
    file.write_text(short.to_line() + "\n" + first[1].to_line() + "\n")
    by_id = {e.task_id: e for e in run(make_player(f"scripted:replay:{file}"), count=3)}
    assert by_id[first[1].task_id].outcome == "step_limit"
    assert "ends after 2 turns" in by_id[first[0].task_id].error.message  # type: ignore[union-attr]
    assert "has no episode" in by_id[first[2].task_id].error.message  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("oracle", ConfigError, "kind:name"),
        ("scripted:", ConfigError, "kind:name"),
        ("scriptd:oracle", UnknownName, "did you mean scripted"),
        ("scripted:oracel", UnknownName, "did you mean oracle"),
        ("scripted:oracle:3", ConfigError, "takes no argument"),
        ("scripted:noisy-oracle", ConfigError, "P from 0 to 1"),
        ("scripted:noisy-oracle:nan", ConfigError, "P from 0 to 1"),
        ("scripted:noisy-oracle:1.5", ConfigError, "P from 0 to 1"),
        ("scripted:replay", ConfigError, "an argument is missing"),
        ("scripted:replay:/nowhere.jsonl", DataError, "cannot read"),
    ],
)
def test_wrong_policies_are_answered_in_one_line(spec: str, error: type[SeedError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        make_player(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n", "{}\n", "not json\n"])
def test_a_replay_file_without_episodes_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "trajectories.jsonl"
    file.write_text(content)
    with pytest.raises(DataError, match=r"trajectories\.jsonl"):
        make_player(f"scripted:replay:{file}")


class Torn(AgentEnv):
    """Gives what cannot be a record, in one task of three."""

    tasks = TaskSet(Task(f"toy/{n}", "test", "c", "0" * 64) for n in range(3))

    def __init__(self, what: str) -> None:
        self.what = what

    def _begin(self, task: Task, seed: int) -> View:
        self.bad = task.id == "toy/1"
        self.instruction = "do it"
        return self._shown("reset")

    def _act(self, action: str) -> View:
        if self.bad and self.what == "exit":
            raise SystemExit("bye")
        return self._shown("step", terminated=True, success=True)

    def _shown(self, when: str, **changes: Any) -> View:
        bad: dict[str, Any] = {
            "text at reset": {"text": None}, "text at step": {"text": None}, "nan": {"reward": float("nan")},
            "score": {"score": 9.0}, "inf score": {"score": float("inf")},
        }.get(self.what, {})  # fmt: skip
        if not self.bad or (when == "reset") != (self.what == "text at reset"):
            bad = {}
        return View(**{"text": "seen", "admissible_actions": ["go"], "score": 1.0, **changes, **bad})

    def oracle(self) -> Any:
        return 5 if self.bad and self.what == "plan" else ["go"]


@pytest.mark.parametrize("what", ["text at reset", "text at step", "nan", "score", "inf score", "exit", "plan"])
@pytest.mark.parametrize("batch", [1, 3])
def test_what_cannot_be_recorded_ends_its_own_episode_alone(what: str, batch: int) -> None:
    envs = GroupVectorEnv(lambda: Torn(what), num_tasks=batch)
    record = EnvRecord(id="toy", version="0", max_turns=None, manifest="m", manifest_sha256="0")
    episodes = {
        e.task_id: e for e in play([Request(t) for t in Torn.tasks], make_player("scripted:oracle"), envs, record)
    }
    broke = episodes.pop("toy/1")
    assert broke.outcome == ("policy_error" if what == "plan" else "env_error") and broke.error is not None
    assert [e.outcome for e in episodes.values()] == ["success"] * 2
    assert read_line(broke.to_line()) == broke


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("success", False, "success is False but the outcome is success"),
        ("outcome", "failure", "success is True but the outcome is failure"),
        ("score", 1.5, "score: Input should be less than or equal to 1"),
        (
            "error",
            {"type": "E", "message": "m"},
            "the outcome is success and error is ErrorRecord(type='E', message='m')",
        ),
        ("turns", [{"observation": {"text": "", "sha256": ""}}], "turns.0.reply: Field required"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(key: str, value: Any, said: str) -> None:
    (episode,) = run(make_player("scripted:oracle"), count=1)
    with pytest.raises(DataError) as refused:
        read_line(json.dumps({**json.loads(episode.to_line()), key: value}))
    assert str(refused.value) == f"not an episode record: {said}"
