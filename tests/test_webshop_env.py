"""The environment: contract, splits, schemes, what it tells, and that it stays small."""

import contextlib
import gc
import json
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from webshop_kit import official, webshop_root  # noqa: F401 (fixtures)

from seed_envs import ConfigError, DataError, EnvMaker, GroupVectorEnv, UnknownName
from seed_envs.check import CHECKS, check_env
from seed_envs.health import plays
from seed_envs.seeding import Draws
from seed_envs.webshop import health, release, sources
from seed_envs.webshop.env import WebShopEnv
from seed_envs.webshop.lucene import with_lucene
from seed_envs.webshop.product import Catalogue
from seed_envs.webshop.sources import open_goals, released

ID = "seed_envs/WebShop-v0"


def make(**kwargs: Any) -> Any:
    return gym.make(ID, **kwargs).unwrapped


@pytest.mark.parametrize("check", CHECKS)
def test_the_contract(check: str) -> None:
    check_env(ID, only=[check]).raise_if_failed()


@pytest.mark.parametrize("check", ["tasks", "deterministic", "junk", "oracle", "worker"])
def test_the_contract_on_official_files(check: str, webshop_root: Path) -> None:  # noqa: F811
    maker = EnvMaker(ID, {"data": str(webshop_root), "observation": "text_rich", "profile": "small-human"})
    check_env(maker, only=[check], max_tasks=3).raise_if_failed()


def test_the_oracle_reaches_every_embedded_goal() -> None:
    turns = []
    for split in ("dev", "test", "unseen"):
        env = make(split=split)
        for task in list(env.tasks)[::4]:
            env.reset(options={"task_id": task.id})
            plan = env.oracle()
            for action in plan:
                *_, info = env.step(action)
            assert info["success"] and info["extra"]["ceiling"] == 1.0, task.id
            turns.append(len(plan))
    assert max(turns) <= 15 and len(turns) == 96


def test_what_an_episode_tells() -> None:
    env = make(split="test")
    task = env.tasks[0].id
    observation, info = env.reset(seed=3, options={"task_id": task})
    assert observation["text"] == f"WebShop [SEP] Instruction: [SEP] {env.instruction} [SEP] Search"
    assert info["instruction"] == env.instruction and info["admissible_actions"] is None
    assert info["extra"] == {
        "page": "index", "asin": "", "options": {}, "results": 0, "ceiling": 1.0, "r_type": None, "r_att": None,
        "r_option": None, "r_price": None, "title_score": None,
    }  # fmt: skip
    search, *rest = env.oracle()
    *_, info = env.step(search)
    assert info["extra"]["results"] and info["admissible_actions"] == sorted(info["admissible_actions"])
    assert "click[back to search]" in info["admissible_actions"] and "click[search]" not in info["admissible_actions"]
    for action in rest[:-1]:
        *_, info = env.step(action)
    wanted = env._goal.options
    assert info["extra"]["options"] or not wanted
    observation, reward, terminated, truncated, info = env.step(rest[-1])
    assert (reward, terminated, truncated, info["success"], info["score"]) == (1.0, True, False, True, 1.0)
    assert info["extra"]["page"] == "done" and info["extra"]["r_type"] == 1.0 and info["extra"]["r_price"] is True
    assert observation["text"].startswith("Thank you for shopping with us!")


def test_refused_actions_cost_a_turn_and_fifteen_of_them_end_the_episode() -> None:
    env = gym.make(ID)
    first, _ = env.reset(seed=0)
    for turn, action in enumerate(["click[Add to Cart]", "[click]Buy Now", "", "click[buy now]", "buy"] * 3, 1):
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation == first and (reward, terminated, info["turn"]) == (0.0, False, turn)
        assert not info["admissible"] and not info["effective"] and info["reason"]
        assert truncated == (turn == 15)


def test_buying_the_wrong_thing_ends_the_episode_with_its_score() -> None:
    env = make(split="test")
    env.reset(options={"task_id": env.tasks[0].id})
    env.step("search[<r>]")
    other = next(a for a in env._state.results if env._shop.product(a).query != env._goal.query)
    page = env._state.results.index(other) // 10
    for action in [*["click[next >]"] * page, f"click[{other.lower()}]", "click[buy now]"]:
        _, reward, terminated, _, info = env.step(action)
    assert terminated and 0 <= reward < 1 and not info["success"] and info["score"] == reward


