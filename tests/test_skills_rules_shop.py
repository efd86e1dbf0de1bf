"""Skills by rules from WebShop episodes: how it was bought or what was wrong, never which product it was."""

from typing import Any

import pytest
from skill_episodes import ENV, WEBSHOP, episode, played, turn

from seed_agent.skills.insert import insert_skill, remove_skill
from seed_agent.skills.rules import RulesAnnotator
from seed_agent.skills.rules_shop import RULE
from seed_agent.skills.skill import Skill
from seed_agent.trajectory import Episode, Turn
from seed_envs.prompting import builtin_template
from seed_envs.webshop.env import WebShopEnv

WISH = "Find me silent wall clock with color: silver, and size: large, and price lower than 40.00 dollars"
HUMAN = "i want a silent clock in silver. the size should be x-large, and price lower than 40.00 dollars"
ASIN, TITLE = "b000000001", "Tick & Tock Silent Wall Clock, T1"
BOUGHT = {"success": False, "outcome": "failure", "score": 0.5}
UNSOLD = {"success": False, "outcome": "step_limit", "score": 0.0}


def start(action: str, wish: str = WISH) -> Turn:
    return turn(f"WebShop [SEP] Instruction: [SEP] {wish} [SEP] Search", action)


def page(*pieces: str, action: str, wish: str = WISH, **changes: Any) -> Turn:
    return turn(" [SEP] ".join(["Instruction:", wish, "Back to Search", *pieces]), action, **changes)


def results(action: str, **changes: Any) -> Turn:
    found = ["Page 1 (Total results: 2)", "Next >", ASIN.upper(), TITLE, "$30.0", "B000000002", "Loud Clock", "$5.0"]
    return page(*found, action=action, **changes)


def item(action: str, price: str = "$30.0", options: tuple[str, ...] = ("gold", "silver"), **changes: Any) -> Turn:
    about = ["< Prev", "color", *options, "size", "small", "large", "x-large", TITLE, f"Price: {price}"]
    return page(*about, "Rating: N.A.", "Description", "Features", "Reviews", "Buy Now", action=action, **changes)


def skill(*turns: Turn, wish: str = WISH, rich: bool = False, **changes: Any) -> str:
    """The skill's text; with ``rich`` the same pages as ``text_rich`` shows them."""
    steps = [one.model_copy(update={"observation": type(one.observation).of(_rich(one))}) for one in turns]
    env = ENV.model_copy(update={"id": WEBSHOP})
    known = {"task_id": "webshop/x", "category": "garden", "instruction": wish, "env": env}
    (found,) = RulesAnnotator().annotate([episode(steps if rich else turns, **(known | changes))])
    assert isinstance(found, Skill)
    assert not any(name in found.text.lower() for name in (ASIN, TITLE.lower(), "b000000002"))  # no product is named
    return found.text


