"""The static skill library: a few sentences for each kind of task, written for this project.

``library/<kind>/mapping.json`` says which sections a task gets beside ``general.md``: every section
whose pattern matches the whole category, then every one whose pattern is found in the task id.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from seed_envs.errors import DataError, UnknownName
from seed_envs.registry import Registry

GENERAL = "general"
_FOLDER = Path(__file__).parent / "library"

LIBRARIES: Registry[Path] = Registry("skill library")
"""Folders by kind of environment; a third party adds its own."""
for _kind in ("alfworld", "searchqa", "sokoban", "webshop"):
    LIBRARIES.add(_kind, _FOLDER / _kind)

_Rules = tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]


@dataclass(frozen=True)
class _Library:
    sections: dict[str, str]
    categories: _Rules
    tasks: _Rules


def skill_for(env_kind: str, category: str, task_id: str = "") -> str:
    """Return the skill for a task: the general section and those of its category, one a line.

    Args:
        env_kind: As presets call it: ``alfworld``, ``searchqa``, ``sokoban``, ``webshop``.
        category: The task's category, or the name of a section, such as ``heat``.
        task_id: Where given, it may add sections: a Sokoban id tells size and boxes.

    Returns:
        Never an empty text, and never a task's answer: sections know the kind of task alone.

    Raises:
        UnknownName: when there is no library for the kind or nothing is known of the category.
        DataError: when the library's files are torn.
    """
    library = _read(LIBRARIES.get(env_kind))
    return "\n".join(library.sections[name] for name in sections_for(env_kind, category, task_id))


def sections_for(env_kind: str, category: str, task_id: str = "") -> tuple[str, ...]:
    """Return the names of the sections that ``skill_for`` joins, ``general`` first.

    Raises:
        UnknownName: as ``skill_for`` does.
    """
    library = _read(LIBRARIES.get(env_kind))
    found = [GENERAL]
    if category in library.sections:
        found.append(category)
    else:
        matching = [names for pattern, names in library.categories if pattern.fullmatch(category)]
        if not matching:
            words = [word for pattern, _ in library.categories for word in pattern.pattern.split("|")]
            known = [word for word in words if word.isidentifier()]  # the others are patterns, no names
            raise UnknownName(f"{env_kind} category", category, {*library.sections, *known})
        found += [name for names in matching for name in names]
    found += [name for pattern, names in library.tasks if pattern.search(task_id) for name in names]
    return tuple(dict.fromkeys(found))


@cache
def _read(folder: Path) -> _Library:
    try:
        paths = sorted(folder.glob("*.md"))
        sections = {path.stem: path.read_text(encoding="utf-8").strip() for path in paths}
        mapping = json.loads((folder / "mapping.json").read_text(encoding="utf-8"))
        library = _Library(sections, _rules(mapping["categories"]), _rules(mapping.get("tasks", {})))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, re.error) as error:
        raise DataError(f"the skill library {folder} cannot be read: {error}; expected mapping.json and *.md") from None
    named = {GENERAL, *(name for rules in (library.categories, library.tasks) for _, names in rules for name in names)}
    for name in sorted(named):
        if not sections.get(name):
            raise DataError(f"the skill library {folder} has no text {name}.md, which its mapping names")
    return library


def _rules(found: dict[str, Any]) -> _Rules:
    return tuple((re.compile(pattern), tuple(names)) for pattern, names in found.items())
