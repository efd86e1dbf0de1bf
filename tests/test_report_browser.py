"""The HTML report in a headless Chromium: what a person can do with it, and what texts cannot."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from browser_kit import FIXTURES, PHONE, contrasts, luminance, overflow, paper
from report_runs import HOSTILE, episode, hostile, mixed, turn, with_images, write_run

from harness.html.packing import visible
from harness.report import write_report

browser, show = FIXTURES


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of 62 + 40 episodes, with images in the first split."""
    run = tmp_path_factory.mktemp("mixed")
    broke = [episode(900, "env_error"), episode(901, "policy_error")]
    return write_report(write_run(run, [*with_images(run, mixed(60)), *broke, *mixed(40, "unseen")]))


def ids(page: Any) -> list[str]:
    return page.locator("#rows .id").all_inner_texts()


def current(page: Any, wanted: str) -> bool:
    """Wait until list and detail both show the episode ``wanted``; a link is followed a moment after the click."""
    chosen = "document.querySelector('#rows [aria-current=true] .id')"
    heading = "document.querySelector('#episode h3').textContent"
    script = f"id => {chosen} && {chosen}.innerText === id && {heading} === id.split(' · ')[0]"
    page.wait_for_function(script, arg=wanted)
    return True


# --- the episode browser ----------------------------------------------------------------------------------------------


def test_an_episode_is_shown_whole(show, report):
    page = show(report, "#episode=seen/apple-0006")
    assert current(page, "seen/apple-0006")
    turns = page.locator("#episode .turn")
    assert turns.count() == 5  # four and the end
    first, refused, mumbled = (turns.nth(i) for i in (0, 2, 3))
    assert "You are in a kitchen" in first.locator(".seen pre").inner_text()
    assert first.locator(".reply .think").inner_text() == "I have to find it first. What about this?"
    assert first.locator(".reply .action").inner_text() == "go to cabinet 1"
    assert first.locator(".reply").inner_text().startswith("<think>I have")  # the raw reply, tags included
    assert first.locator(".acted code").inner_text() == "go to cabinet 1"
    assert first.locator(".flag").count() == 0
    assert first.locator("img").evaluate("image => [image.complete, image.naturalWidth, image.alt]") == [
        True, 12, "What the agent saw in turn 1",
    ]  # fmt: skip
    assert refused.locator(".flag").all_inner_texts() == ["inadmissible", "no effect"]
    assert refused.locator(".reason").inner_text() == "no such action here"
    assert mumbled.locator(".flag").all_inner_texts() == ["ill-formed", "inadmissible", "no effect"]
    assert mumbled.locator(".acted em").inner_text() == "no action"
    assert turns.nth(4).inner_text() == "End\nYou put the apple 1 in the fridge 1."
    about = page.locator("#episode header").inner_text()
    for fact in ("ill-formed reply", "put apple away", "attempt 1", "4 turns", "score 0.000", "seed 9007199254740999"):
        assert fact in about  # the seed to the last digit


def test_an_error_is_shown_with_its_message(show, report):
    page = show(report, "#episode=seen/apple-0900")
    assert "It broke. RuntimeError: the door fell off" in page.locator("#episode").inner_text()
    assert "Nothing was seen after the last action" in page.locator("#episode .end").inner_text()


def test_filters_narrow_the_list(show, report):
    page = show(report)
    assert page.inner_text("#count") == "102 episodes"

    def left(**choices: str) -> str:
        for name, value in choices.items():
            page.select_option(f"#{name}", label=value)
        return page.inner_text("#count")

    assert left(split="unseen") == "40 of 102 episodes"
    assert left(category="put mug away") == "13 of 102 episodes"
    assert left(outcome="out of turns") == "2 of 102 episodes"
    assert ids(page) == ["unseen/mug-0004", "unseen/mug-0034"]
    assert left(split="all", category="all", outcome="all") == "102 episodes"
    page.fill("#text", "MUG  0004")  # words in any case, anywhere in id, task or category
    assert ids(page) == ["seen/mug-0004", "unseen/mug-0004"]
    page.fill("#text", "plate in fridge")
    assert page.inner_text("#count") == "33 of 102 episodes"
    page.fill("#text", "nothing like it")
    assert page.inner_text("#rows") == "No episode matches." and page.inner_text("#count") == "0 of 102 episodes"
    page.fill("#text", "")
    page.check("#illFormed")
    assert page.inner_text("#count") == "20 of 102 episodes"
    page.uncheck("#illFormed")
    page.check("#inadmissible")
    assert page.inner_text("#count") == "42 of 102 episodes"
    page.press("#text", "Enter")  # does not send the form anywhere
    assert page.inner_text("#count") == "42 of 102 episodes"


