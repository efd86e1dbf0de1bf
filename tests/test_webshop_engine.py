"""Pages, actions and their quirks, on a shop of a few mugs."""

import json
import re
import string
from collections.abc import Mapping
from typing import Any

import pytest
from webshop_kit import product, shop

from seed_envs.seeding import Draws
from seed_envs.webshop import actions, engine, pages
from seed_envs.webshop.engine import DONE, FOUND, INDEX, ITEM, SUB, State, Visit
from seed_envs.webshop.html import page


def worth(asin: str, options: Mapping[str, str]) -> float:
    return 0.25 * len(options)


def visit(**changes: Any) -> Visit:
    return Visit(**{"shop": shop(), "instruction": "Find me mugs", "rate": worth, **changes})


def go(there: Visit, *typed: str, start: State | None = None) -> State:
    state = start or State()
    for action in typed:
        outcome = engine.step(there, state, action)
        assert outcome.admissible, (action, outcome.reason)
        state = outcome.state
    return state


def text(there: Visit, state: State) -> str:
    return pages.text(pages.parts(there, state))


UPSTREAM = re.compile(r"(.+)\[(.+)\]")


def reference(action: str) -> actions.Command:
    found = UPSTREAM.match(action)
    return actions.Command(found[1], found[2].lower()) if found else actions.Command(action, None)


@pytest.mark.parametrize(
    "action",
    [
        "search[a]", "click[Buy Now]", "click[buy now] please", " click[x]", "search[]", "search[ ]", "[x]", "x[]]",
        "search[a]]", "search[a[b]]", "search[a] and click[b]", "click[a\nb]", "click[a]\nb]", "\nclick[a]",
        "a[b", "a]b[",
        "][", "x][y]", "x[[y]", "click[[]", "click[]]", "", "[", "]", "[]", "[[]]", "x[\u2028]", "x[\r]", "İ[İ]",
    ],
)  # fmt: skip
def test_actions_are_read_as_upstreams_expression_reads_them(action: str) -> None:
    assert actions.read(action) == reference(action)


def test_drawn_actions_are_read_as_upstreams_expression_reads_them() -> None:
    draws = Draws("brackets")
    for _ in range(5_000):
        action = "".join(draws.choice("[]ab \n") for _ in range(draws.below(12)))
        assert actions.read(action) == reference(action), action


def test_reading_is_linear() -> None:
    for hostile in ("[" * 1_000_000, "]" * 1_000_000, "a[" * 500_000, "a[b" * 300_000 + "]", "x" * 1_000_000):
        actions.read(hostile)  # upstream's expression would take hours


