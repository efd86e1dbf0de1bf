"""What a purchase is worth, by hand; nouns of titles; prices, ceilings and goals."""

import subprocess
import sys
from typing import Any

import pytest
from webshop_kit import goal, golden, official, product, shop, webshop_root  # noqa: F401 (fixtures)

from seed_envs.errors import MissingDependency, UnknownName
from seed_envs.webshop import oracle, reward, tagger
from seed_envs.webshop.engine import State, Visit, step
from seed_envs.webshop.goals import NO_CEILING, frozen_ceiling, human_goals, rungs, synthetic_goals
from seed_envs.webshop.product import HumanInstruction, Product
from seed_envs.webshop.tagger import light

RIGHT = {"color": "red", "size": "large"}


def worth(options: dict[str, str] = RIGHT, price: float = 9.5, wanted: Any = None, **fields: Any) -> reward.Score:
    return reward.score(product(**fields), wanted or goal(), options, price, light)


def test_the_right_purchase_is_worth_one() -> None:
    score = worth()
    assert (score.reward, score.r_type, score.r_att, score.r_option, score.r_price) == (1.0, 1.0, 1.0, 1.0, True)
    assert score.success and score.query_match and score.category_match and score.title_score == 1.0


def test_the_formula_by_hand() -> None:
    """Attributes, options and the price count alike: 2 + 1 + 1 parts here."""
    wanted = goal(attributes=("easy clean", "dishwasher safe"), options=(("color", "red"),))
    has_both = {"attributes": ("easy clean", "dishwasher safe")}
    assert worth({"color": "blue"}, wanted=wanted, **has_both).reward == 0.75
    assert worth({"color": "blue"}, 20.01, wanted, **has_both).reward == 0.5
    assert worth({"color": "red"}, 20.0, wanted).reward == 0.75
    assert worth({}, 99.0, wanted, attributes=()).reward == 0.0
    bare = goal(options=())
    assert worth({}, wanted=bare) == worth({"color": "red"}, wanted=bare)
    assert worth({}, wanted=bare).r_option is None and worth({}, wanted=bare).success


@pytest.mark.parametrize(
    ("bought", "wanted", "met"),
    [
        ("large", "x-large", True), ("x-large", "xx-large", True), ("small", "x-small", True),
        ("12", "pack of 12", True),
        ("tan", "titan", True), ("aquamarine", "blue", False), ("dark grey", "light grey", False),
        ("red", "blue", False),
        ("light blue", "light green", False), ("light blue", "blue", True),
    ],
)  # fmt: skip
def test_options_are_matched_as_loosely_as_upstream_does(bought: str, wanted: str, met: bool) -> None:
    """As a person wrote them: values alone, colours by their first colour word."""
    score = worth({"any": bought}, wanted=goal(options=(wanted,)))
    assert score.r_option == float(met)


@pytest.mark.parametrize(
    ("bought", "wanted", "met"),
    [("2005grey", "2005grey", False), ("navy", "navy", True), ("dark grey", "grey", False), ("size m", "m", True),
     ("navy blue", "navy blue", True), ("xl", "xl", True)],
)  # fmt: skip
def test_pairs_of_synthetic_goals_are_compared_as_upstream_does(bought: str, wanted: str, met: bool) -> None:
    """The chosen value is reduced to its colour word and the pair is not, unless it is one."""
    score = worth({"size": bought}, wanted=goal(options=(("size", wanted),)))
    assert score.r_option == float(met)


@pytest.mark.parametrize(
    ("attribute", "fields", "met"),
    [
        ("easy clean", {}, True), ("easy to clean", {}, True), ("tin", {"attributes": ()}, True),
        ("tea", {"attributes": ()}, True), ("a mug.", {"attributes": ()}, True), ("A mug.", {"attributes": ()}, False),
        ("coffee", {}, False),
    ],
)  # fmt: skip
def test_attributes_are_looked_for_in_the_texts_too(attribute: str, fields: dict[str, Any], met: bool) -> None:
    assert worth(wanted=goal(attributes=(attribute,)), **fields).r_att == float(met)