def test_sorting(show, report):
    page = show(report)
    page.select_option("#sort", "-turns")
    turns = [int(text.split()[0]) for text in page.locator("#rows .measure").all_inner_texts()]
    assert turns == sorted(turns, reverse=True) and turns[0] == 4
    page.select_option("#sort", "score")
    assert all(text.endswith("0.00") for text in page.locator("#rows .measure").all_inner_texts())
    page.select_option("#sort", "")
    assert ids(page)[:3] == ["seen/apple-0000", "seen/apple-0003", "seen/apple-0006"]


def test_paging(show, report):
    page = show(report)
    assert page.inner_text("#page") == "page 1 of 5" and page.is_disabled("#previous-page") and len(ids(page)) == 25
    seen = ids(page)
    for number in range(2, 6):
        page.click("#next-page")
        assert page.inner_text("#page") == f"page {number} of 5"
        seen += ids(page)
    assert page.is_disabled("#next-page") and len(seen) == len(set(seen)) == 102
    page.click("#previous-page")
    assert page.inner_text("#page") == "page 4 of 5"
    page.fill("#text", "apple")
    assert page.inner_text("#page") == "page 1 of 2"  # another list begins at its beginning


def test_keyboard(show, report):
    page = show(report)
    order = ids(page)
    press = page.keyboard.press
    press("j")
    assert current(page, order[1])
    press("ArrowRight")
    assert current(page, order[2])
    press("k")
    press("ArrowLeft")
    assert current(page, order[0])
    press("k")  # there is none before the first
    assert current(page, order[0])
    for _ in range(25):
        press("j")
    assert page.inner_text("#page") == "page 2 of 5"  # the list follows
    assert current(page, ids(page)[0])
    press("n")
    assert page.inner_text("#page") == "page 3 of 5"
    press("p")
    assert page.inner_text("#page") == "page 2 of 5"
    press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("jnp?")  # in a field, letters are letters
    assert page.input_value("#text") == "jnp?" and not page.is_visible("#help")
    page.fill("#text", "")
    press("Escape")
    assert page.evaluate("document.activeElement.id") == ""
    press("?")
    assert page.is_visible("#help") and "next episode" in page.inner_text("#help")
    before = page.url
    press("j")  # not behind the help
    assert page.url == before
    press("Escape")
    assert not page.is_visible("#help")
    press("Control+j")
    assert page.url == before


def test_focus_is_visible_and_rows_open_with_enter(show, report):
    page = show(report)
    page.focus("#inadmissible")
    for _ in range(3):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#rows a')"):
            break
    assert page.evaluate("document.activeElement.matches('#rows a')")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert current(page, "seen/apple-0003")
    assert page.locator("#rows [aria-current]").count() == 1


def test_deep_links(show, report):
    page = show(report, "#episode=unseen/mug-0034&split=unseen")
    assert current(page, "unseen/mug-0034")
    assert page.inner_text("#page") == "page 4 of 5"
    assert page.locator("#episode").evaluate("node => Math.abs(node.getBoundingClientRect().top) < innerHeight / 2")
    page.keyboard.press("j")
    page.wait_for_url(re.compile("mug-0037"))
    link = page.locator("#rows a").first.get_attribute("href")
    page.evaluate("link => { location.hash = link; }", link)
    page.wait_for_selector("#rows li:first-child [aria-current]")
    page.go_back()
    page.wait_for_function("document.querySelector('#episode h3').textContent === 'unseen/mug-0037'")
    assert current(show(report, "#episode=no/such"), "seen/apple-0000")


def test_attempts_have_links_of_their_own(show, tmp_path):
    episodes = [episode(i, attempt=k, turns=(turn(f"Attempt {k + 1} of {i}."),)) for i in range(2) for k in range(3)]
    page = show(write_report(write_run(tmp_path, episodes)), "#episode=seen/mug-0001&attempt=2")
    assert "Attempt 3 of 1." in page.locator("#episode").inner_text()
    assert current(page, "seen/mug-0001 · attempt 3")