def test_the_way_from_search_to_buying() -> None:
    there = visit()
    top = "Instruction: [SEP] Find me mugs [SEP] Back to Search [SEP] "
    assert text(there, State()) == "WebShop [SEP] Instruction: [SEP] Find me mugs [SEP] Search"
    found = go(there, "search[number 3]")
    assert text(there, found).startswith(f"{top}Page 1 (Total results: 12) [SEP] Next > [SEP] P000000003 [SEP] Tin Mug")
    assert len(found.results) == 12 and len(engine.shown(found)) == 10
    item = go(there, "click[P000000003]", start=found)
    assert text(there, item) == (
        f"{top}< Prev [SEP] color [SEP] red [SEP] blue [SEP] size [SEP] small [SEP] large [SEP] Tin Mug number 3 [SEP] "
        "Price: $9.5 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    chosen = go(there, "click[large]", "click[red]", "click[blue]", start=item)
    assert chosen.options == (("size", "large"), ("color", "blue"))
    assert text(there, chosen) == text(there, item), "the style text does not show what is chosen"
    done = go(there, "click[buy now]", start=chosen)
    assert (done.page, done.score) == (DONE, 0.5)
    assert '[SEP] options [SEP] {"color": "blue", "size": "large"} [SEP] attrs' in text(there, done)
    assert text(there, done).endswith("Your score (min 0.0, max 1.0) [SEP] 0.5 [SEP] Reward Details [SEP] None")
    assert engine.clickables(there, done) == {}


def test_sub_pages_keep_the_options_and_previous_leads_back() -> None:
    there = visit()
    chosen = go(there, "search[mug]", "click[p000000002]", "click[red]")
    description = go(there, "click[description]", start=chosen)
    assert text(there, description).endswith("Back to Search [SEP] < Prev [SEP] A mug.")
    assert go(there, "click[< prev]", start=description) == chosen
    features = go(there, "click[features]", start=chosen)
    assert text(there, features).endswith("< Prev [SEP] Holds tea. [SEP] "), "an empty bullet is a piece of its own"
    assert text(there, go(there, "click[reviews]", start=chosen)).endswith("Back to Search [SEP] < Prev")
    assert not engine.step(there, chosen, "click[attributes]").admissible
    shown = go(visit(show_attributes=True), "click[attributes]", start=chosen)
    assert text(there, shown).endswith(
        "< Prev [SEP] easy clean [SEP] garden [SEP] mugs [SEP] Home \u203a Kitchen \u203a Mugs"
    )


def test_previous_and_search_clear_the_options_and_back_to_search_all() -> None:
    there = visit()
    chosen = go(there, "search[mug]", "click[next >]", "click[p000000010]", "click[red]")
    back = go(there, "click[< prev]", start=chosen)
    assert (back.page, back.number, back.options, back.asin) == (FOUND, 2, (), "")
    assert back.seen == {"P000000010"}
    assert go(there, "search[mug]", start=chosen).seen == {"P000000010"}, "a search from an item page remembers"
    assert go(there, "click[back to search]", start=chosen) == State()


def test_pages_of_results_have_no_end() -> None:
    there = visit()
    state = go(there, "search[mug]", *["click[next >]"] * 5)
    assert text(there, state).endswith("Page 6 (Total results: 12) [SEP] < Prev [SEP] Next >")
    assert go(there, *["click[< prev]"] * 5, start=state) == go(there, "search[mug]")
    assert "< prev" not in engine.clickables(there, go(there, "search[mug]"))


@pytest.mark.parametrize(
    ("page_name", "action"),
    [
        (INDEX, "click[search]"), (INDEX, "click[buy now]"), (FOUND, "click[buy now]"), (FOUND, "click[Add to Cart]"),
        (ITEM, "click[Add to Cart]"), (ITEM, "[click]Buy Now"), (ITEM, "fill out form[x]"), (ITEM, ""), (ITEM, "buy"),
        (ITEM, "click[ buy now ]"), (ITEM, "CLICK[buy now]"), (ITEM, " click[buy now]"), (ITEM, "think[buy now]"),
        (SUB, "click[description]"), (SUB, "click[red]"), (DONE, "click[buy now]"), (ITEM, "search[]"),
        (ITEM, "search[<c>]"), (ITEM, "search[<a> easy clean]"),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_refused_with_a_reason_and_changes_nothing(page_name: str, action: str) -> None:
    there = visit()
    ways: dict[str, tuple[str, ...]] = {INDEX: (), FOUND: ("search[mug]",)}
    ways[ITEM] = (*ways[FOUND], "click[p000000001]", "click[red]")
    ways |= {SUB: (*ways[ITEM], "click[features]"), DONE: (*ways[ITEM], "click[buy now]")}
    before = go(there, *ways[page_name])
    outcome = engine.step(there, before, action)
    assert outcome.state is before and not outcome.admissible and outcome.reason


def test_a_search_works_on_every_page_as_upstream() -> None:
    there = visit()
    for way in ((), ("search[mug]",), ("search[mug]", "click[p000000001]"), ("search[x]",)):
        assert go(there, "search[number 7]", start=go(there, *way)).results[0] == "P000000007"


def test_special_queries() -> None:
    there = visit(seed=5)
    assert go(there, "search[<c> garden]").results == tuple(there.shop.asins)
    assert go(there, "search[<c> garden tools]").results == tuple(there.shop.asins), "the second word alone counts"
    assert go(there, "search[<q> mugs]").results == tuple(there.shop.asins)
    assert go(there, "search[<q> mug]").results == go(there, "search[<c> beauty]").results == ()
    drawn = go(there, "search[<r>]").results
    assert sorted(drawn) == sorted(there.shop.asins) and drawn == go(there, "search[<r> x]").results
    assert drawn != go(visit(seed=6), "search[<r>]").results


def test_the_rich_style_marks_what_is_chosen_and_seen() -> None:
    there = visit()
    state = go(there, "search[mug]", "click[p000000001]", "click[small]", "click[red]")
    rich = pages.text_rich(pages.parts(there, state), state)
    assert rich.startswith("You have clicked small.\nYou have clicked red.\nInstruction:\nFind me mugs\n")
    assert "color\n  [clicked button] red [clicked button_]\n  [button] blue [button_]\nsize\n" in rich
    assert "[button] Buy Now [button_]\n" in rich and rich.endswith("\n")
    back = go(there, "click[< prev]", start=state)
    listed = pages.text_rich(pages.parts(there, back), back)
    assert "\n\n[clicked button] P000000001 [clicked button_]\n" in listed
    assert "\n\n[button] P000000002 [button_]\n" in listed


def test_marks_come_from_the_address_as_upstream() -> None:
    """A value with a quotation mark or an accent is never shown as chosen; a quoted search word always is."""
    odd = product(options={"size": ('16" x 16"', "café", "plain")})
    there = visit(shop=shop([odd]))
    for value in odd.options["size"]:
        state = go(there, "search[mug]", "click[p000000001]", f"click[{value}]")
        assert state.options == (("size", value),)
        assert ("[clicked button]" in pages.text_rich(pages.parts(there, state), state)) == (value == "plain")
    quoted = go(there, 'search[mug "plain"]', "click[p000000001]")
    assert "[clicked button] plain" in pages.text_rich(pages.parts(there, quoted), quoted)


def test_a_search_for_the_name_of_a_page_confuses_previous_as_upstream() -> None:
    there = visit()
    item = go(there, "search[mug search_results]", "click[p000000001]")
    assert go(there, "click[< prev]", start=item).number == 0, "taken for a page of results, so one page back"
    sub = go(there, "search[mug item_page]", "click[p000000001]", "click[features]")
    assert go(there, "click[< prev]", start=sub).page == FOUND, "taken for the item page"


def test_equal_values_of_two_options_choose_the_last() -> None:
    there = visit(shop=shop([product(options={"width": ("6", "7"), "length": ("6", "8")})]))
    state = go(there, "search[mug]", "click[p000000001]", "click[6]")
    assert state.options == (("length", "6"),)
    assert [*engine.clickables(there, state)][-3:] == ["6", "7", "8"]


def test_values_called_like_buttons_act_as_the_buttons() -> None:
    there = visit(shop=shop([product(options={"note": ("buy now", "description", "next >", "search")})]))
    item = go(there, "search[mug]", "click[p000000001]")
    assert go(there, "click[description]", start=item).page == SUB
    assert go(there, "click[next >]", start=item).options == (("note", "next >"),)
    assert not engine.step(there, item, "click[search]").admissible
    assert go(there, "click[buy now]", start=item).page == DONE


def test_values_that_no_action_can_name() -> None:
    for value in ("a [b]", "a\nb", "", "[a"):
        assert not actions.reachable(value), value
    assert all(map(actions.reachable, ("a]", "a] b", "a[", "x", "é")))


def test_the_done_page_writes_options_as_a_script_would() -> None:
    there = visit(shop=shop([product(options={"size": ("<b>'&é",)})]))
    state = go(there, "search[mug]", "click[p000000001]", "click[<b>'&é]", "click[buy now]")
    (line,) = [part.text for part in pages.parts(there, state) if part.text.startswith("{")]
    assert json.loads(line) == {"size": "<b>'&é"} and not set(line) & set("<>&'é")


def test_html_pages_are_whole_escaped_and_ask_for_nothing() -> None:
    evil = product(
        title="<script>alert(1)</script>", description='"><img src=x onerror=y>', images=("https://x.example/y.png",),
        options={'"><i>': ('"onclick="z', "b")}, bullets=("<b>",),
    )  # fmt: skip
    there = visit(shop=shop([evil]), instruction="<u>goal</u> & more")
    way = ["search[mugs img]", "click[p000000001]", 'click["onclick="z]', "click[description]", "click[< prev]"]
    states, state = [State()], State()
    for action in [*way, "click[features]", "click[< prev]", "click[reviews]", "click[< prev]", "click[buy now]"]:
        state = go(there, action, start=state)
        states.append(state)
    for state in states:
        html = page(there, state)
        assert html.startswith("<!doctype html>") and html.rstrip().endswith("</html>")
        assert "&lt;u&gt;goal&lt;/u&gt; &amp; more" in html
        for forged in ("<script>a", "<img", "<i>", "<u>", '"onclick', "https://", ' src="'):
            assert forged not in html, (state.page, forged)
    assert 'class="button chosen"' in page(there, states[3]) and "Score: 0.25 of 1" in page(there, states[-1])
    assert "alert(1)" in page(there, states[2]) and "&lt;b&gt;" in page(there, states[6])


def test_ten_thousand_hostile_actions_raise_nothing() -> None:
    draws = Draws("hostile")
    there = visit(show_attributes=True)
    letters = string.printable + "[]<>🙂\x00\ud800\u2028é冷" * 4
    words = [
        "search[",
        "click[",
        "]",
        "<r>",
        "<c>",
        "<q>",
        "<a>",
        "mug",
        "buy now",
        "< prev",
        "next >",
        "red",
        "p000000001",
    ]
    state, pages_seen = State(), set()
    for number in range(10_000):
        pieces = [draws.choice(words) if draws.chance(0.6) else draws.choice(letters) for _ in range(draws.below(8))]
        listed = [actions.click(text) for text in engine.clickables(there, state)]
        action = draws.choice(listed) if listed and draws.chance(0.3) else "".join(pieces)
        outcome = engine.step(there, state, action)
        assert outcome.admissible or (outcome.state is state and outcome.reason)
        state = outcome.state if outcome.state.page != DONE else State()
        pages_seen.add(state.page)
        parts = pages.parts(there, state)
        assert isinstance(pages.text(parts), str) and isinstance(pages.text_rich(parts, state), str)
        if number % 100 == 0:
            page(there, state).encode("utf-8", "surrogatepass")
    assert pages_seen == {INDEX, FOUND, ITEM, SUB}
