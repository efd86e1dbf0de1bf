"""The page of a training run in a headless Chromium: what a person sees, on any screen."""

from pathlib import Path
from typing import Any

import pytest
from browser_kit import FIXTURES, PHONE, contrasts, luminance, overflow, paper
from test_report_training import hostile
from training_runs import learning, write_training

from harness.report import write_training_report

browser, show = FIXTURES


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_training_report(write_training(tmp_path_factory.mktemp("learning"), learning(60)))


def box(node: Any) -> dict[str, float]:
    return dict(node.bounding_box())


def test_curves_are_drawn_within_their_frames(show, report):
    page = show(report)
    charts = page.locator(".chart")
    assert charts.count() > 20
    for i in (0, 1, charts.count() - 1):
        chart, plot = charts.nth(i), charts.nth(i).locator(".plot")
        frame, whole = box(plot), box(chart)
        assert frame["width"] > 200 and frame["height"] > 100
        for line in chart.locator("polyline").all():
            drawn = box(line)
            assert drawn["width"] > 0.9 * frame["width"]
            assert frame["y"] - 3 <= drawn["y"] and drawn["y"] + drawn["height"] <= frame["y"] + frame["height"] + 3
        for label in chart.locator("text").all():
            written = box(label)
            assert whole["x"] <= written["x"] and written["x"] + written["width"] <= whole["x"] + whole["width"]
            assert written["y"] + written["height"] <= whole["y"] + whole["height"]


def test_raw_is_translucent_and_the_mean_is_not(show, report):
    page = show(report)
    raw, mean = (page.locator(f".chart .{name}").nth(0) for name in ("raw", "mean"))
    style = "node => [getComputedStyle(node).opacity, getComputedStyle(node).strokeWidth]"
    assert raw.evaluate(style) == ["0.35", "1.2px"] and mean.evaluate(style) == ["1", "2.2px"]


def test_evaluations_stand_where_they_belong(show, report):
    page = show(report)
    plot = page.locator(".chart").nth(0).locator(".plot")
    frame, circles = box(plot), plot.locator("circle")
    assert circles.count() == 7
    for i, rate in ((0, 0.2), (6, 0.7)):
        mark = box(circles.nth(i))
        assert abs(mark["x"] + mark["width"] / 2 - frame["x"] - frame["width"] * i / 6) < 1
        assert abs(mark["y"] + mark["height"] / 2 - frame["y"] - frame["height"] * (1 - rate)) < 1
        assert abs(mark["width"] - mark["height"]) < 0.5  # round at any width


def test_pictures_have_words(show, report):
    page = show(report)
    spoken = page.get_by_role("img").all()
    assert len(spoken) == page.locator(".chart").count()
    name = page.get_by_role("img", name="valid_seen: success: last 70 %, 95 % interval 62.0 to 77.0")
    assert name.count() == 1 and page.get_by_role("heading", name="Curves").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the curves"
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('#curves').getBoundingClientRect().top < 200")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_have_contrast(show, report, scheme):
    page = show(report, scheme=scheme)
    texts, weak = contrasts(page)
    assert (luminance(paper(page)) < 0.2) == (scheme == "dark")
    assert texts > 100 and not weak
    line = page.locator(".mean").first.evaluate("node => getComputedStyle(node).stroke")
    assert (luminance(line) > 0.3) == (scheme == "dark")


@pytest.mark.parametrize("width", [320, 768, 1600])
def test_no_width_scrolls_sideways(show, report, tmp_path, width):
    assert overflow(show(report, size=(width, 800))) <= 0
    rows = [{"iteration": 1, "m" * 300: 1.0, **{f"eval/{'s' * 200}/{k}": 0.5 for k in ("success", "macro", "turns")}}]
    settings = {"method": "x" * 300, "env": "y" * 300, "model": "z" * 300}
    long = write_training_report(write_training(tmp_path / "run", rows, settings=settings, digest="d" * 900))
    assert overflow(show(long, size=(width, 800))) <= 0


def test_a_phone_gets_one_column_that_can_be_read(show, report):
    page = show(report, size=PHONE)
    one, two = (box(page.locator(".chart").nth(i)) for i in (1, 2))
    assert one["x"] == two["x"] and one["width"] > 300 and two["y"] > one["y"] + one["height"]
    assert page.locator(".plot text").first.evaluate("node => parseFloat(getComputedStyle(node).fontSize)") >= 12
    rows = [box(row)["height"] for row in page.locator(".evaluations tbody tr").all()]
    assert max(rows) < 60  # no column is squeezed to a letter a line


def test_a_link_opens_the_episodes(show, report):
    page = show(report)
    link = page.get_by_role("link", name="iteration_000060-valid_seen.jsonl")
    target = report.parent / link.get_attribute("href")
    assert target.is_file()


def test_hostile_texts_do_nothing(show, tmp_path):
    page = show(write_training_report(hostile(tmp_path / "run")))
    assert page.evaluate("window.pwned") is None
    assert page.locator("img, script, b b").count() == 0
    assert "{{ 7*7 }}" in page.inner_text("body") and "⟨U+202E⟩" in page.inner_text("body")