# --- looks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_have_contrast(show, report, scheme):
    page = show(report, "#episode=seen/apple-0006", scheme=scheme)
    texts, weak = contrasts(page)
    assert (luminance(paper(page)) < 0.2) == (scheme == "dark")
    assert texts > 100 and not weak


@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1600])
def test_no_width_scrolls_sideways(show, report, tmp_path, width):
    assert overflow(show(report, size=(width, 800))) <= 0
    long = turn("x" * 5000, "y" * 3000, reply="z" * 100_000, reason="w" * 2000, format_ok=False)
    changes = {"task_id": "t" * 400, "category": "c" * 300, "turns": (long,), "final": None}
    wide = write_report(write_run(tmp_path / "run", [episode(0, "env_error", split="s" * 200, **changes)]))
    assert overflow(show(wide, size=(width, 800))) <= 0


def test_a_phone_gets_one_column(show, report):
    page = show(report, size=PHONE)
    listed, opened = page.locator(".list").bounding_box(), page.locator("#episode").bounding_box()
    assert listed["x"] == opened["x"] and opened["y"] > listed["y"] + listed["height"]
    page.locator("#rows a").nth(2).click()
    assert current(page, "seen/apple-0006")
    assert -1 <= page.locator("#episode").bounding_box()["y"] < 100  # it comes into view
    page.click("text=Back to the list")
    page.wait_for_function("document.querySelector('#episodes').getBoundingClientRect().top < 100")
    desktop = show(report)
    listed, opened = desktop.locator(".list").bounding_box(), desktop.locator("#episode").bounding_box()
    assert opened["x"] > listed["x"] + listed["width"]


def test_paper_shows_everything_folded(show, report):
    page = show(report, scheme="dark")
    assert not page.is_visible("text=config.splits") and page.locator("details[open]").count() == 0
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details[open]").count() == page.locator("details").count() > 2
    assert not page.is_visible("#rows") and page.is_visible("#episode .turn")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


# --- hostile texts and large runs -------------------------------------------------------------------------------------


def test_hostile_texts_are_shown_and_do_nothing(show, tmp_path):
    path = write_report(write_run(tmp_path, hostile(), options={HOSTILE[0]: HOSTILE[1]}))
    page = show(path)
    for one in ids(page):
        assert current(page, one)
        text = visible(HOSTILE[int(one[0])])
        only = page.locator("#episode .turn").first
        assert only.locator(".seen pre").text_content() == text
        assert only.locator(".reply").text_content() == f"<think>{text}</think><action>{text}</action>"
        assert only.locator(".acted code").text_content() == text
        assert only.locator(".reason").text_content() == text
        assert page.locator("#episode .end pre").text_content() == text
        page.fill("#text", text)
        assert page.locator("#rows a").count() == 1
        page.fill("#text", "")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0 and page.locator("#episode svg, #rows svg").count() == 0


def test_the_policy_stops_what_would_run(browser, report):
    """Were a text to become a tag, the page's own policy would still not let it run."""
    page = browser.new_page()
    page.goto(report.as_uri())
    page.evaluate("""() => {
        document.body.insertAdjacentHTML("beforeend", 
            "<img src=x onerror='window.pwned = 1'><p style='color:red' id=p>p</p>");
        const script = document.createElement("script");
        script.textContent = "window.pwned = 2";
        document.body.append(script);
    }""")
    page.wait_for_timeout(200)
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
    page.close()


def test_a_thousand_episodes_of_thirty_turns_open_quickly(show, tmp_path):
    words = "You arrive at cabinet 4. The cabinet 4 is closed and there is nothing else to see here but number "
    episodes = [
        e.model_copy(update={"turns": tuple(turn(f"{words}{i * 31 + k}") for k in range(30))})
        for i, e in enumerate(mixed(1000))
    ]
    path = write_report(write_run(tmp_path, episodes))
    assert path.stat().st_size < 10_000_000
    start = time.monotonic()
    page = show(path)
    page.fill("#text", "0777")
    assert page.inner_text("#count") == "1 of 1,000 episodes"
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert current(page, "seen/apple-0777") and page.locator("#episode .turn").count() == 31
    assert time.monotonic() - start < 10  # about one second on an idle machine
