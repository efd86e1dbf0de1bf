"""What tables say beside successes: ceilings where goals cannot be reached, means over splits of different sets."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness import eval, sweep
from harness.ceilings import ceilings
from harness.config import SplitPlan
from harness.html import page, reading
from harness.sweeps.table import GIVEN
from harness.table import ceiling, together
from seed_agent.trajectory import EnvRecord
from seed_envs import EnvMaker
from seed_envs.errors import DataError
from seed_envs.tasks import Task, TaskSet
from seed_envs.webshop.env import WebShopEnv

WEBSHOP = ("--env", "webshop", "--split", "test", "--policy", "scripted:oracle", "--limit", "2")


def split(best: Mapping[str, float], **draws: int) -> SplitPlan:
    tasks = [Task(f"t{i}", "test", "ab"[i // 3], "") for i in range(4)]
    record = EnvRecord(id="x", version="0", max_turns=None, manifest="", manifest_sha256="")
    return SplitPlan("test", EnvMaker("x"), TaskSet(tasks), record, ceilings=best, draws=draws)


def test_ceilings_by_hand() -> None:
    assert ceilings([split({})]) == {} == ceilings([split({"not played": 0.5})])
    found = ceilings([split({"t0": 0.5, "t3": 0.25})])["test"]
    assert (found["n"], found["below"], found["success"], found["score"]) == (4, 2, 0.5, 0.6875)
    assert found["categories"]["a"] == {"success": pytest.approx(2 / 3), "score": pytest.approx(2.5 / 3)}
    assert found["categories"]["b"] == {"success": 0.0, "score": 0.25}
    assert found["macro"] == {"success": pytest.approx(1 / 3), "score": pytest.approx((2.5 / 3 + 0.25) / 2)}
    drawn = ceilings([split({"t0": 0.5}, t0=3, t1=1, t2=2, t3=2)])["test"]
    assert (drawn["n"], drawn["below"], drawn["success"], drawn["score"]) == (4, 1, 5 / 8, 6.5 / 8)
    assert ceiling(found) == "50.0 % (0.688)" and ceiling(None) == ""


def test_every_table_of_a_run_states_the_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = WebShopEnv(split="test").tasks.limit("2")[0].id
    monkeypatch.setattr(WebShopEnv, "ceiling", lambda self, task: 0.75 if task.id == first else 1.0)
    monkeypatch.setattr(WebShopEnv, "notices", lambda self: ["one goal cannot <b>be</b> reached"])
    assert eval.main([*WEBSHOP, "--out", str(tmp_path / "run")]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert "note: one goal cannot <b>be</b> reached" in err and re.search("score  ceiling +turns", lines[1])
    assert re.search(r"test, pooled .* 1\.000  50\.0 % \(0\.875\) ", lines[2])
    assert re.search(r"test, macro .* 1\.000  50\.0 % \(0\.875\)$", lines[3])
    assert {line.split()[-2] + line.split()[-1] for line in lines[4:6]} == {"%(0.750)", "%(1.000)"}
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "one goal cannot &lt;b&gt;be&lt;/b&gt; reached" in text and text.count("50.0 % (0.875)") == 3
    assert "<td>0.0 % (0.750)</td>" in text and "1 of\n    2 tasks cannot reach a score of 1" in text
    cell = tmp_path / "sweep" / "webshop" / "vanilla" / "micro" / "untrained"  # whose evaluation this may be
    cell.mkdir(parents=True)
    (cell / "eval").symlink_to(tmp_path / "run")
    names = ("env", "method", "model", "fraction", "fraction_mode", "seed", "iteration")
    known = {"config": dict(zip(names, ("webshop", "vanilla", "micro", None, None, None, 0), strict=True))}
    (cell / "cell.json").write_text(json.dumps({**known, "given": dict.fromkeys(GIVEN, "none")}))
    assert sweep.main(["--show", "--out", str(tmp_path / "sweep")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[-5:] == ["test", "macro", "test", "pooled", "errors"]
    assert lines[2].split()[0] == "vanilla" and lines[3].split() == ["(ceiling)", "50.0", "%", "50.0", "%"]
    assert lines[3].index("50.0") == lines[1].index("test macro")
    state = json.loads((tmp_path / "run" / "run.json").read_bytes())
    assert state["ceilings"]["test"]["below"] == 1
    state["ceilings"]["test"]["macro"] = 3
    (tmp_path / "run" / "run.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(DataError, match=r"run\.json is damaged"):
        page.render(reading.read(tmp_path / "run"))


def kind(n: int, count: int, score: float) -> dict[str, Any]:
    return {"n": n, "success": {"count": count, "n": n, "rate": count / n}, "score": score}


def test_means_over_splits_of_different_sets_by_hand() -> None:
    seen = {"categories": {"nq": kind(8, 4, 0.5), "hotpotqa": kind(2, 2, 1.0)}}
    unseen = {"categories": {"musique": kind(10, 0, 0.1)}}
    found = together({"seen": seen, "unseen": unseen})
    assert found is not None and found["macro"] == {"success": 0.5, "score": pytest.approx(1.6 / 3), "categories": 3}
    assert (found["name"], found["n"], found["success"], found["score"]) == ("seen + unseen", 20, 0.3, 0.35)
    assert together({"seen": seen}) is None and together({"dev": seen, "test": seen}) is None


def test_the_test_split_of_searchqa_is_seen_and_unseen_with_the_mean_over_all_sets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("--env", "searchqa", "--policy", "scripted:oracle", "--limit", "7", "--out", str(tmp_path / "run"))
    assert eval.main([*command, "--split", "test"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "pooled" in line] == ["seen,", "unseen,", "seen"]
    assert any(re.match(r"seen \+ unseen, macro +7 cat\. +100\.0 %", line) for line in lines)
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "seen + unseen, pooled" in text and "seen + unseen, macro" in text
    assert eval.main([*command, "--split", "tset"]) == 2
