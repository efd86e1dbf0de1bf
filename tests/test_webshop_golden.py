"""Everything upstream printed, printed again: pages, clickables, goals, rewards, human episodes."""

import json
import re
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from webshop_kit import golden, golden_goal, official, webshop_root  # noqa: F401 (fixtures)

from seed_envs.seeding import canonical, sha256_text
from seed_envs.webshop import engine, pages, reward
from seed_envs.webshop.goals import human_goals, synthetic_goals, upstream_draws, upstream_order
from seed_envs.webshop.product import Catalogue
from seed_envs.webshop.reward import similar
from seed_envs.webshop.sources import OfficialGoals
from seed_envs.webshop.tagger import TAGGERS

LIGHT = 1983
"""Rows of the reward table that the light tagger gets right."""
RECORDED = 11
"""What the recorded program seeded its generator with."""


def upstream_nouns(shared: Path) -> Any:
    """Return upstream's tagger as a table of what it found in every title."""
    return {row["name"]: tuple(row["nouns"]) for row in golden(shared, "title_nouns.jsonl")}.__getitem__


@pytest.mark.parametrize(
    ("name", "states"),
    [("episodes.jsonl.xz", 2008), ("episodes_scripted.jsonl", 174), ("episodes_human_show_attrs.jsonl", 56)],
)
def test_every_page_clickable_and_reward_is_upstreams(
    shared: Path,
    official: Catalogue,  # noqa: F811
    name: str,
    states: int,
) -> None:
    """Pages that depend on ranking are among them: the search is Lucene's."""
    prices, _ = upstream_draws(map(official.product, official.asins), RECORDED)
    nouns, seen, rich = upstream_nouns(shared), 0, 0
    for episode in golden(shared, name):
        goal = golden_goal(episode["goal"])

        def rate(asin: str, options: Any, goal: Any = goal) -> float:
            return reward.score(official.product(asin), goal, options, prices[asin], nouns).reward

        visit = engine.Visit(official, goal.instruction, rate, show_attributes="show_attrs" in name)
        state = engine.State()
        for step in [episode["initial"], *episode["steps"]]:
            before = state
            if "action" in step:
                outcome = engine.step(visit, state, step["action"])
                state = outcome.state
                if "error" in step:
                    assert state == before and not outcome.admissible and outcome.reason, step
                    break
                bought = state.page == engine.DONE and outcome.admissible
                assert (step["reward"], step["done"]) == (state.score if bought else 0, bought)
            where = (name, episode.get("episode"), step.get("action"))
            parts = pages.parts(visit, state)
            assert pages.text(parts) == step["observation"], where
            offered = {"has_search_bar": state.page == engine.INDEX, "clickables": [*engine.clickables(visit, state)]}
            assert offered == step["available_actions"], where
            if "observation_rich" in step:
                rich += 1
                assert pages.text_rich(parts, state) == step["observation_rich"], where
            seen += 1
    assert seen == states and rich >= 56


def test_searches_find_what_lucene_finds(shared: Path, official: Catalogue) -> None:  # noqa: F811
    rows = golden(shared, "search_top50.jsonl")
    same = sum(official.search(row["query"])[:10] == row["asins"][:10] for row in rows)
    assert (same, len(rows)) == (305, 305)


def test_the_synthetic_goals_are_upstreams_in_its_order(shared: Path, official: Catalogue) -> None:  # noqa: F811
    rows = golden(shared, "goals_synthetic.jsonl.xz")
    prices, ceiling = upstream_draws(map(official.product, official.asins), RECORDED)
    ours = upstream_order(synthetic_goals(official.instructed(), ceiling))
    assert ours == [golden_goal(row) for row in rows] and len(ours) == 6910
    for row in golden(shared, "product_prices.jsonl"):
        found = official.product(row["asin"])
        assert (list(found.pricing), found.price_tag) == (row["pricing"], row["price_tag"])
        assert prices[row["asin"]] == row["purchase_price"]
    frozen = upstream_order(synthetic_goals(official.instructed()))
    clause = re.compile(r", and price lower than \d+\.00 dollars$")
    assert [clause.sub("", goal.instruction) for goal in frozen] == [clause.sub("", g.instruction) for g in ours]


def test_the_human_goals_are_upstreams(shared: Path, official: Catalogue) -> None:  # noqa: F811
    rows = golden(shared, "goals_human.jsonl")
    ours = list(human_goals(official.instructed()))
    assert len(rows) == len(ours) == 13
    for row, goal in zip(rows, ours, strict=True):
        assert goal.instruction.partition(", and price")[0] == row["instruction_text"].partition(", and price")[0]
        assert golden_goal(row, price_upper=0.0, instruction="") == golden_goal(
            {**row, "goal_options": list(goal.options), "attributes": goal.attributes, "asin": goal.asin},
            price_upper=0.0, instruction="",
        )  # fmt: skip


