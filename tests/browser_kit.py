"""A headless Chromium for the tests of pages, and what to ask of a page."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install 'seed-suite[dev]'"
)
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("there is no chromium on the path: apt-get install chromium", allow_module_level=True)
SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
DESKTOP, PHONE = (1280, 900), (390, 844)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as client:
        chromium = client.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Open]:
    """Return a function that opens a page; whatever it complains about fails the test at the end."""
    complaints: list[str] = []
    contexts = []

    def open_page(path: Path, anchor: str = "", size: tuple[int, int] = DESKTOP, scheme: str = "light") -> Any:
        contexts.append(
            browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, offline=True)
        )
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda r: complaints.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(path.as_uri() + anchor)
        page.wait_for_selector("#episode .turn, .plot, #measured")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


FIXTURES = (browser, show)
"""For a test module to take: ``browser, show = FIXTURES``."""


def overflow(page: Any) -> int:
    """Return by how many pixels the page is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def luminance(colour: str) -> float:
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def paper(page: Any) -> str:
    """Return the colour behind everything."""
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def contrasts(page: Any) -> tuple[int, set[tuple[str, float]]]:
    """Return how many elements show text, and those whose contrast is below 4.5 to 1."""
    pairs = page.evaluate("""() => {
        const backdrop = (node) => {
            const colour = getComputedStyle(node).backgroundColor;
            return colour.startsWith("rgba") && colour.endsWith(", 0)") ? backdrop(node.parentElement) : colour;
        };
        const ink = (node) => getComputedStyle(node)[node instanceof SVGElement ? "fill" : "color"];
        const texts = [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility()
            && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()) && !node.disabled);
        return texts.map((node) => [node.getAttribute("class") || node.tagName, ink(node), backdrop(node)]);
    }""")
    weak = {(name, round(_contrast(ink, behind), 2)) for name, ink, behind in pairs if _contrast(ink, behind) < 4.5}
    return len(pairs), weak
