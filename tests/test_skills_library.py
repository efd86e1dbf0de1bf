"""The static library: every category of every task has its own text, and no other category's."""

import json
import re
from pathlib import Path

import pytest

from seed_agent.skills import library
from seed_agent.skills.insert import insert_skill
from seed_agent.skills.library import LIBRARIES, sections_for, skill_for
from seed_agent.skills.text import clean
from seed_envs.alfworld.env import ALFWorldEnv
from seed_envs.errors import DataError, UnknownName
from seed_envs.searchqa import asking, official
from seed_envs.searchqa.env import SearchQAEnv
from seed_envs.searchqa.scoring import comparable
from seed_envs.sokoban.env import SokobanEnv
from seed_envs.webshop.env import WebShopEnv
from seed_envs.webshop.sources import released

SECTIONS = [(kind, path.stem) for kind in LIBRARIES for path in sorted(LIBRARIES.get(kind).glob("*.md"))]
TREATMENTS = {"clean": "sink basin", "heat": "microwave", "cool": "fridge", "look_at_obj_in_light": "lamp"}


def test_every_alfworld_task_has_general_and_its_own_section() -> None:
    wanted = {
        "pick_and_place_simple": "pick_and_place", "pick_two_obj_and_place": "pick_and_place",
        "look_at_obj_in_light": "look_at_obj_in_light", "pick_clean_then_place_in_recep": "clean",
        "pick_heat_then_place_in_recep": "heat", "pick_cool_then_place_in_recep": "cool",
    }  # fmt: skip
    assert set(ALFWorldEnv(split="train").tasks.categories) == set(wanted)
    for category, section in wanted.items():
        assert sections_for("alfworld", category) == ("general", section)
        assert skill_for("alfworld", category) == skill_for("alfworld", section)


@pytest.mark.parametrize("section", TREATMENTS)
def test_a_section_speaks_of_its_own_treatment_alone(section: str) -> None:
    general, own = skill_for("alfworld", "general"), skill_for("alfworld", section)
    assert own.startswith(f"{general}\n")
    for other, place in TREATMENTS.items():
        assert (place in own.removeprefix(general)) == (other == section)
        assert place not in general


@pytest.mark.parametrize(("kind", "section"), SECTIONS)
def test_sections_are_short_and_fit_for_a_prompt(kind: str, section: str) -> None:
    text = (LIBRARIES.get(kind) / f"{section}.md").read_text(encoding="utf-8").strip()
    assert 2 <= len(re.findall(r"[.!?](?:\s|$)", text)) <= 5
    assert len(text) < 700 and "\n" not in text
    assert clean(text) == (text, False, 0)


@pytest.mark.parametrize(
    ("category", "task", "sections"),
    [
        ("short", "", ()),
        ("long", "sokoban/6x6-1box/100123", ("one_box",)),
        ("medium", "sokoban/7x7-2box/100123", ("several_boxes", "large_room")),
        ("short", "sokoban/6x8-1box/100123", ("one_box", "large_room")),
        ("short", "sokoban/6x6-12box/100123", ("several_boxes",)),
        ("6x6-1box", "sokoban/6x6-1box/000001", ("one_box",)),
        ("10x6-3box", "sokoban/10x6-3box/000001", ("several_boxes", "large_room")),
        ("6x6-11box", "", ("several_boxes",)),
        ("medium", "boxoban/medium/valid/001/017", ("several_boxes", "large_room")),
        ("hard", "boxoban/hard/001/017", ("several_boxes", "large_room")),
        ("unfiltered", "", ("several_boxes", "large_room")),
    ],
)
def test_a_sokoban_task_gets_the_sections_of_its_size_and_boxes(
    category: str, task: str, sections: tuple[str, ...]
) -> None:
    assert sections_for("sokoban", category, task) == ("general", *sections)
    assert len(skill_for("sokoban", category, task).split("\n")) == 1 + len(sections)


