"""Run folders made by hand for the tests of the report: every outcome, images, hostile texts, many episodes."""

import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from harness.summary import summarise, to_bytes
from seed_agent.trajectory import EnvRecord, Episode, ErrorRecord, Image, Seen, Turn

COMMAND = "python -m harness.eval --env toy/Room-v0 --policy openai:tiny@http://localhost"
ROOM = (
    "You are in a kitchen. You see a cabinet 1, a fridge 1 and a sinkbasin 1.\n\nYour task is to: put a {} in fridge."
)
HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    '<img src=x onerror="window.pwned = 2">',
    "'\"><svg onload=window.pwned=3> &lt;b&gt; &amp; {{ 7*7 }} ]]> <!-- -->",
    "<!--<script>",
    "nul \x00 bell \x07 return \r line\u2028separator override \u202e end ? \ufffd 😀 漢字",
)
"""Texts that must be shown as they are and must not do anything."""


def env(split: str) -> EnvRecord:
    return EnvRecord(
        id="toy/Room-v0",
        version="1",
        kwargs={"split": split},
        max_turns=8,
        manifest=split,
        manifest_sha256=f"m-{split}",
    )


def turn(seen: str = "Nothing happens.", action: str = "look", **changes: Any) -> Turn:
    reply = f"<think>I have to find it first. What about this?</think>\n<action>{action}</action>"
    return Turn(
        **{
            "observation": Seen.of(seen), "reply": reply, "action": action, "format_ok": True, "admissible": True,
            "effective": True, **changes,
        }
    )  # fmt: skip


def episode(number: int, outcome: str = "success", **changes: Any) -> Episode:
    """Return episode ``number``: its turns fit its outcome."""
    split = changes.pop("split", "seen")
    thing = ("apple", "mug", "plate")[number % 3]
    turns = [turn(ROOM.format(thing), "go to cabinet 1"), turn("The cabinet 1 is closed.", f"take {thing} 1")]
    if outcome == "success":
        turns.append(turn(f"You pick up the {thing} 1.", f"move {thing} 1 to fridge 1", reward=1.0))
    else:
        turns.append(turn(action="eat cabinet 1", admissible=False, effective=False, reason="no such action here"))
    if outcome == "invalid_format":
        turns.append(
            turn(reply="I would rather not say.", action="", format_ok=False, admissible=False, effective=False)
        )
    if outcome == "generation_truncated":
        turns.append(turn(reply="<think>Well, " + "thinking " * 40, action="", format_ok=False, stop_reason="length"))
    broke = outcome in ("env_error", "policy_error")
    return Episode(
        **{
            "task_id": f"{split}/{thing}-{number:04}",
            "task_sha256": f"sha-{split}-{number}",
            "split": split,
            "category": f"put {thing} away",
            "instruction": f"put a {thing} in fridge.",
            "attempt": 0,
            "seed": 9_007_199_254_740_993 + number,
            "policy": "openai:tiny",
            "env": env(split),
            "turns": tuple(turns),
            "final": None if broke else Seen.of(f"You put the {thing} 1 in the fridge 1."),
            "outcome": outcome,
            "success": outcome == "success",
            "score": float(outcome == "success"),
            "error": ErrorRecord(type="RuntimeError", message="the door fell off") if broke else None,
            "timing": {"seconds": 1.5},
            **changes,
        }
    )


def mixed(count: int = 60, split: str = "seen") -> list[Episode]:
    """Return episodes of every outcome that is no error, three of five successful."""
    kinds = ("success", "success", "success", "failure", "step_limit", "success", "invalid_format", "success",
             "success", "generation_truncated")  # fmt: skip
    return [episode(i, kinds[i % 10], split=split) for i in range(count)]


def hostile() -> list[Episode]:
    """Return an episode for each hostile text, which stands wherever a text can stand."""
    found = []
    for i, text in enumerate(HOSTILE):
        bad = turn(text, text, reply=f"<think>{text}</think><action>{text}</action>", reason=text, admissible=False)
        error = ErrorRecord(type=text, message=text) if i == 0 else None
        changes = {"task_id": f"{i} {text}", "category": text, "turns": (bad,), "final": Seen.of(text), "error": error}
        found.append(episode(i, "env_error" if i == 0 else "failure", split=text, **changes))
    return found


def save_image(folder: Path, shade: int, size: int = 12) -> Image:
    """Write a picture into the run and return its record."""
    pixels = np.full((size, size, 3), (shade, 200 - shade, 90), np.uint8)
    pixels[size // 4 : size // 2, size // 4 : size // 2] = 250
    buffer = io.BytesIO()
    PillowImage.fromarray(pixels).save(buffer, format="PNG")
    image = Image(file_sha256=sha256(buffer.getvalue()).hexdigest(), pixels_sha256=sha256(pixels.tobytes()).hexdigest())
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "images" / f"{image.file_sha256}.png").write_bytes(buffer.getvalue())
    return image


def with_images(folder: Path, episodes: Iterable[Episode]) -> list[Episode]:
    """Return the episodes with a picture in every turn; few different ones, so most are shared."""
    changed = []
    for found in episodes:
        turns = [
            t.model_copy(update={"observation": Seen.of(t.observation.text, (save_image(folder, 40 * (i % 5)),))})
            for i, t in enumerate(found.turns)
        ]
        changed.append(found.model_copy(update={"turns": tuple(turns)}))
    return changed


def write_run(
    folder: Path, episodes: Sequence[Episode], *, missing: int = 0, status: str = "finished", **state: Any
) -> Path:
    """Write the files of a run that still owes ``missing`` episodes of its first split."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trajectories.jsonl").write_text("".join(f"{e.to_line()}\n" for e in episodes), encoding="utf-8")
    tasks = Counter(split for split, _, _ in dict.fromkeys(e.key for e in episodes)) or Counter(seen=0)
    tasks[next(iter(tasks))] += missing
    config = {
        "env": {"id": "toy/Room-v0", "version": "1", "kwargs": {}},
        "max_turns": 8,
        "splits": {name: {"manifest": name, "manifest_sha256": f"m-{name}", "tasks": n} for name, n in tasks.items()},
        "policy": "openai:tiny",
        "attempts": 1,
        "seed": 0,
    }
    start = {
        "started": "2026-01-02T03:04:05+00:00",
        "finished": "2026-01-02T03:05:05+00:00",
        "command": COMMAND,
        "git_commit": "c0ffee" * 6 + "c0ff",
        "git_dirty": True,
        "python": "3.11.7",
        "platform": "Linux",
        "cpus": 2,
        "packages": {"seed-suite": "0.1.0"},
    }
    run = {
        "schema_version": 1,
        "status": status,
        "digest": "d1" * 32,
        "config": config,
        "provenance": [start],
        "options": {"data": "embedded", "limit": None, "workers": 0},
        **state,
    }
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    if not missing and status == "finished":
        (folder / "summary.json").write_bytes(to_bytes(summarise(episodes, planned=tasks.total())))
    return folder