def _rich(one: Turn) -> str:
    """The page with marks on what is no plain text there."""
    plain = ("Instruction:", WISH, "color", "size", TITLE, "WebShop")
    lines = [
        line if line in plain or line.startswith(("Page ", "$", "Price:", "Rating:")) else f"[button] {line} [button_]"
        for line in one.observation.text.split(" [SEP] ")
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("rich", [False, True])
def test_a_success_becomes_the_way_to_the_purchase_without_its_detours(rich: bool) -> None:
    found = skill(
        start("search[loud clock]"),
        results("click[b000000002]"),
        item("click[back to search]"),
        start("search[silver tock wall clock]"),  # "tock" is no word of the task, but of the title
        results(f"click[{ASIN}]"),
        item("click[gold]"),
        item("click[features]"),
        page("< Prev", " Runs for a year", action="click[< prev]"),
        item("click[large]"),
        item("click[silver]"),
        item("click[x-large]", admissible=False),
        item("click[buy now]"),
        rich=rich,
    )
    order = "search[silver wall clock]; click[a product]; click[silver]; click[large]; click[buy now]."
    assert found == f"{RULE} This order works: {order}"


NEVER = "Begin with a search for the thing and its most telling qualities: nothing was ever searched for."
UNOPENED = "Open the result that fits best and look at its options: after 2 searches not one product was opened."
KEPT = "Buy before the turns run out: 1 product opened, nothing bought."
OPTIONS = "Choose every option that was asked for before you buy: here"
DEAR = "Compare the price with the limit before you buy and open a cheaper product: this one cost too much."
RANGE = "Do not trust a range of prices that reaches above the limit: the product may cost more than is allowed."
PART = "Match every quality that was asked for against"
KIND = "Check that the title names the very kind of thing that was asked for: what was bought is another thing."
FOUND = (start("search[clock]"), results(f"click[{ASIN}]"))
CHOSEN = (item("click[silver]"), item("click[large]"))


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.parametrize(
    ("steps", "ended", "lesson"),
    [
        ((start("click[search]", WISH), start("look")), UNSOLD, NEVER),
        ((start("search[clock]"), results("search[wall clock]"), results("click[next >]")), UNSOLD, UNOPENED),
        ((*FOUND, *CHOSEN, item("click[reviews]")), UNSOLD, KEPT),
        ((*FOUND, item("click[buy now]")), BOUGHT, f"{OPTIONS} 'silver' and 'large'."),
        (
            (*FOUND, *CHOSEN, item("click[gold]"), item("click[small]"), item("click[buy now]")), BOUGHT,
            f"{OPTIONS} 'silver' and 'large' and not 'gold' and 'small'.",
        ),
        (
            (*FOUND, item("click[large]", options=("gold",)), item("click[buy now]", options=("gold",))), BOUGHT,
            "Leave a product that does not come in 'silver' and open another one.",
        ),
        # a part of a value is not the value
        (
            (*FOUND, item("click[buy now]", options=("silver grey", "silver"))),
            {**BOUGHT, "instruction": WISH.replace("silver", "silver grey sky").replace("size: large", "fits: x")},
            "Leave a product that does not come in 'silver grey sky' and 'x' and open another one.",
        ),
        ((*FOUND, *CHOSEN, item("click[buy now]", price="$1,040.0")), BOUGHT, DEAR),
        ((*FOUND, *CHOSEN, item("click[buy now]", price="$39.9 to $41.0")), BOUGHT, RANGE),
        ((*FOUND, *CHOSEN, item("click[buy now]", price="$41.0 to $50.0")), BOUGHT, DEAR),
        ((*FOUND, *CHOSEN, item("click[buy now]", price="$40.0")), BOUGHT, f"{PART} its title and its Features page"),
        (
            (*FOUND, item("click[features]"), page("< Prev", action="click[< prev]"), *CHOSEN, item("click[buy now]")),
            BOUGHT, f"{PART} the titles of the other results",
        ),
        ((*FOUND, *CHOSEN, item("click[buy now]")), {**BOUGHT, "score": 0.0}, KIND),
        # what was chosen is forgotten when the product is left
        (
            (*FOUND, *CHOSEN, item("click[< prev]"), results(f"click[{ASIN}]"), item("click[buy now]")), BOUGHT,
            f"{OPTIONS} 'silver' and 'large'.",
        ),
    ],
)  # fmt: skip
def test_a_failure_becomes_what_to_do_instead(
    steps: tuple[Turn, ...], ended: dict[str, Any], lesson: str, rich: bool
) -> None:
    found = skill(*steps, rich=rich, **ended)
    known = (NEVER, UNOPENED, KEPT, OPTIONS, DEAR, RANGE, PART, KIND)
    assert [one for one in known if one in found] == [one for one in known if lesson.startswith(one)]
    assert lesson in found and ("scored 0.50" in found) == (PART in found)


def test_wishes_of_people_are_read_too() -> None:
    """Their options are words among others: no name of an option, no part of a longer word counts."""
    steps = [turn_.model_copy() for turn_ in (start("search[clock]", HUMAN), results(f"click[{ASIN}]"))]
    assert f"{OPTIONS} 'silver' and 'x-large'." in skill(*steps, item("click[buy now]"), wish=HUMAN, **BOUGHT)
    chosen = [item("click[silver]"), item("click[x-large]"), item("click[buy now]")]
    assert OPTIONS not in skill(*steps, *chosen, wish=HUMAN, **BOUGHT)
    vague = "i want a silent clock, and price lower than 40.00 dollars"
    assert "the product had some, and none was chosen" in skill(*steps, item("click[buy now]"), wish=vague, **BOUGHT)


def test_replies_that_are_ill_formed_or_refused_are_told_without_the_product() -> None:
    bad = results("", reply="hm", format_ok=False, admissible=False, effective=False)
    found = skill(start("search[clock]"), bad, bad, **UNSOLD)
    assert "after 1 search not one product" in found and "2 replies were not well-formed" in found
    refused = item(f"click[{ASIN}]", admissible=False, effective=False)
    found = skill(*FOUND, refused.model_copy(update={"action": "click[buy it]"}), **UNSOLD)
    assert "'click[buy it]' was refused" in found
    refused = results("click[b000000009]", admissible=False, effective=False)
    assert "'click[...]' was refused" in skill(start("search[clock]"), refused, **UNSOLD)
    assert "'something else' was refused" in skill(refused.model_copy(update={"action": f"buy {ASIN}"}), **UNSOLD)
    assert f"{PART} its title" in skill(*FOUND, *CHOSEN, item("click[buy now]", price="$, see below"), **BOUGHT)
    loop = [results(f"click[{ASIN}]"), item("click[< prev]")] * 3
    assert "'click[a product]' was chosen 3 times" in skill(start("search[clock]"), *loop, **UNSOLD)


@pytest.mark.parametrize("policy", ["scripted:oracle", "scripted:noisy-oracle:0.5", "scripted:random"])
def test_no_skill_names_a_product_of_the_shop(policy: str) -> None:
    shop = WebShopEnv(split="train")
    asins = {asin.lower() for asin in shop._source.shop.asins}
    for found, result in zip(_played(policy), RulesAnnotator().annotate(_played(policy)), strict=True):
        assert isinstance(result, Skill)
        words = set(result.text.lower().replace("[", " ").replace("]", " ").split())
        assert not words & asins and _title(shop, found) not in result.text.lower()


def _played(policy: str) -> tuple[Episode, ...]:
    return played(WEBSHOP, policy)


def _title(shop: WebShopEnv, found: Episode) -> str:
    (task,) = [task for task in shop.tasks if task.id == found.task_id]
    return shop._source.goal(task).name.lower()


@pytest.mark.parametrize("style", ["plain", "react", "compact", "conversation"])
def test_the_skill_stands_behind_the_wish_of_every_prompt(style: str) -> None:
    text = builtin_template("webshop", style).render(
        instruction=WISH, observation=start("").observation.text, taken=0, admissible=None
    )
    added = insert_skill(text, "Choose the size.")
    assert f"Your task is to: {WISH}\n\n**Skill for this episode**" in added and remove_skill(added) == text