def test_the_order_of_a_verl_agent_worker(shared: Path, official: Catalogue) -> None:  # noqa: F811
    plain = [(goal.asin, goal.options) for goal in synthetic_goals(official.instructed())]
    rows = golden(shared, "verl_agent_goal_order.jsonl")
    for row in rows:
        source = OfficialGoals(official, "small-synthetic", row["seed"])
        order: list[Any] = upstream_order(range(len(plain)), row["seed"])
        assert order[:500] == row["order_first_500"]
        assert row["order_sha256"] in {sha256_text(json.dumps(order)), sha256_text(canonical(order))}
        assert [plain[place] for place in order] == [(goal.asin, goal.options) for goal in source.goals]
        assert [goal.instruction for goal in source.goals[:20]] == row["first_20_instructions"]
        assert {goal.asin: goal.price_upper for goal in source.goals} == row["price_upper_by_asin"]
        for asin, price in row["purchase_price_two_price_products"].items():
            assert source.price(official.product(asin)) == price
    assert len(rows) == 8


def test_every_row_of_the_reward_table(shared: Path, official: Catalogue) -> None:  # noqa: F811
    nouns, light = upstream_nouns(shared), TAGGERS.get("light")
    same = 0
    rows = golden(shared, "reward_table.jsonl.xz")
    for row in rows:
        asked = (official.product(row["bought"]), golden_goal(row["goal"]), row["options"], row["price"])
        ours, told = reward.score(*asked, nouns), row["reward_info"]
        names = ("r_type", "r_att", "r_option", "r_price", "query_match", "category_match", "title_score")
        assert {name: getattr(ours, name) for name in names} == {name: told.get(name) for name in names}
        assert ours.reward == row["reward"] and ours.success == (row["reward"] == 1)
        same += reward.score(*asked, light).reward == row["reward"]
    assert len(rows) == 2000
    assert same >= 0.97 * len(rows) and same == LIGHT, "docs/webshop.md says how many"


def test_what_own_products_are_worth(shared: Path, official: Catalogue) -> None:  # noqa: F811
    nouns = upstream_nouns(shared)
    goals = upstream_order(synthetic_goals(official.instructed()))
    rows = golden(shared, "own_product_rewards.jsonl")
    for tagger in (nouns, TAGGERS.get("light")):
        worth = []
        for goal in goals:
            found = official.product(goal.asin)
            worth.append(reward.score(found, goal, dict(goal.options), found.price, tagger).reward)
        assert worth == [row["reward"] for row in rows]
    assert (sum(value < 1 for value in worth), sum(value < 1 for value in worth[:500])) == (458, 20)


def test_fuzzy_pairs_lie_on_upstreams_side(shared: Path) -> None:
    for row in golden(shared, "fuzz_pairs.jsonl"):
        wanted = str(tuple(row["goal"])) if isinstance(row["goal"], list) else row["goal"]
        assert similar(row["purchased"], wanted) == (row["token_set_ratio_0_22_1"] > 85), row


def human_episodes(shared: Path) -> list[list[dict[str, Any]]]:
    with tarfile.open(shared / "data/webshop/human_trajs_25.tar.xz") as tar:
        files = [tar.extractfile(member) for member in tar.getmembers() if member.isfile()]
        return [[json.loads(line) for line in file.read().decode().splitlines()] for file in files if file]


def test_the_rewards_of_recorded_people(shared: Path) -> None:
    """Their products are not in our catalogue, so what each purchase had is read from the record."""
    told: Counter[str] = Counter()
    for lines in human_episodes(shared):
        last = lines[-1]
        goal, info, content = last["goal"], last["reward_info"], last["content"]
        options = content["options"] if isinstance(content["options"], dict) else json.loads(content["options"])
        count = len(goal["attributes"]), len(goal["goal_options"])
        price = content["price"] if "price" in content else None
        met = [
            any(similar(reward.colour(value), reward.colour(wanted)) for value in options.values())
            for wanted in goal["goal_options"]
        ]
        r_option = sum(met) / count[1] if count[1] else None
        assert r_option == info.get("r_option"), (last, met)
        if price is not None:
            assert (price <= goal["price_upper"]) == info["r_price"]
            told["price"] += 1
        kind = reward.type_score(info["query_match"] or info["category_match"], info["title_score"])
        assert kind == info["r_type"]
        total = (info["r_att"] * count[0] + sum(met) + info["r_price"]) / (sum(count) + 1) * kind
        assert total == pytest.approx(last["reward"], abs=1e-6)
        told["episodes"] += 1
    assert told["episodes"] == 25