def test_rendering() -> None:
    env = gym.make(ID, render_mode="ansi")
    env.reset(seed=0)
    assert str(env.render()).startswith("WebShop\nInstruction: \n")
    page = gym.make(ID, render_mode="html")
    page.reset(seed=0)
    page.step("search[mug]")
    assert str(page.render()).startswith("<!doctype html>") and "results for “mug”" in str(page.render())
    assert make().render() is None
    rich = make(observation="text_rich")
    assert "[button] Search [button_]" in rich.reset(seed=0)[0]["text"]


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"split": "valid"}, UnknownName, "unknown split 'valid'"),
        ({"observation": "rich"}, UnknownName, "text_rich"),
        ({"profile": "small"}, UnknownName, "small-human or small-synthetic|small-synthetic or small-human"),
        ({"split_scheme": "verl"}, UnknownName, "verl_agent"),
        ({"search": "lucene"}, UnknownName, "search backend"),
        ({"tagger": "spacey"}, UnknownName, "did you mean spacy"),
        ({"render_mode": "rgb_array"}, UnknownName, "render mode"),
        ({"split_scheme": "verl_agent"}, ConfigError, "data='official'"),
        ({"profile": "full-human"}, ConfigError, "profile='full-human' with data='official'"),
        ({"worker_seed": 7}, ConfigError, "needs split_scheme='verl_agent'"),
        ({"worker_seed": -1}, ConfigError, "expected an integer from 0"),
        ({"data": "official"}, DataError, "python -m seed_envs fetch webshop"),
        ({"data": "official", "profile": "full-human"}, DataError, "python -m seed_envs build webshop"),
        ({"data": "official", "split": "unseen"}, DataError, "fetch webshop"),
    ],
)
def test_what_cannot_be_made_is_said_in_one_line(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        WebShopEnv(**kwargs)
    assert "\n" not in str(caught.value)


def test_suggestions_are_for_the_search_page() -> None:
    env = make(split="test")
    with pytest.raises(ConfigError, match="call reset"):
        env.suggestions()
    env.reset(seed=1)
    for action in env.suggestions():
        *_, info = env.step(action)
        assert info["admissible"] and info["extra"]["results"], action
    with pytest.raises(NotImplementedError):
        env.suggestions()


def test_memory_does_not_grow_with_resets() -> None:
    env = make(split="train")
    draws = Draws("memory")

    def episodes(count: int) -> None:
        for _ in range(count):
            env.reset(options={"task_id": draws.choice(env.tasks.ids[:20])})
            for action in [env.suggestions()[0], "click[next >]", "click[< prev]", "junk"]:
                env.step(action)

    episodes(40)
    gc.collect()
    tracemalloc.start()
    try:
        episodes(20)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        episodes(120)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


# --- official goals ---------------------------------------------------------------------------------------------------


def test_the_fixed_scheme_cuts_upstreams_order_and_shares_no_goal(webshop_root: Path) -> None:  # noqa: F811
    source = open_goals(str(webshop_root), "small-synthetic", "fixed", 0)
    tasks = {split: source.tasks(split) for split in source.splits}
    assert {split: len(found) for split, found in tasks.items()} == {"train": 5407, "dev": 1000, "test": 500}
    assert tasks["test"].ids == tuple(f"webshop/small-synthetic/{n:05d}" for n in range(500))
    assert tasks["dev"].ids[0] == "webshop/small-synthetic/00500"
    hashes = {split: {task.sha256 for task in found} for split, found in tasks.items()}
    assert not hashes["test"] & hashes["train"] and not hashes["dev"] & hashes["train"]
    assert not hashes["dev"] & hashes["test"]
    assert source.goal(tasks["dev"][3]) == source.goals[503]  # type: ignore[attr-defined]
    human = open_goals(str(webshop_root), "small-human", "fixed", 0)
    assert tuple(human.splits) == ("test",) and len(human.tasks("test")) == 13


def test_the_committed_manifest_is_of_these_goals(webshop_root: Path) -> None:  # noqa: F811
    lines = release.lines(str(webshop_root))
    committed = sources.paths.manifest_path("webshop-small-synthetic").read_text(encoding="utf-8").splitlines()
    assert lines == committed
    ceilings = [float(line.split("\t")[4]) for line in lines[1:]]
    assert sum(value < 1 for value in ceilings) == 458
    assert {split: len(found) for split, found in released("small-synthetic").items()} == {
        "test": 500, "dev": 1000, "train": 5407,
    }  # fmt: skip
    env = make(data=str(webshop_root), split="seen")
    assert env.tasks.name == "webshop-small-synthetic/test"
    (notice,) = env.notices()
    assert "20 of 500 goals cannot reach 1" in notice and "at most 96.0%" in notice
    env.reset(options={"task_id": next(line.split("\t")[0] for line in lines[1:] if not line.endswith("1.0000"))})
    assert 0 < env.step("x")[4]["extra"]["ceiling"] < 1


def test_other_files_are_told_from_the_release(webshop_root: Path, tmp_path: Path) -> None:  # noqa: F811
    for file in webshop_root.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "items_ins_v2_1000.json"
    asked = json.loads(path.read_text())
    first = next(asin for asin, row in asked.items() if row.get("instruction"))
    asked[first]["instruction"] = "Find me another thing"
    path.write_text(json.dumps(asked))
    env = make(data=str(tmp_path), split="train")
    assert env.tasks.name == "webshop-local-small-synthetic/train"
    assert "not the goals of the release" in env.notices()[-1]
    assert env.tasks.sha256 != released("small-synthetic")["train"].sha256


def test_the_verl_agent_scheme_says_what_leaks(webshop_root: Path) -> None:  # noqa: F811
    given: dict[str, Any] = {"data": str(webshop_root), "split_scheme": "verl_agent", "worker_seed": 1000}
    assert WebShopEnv.split_names(**given) == ("train", "test")
    test, train = make(**given, split="test"), make(**given, split="train")
    assert (len(test.tasks), len(train.tasks)) == (500, 6410)
    assert "457 of its test goals are training goals of worker seed 0" in test.notices()[-1]
    assert "461 test and 928 dev goals of split_scheme=fixed" in train.notices()[-1]
    other = make(**{**given, "worker_seed": 0}, split="test")
    assert other.tasks.name == "webshop-small-synthetic-worker0/test"
    assert other.identity()["manifest_sha256"] != test.identity()["manifest_sha256"]
    assert plays(EnvMaker(ID, {**given, "split": "train"})).status == "ok"
    assert pickle.loads(pickle.dumps(test)).tasks.sha256 == test.tasks.sha256


PROBE = """
import sys
from seed_envs.seeding import canonical, sha256_text
from seed_envs.webshop.env import WebShopEnv
rows = []
for data in ("embedded", sys.argv[1]):
    env = WebShopEnv(data=data, split="test")
    env.np_random.random(int(sys.argv[2]))
    for task in list(env.tasks)[:60]:
        env.reset(seed=int(sys.argv[2]), options={"task_id": task.id})
        goal = env._goal
        rows.append([task.id, env.instruction, goal.price_upper, env._shop.product(goal.asin).price])
print(len(rows), sha256_text(canonical(rows)))
"""


def test_processes_agree_on_goals_prices_and_ceilings(webshop_root: Path) -> None:  # noqa: F811
    told = set()
    for seed in ("0", "7", "1000"):
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(webshop_root), seed],
            env={"PYTHONHASHSEED": "random", "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told.add(done.stdout)
    assert len(told) == 1 and told.pop().startswith("120 ")


def test_groups_play_one_goal_with_one_ceiling() -> None:
    with contextlib.closing(GroupVectorEnv(EnvMaker(ID), num_tasks=2, group_size=3)) as envs:
        _, infos = envs.reset(seed=4)
        texts = [infos["instruction"][row] for row in range(6)]
    assert len(set(texts[:3])) == len(set(texts[3:])) == 1 and texts[0] != texts[3]


# --- doctor, real Lucene ----------------------------------------------------------------------------------------------


def test_the_doctor_looks_at_profiles_tagger_and_lucene(
    webshop_root: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SEED_DATA", str(tmp_path))
    assert {f.status for f in health.doctor() if "profile" in f.subject} == {"missing"}
    monkeypatch.setenv("SEED_DATA", str(webshop_root.parent))
    found = {finding.subject.rpartition(" ")[2]: finding for finding in health.doctor()}
    assert found["profile=small-synthetic"].message.startswith("6910 goals, as released")
    assert found["profile=small-human"].message.startswith("13 goals, as released")
    assert found["profile=full-human"].status == "missing" and "build webshop" in found["profile=full-human"].remedy
    assert {"tagger=spacy", "search=pyserini"} <= found.keys()
    assert all(finding.remedy for finding in found.values() if finding.status != "ok")


@pytest.mark.search
def test_real_lucene_finds_the_same_products(official: Catalogue) -> None:  # noqa: F811
    lucene = with_lucene(official)
    queries = [product.title for product in list(official.instructed())[:100]] + ["", "the", "\ud800", "a" * 10_000]
    for query in queries:
        assert lucene.search(query)[:10] == official.search(query)[:10], query[:50]
    assert (lucene.sha256, len(lucene)) == (official.sha256, 1000)
    assert plays(EnvMaker(ID, {"search": "pyserini"})).status == "ok"
