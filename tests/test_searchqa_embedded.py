"""The embedded encyclopedia: one world everywhere, questions that need searching, splits that share nothing."""

import json
import os
import subprocess
import sys
import time
from collections import Counter

import gymnasium as gym
import pytest

from seed_envs import DataError, Task
from seed_envs.check import CHECKS, check_env
from seed_envs.searchqa import asking, embedded, manifest
from seed_envs.searchqa.env import SearchQAEnv
from seed_envs.searchqa.scoring import comparable
from seed_envs.searchqa.world import MONTHS, TRADES, world
from seed_envs.vector import EnvMaker

CORPUS = "3116c8536ace2523bf7a2d151cb3072c99f43fed47f29f8ff1eb852df7e33a1e"
PROGRAM = """
import json
from seed_envs.searchqa.env import SearchQAEnv
from seed_envs.searchqa.world import world
env = SearchQAEnv(split="test")
observation, info = env.reset(seed=3)
plan = env.oracle()
print(json.dumps([world().sha256(), env.identity(), info["task_id"], plan, [env.step(a)[0]["text"] for a in plan]]))
"""


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_the_world_is_the_same_in_every_process(hash_seed: str) -> None:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True).stdout
    corpus, identity, task_id, plan, texts = json.loads(out)
    assert corpus == CORPUS == identity["data_sha256"], "the encyclopedia has changed: every score on it is void"
    here = SearchQAEnv(split="test")
    assert here.reset(seed=3)[1]["task_id"] == task_id and here.oracle() == plan
    assert [here.step(action)[0]["text"] for action in plan] == texts


def test_the_encyclopedia() -> None:
    known = world()
    assert len(known.passages) == 1_620 and len({title for _, title, _ in known.passages}) == 1_620
    assert all(10 <= len(text.split()) <= 60 and "{" not in text for _, _, text in known.passages)
    assert Counter(e.kind for e in known.entities.values()) == {"town": 200, "person": 720, "company": 250, "work": 450}
    for entity in known.entities.values():
        assert set(entity.links.values()) <= known.entities.keys()
        if entity.kind == "work":
            maker = known.entities[entity.links["creator"]]
            assert TRADES[str(maker.facts["profession"])][0] == entity.facts["sort"]
            assert 22 <= int(entity.facts["year"]) - int(maker.facts["born_year"]) <= 56
        if "father" in entity.links:
            father = known.entities[entity.links["father"]]
            assert father.facts["gender"] == "m" and father.name.split()[1] == entity.name.split()[1]
            assert 22 <= int(entity.facts["born_year"]) - int(father.facts["born_year"]) <= 39
        if entity.kind == "person":
            day, month, year = str(entity.facts["born"]).split()
            assert 1 <= int(day) <= 28 and month in MONTHS and int(year) == entity.facts["born_year"] < 1990


def test_a_passage_states_its_facts() -> None:
    known = world()
    for entity in known.entities.values():
        text = known.texts[entity.key]
        for fact in ("born", "profession", "founded", "river", "region", "craft", "product", "year", "genre"):
            assert fact not in entity.facts or str(entity.facts[fact]) in text, (fact, text)
        assert all(known.entities[key].name in text for key in entity.links.values())


def test_setting_up_takes_less_than_a_second() -> None:
    world.cache_clear()
    start = time.process_time()
    embedded.encyclopedia().search(["who painted the idle ocean"], 3)
    assert time.process_time() - start < 1


def test_the_committed_manifest_is_what_the_generator_makes() -> None:
    listed = [task for split in embedded.SPLITS for task in embedded.EmbeddedQuestions().tasks(split)]
    assert sorted(listed) == sorted(manifest.build())


def test_categories_do_not_claim_to_be_the_published_sets() -> None:
    counts = {split: embedded.EmbeddedQuestions().tasks(split).categories for split in (*embedded.SPLITS, "test")}
    assert counts["train"] == {"hotpotqa-like": 1_500, "nq-like": 1_500}
    assert counts["seen"] == {"hotpotqa-like": 64, "nq-like": 64}
    assert counts["unseen"] == dict.fromkeys(sorted(asking.UNSEEN), 32)
    assert counts["test"] == {**counts["seen"], **counts["unseen"]}
    assert all(name.endswith("-like") for split in counts.values() for name in split)


