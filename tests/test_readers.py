"""What demonstrations in a shop and about questions think and do: only what the pages show."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; install 'seed-suite[train]'")
pytest.importorskip("accelerate", reason="accelerate is not installed; install 'seed-suite[train]'")

from seed_agent.backends.hf import make
from seed_agent.chat import Language
from seed_agent.policy import Sampling, Situation
from seed_agent.train.base import BASES, build_base, tags_of
from seed_agent.train.demos import Demos, Recipe, gather
from seed_agent.train.readers import SLIP, codes_of, read_passages, read_shop, rename, tokens_of
from seed_agent.train.rollouts import Stage
from seed_agent.train.settings import Settings
from seed_agent.trajectory import Seen, Turn
from seed_envs.parsing import read_reply, write_block
from seed_envs.presets import get_preset
from seed_envs.prompting import Past, builtin_template
from seed_envs.seeding import Draws

WISH = "i need a mug that is dishwasher safe, preferably with lid in dark red, and price lower than 20.00 dollars"
RESULTS = f"Instruction: [SEP] {WISH} [SEP] Back to Search [SEP] Page 1 (Total results: 3) [SEP] Next > [SEP] " + (
    "E0A [SEP] Acme Dishwasher Safe Mug, with Lid, A1 [SEP] $25.0 [SEP] "
    "E0B [SEP] Brand Mug, with Lid, B2 [SEP] $19.99 to $30.5 [SEP] "
    "E0C [SEP] Acme Dishwasher Safe Mug, with Lid, C3 [SEP] $12.5"
)
LISTED = ["click[back to search]", "click[e0a]", "click[e0b]", "click[e0c]", "click[next >]"]
ITEM = f"Instruction: [SEP] {WISH} [SEP] Back to Search [SEP] < Prev [SEP] " + (
    "color [SEP] Dark Red [SEP] Red [SEP] size [SEP] Large [SEP] Acme Mug, C3 [SEP] Price: $12.5 [SEP] "
    "Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
)
BUTTONS = ["click[< prev]", "click[back to search]", "click[buy now]", "click[description]", "click[features]"]
OFFERED = [*BUTTONS, "click[dark red]", "click[large]", "click[red]", "click[reviews]"]

QUESTION = "The founder of Ash Works was born in which town?"
FIRST = (
    'Doc 1: "The Ash"\nThe Ash is a film released by Ash Works. It is set in Elm.\n'
    'Doc 2: "Ash Works"\nAsh Works is a company based in Elm. Uma Holt founded it in 1901.'
)
SECOND = 'Doc 1: "Uma Holt"\nUma Holt, born on 2 May 1870 in Oakby, worked as a chemist. Little is known.'


def turn(action: str, seen: str = "") -> Turn:
    return Turn(observation=Seen.of(seen), reply=f"<think>why</think>{action}", action=action, format_ok=True)


def situation(
    instruction: str,
    text: str,
    offered: Sequence[str] | None = None,
    turns: Sequence[Turn] = (),
    **extra: Any,
) -> Situation:
    info: Any = {"instruction": instruction, "admissible_actions": offered, "extra": {"options": {}, **extra}}
    return Situation(0, "task", 0, 0, {"text": text}, info, turns)


def shop(text: str, offered: Sequence[str] | None, **extra: Any) -> tuple[str, str]:
    return read_shop(situation(WISH, text, offered, **extra), [], Draws("t"), False)


def test_a_customer_searches_reads_chooses_and_buys() -> None:
    assert shop("WebShop", None) == (
        "search",
        "search[mug dishwasher safe, preferably lid dark red]",
    )
    # the first of the two best titles is too dear
    assert shop(RESULTS, LISTED) == ("dishwasher safe mug, with lid, c3#3[e0c]", "click[e0c]")
    # "red" is a part of "dark red", not a wish of its own; what was chosen is not chosen again
    assert shop(ITEM, OFFERED) == ("choose dark red", "click[dark red]")
    assert shop(ITEM, OFFERED, options={"color": "dark red"}) == ("buy it", "click[buy now]")
    assert shop(ITEM, OFFERED, options={"color": "red"}) == ("choose dark red", "click[dark red]")


def test_a_customer_leaves_pages_where_nothing_can_be_bought() -> None:
    assert shop("a [SEP] text", ["click[< prev]", "click[back to search]"]) == ("go back", "click[< prev]")
    assert shop("none", ["click[back to search]"]) == ("go back", "click[back to search]")


def test_a_customer_who_errs_says_so_and_does_what_is_offered() -> None:
    for number in range(20):
        thought, action = read_shop(situation(WISH, ITEM, OFFERED), [], Draws("err", number), True)
        assert thought == SLIP and action in OFFERED
        thought, action = read_shop(situation(WISH, "WebShop", None), [], Draws("err", number), True)
        words = action.removeprefix("search[").removesuffix("]").split()
        assert thought == SLIP and 1 <= len(words) <= 4 and " ".join(words) in WISH


def ask(question: str, plan: Sequence[str], text: str, turns: Sequence[Turn] = ()) -> tuple[str, str]:
    return read_passages(situation(question, text, turns=turns), plan, Draws("t"), False)


def test_a_reader_quotes_what_leads_on() -> None:
    plan = ["search[Ash Works]", "search[Uma Holt]", "answer[Oakby]"]
    assert ask(QUESTION, plan, f"{QUESTION}\nType search") == ("look it up", "search[ash works]")
    turns = [turn("search[ash works]", QUESTION)]
    # the passage looked up comes before the first one shown
    assert ask(QUESTION, plan[1:], FIRST, turns) == ("ash works: uma holt founded it", "search[uma holt]")
    turns.append(turn("search[uma holt]", FIRST))
    assert ask(QUESTION, plan[2:], SECOND, turns) == ("uma holt: may 1870 in oakby", "answer[oakby]")
    assert ask(QUESTION, plan[1:], SECOND, turns) == ("uma holt: uma holt, born on", "search[uma holt]")
    assert ask(QUESTION, plan, "Nothing happens.", turns) == ("not here", "search[ash works]")


def test_a_reader_lists_what_is_compared() -> None:
    both = "Who was born first, Uma Holt or Ivo Lund?"
    third = 'Doc 1: "Ivo Lund"\nBorn in Elm on 3 June 1869, Ivo Lund became a chemist.'
    turns = [turn("search[uma holt]", both)]
    assert ask(both, ["search[Ivo Lund]"], SECOND, turns) == ("uma holt 1870", "search[ivo lund]")
    turns.append(turn("search[ivo lund]", SECOND))
    assert ask(both, ["answer[Ivo Lund]"], third, turns) == ("uma holt 1870, ivo lund 1869", "answer[ivo lund]")
    same = "Did Uma Holt and Ivo Lund have the same profession?"
    assert ask(same, ["answer[yes]"], third, turns) == ("uma holt chemist, ivo lund chemist", "answer[yes]")


def test_a_reader_who_errs_says_so_and_needs_no_knowledge() -> None:
    here = situation(QUESTION, FIRST, turns=[turn("search[x]")])
    found = {read_passages(here, ["answer[Oakby]"], Draws("err", number), True) for number in range(40)}
    assert {thought for thought, _ in found} == {SLIP}
    assert {action.partition("[")[0] for _, action in found} == {"search", "answer"}
    assert not any("oakby" in action or "uma" in action for _, action in found)


def _gathered(kind: str, **changes: Any) -> Demos:
    base = BASES[kind]
    recipe = Recipe(noise=0.0, imperfect=1, skilled=2, analyses=2, analysis_chars=4_000, tasks=8)
    preset = get_preset(base.language)
    stage = Stage(Settings(env=base.env, language=base.language), "train", 4)
    try:
        return gather(stage, Language(builtin_template(kind, "compact"), preset, Sampling()), recipe, seed=0)
    finally:
        stage.close()


@pytest.mark.parametrize("kind", ["webshop", "searchqa"])
def test_faultless_demonstrations_win_and_fit(kind: str) -> None:
    demos = _gathered(kind)
    assert demos.successes["imperfect"] >= (8 if kind == "searchqa" else 5)
    assert {example.kind for example in demos.examples} == {"play", "skill", "analysis"}
    for example in demos.examples:
        assert example.task_id.count("/") == 2
        if example.kind == "analysis":
            continue
        assert read_reply(example.reply, kind=kind).format_ok, example.reply
        assert SLIP not in example.reply
        text = example.chat[-1].text
        assert len(text) < 2_600, "a few hundred tokens"
        if kind == "searchqa":  # the thought quotes the passages, the action is in question or thought
            thought, action = re.fullmatch(r"<think> (.*)</think><\w+> (.*)</\w+>", example.reply).groups()  # type: ignore[union-attr]
            assert action in text or action in ("yes", "no")
            assert all(word in text for word in thought.split()) or thought in ("look it up", "not here")


@pytest.mark.parametrize("kind", ["webshop", "searchqa"])
def test_a_small_base_is_built_with_tokens_for_tags_and_codes(kind: str, tmp_path: Path) -> None:
    recipe = replace(BASES[kind].recipe, tasks=4, imperfect=1, skilled=4, analyses=1, analysis_chars=2_500)
    base = replace(BASES[kind], recipe=recipe, plan=replace(BASES[kind].plan, epochs=1), hidden=32, vocab=400, rows=4)
    card = build_base(kind, tmp_path / "base", base=base)
    assert card["seen"]["splits"] == ["train"] and card["seen"]["tasks"] == 4
    assert card["seen"]["episodes"] == {"imperfect": 4, "faultless": 4} and min(card["seen"]["examples"].values()) > 0
    policy = make(str(tmp_path / "base"))
    for text in (*tags_of(kind), *tokens_of(kind)[::100], *tokens_of(kind)[:10]):
        assert len(policy.tokenizer(text, add_special_tokens=False)["input_ids"]) == 1
    action = f"click[{codes_of(kind)[0]}]" if codes_of(kind) else "search[two]"
    reply = f"<think> a</think>{write_block(action, kind)}"
    assert policy.tokenizer.decode(policy.tokenizer(reply, add_special_tokens=False)["input_ids"]) == reply


def test_compact_pages_mark_what_can_be_clicked_and_keep_every_product() -> None:
    template = builtin_template("webshop", "compact")
    text = template.render(instruction=WISH, observation=RESULTS, taken=1, admissible=LISTED)
    assert (
        "[back to search] page 1 (total results: 3) [next >]\n$25.0 acme dishwasher safe mug, with lid, a1#1[e0a]\n"
        in text
    )
    assert "$19.99 to $30.5 brand mug, with lid, b2#2[e0b]\n" in text
    text = template.render(instruction=WISH, observation=ITEM, taken=2, admissible=OFFERED)
    assert "color [dark red] [red] size [large] acme mug, c3 price: $12.5" in text and text.endswith("[buy now]\n")
    long = " [SEP] ".join(["Instruction:", WISH, "Back to Search", "word " * 60])
    assert template.render(instruction=WISH, observation=long, taken=2, admissible=OFFERED).count("word") == 16


def test_compact_passages_come_with_the_thoughts_before_them() -> None:
    template = builtin_template("searchqa", "compact")
    past = [Past(1, QUESTION, "search[Ash Works]", "Look it up")]
    text = template.render(instruction=QUESTION, observation=FIRST, taken=1, history=past)
    assert text == (
        "Your question: the founder of ash works was born in which town?\nTurn 2.\n"
        "- look it up; search ash works\n"
        "* the ash: the ash is a film released by ash works. it is set in elm.\n"
        "* ash works: ash works is a company based in elm. uma holt founded it in 1901.\n"
    )
    odd = template.render(instruction="q", observation="Nothing happens.", taken=1, history=[Past(1, "q", "x", "")])
    assert odd.endswith("\nnothing happens.\n")
    many = template.render(instruction="q", observation='Doc 1: "T"\n' + "word " * 99, taken=1)
    assert many.count("word") == 60


def test_words_stand_behind_a_blank_as_in_running_text() -> None:
    assert write_block("search[ash works]", "searchqa") == "<search> ash works</search>"
    assert (
        read_reply(f"<think> a</think>{write_block('answer[a]b]', 'searchqa')}", kind="searchqa").action
        == "answer[a]b]"
    )
    assert write_block("click[red]", "webshop") == "<action>click[red]</action>"


def test_every_product_of_the_shop_has_a_token_of_its_own() -> None:
    codes = codes_of("webshop")
    assert len(codes) == len(set(codes)) == 1_000 and all(code[:3] == "e0s" and len(code) == 10 for code in codes)
    assert codes_of("searchqa") == codes_of("alfworld") == ()


def test_codes_are_exchanged_alike_in_prompt_and_reply() -> None:
    codes = codes_of("webshop")
    texts = [f"mug [{codes[0]}] cup [{codes[1]}] {codes[0]}x", f"click[{codes[1]}] click[{codes[0]}]"]
    prompt, reply = rename(texts, codes, Draws("t"))
    shown = re.fullmatch(rf"mug \[(e0s\w+)\] cup \[(e0s\w+)\] {codes[0]}x", prompt)
    assert shown is not None and reply == f"click[{shown[2]}] click[{shown[1]}]"
    assert shown[1] != shown[2] and {shown[1], shown[2]} <= set(codes) and (shown[1], shown[2]) != codes[:2]
    assert rename(texts, codes, Draws("t")) == [prompt, reply] != rename(texts, codes, Draws("u"))


def test_every_tag_of_a_kind_is_known() -> None:
    assert tags_of("webshop") == tags_of("alfworld") == ("<think>", "</think>", "<action>", "</action>")
    assert tags_of("searchqa")[2:] == ("<search>", "</search>", "<answer>", "</answer>")