def test_the_type_of_a_product() -> None:
    far = {"query": "sofas", "product_category": "Home \u203a Sofas"}
    assert worth(title="Glass Jar", **far).r_type == 0.0
    assert worth(title="Glass Jar").r_type == 0.0, "no common noun overrides an equal query"
    assert worth(title="Big Mug", **far).r_type == 1.0, "half of the nouns are enough"
    names = "Mug " + " ".join(f"Noun{letter}" for letter in "abcdefghijklmnopqrst")
    assert worth(title="Mug", wanted=goal(name=names), **far).r_type == 0.1, "one of 21"
    five = goal(name="Mug Alpha Beta Gamma Delta")
    assert (worth(title="Mug", wanted=five, **far).r_type, worth(title="Mug", wanted=five).r_type) == (0.5, 1.0)
    assert worth(title="Mug", wanted=five, query="sofas").r_type == 1.0, "two names of the path are enough"
    assert worth(title="Glass Jar", wanted=goal(name="12 of 3"), **far).title_score == 0.2, "a title without nouns"
    assert worth(title="Mug Mug Tin", wanted=goal(name="Mug Mug Tin")).title_score == pytest.approx(2 / 3)


def test_the_light_tagger() -> None:
    assert light("Men's T-Shirt with 3 Pockets, 100% Cotton, for the Beach - 3D Don't") == (
        "men", "t", "shirt", "pockets", "cotton", "beach", "3d", "do",
    )  # fmt: skip
    assert light("") == light("12 & 3 with the of") == ()
    for hostile in ("x" * 1_000_000, "'s" * 100_000, "\ud800 🙂 冷蔵庫", "n't" * 100_000):
        light(hostile)


def test_taggers_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tagger.get_tagger("light")("Tin Mug") == ("tin", "mug")
    with pytest.raises(UnknownName, match="did you mean light"):
        tagger.get_tagger("lite")
    tagger._model.cache_clear()
    tagger.spacy.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(
        MissingDependency, match=r"needs the extra 'nlp' \(no spacy here\): pip install 'seed-suite\[nlp\]'; or use"
    ):
        tagger.get_tagger("spacy")


def test_a_tagger_of_ones_own() -> None:
    code = """
import gymnasium as gym
import seed_envs
from seed_envs.webshop.tagger import TAGGERS
TAGGERS.add("last", lambda title: title.lower().split()[-1:])
env = gym.make("seed_envs/WebShop-v0", tagger="last")
print(env.unwrapped.identity()["version"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0+webshop-1-last\n", done.stderr


def test_importing_the_environment_needs_neither_spacy_nor_java_nor_torch() -> None:
    code = """
import sys
for name in ("spacy", "torch", "pyserini", "jnius", "faiss", "transformers"):
    sys.modules[name] = None
import gymnasium as gym, seed_envs
env = gym.make("seed_envs/WebShop-v0")
env.reset(seed=0)
for action in env.unwrapped.oracle():
    *_, info = env.step(action)
