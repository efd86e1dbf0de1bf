"""The leaderboard's page in a headless Chromium: what a person can do with it, and what texts cannot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from board_rows import contest, result, several
from browser_kit import DESKTOP, FIXTURES, contrasts, luminance, overflow, paper
from report_runs import HOSTILE

from harness.board.page import render
from harness.board.published import published
from harness.board.reported import read_reported
from harness.board.standing import rankings

browser, show = FIXTURES
REPORTED = Path(__file__).parent.parent / "leaderboards" / "reported"
NARROW = (360, 780)


def write(folder: Path, rows: Sequence[Any], *, papers: slice = slice(0)) -> Path:
    """Write the page of ``rows`` and of some of the published tables."""
    path = folder / "index.html"
    path.write_bytes(render(rankings(rows), published(read_reported(REPORTED))[papers]))
    return path


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("board"), several(), papers=slice(3))


def methods(page: Any, table: int = 0) -> list[str]:
    return page.locator(".board").nth(table).locator("tbody:visible .who b").all_inner_texts()


def headings(page: Any) -> list[str]:
    return page.locator(".contest:visible h3").all_inner_texts()


def test_contests_stand_apart(show, board):
    page = show(board)
    assert page.locator("h2:visible").all_inner_texts() == [
        "Measured on official data", "Measured on embedded data", "Published elsewhere",
    ]  # fmt: skip
    assert headings(page) == [
        "ALFWorld, valid_seen", "ALFWorld, valid_seen, protocol paper", "ALFWorld, valid_unseen", "WebShop, test",
        "ALFWorld, valid_seen",
    ]  # fmt: skip
    assert methods(page) == ["seed", "sdar", "grpo", "vanilla"]
    assert page.locator(".board").first.locator("tr:not(.detail) td:first-child").all_inner_texts() == [
        "1", "2", "3 ≈ 2", "4",
    ]  # fmt: skip
    assert "Cannot be told apart" in page.locator(".tie").first.get_attribute("title")
    about = page.locator(".contest").nth(3).inner_text()
    assert (
        "20 of 500 tasks cannot be solved whole: the best play reaches 96.0 % success pooled, 95.0 % macro" in about
        and "at most 15 turns" in about
    )
    first = page.locator(".contest").first.inner_text()
    assert "single-seed" in first and "2 broke" in first and "85.6 to 95.0" in first
    # Nothing that is published has a rank, a bar or a mark, and it is in no table of measured rows.
    assert page.locator(".published .bar, .published .tie, .published .board").count() == 0
    assert page.locator(".contest .published").count() == 0


def test_filters(show, board):
    page = show(board)
    assert page.inner_text("#count") == "9 of 9 measured rows"

    def left(**choices: str) -> tuple[str, list[str]]:
        page.click("text=Show all")
        page.locator("#count", has_text="9 of 9").wait_for()
        for name, value in choices.items():
            page.select_option(f"#filter-{name}", value)
        return page.inner_text("#count"), headings(page)

    assert left(environment="WebShop") == ("1 of 9 measured rows", ["WebShop, test"])
    assert "SEED, table 1: WebShop" in page.locator(".published:visible h3").all_inner_texts()
    assert "SEED, table 1: search QA" not in page.locator(".published:visible h3").all_inner_texts()
    assert left(data="embedded") == ("2 of 9 measured rows", ["ALFWorld, valid_seen"])
    assert page.locator("h2:visible").all_inner_texts() == ["Measured on embedded data"]
    assert left(protocol="paper")[1] == ["ALFWorld, valid_seen, protocol paper"]
    assert left(split="valid_unseen", environment="ALFWorld")[0] == "1 of 9 measured rows"
    assert left(model="openai:other") == ("1 of 9 measured rows", ["ALFWorld, valid_seen"])
    assert methods(page) == ["sdar"]
    assert page.locator(".board tbody:visible td").first.inner_text() == "2"  # a filter changes no rank
    assert left(environment="SearchQA")[0] == "0 of 9 measured rows"
    assert page.locator("h2:visible").all_inner_texts() == ["Published elsewhere"]
    assert left(model="Qwen3-1.7B")[0] == "0 of 9 measured rows"
    page.locator(".published:visible summary").first.click()
    assert set(page.locator(".published[open] tbody tr:visible th:first-child").all_inner_texts()) == {"Qwen3-1.7B"}


def test_sorting_with_the_keyboard(show, board):
    page = show(board)
    table = page.locator(".board").first
    method = table.get_by_role("button", name="method")
    method.focus()
    page.keyboard.press("Enter")
    assert methods(page) == ["grpo", "sdar", "seed", "vanilla"]
    assert table.locator("[aria-sort]").get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Space")
    assert methods(page) == ["vanilla", "seed", "sdar", "grpo"]
    table.get_by_role("button", name="score").click()
    assert methods(page) == ["seed", "sdar", "grpo", "vanilla"]  # a row without a score comes last, either way
    table.get_by_role("button", name="score").click()
    assert methods(page) == ["grpo", "sdar", "seed", "vanilla"]
    table.get_by_role("button", name="turns").click()
    assert methods(page) == ["seed", "sdar", "grpo", "vanilla"]  # equal turns: in the order of the ranks
    assert table.locator("[aria-sort]").count() == 1
    assert methods(page, 4) == ["oracle", "random"]  # the other tables stay as they were


def test_details_links_and_addresses(show, board):
    page = show(board, "#grpo-row-valid_seen")
    row = page.locator("[id='grpo-row-valid_seen']")
    assert row.locator("details").first.get_attribute("open") is not None
    shown = row.inner_text()
    assert "seed 0: macro 70.0 %, pooled 71.0 %" in shown and "Cannot be told apart from the row ranked above" in shown
    assert "python -m harness.eval" in shown and row.locator(".plot polyline").first.is_visible()
    assert [link.get_attribute("href") for link in row.locator(".links a").all()] == [
        "measured/grpo-row.json", "measured/grpo-row.jsonl.gz",
    ]  # fmt: skip
    page.select_option("#filter-model", "openai:other")
    assert not row.is_visible()
    page.evaluate("location.hash = '#seed-row-valid_unseen'")
    page.locator("[id='seed-row-valid_unseen'] details").first.wait_for(state="visible")
    assert page.inner_text("#count") == "9 of 9 measured rows"  # what hid it is taken back


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", NARROW)])
def test_both_schemes_on_desk_and_phone(show, tmp_path, scheme, size):
    page = show(write(tmp_path, several(), papers=slice(3, 6)), size=size, scheme=scheme)
    assert overflow(page) <= 0
    assert (luminance(paper(page)) > 0.5) == (scheme == "light")
    page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    assert overflow(page) <= 0
    for cell in page.locator(".contest").first.locator("tbody").first.locator("tr:first-child > :visible").all():
        assert cell.bounding_box()["x"] + cell.bounding_box()["width"] <= size[0]  # nothing is cut off either
    count, weak = contrasts(page)
    assert count > 400 and weak == set()


def test_without_rows(show, tmp_path):
    page = show(write(tmp_path, []))
    assert "Nothing has been measured yet" in page.inner_text("main")
    assert page.inner_text("#count") == "0 of 0 measured rows" and page.locator("h2").count() == 0


def test_hostile_texts_are_shown_as_they_are(show, tmp_path):
    rows = [
        (
            contest(split=text, settings=text, protocol=text, manifest=text),
            result(
                f"row {i}", 5, 10, method=text, model=text, flags=(text,), facts={text: {text: text}},
                links=((text, "measured/x.json"),), seeds=((text, 0.1, 0.1),), interval_of=text,
            ),
        )
        for i, text in enumerate(HOSTILE)
    ]  # fmt: skip
    page = show(write(tmp_path, rows))
    assert page.evaluate("window.pwned") is None
    shown = page.locator(".who b").all_inner_texts()
    assert set(HOSTILE[:4]) <= set(shown) and any("⟨U+202E⟩" in text for text in shown)
    page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    assert HOSTILE[0] in page.locator(".facts dd").all_inner_texts()
    assert page.locator("main script, main img").count() == 0
    for i in range(len(HOSTILE)):  # a filter finds even those
        page.select_option("#filter-split", index=i + 1)
        assert page.inner_text("#count") == f"1 of {len(HOSTILE)} measured rows"
    assert overflow(page) <= 0


def test_without_a_script_everything_is_there(browser, board):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(board.as_uri())
    assert page.locator(".contest").count() == 5 and not page.is_visible("#filters")
    context.close()
