import json
import random

import pytest

from harness.summary import read_records, summarise, to_bytes
from seed_agent.trajectory import EnvRecord, Episode, ErrorRecord, Seen, Turn
from seed_envs.errors import DataError

ENV = EnvRecord(id="toy/Toy-v0", version="1", kwargs={"split": "seen"}, max_turns=9, manifest="t", manifest_sha256="m")


def turn(**kwargs):
    return Turn(**{"observation": Seen.of("x"), "reply": "r", "action": "a", "format_ok": True, **kwargs})


def episode(task_id, success=True, attempt=0, category="one", turns=None, split="seen", error=None, **kwargs):
    outcome = error or ("success" if success else "failure")
    return Episode(
        **{
            "task_id": task_id,
            "task_sha256": f"sha-{task_id}",
            "split": split,
            "category": category,
            "attempt": attempt,
            "seed": 1,
            "policy": "p",
            "env": ENV.model_copy(update={"kwargs": {"split": split}}),
            "turns": (turn(),) if turns is None else turns,
            "final": Seen.of("end"),
            "outcome": outcome,
            "success": success and not error,
            "score": float(success),
            "error": ErrorRecord(type="Boom", message="m") if error else None,
            **kwargs,
        }
    )


def p32():
    counts = {"pick": (24, 19), "clean": (31, 19), "heat": (23, 7), "cool": (21, 17), "look": (18, 16), "two": (17, 8)}
    return [
        episode(f"{name}-{i}", i < wins, category=name) for name, (n, wins) in counts.items() for i in range(n)
    ]  # fmt: skip


def test_pooled_and_macro_are_both_named_and_rebuildable():
    split = summarise(p32())["splits"]["seen"]
    assert split["n"] == split["n_tasks"] == 134
    assert split["pooled"]["success"] == pytest.approx(0.6418, abs=5e-5)
    assert split["macro"]["success"] == pytest.approx(0.6463, abs=5e-5)
    assert split["success"]["rate"] == split["pooled"]["success"] and split["success"]["count"] == 86
    columns = split["categories"].values()
    assert sum(c["success"]["count"] for c in columns) / sum(c["n"] for c in columns) == split["pooled"]["success"]
    assert sum(c["success"]["rate"] for c in columns) / 6 == pytest.approx(split["macro"]["success"])
    assert split["categories"]["two"]["n"] == 17  # not filed under "pick"
    assert split["success"]["ci95"][0] < 0.6418 < split["success"]["ci95"][1]


def test_errors_stay_in_the_denominator():
    """P28: 2 of 5 scored 0.9 and 0.8 is 0.34, not 0.85."""
    played = [episode("a", False, score=0.9), episode("b", False, score=0.8)]
    broke = [episode(name, error="env_error", score=1.0, success=True) for name in "cde"]
    summary = summarise(played + broke)
    split = summary["splits"]["seen"]
    assert split["score"] == pytest.approx(0.34) and split["success"] == {
        "count": 0, "n": 5, "rate": 0.0, "ci95": pytest.approx((0.0, 0.434482), abs=1e-6)
    }  # fmt: skip
    assert summary["errors"] == 3 and split["errors"] == {"count": 3, "rate": 0.6, "types": {"Boom": 3}}
    assert split["outcomes"]["env_error"] == 3 and sum(split["outcomes"].values()) == 5


def test_turn_rates_are_over_turns_where_the_environment_knows():
    turns = (
        turn(format_ok=False, admissible=False, effective=None),
        turn(admissible=True, effective=False),
        turn(admissible=None, effective=True, stop_reason="length"),
        turn(admissible=None, effective=True),
    )
    split = summarise([episode("a", turns=turns)])["splits"]["seen"]
    assert split["turn_rates"] == {
        "ill_formed": 0.25, "inadmissible": 0.5, "ineffective": pytest.approx(1 / 3), "truncated_reply": 0.25
    }  # fmt: skip
    unknown = summarise([episode("a", turns=(turn(), turn()))])["splits"]["seen"]["turn_rates"]
    assert unknown["inadmissible"] is None and unknown["ineffective"] is None and unknown["ill_formed"] == 0.0