print(info["success"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.nlp
def test_spacys_nouns_are_upstreams_and_so_are_all_rewards(shared: Any, official: Any) -> None:  # noqa: F811
    from webshop_kit import golden_goal

    nouns = tagger.get_tagger("spacy")
    for row in golden(shared, "title_nouns.jsonl"):
        assert list(nouns(row["name"])) == row["nouns"]
    for row in golden(shared, "reward_table.jsonl.xz"):
        bought, wanted = official.product(row["bought"]), golden_goal(row["goal"])
        assert reward.score(bought, wanted, row["options"], row["price"], nouns).reward == row["reward"]


# --- goals ------------------------------------------------------------------------------------------------------------


def test_ceilings_are_one_of_the_next_four_tens_and_frozen() -> None:
    assert rungs(9.5) == [10, 20, 30, 40] and rungs(10) == [20, 30, 40, 50]
    assert rungs(965) == [970, 980, 990] and rungs(980) == [990] and rungs(2_000) == []
    drawn = {frozen_ceiling(product(f"A{number:09d}")) for number in range(200)}
    assert drawn == {20, 30, 40}, "the larger of two is never the lowest of the four"
    assert frozen_ceiling(product(price=985.0)) == frozen_ceiling(product(price=1e9)) == NO_CEILING
    assert [frozen_ceiling(product(f"A{number:09d}")) for number in range(6)] == [20, 30, 30, 40, 40, 30]


def asked(**fields: Any) -> Product:
    given: dict[str, Any] = {"instruction": "Find me mugs", "instruction_attributes": ("easy clean",)}
    return product(**{**given, **fields})


def test_a_synthetic_goal_for_every_combination_of_options() -> None:
    goals = list(synthetic_goals([asked()]))
    assert [goal.instruction.partition(", and price")[0] for goal in goals] == [
        f"Find me mugs with color: {color}, and size: {size}"
        for color in ("red", "blue")
        for size in ("small", "large")
    ]
    assert len({goal.price_upper for goal in goals}) == 1
    (plain,) = synthetic_goals([asked(options={}, price=2_000.0)])
    assert (plain.instruction, plain.price_upper, plain.options) == ("Find me mugs", NO_CEILING, ())
    nothing = [asked(instruction=None), asked(instruction_attributes=()), asked(options={"size": ()})]
    assert list(synthetic_goals(nothing)) == []


def test_human_goals_need_an_attribute() -> None:
    human = (
        HumanInstruction("i want a red mug.", ("easy clean",), ("red",)),
        HumanInstruction("no attribute", (), ("red",)),
        HumanInstruction("...", ("easy clean",), ()),
    )
    goals = list(human_goals([product(human=human)]))
    upper = frozen_ceiling(product())
    assert [goal.instruction for goal in goals] == [
        f"i want a red mug, and price lower than {upper:.2f} dollars",
        f", and price lower than {upper:.2f} dollars",
    ]
    assert goals[0].options == ("red",)


# --- the oracle -------------------------------------------------------------------------------------------------------


def visit(*products: Product, wanted: Any = None, instruction: str = "Find me a tin mug") -> Visit:
    there = shop(products)

    def rate(asin: str, options: Any) -> float:
        return reward.score(there.product(asin), wanted or goal(), options, there.product(asin).price, light).reward

    return Visit(there, instruction, rate)


def test_own_options_of_people_are_those_that_fit_best() -> None:
    shoe = product(options={"color": ("dark red", "red", "blue"), "size": ("8", "18"), "fit": ("wide", "slim")})
    assert oracle.own_options(goal(options=("red", "8")), shoe) == {"color": "red", "size": "8"}
    assert oracle.own_options(goal(options=("size", "unknown")), shoe) == {}


def test_values_no_click_can_choose_are_left_out() -> None:
    odd = product(options={"color": ("red [new]", "red"), "size": ("6",), "width": ("6",)})
    wanted = goal(options=(("color", "red [new]"), ("size", "6"), ("width", "6")))
    assert oracle.own_options(wanted, odd) == {"width": "6"}
    there = visit(odd, wanted=wanted)
    assert oracle.plan(there, State(), wanted)[1:] == ["click[p000000001]", "click[6]", "click[buy now]"]


def test_the_plan_repairs_what_was_done_and_never_goes_astray() -> None:
    others = [product(f"Q{number:09d}", title="Tin Mug Mug Tin") for number in range(30)]
    there = visit(product(), *others)
    ways = [
        [], ["search[mug]"], ["search[mug]", "click[next >]"], ["search[nothing]"], ["search[a [b] mug]"],
        ["search[number]", "click[q000000003]"], ["search[<q> mugs]", "click[p000000001]", "click[blue]"],
        ["search[<q> mugs]", "click[p000000001]", "click[small]", "click[features]"],
        ["search[<q> mugs item_page]", "click[features]"], ["search[mug search_results]", "click[next >]"],
    ]  # fmt: skip
    for way in ways:
        state = State()
        for action in way:
            state = step(there, state, action).state
        plan = oracle.plan(there, state, goal())
        while plan:
            outcome = step(there, state, plan[0])
            assert outcome.admissible, plan
            state = outcome.state
            if state.page == "done":
                break
            shorter = oracle.plan(there, state, goal())
            assert shorter == plan[1:]
            plan = shorter
        assert (state.page, state.score) == ("done", 1.0), way


def test_what_cannot_be_found_is_said() -> None:
    hidden = product(title="[[]]", description="", bullets=(), options={})
    there = visit(hidden, instruction="x")
    with pytest.raises(oracle.Unreachable, match="no way from here to P000000001"):
        oracle.plan(there, State(), goal())
    with pytest.raises(oracle.Unreachable):
        oracle.plan(visit(product()), State(page="done", asin="P000000001"), goal())
