"""Pages as a person would have seen them, in a headless Chromium: what is shown, and that nothing in them can run."""

import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest
from browser_kit import FIXTURES, PHONE, overflow

from harness import eval
from harness.report import write_report

browser, show = FIXTURES
HOSTILE = "</style></iframe><script>top.pwned = 1</script><img src=x onerror=top.pwned=2>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a WebShop episode that begins with a hostile search and then buys the right thing."""
    folder = tmp_path_factory.mktemp("screens")
    common = ["--env", "webshop", "--split", "test", "--limit", "1"]
    assert eval.main([*common, "--policy", "scripted:oracle", "--out", str(folder / "first")]) == 0
    record = json.loads((folder / "first" / "trajectories.jsonl").read_text())
    record["turns"].insert(0, {**record["turns"][0], "action": f"search[{HOSTILE}]"})
    (folder / "replay.jsonl").write_text(json.dumps(record) + "\n")
    replay = f"scripted:replay:{folder / 'replay.jsonl'}"
    assert eval.main([*common, "--policy", replay, "--out", str(folder / "run")]) == 0
    return write_report(folder / "run")


def test_a_page_opens_in_a_frame_and_closes(show, report):
    page = show(report)
    turns = page.locator("#episode .turn")
    assert page.locator("iframe").count() == 0
    turns.nth(0).get_by_role("button", name="Show the page").click()
    frame = turns.nth(0).frame_locator("iframe")
    goal = frame.locator(".goal").inner_text().removeprefix("Instruction: ")
    assert len(goal) > 40 and goal in turns.nth(0).locator(".seen pre").inner_text()
    assert frame.locator("h1").inner_text() == "WebShop"
    assert turns.nth(0).locator("iframe").get_attribute("sandbox") == ""
    turns.last.get_by_role("button", name="Show the page").click()
    end = turns.last.frame_locator("iframe")
    assert end.locator(".price").inner_text() == "Score: 1 of 1" and "Bought:" in end.locator("body").inner_text()
    assert page.locator("iframe").count() == 2
    turns.nth(0).get_by_role("button", name="Hide the page").click()
    assert page.locator("iframe").count() == 1


def test_what_was_chosen_is_marked_by_the_pages_own_style(show, report):
    page = show(report, size=PHONE)
    before = page.locator("#episode .turn", has=page.locator("code", has_text="click[buy now]"))
    before.get_by_role("button", name="Show the page").click()
    chosen = before.frame_locator("iframe").locator(".chosen")
    assert chosen.count() >= 1
    assert chosen.first.evaluate("node => getComputedStyle(node).backgroundColor") == "rgb(43, 95, 171)"
    assert overflow(page) <= 0


def test_hostile_words_are_words(show, report):
    page = show(report)
    second = page.locator("#episode .turn").nth(1)
    second.get_by_role("button", name="Show the page").click()
    frame = second.frame_locator("iframe")
    assert "<script>top.pwned = 1</script>" in frame.locator("h1").inner_text()
    assert frame.locator("script, img").count() == 0 and page.evaluate("window.pwned") is None


def listen(server: socket.socket, asked: list[bytes]) -> None:
    """Note what every visitor asks for and hang up: an open connection may hold a frame back."""
    with contextlib.suppress(OSError):  # the server is closed
        while True:
            connection = server.accept()[0]
            with connection, contextlib.suppress(OSError):
                connection.settimeout(0.2)
                asked.append(connection.recv(1))


def test_nothing_can_run_in_a_frame_whatever_it_holds(browser, report):
    """Were a document to hold a script, neither the sandbox nor the policy it inherits would let it run."""
    page = browser.new_page()
    page.goto(report.as_uri())
    page.locator("#episode .turn").first.get_by_role("button", name="Show the page").click()
    page.frame_locator("iframe").locator("h1").wait_for()  # two documents at once would race for the frame
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, asked = f"http://127.0.0.1:{server.getsockname()[1]}/", list[bytes]()
        threading.Thread(target=listen, args=(server, asked), daemon=True).start()
        page.evaluate(
            """address => {
                document.querySelector("iframe").srcdoc = `<p id=p style='color:red'>p</p>
                    <script>top.pwned = 1</script><img src='${address}' onerror='top.pwned = 2'>
                    <link rel=stylesheet href='${address}'><iframe src='${address}'></iframe>`;
            }""",
            address,
        )
        frame = page.frame_locator("iframe")
        frame.locator("#p").wait_for(state="attached")  # a refused style sheet may hold its painting back
        page.wait_for_timeout(500)
        server.shutdown(socket.SHUT_RDWR)
    assert not any(asked)  # Chromium may connect ahead of time, but asks for nothing
    assert page.evaluate("window.pwned") is None
    assert frame.locator("#p").evaluate("node => getComputedStyle(node).color") != "rgb(255, 0, 0)"
    page.close()