@pytest.mark.parametrize("split", ["train", "seen", "unseen", "random"])
def test_every_sokoban_task_there_is_has_a_skill(split: str) -> None:
    for task in list(SokobanEnv(split=split).tasks)[:200]:
        boxes = "one_box" if "-1box" in task.id else "several_boxes"
        assert boxes in sections_for("sokoban", task.category, task.id)
        assert HEAD in insert_skill("You play Sokoban.", skill_for("sokoban", task.category, task.id))


HEAD = "[Before the first move"


SHELVES = {"beauty", "electronics", "fashion", "garden", "grocery"}


def test_every_webshop_task_has_general_and_its_own_section() -> None:
    embedded = {c for split in WebShopEnv.splits for c in WebShopEnv(split=split).tasks.categories}
    small = released("small-synthetic")
    assert embedded == {task.category for tasks in small.values() for task in tasks} == SHELVES
    for category in SHELVES:
        assert sections_for("webshop", category, "webshop/small-synthetic/00042") == ("general", category)
    assert len({skill_for("webshop", category) for category in SHELVES}) == len(SHELVES)


SETS = {
    "nq": ("direct",), "triviaqa": ("trivia",), "popqa": ("attribute",), "hotpotqa": ("multi_hop", "compare"),
    "2wikimultihopqa": ("multi_hop", "compare"), "musique": ("multi_hop",), "bamboogle": ("multi_hop",),
}  # fmt: skip


def test_every_question_has_the_sections_of_its_set() -> None:
    assert set(SETS) == {*official.SEEN, *official.UNSEEN}
    ours = {name: f"{name.removesuffix('multihopqa')}-like" for name in SETS}
    assert set(ours.values()) == {*asking.STYLES}
    for name, sections in SETS.items():
        assert sections_for("searchqa", name) == sections_for("searchqa", ours[name]) == ("general", *sections)


@pytest.mark.parametrize("split", SearchQAEnv.splits)
def test_no_answer_to_an_embedded_question_is_in_its_skill(split: str) -> None:
    env = SearchQAEnv(split=split)
    for task in list(env.tasks)[::7]:
        text = f" {comparable(skill_for('searchqa', task.category, task.id))} "
        answers = set(env._source.load(task).answers) - {"yes", "no"}
        assert not [answer for answer in answers if f" {comparable(answer)} " in text], task.id


@pytest.mark.parametrize("category", ["", "heat_", "pick_heat", "None", "6x6-0box", "mapping", "short|medium"])
def test_an_unknown_category_is_an_error_never_an_empty_text(category: str) -> None:
    for kind in ("alfworld", "searchqa", "sokoban", "webshop"):
        with pytest.raises(UnknownName, match=f"unknown {kind} category"):
            skill_for(kind, category, "sokoban/6x6-1box/100123")


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(UnknownName, match="unknown skill library 'alfword'; did you mean alfworld"):
        skill_for("alfword", "heat")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(LIBRARIES._entries, "shop", tmp_path)
    library._read.cache_clear()
    for name in ("general", "shoes", "shirts"):
        (tmp_path / f"{name}.md").write_text(f"About {name}.\n", encoding="utf-8")
    return tmp_path


def test_a_third_party_brings_its_own_folder(shop: Path) -> None:
    rules = {"categories": {".*shoe.*": ["shoes"], ".*shirt.*": ["shirts"]}}
    (shop / "mapping.json").write_text(json.dumps(rules), encoding="utf-8")
    assert skill_for("shop", "a shirt and a shoe") == "About general.\nAbout shoes.\nAbout shirts."
    with pytest.raises(UnknownName):
        skill_for("shop", "hats")


@pytest.mark.parametrize("mapping", ["", "[]", "{}", '{"categories": {"(": []}}', '{"categories": {"a": ["missing"]}}'])
def test_a_torn_library_says_what_is_wrong(shop: Path, mapping: str) -> None:
    (shop / "mapping.json").write_text(mapping, encoding="utf-8")
    with pytest.raises(DataError, match=r"mapping"):
        skill_for("shop", "a")
