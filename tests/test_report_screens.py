"""Pages as a person would have seen them, in the report of a WebShop run; without a browser."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from harness import eval
from harness.html import reading, screens
from harness.html.packing import compress
from harness.html.rendering import _csp_hash
from harness.report import write_report
from seed_envs.webshop.env import WebShopEnv

WEBSHOP = ("--env", "webshop", "--split", "test", "--policy", "scripted:oracle", "--limit", "2")
HOSTILE = "search[</style></iframe><script>window.top.pwned = 1</script>"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of two episodes."""
    folder = tmp_path_factory.mktemp("played") / "run"
    assert eval.main([*WEBSHOP, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def run(played: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may spoil."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("run.json", "trajectories.jsonl"):
        (folder / name).write_bytes((played / name).read_bytes())
    return folder


def edit(path: Path, *changes: tuple[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def unpacked(found: screens.Screens) -> list[list[str]]:
    """Return the documents of every episode, as the browser finds them."""
    shown = []
    for chunk in found.chunks:
        held = json.loads(zlib.decompress(base64.b64decode(chunk))) if chunk else {"documents": [], "of": []}
        shown += [[held["documents"][number] for number in numbers] for numbers in held["of"]]
    return shown


def packed(folder: Path) -> screens.Screens:
    found = reading.read(folder)
    return screens.pack_screens(found, found.rows)


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda record: record["task_id"])


def test_every_turn_has_the_page_the_environment_draws(played: Path) -> None:
    found = packed(played)
    shown = unpacked(found)
    assert not found.note and len(shown) == 2
    env = WebShopEnv(split="test", render_mode="html")
    for record, documents in zip(records(played), shown, strict=True):
        env.reset(seed=record["seed"], options={"task_id": record["task_id"]})
        expected = [env.render()]
        for turn in record["turns"]:
            env.step(turn["action"])
            expected.append(env.render())
        assert documents == expected
    assert "Score: 1 of 1" in shown[0][-1] and 'class="button chosen"' in "".join(map("".join, shown))


def test_the_page_embeds_them_and_allows_their_style_alone(played: Path) -> None:
    content = (played / "report.html").read_text(encoding="utf-8")
    found = packed(played)
    assert f'<script type="text/plain" id="screens-0">{found.chunks[0]}</script>' in content
    policy = re.search('Content-Security-Policy" content="([^"]*)"', content)
    assert policy and _csp_hash(found.style).replace("'", "&#39;") in policy[1] and "frame-src" not in policy[1]
    assert found.style in unpacked(found)[0][0] and policy[1].count("sha256") == 3
    assert "<iframe" not in content and write_report(played).read_text(encoding="utf-8") == content


def test_other_environments_have_none_and_no_other_code_is_run(run: Path) -> None:
    assert screens.draws_pages("seed_envs/WebShop-v0")
    assert not any(map(screens.draws_pages, ("seed_envs/Sokoban-v0", "CartPole-v1", "this:that/Env-v0", "antigravity")))
    edit(run / "run.json", ('"id": "seed_envs/WebShop-v0"', '"id": "os:seed_envs/WebShop-v0"'))
    assert packed(run) == screens.Screens()


def test_pages_end_where_an_episode_goes_another_way(run: Path) -> None:
    before = [len(documents) for documents in unpacked(packed(run))]
    record = records(run)[0]
    edit(run / "trajectories.jsonl", (record["turns"][2]["observation"]["text"][:40], "What used to be here"))
    found = packed(run)
    assert len(unpacked(found)[0]) <= 2 < before[0]
    assert "1 went another way when they were played again" in found.note


def test_data_that_are_away_are_said_and_the_report_is_whole(run: Path, tmp_path: Path) -> None:
    edit(run / "run.json", ('"data": "embedded",\n    "limit"', f'"data": "{tmp_path}/gone",\n    "limit"'))
    edit(run / "trajectories.jsonl", ('"data":"embedded"', '"data":"official"'))
    found = packed(run)
    assert found.note.startswith("0 of 2 episodes here can show their pages") and unpacked(found) == []
    assert f"2 could not be played again (there is no folder {tmp_path}/gone" in found.note or "gone" in found.note
    text = write_report(run).read_text(encoding="utf-8")
    assert "0 of 2 episodes here can show their pages" in text and 'id="screens-' not in text


def test_limits(played: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = packed(played)
    monkeypatch.setattr(screens, "MAX_BYTES", len(whole.chunks[0]) - 1)
    fewer = packed(played)
    assert list(map(bool, unpacked(fewer))) == [True, False]
    assert fewer.note == "1 of 2 episodes here can show their pages as a person would have seen them."
    monkeypatch.setattr(screens, "MAX_EPISODES", 1)
    assert packed(played).note == fewer.note


def test_hostile_searches_stay_texts(run: Path) -> None:
    record = records(run)[0]
    env = WebShopEnv(split="test", render_mode="html")
    env.reset(seed=record["seed"], options={"task_id": record["task_id"]})
    env.step(f"{HOSTILE}]")
    drawn = env.render()
    assert drawn is not None and "<script" not in drawn and "&lt;script&gt;" in drawn and drawn.count("<style>") == 1
    assert "<" not in compress({"documents": [drawn]})
