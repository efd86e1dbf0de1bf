"""``--protocol``: which tasks are drawn, what is recorded of it, and that a repeated task is an episode of its own."""

import json
from collections import Counter
from pathlib import Path

import eval_plugin  # noqa: F401  (registers the environment and policies)
import pytest

from harness import eval, protocol, runs
from harness.config import Options, make_plans
from harness.report import write_report
from harness.summary import read_records, summarise, to_bytes
from seed_envs.errors import ConfigError

SPELL = "evaltoy/Spell-v0"
IDS = [f"task/{i:03d}" for i in range(140)]


def plan_of(folder: Path, **options):
    chosen = {"envs": (SPELL,), "policies": ("spell:wavers",), "out": folder, "settings": {"size": 40}, **options}
    return make_plans(Options(**chosen))[0]


def test_the_published_draw_is_with_replacement_and_follows_the_seed():
    paper = protocol.settings("paper", "seed_envs/ALFWorld-v0")
    assert paper == {"name": "paper", "draws": 128, "replacement": True}
    drawn = protocol.draw(paper, IDS, split="seen", seed=0)
    assert drawn.total() == 128 and max(drawn.values()) > 1 and drawn.keys() <= set(IDS)
    # 140 * (1 - (139/140)**128) = 84 different tasks are expected
    assert 74 <= len(drawn) <= 94
    assert drawn == protocol.draw(paper, IDS[::-1], split="seen", seed=0)  # whatever the order of the file
    assert drawn != protocol.draw(paper, IDS, split="seen", seed=1)
    assert drawn != protocol.draw(paper, IDS, split="unseen", seed=0)


def test_webshop_draws_different_goals_and_searchqa_plays_every_question():
    shop = protocol.settings("paper", "seed_envs/WebShop-v0")
    drawn = protocol.draw(shop, IDS, split="test", seed=0)
    assert (drawn.total(), max(drawn.values()), len(drawn)) == (128, 1, 128)
    assert protocol.draw(shop, IDS[:9], split="test", seed=0) == Counter(IDS[:9])
    assert protocol.draw(protocol.settings("paper", "seed_envs/SearchQA-v0"), IDS, split="seen", seed=0) is None
    assert protocol.draw(protocol.settings("full", SPELL), IDS, split="seen", seed=0) is None


def test_a_task_drawn_again_is_another_attempt(tmp_path):
    plan = plan_of(tmp_path / "run", protocol="paper")
    split = plan.splits[0]
    assert plan.count(split) == 128 and len(split.tasks) < 40
    requests = list(plan.requests(split))
    assert Counter(request.task.id for request in requests) == split.draws
    assert len({(request.task.id, request.attempt) for request in requests}) == 128
    assert len(plan.episodes) == plan.total == 128 * len(plan.splits)


def test_run_summary_table_and_page_name_the_protocol(tmp_path, capsys):
    plan = plan_of(tmp_path / "run", protocol="paper", splits=("seen",))
    summary = eval._evaluate(plan, Options(), [], fresh=False)
    state = json.loads((plan.folder / runs.RUN).read_bytes())
    assert state["config"]["protocol"] == {"name": "paper", "draws": 128, "replacement": True}
    assert state["config"]["splits"]["seen"]["episodes"] == 128 == summary["n"]
    assert summary["protocol"] == "paper" and summary["complete"] is True
    split = summary["splits"]["seen"]
    assert split["n"] == 128 and split["n_tasks"] == len(plan.splits[0].tasks) and split["pass_at"] is None
    again = summarise(read_records(plan.folder / runs.RECORDS), planned=128, protocol="paper")
    assert to_bytes(again) == (plan.folder / runs.SUMMARY).read_bytes()
    assert "protocol paper" in write_report(plan.folder).read_text(encoding="utf-8")
    eval.show(summary, plan.folder)
    out = capsys.readouterr().out
    assert "protocol paper" in out and f"seen: 128 episodes of {split['n_tasks']} tasks" in out
    assert plan.digest != plan_of(tmp_path / "other", splits=("seen",)).digest
    with pytest.raises(ConfigError, match=r'protocol\.name is "paper" there and "full" now'):
        runs.check(plan_of(tmp_path / "run", splits=("seen",)))


def test_limits_and_unknown_protocols_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="leave out --limit and --ids"):
        plan_of(tmp_path, protocol="paper", limit="3")
    with pytest.raises(ConfigError, match="plays each draw once; leave out --attempts"):
        plan_of(tmp_path, protocol="paper", attempts=2)
    with pytest.raises(ConfigError, match="has at most 6 turns here, not 9; leave the turn limit out"):
        plan_of(tmp_path, protocol="paper", max_turns=9)
    assert plan_of(tmp_path, protocol="paper", max_turns=6).config == plan_of(tmp_path, protocol="paper").config
    with pytest.raises(ConfigError, match="is of evaluation splits; leave out --split train"):
        plan_of(tmp_path, protocol="paper", splits=("seen", "train"))
    with pytest.raises(ConfigError, match="unknown protocol 'fast'; expected full or paper"):
        plan_of(tmp_path, protocol="fast")


def test_another_temperature_is_said(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(eval, "make_plans", lambda options: [])
    model = ["--policy", "hf:none", "--protocol", "paper"]
    assert eval.main([*model, "--temperature", "1", "--dry-run"]) == 0
    assert "note: the protocol paper samples at 0.4, this run at 1 as --temperature says" in capsys.readouterr().err
    assert eval.main([*model, "--dry-run"]) == 0 and not capsys.readouterr().err
    assert protocol.TEMPERATURE == 0.4