def test_undefined_is_null_never_zero_or_nan():
    broke_at_reset = episode("a", error="env_error", turns=())
    split = summarise([broke_at_reset])["splits"]["seen"]
    assert split["turns"] == {"mean": 0.0, "mean_of_successes": None, "total": 0, "history_dropped": 0}
    assert set(split["turn_rates"].values()) == {None}
    assert split["pass_at"] is None and split["pass_hat"] is None
    empty = summarise([])
    assert empty["complete"] is False and empty["splits"] == {} and empty["policy"] is None
    assert b"NaN" not in to_bytes(empty)


def test_several_attempts():
    episodes = [episode("a", k < 6, attempt=k) for k in range(8)] + [episode("b", k < 6, attempt=k) for k in range(8)]
    split = summarise(episodes)["splits"]["seen"]
    assert (split["n_tasks"], split["attempts"], split["n"]) == (2, 8, 16)
    assert split["pass_at"]["2"] == pytest.approx(0.964286, abs=5e-7)
    assert split["pass_hat"]["2"] == pytest.approx(0.535714, abs=5e-7)
    assert split["pass_hat"]["4"] == pytest.approx(0.214286, abs=5e-7)
    assert split["pass_at"]["1"] == split["pass_hat"]["1"] == split["success"]["rate"] == 0.75


def test_order_and_timing_change_nothing():
    episodes = [e for n in range(3) for e in (episode(f"t{n}", n != 1, attempt=k) for k in range(2))]
    before = to_bytes(summarise(episodes))
    for seed in range(5):
        random.Random(seed).shuffle(episodes)
        timed = [e.model_copy(update={"timing": {"seconds": float(i)}}) for i, e in enumerate(episodes)]
        assert to_bytes(summarise(timed)) == before


def test_any_change_of_a_record_changes_the_records_hash():
    base = summarise([episode("a")])["records_sha256"]
    assert summarise([episode("a", turns=(turn(reply="R"),))])["records_sha256"] != base
    assert summarise([episode("a", seed=2)])["records_sha256"] != base


def test_complete_needs_every_attempt():
    whole = [episode(name, attempt=k) for name in "ab" for k in range(2)]
    assert summarise(whole)["complete"] is True
    assert summarise(whole[:3])["complete"] is False
    assert summarise(whole, planned=6)["complete"] is False and summarise(whole, planned=6)["planned"] == 6


def test_the_last_try_of_a_broken_episode_counts():
    summary = summarise([episode("a", error="env_error"), episode("a")])
    assert (summary["n"], summary["errors"]) == (1, 0)
    with pytest.raises(DataError, match="recorded twice"):
        summarise([episode("a"), episode("a")])


def test_records_of_two_runs_are_refused():
    with pytest.raises(DataError, match="2 policies or environments"):
        summarise([episode("a"), episode("b", policy="q", split="unseen")])
    with pytest.raises(DataError, match="manifests or settings"):
        summarise([episode("a"), episode("b", env=ENV.model_copy(update={"manifest_sha256": "other"}))])


def test_read_records_names_the_line(tmp_path):
    path = tmp_path / "trajectories.jsonl"
    path.write_text(f"{episode('a').to_line()}\n{episode('b').to_line()}\n")
    assert [e.task_id for e in read_records(path)] == ["a", "b"]
    path.write_text(f"{episode('a').to_line()}\n{{}}\n")
    with pytest.raises(DataError, match=r"trajectories.jsonl:2: not an episode record"):
        list(read_records(path))


def test_bytes_are_json_with_floats_at_ten_digits():
    found = json.loads(to_bytes(summarise([episode("a"), episode("b", False), episode("c", False)])))
    assert found["splits"]["seen"]["success"]["rate"] == 0.3333333333
