"""Skills that a run has drawn from its episodes, as a table in Markdown."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.summary import read_records
from seed_envs.errors import ConfigError, DataError

SKILLS, TRAJECTORIES = "skills.jsonl", "trajectories.jsonl"
COLUMNS = ("category", "drawn from", "skill", "task", "iteration")


def skills_table(runs: Sequence[Path], most: int) -> str:
    """Return the newest usable skills of each run, category and outcome, as SEED's table 4 shows some.

    Args:
        runs: Folders of harness.train, of stage 1 or 2.
        most: Skills of a category from successes, and as many from failures.

    Raises:
        SeedError: when a folder holds no skills, or a line cannot be read.
    """
    parts = []
    for folder in runs:
        found = list(_read(folder))
        if not found:
            raise ConfigError(f"{folder} has no usable skill yet; {_EXPECTED}")
        chosen = _choose(found, most)
        lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
        lines += [_row(skill) for skill in chosen]
        last = max(skill["iteration"] for skill in found)
        span = f", iterations 1 to {last}" if last else ", stage 1"
        caption = f"{_cell(str(folder))}: {len(chosen)} of n = {len(found):,} usable skills{span}, the newest first."
        parts.append("\n".join([caption, "", *lines]))
    return "\n\n".join(parts) + "\n"


_EXPECTED = "expected a run of harness.train whose method writes skills (seed and its kin, opid, skill-sd-bank)"


def _read(folder: Path) -> Iterator[dict[str, Any]]:
    path = folder / SKILLS
    if not path.is_file():
        raise ConfigError(f"{folder} has no {SKILLS}; {_EXPECTED}")
    categories = _categories(folder / TRAJECTORIES)
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):  # a last line that is torn does not count
        try:
            row = json.loads(line)
            if row.get("parse_ok", True):
                about = row.get("category") or categories.get((row["task_id"], row["attempt"]), "?")
                yield {**row, "iteration": int(row.get("iteration", 0)), "category": about, "text": str(row["text"])}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}:{number} cannot be read ({error!r}); remove the line") from None


def _categories(path: Path) -> dict[tuple[str, int], str]:
    """Return the category of each episode that stage 1 has collected."""
    if not path.exists():
        return {}
    return {(one.task_id, one.attempt): one.category for one in read_records(path, growing=True)}


def _choose(found: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the newest skills of each category and outcome, no text twice."""
    kept: dict[tuple[str, bool], dict[str, dict[str, Any]]] = {}
    for skill in sorted(found, key=lambda one: (-one["iteration"], one["task_id"], one["attempt"])):
        group = kept.setdefault((skill["category"], bool(skill["success"])), {})
        if len(group) < most:
            group.setdefault(skill["text"], skill)
    order = sorted(kept, key=lambda key: (key[0], not key[1]))
    return [skill for key in order for skill in kept[key].values()]


def _row(skill: dict[str, Any]) -> str:
    outcome = "success" if skill["success"] else "failure"
    values = (skill["category"], outcome, skill["text"], skill["task_id"], str(skill["iteration"] or "stage 1"))
    return "| " + " | ".join(map(_cell, values)) + " |"


def _cell(text: str) -> str:
    """Return text that is no Markdown and no HTML."""
    for letter in "\\`*_[]|":
        text = text.replace(letter, f"\\{letter}")
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").split())
