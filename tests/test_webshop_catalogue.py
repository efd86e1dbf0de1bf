"""The embedded catalogue: the same everywhere, in the official format, with tasks that retrieval solves."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from seed_envs import paths
from seed_envs.errors import DataError, UnknownName
from seed_envs.tasks import Task, read_manifest
from seed_envs.webshop import manifests
from seed_envs.webshop.catalogue import EMBEDDED, embedded, open_catalogue
from seed_envs.webshop.generator import generate, write_official
from seed_envs.webshop.generator_words import SHELVES, VALUES
from seed_envs.webshop.goals import NO_CEILING, Goal, human_goals, synthetic_goals
from seed_envs.webshop.manifests import SPLITS, EmbeddedGoals, build, goal_of
from seed_envs.webshop.official import HUMAN_FILE, Files, read_products
from seed_envs.webshop.product import Product
from seed_envs.webshop.reward import colour, score

SHOP_SHA256 = "925693d046769a2ff904cc416dda1cf9a9800b63bd01d292007360d4d3af8d4a"
TASKS_SHA256 = {
    "dev": "b17b2995de86e052c8ba670e8a517fda9d813a6ddcf02af64c2093a4f747c67c",
    "test": "5a3be2cf4040bd0a6234d2916ce4f9f9da391502e3ad1ef4361b4cea70418a59",
    "train": "898a078df4ae622b9bf1075b41dfc9812ae2f88b2899b16ee3b4c04d8dd353fc",
    "unseen": "d4c5ba14cf426f83961f995c43d72d69b3b59642879dac62616e93840798ae46",
}
SOURCE = EmbeddedGoals()
PRODUCTS = [embedded().product(asin) for asin in embedded().asins]


@cache
def tasks() -> list[tuple[Task, Product, Goal]]:
    return [
        (t, embedded().product(t.id.split("/")[1]), SOURCE.load(t)) for split in SPLITS for t in SOURCE.tasks(split)
    ]


def test_the_catalogue_is_pinned() -> None:
    assert embedded().sha256 == SHOP_SHA256
    assert {split: SOURCE.tasks(split).sha256 for split in sorted(SPLITS)} == TASKS_SHA256


PROBE = """
from seed_envs.webshop.catalogue import embedded
from seed_envs.webshop.manifests import build
from seed_envs.seeding import canonical, sha256_text
from dataclasses import astuple
print(embedded().sha256, sha256_text(canonical([astuple(task) for task in build()])))
print(sha256_text(canonical([embedded().search(p.human[0].text) for p in list(embedded().instructed())[:20]])))
"""


def test_every_process_has_the_same(cli_env: Callable[..., dict[str, str]]) -> None:
    def probe(seed: str) -> str:
        command = [sys.executable, "-c", PROBE]
        return subprocess.run(
            command, env=cli_env(PYTHONHASHSEED=seed), check=True, capture_output=True, text=True
        ).stdout

    first = probe("0")
    assert first.startswith(SHOP_SHA256)
    assert probe("77") == first


def test_the_manifest_is_what_the_plan_makes() -> None:
    listed = [task for split in SPLITS for task in SOURCE.tasks(split)]
    assert sorted(listed) == sorted(build())
    assert read_manifest(paths.manifest_path(EMBEDDED)).keys() == set(SPLITS)


def test_sizes_and_categories() -> None:
    assert len(embedded()) == 1_000
    assert Counter(p.category for p in PRODUCTS) == dict.fromkeys(SHELVES, 200)
    seen = {"beauty", "electronics", "fashion", "garden"}
    sizes = {split: len(SOURCE.tasks(split)) for split in SPLITS}
    assert sizes == {"train": 1_074, "dev": 128, "test": 128, "unseen": 127}
    for split in ("train", "dev", "test"):
        assert SOURCE.tasks(split).categories.keys() == seen
    assert SOURCE.tasks("unseen").categories.keys() == {"grocery"}
    assert SOURCE.tasks("seen").name == f"{EMBEDDED}/test"
    with pytest.raises(UnknownName, match="did you mean train"):
        SOURCE.tasks("trian")


def test_both_styles_are_in_every_split() -> None:
    styles = Counter((t.split, t.id.rsplit("/", 1)[1].split("-")[0]) for t, _, _ in tasks())
    assert {key for key in styles} == {(split, style) for split in SPLITS for style in ("human", "synthetic")}
    assert min(styles.values()) >= 60


def test_splits_share_no_product_and_no_wish() -> None:
    splits: dict[str, set[str]] = {}
    wishes = Counter()
    for task, product, goal in tasks():
        splits.setdefault(product.asin, set()).add(task.split)
        values = sorted(o if isinstance(o, str) else o[1] for o in goal.options)
        wishes[(goal.query, *sorted(goal.attributes), "|", *values)] += 1
    assert all(len(found) == 1 for found in splits.values())
    assert set(wishes.values()) == {1}
    assert len({goal.instruction for _, _, goal in tasks()}) == len(tasks())


def test_what_makes_shops_difficult_is_there() -> None:
    kinds = Counter("none" if p.pricing == (100.0,) else len(p.pricing) for p in PRODUCTS)
    assert kinds["none"] > 50
    assert kinds[2] > 100
    assert all(p.pricing[0] < p.pricing[-1] and p.price != p.pricing[0] for p in PRODUCTS if len(p.pricing) == 2)
    assert any(p.price > 990 for p in PRODUCTS)
    assert sum(not p.options for p in PRODUCTS) > 20
    assert {name for p in PRODUCTS for name in p.options} == {name.lower() for name, _ in VALUES.values()}
    assert len({p.title for p in PRODUCTS}) == len({p.asin for p in PRODUCTS}) == 1_000
    assert all(p.attributes and p.instruction and p.instruction_attributes and p.human for p in PRODUCTS)
    assert any(len(p.bullets) == 1 for p in PRODUCTS)
    assert {goal.price_upper == NO_CEILING for _, _, goal in tasks()} == {True, False}


def test_option_names_and_values_are_no_buttons_and_belong_to_one_option() -> None:
    buttons = {
        "back to search",
        "< prev",
        "next >",
        "search",
        "buy now",
        "description",
        "features",
        "reviews",
        "attributes",
    }
    for p in PRODUCTS:
        values = [value for found in p.options.values() for value in found]
        assert len(values) == len(set(values)), p.asin
        assert not buttons & {*values, *p.options}


def test_values_survive_the_colour_rule_of_the_reward() -> None:
    for _, values in VALUES.values():
        for value in map(str.lower, values):
            assert colour(value) == value or colour(value) in value.split(), value


def test_buying_the_right_thing_is_worth_one() -> None:
    def nouns(title: str) -> list[str]:
        return title.lower().split()

    for task, product, goal in tasks():
        wanted = {o if isinstance(o, str) else o[1] for o in goal.options}
        chosen = {name: value for name, values in product.options.items() for value in values if value in wanted}
        result = score(product, goal, chosen, product.price, nouns)
        assert result.success, (task.id, result)
        assert len(chosen) == len(goal.options)
        if wanted:
            assert not score(product, goal, {}, product.price, nouns).success


def test_the_words_of_an_instruction_find_its_product() -> None:
    ranks = [embedded().search(goal.instruction, 50).index(product.asin) for _, product, goal in tasks()]
    assert max(ranks) < 50
    assert sum(rank < 10 for rank in ranks) > 0.9 * len(ranks)
    # ... and the name of the kind alone does not, so that there is something to search for
    alone = [embedded().search(goal.query, 50)[:10] for _, _, goal in tasks()]
    assert sum(p.asin in found for (_, p, _), found in zip(tasks(), alone, strict=True)) < 0.75 * len(ranks)


def test_a_task_is_refused_when_it_is_another_one() -> None:
    task = SOURCE.tasks("dev")[0]
    assert SOURCE.load(task).sha256 == task.sha256
    with pytest.raises(DataError, match="not the goal its manifest lists"):
        SOURCE.load(replace(task, sha256="0" * 64))
    for bad in ("webshop/B000000000/human-0", "webshop/x", task.id + "0x", ""):
        with pytest.raises(DataError, match="no task of the embedded shop"):
            SOURCE.load(replace(task, id=bad))
    with pytest.raises(DataError, match="has 1 human goals, none of number 7"):
        goal_of(PRODUCTS[0], "human", 7)


def test_goals_of_a_product_by_number() -> None:
    product = next(p for p in PRODUCTS if len(p.options) == 2)
    goals = list(synthetic_goals([product]))
    assert [goal_of(product, "synthetic", n) for n in range(len(goals))] == goals
    assert goal_of(product, "human", 0) == next(human_goals([product]))


def test_a_longer_catalogue_begins_with_the_shorter_one() -> None:
    assert [m.item["asin"] for m in islice(generate(3_000), 1_000)] == list(embedded().asins)
    assert len({m.item["asin"] for m in generate(3_000)}) == 3_000
    assert list(generate(7)) == list(islice(generate(), 7))


def test_the_official_files_of_it_hold_the_same_shop(tmp_path: Path) -> None:
    write_official(tmp_path)
    names = "items_shuffle_1000.json", "items_ins_v2_1000.json", HUMAN_FILE
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert list(read_products(Files(*(tmp_path / name for name in names)))) == PRODUCTS
    assert open_catalogue(str(tmp_path)).sha256 == SHOP_SHA256
    item = json.loads((tmp_path / names[0]).read_text())[0]
    assert item.keys() == {
        *("asin", "name", "full_description", "small_description", "pricing", "customization_options", "images"),
        *("category", "query", "product_category"),
    }
    assert item["product_category"].count(" \u203a ") >= 1


def test_writing_the_manifest_anew_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy

    committed = paths.manifest_path(EMBEDDED).read_bytes()
    monkeypatch.setattr(paths, "manifest_path", lambda name: tmp_path / f"{name}.tsv")
    monkeypatch.delitem(sys.modules, manifests.__name__)
    monkeypatch.setattr(sys, "argv", [manifests.__name__])
    runpy.run_module(manifests.__name__, run_name="__main__")
    assert (tmp_path / f"{EMBEDDED}.tsv").read_bytes() == committed