def test_splits_share_no_content() -> None:
    source = embedded.EmbeddedQuestions()
    texts: dict[str, str] = {}
    shas: dict[str, str] = {}
    sides: dict[str, set[str]] = {"train": set(), "test": set()}
    for split in embedded.SPLITS:
        for task in source.tasks(split):
            question = source.load(task)
            assert texts.setdefault(comparable(question.text), split) == split, question.text
            assert shas.setdefault(task.sha256, split) == split
            sides["train" if split == "train" else "test"].update(task.id.split("/")[2].split("+"))
    assert not sides["train"] & sides["test"], "an entity is asked about on both sides"
    assert len(texts) == len(shas) == 3_288


def test_no_question_holds_its_answer() -> None:
    source = embedded.EmbeddedQuestions()
    for split in ("seen", "unseen"):
        for task in source.tasks(split):
            question = source.load(task)
            contest = any(name in task.id for name in ("elder", "older-firm", "first-film"))
            told = any(comparable(answer) in comparable(question.text) for answer in question.answers)
            assert told == contest, question


def test_yes_and_no_are_balanced() -> None:
    source = embedded.EmbeddedQuestions()
    answers = Counter(source.load(t).answers[0] for t in source.tasks("train") if "/same-job/" in t.id)
    assert abs(answers["yes"] - answers["no"]) <= 1 and answers.total() > 50


@pytest.mark.parametrize("split", ["seen", "unseen"])
def test_the_oracle_finds_what_it_needs_and_answers(split: str) -> None:
    env = gym.make("seed_envs/SearchQA-v0", split=split)
    turns = Counter[int]()
    for task in list(env.get_wrapper_attr("tasks"))[::3]:
        question = embedded.EmbeddedQuestions().load(task)
        env.reset(seed=0, options={"task_id": task.id})
        found: set[str] = set()
        while True:
            action = env.get_wrapper_attr("oracle")()[0]
            *_, terminated, truncated, info = env.step(action)
            found |= set(info["extra"]["documents"])
            if terminated or truncated:
                break
        assert info["success"] and {hop.passage for hop in question.hops} <= found, question
        turns[info["turn"]] += 1
    assert set(turns) <= {2, 3, 4} and len(turns) > 1


def test_questions_by_hand() -> None:
    known = world()
    film = next(e for e in known.entities.values() if e.facts.get("sort") == "film")
    director = known.entities[film.links["creator"]]
    town = known.entities[director.links["birthplace"]]
    question = asking.ask(known, f"2wiki-like/birthplace-of-director/{film.key}")
    assert question.text == f"Where was the director of film {film.name} born?" and question.answers == (town.name,)
    assert question.hops == (asking.Hop(film.name, film.key), asking.Hop(director.name, director.key))
    birth = asking.ask(known, f"nq-like/birth-date/{director.key}")
    day, month, year = str(director.facts["born"]).split()
    assert birth.answers == (f"{day} {month} {year}", f"{month} {day}, {year}") and birth.text == birth.text.lower()


@pytest.mark.parametrize("wrong", ["", "nq-like", "nq-like/birthplace/x1", "nq-like/birthplace/p0001+p0002", "a/b/c/d",
                                   "hotpotqa-like/elder/p0001", "popqa-like/father/p0000"])  # fmt: skip
def test_what_is_no_question_is_refused(wrong: str) -> None:
    with pytest.raises(DataError, match="no question of the encyclopedia"):
        asking.ask(world(), wrong)


def test_another_content_under_an_id_is_refused() -> None:
    task = embedded.EmbeddedQuestions().tasks("seen")[0]
    with pytest.raises(DataError, match="not the question its manifest lists"):
        embedded.EmbeddedQuestions().load(Task(task.id, task.split, task.category, "0" * 64))


def test_the_contract_is_kept_in_the_loose_mode_too() -> None:
    maker = EnvMaker("seed_envs/SearchQA-v0", {"split": "test", "parity": "verl_agent", "top_k": 1})
    check_env(
        maker, max_tasks=2, only=[name for name in CHECKS if name not in ("worker", "portable_info")]
    ).raise_if_failed()
