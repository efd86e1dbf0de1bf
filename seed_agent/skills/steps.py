"""OPID's step skills: advice for single steps beside the one for the episode.

Source: arXiv 2606.26790; at most 5, 5 and 2 of them for ALFWorld, WebShop and SearchQA.
"""

from collections.abc import Iterator
from typing import Any

from seed_agent.skills.skill import StepSkills
from seed_agent.skills.text import clean, is_trivial

MAX_STEP_SKILLS = {"alfworld": 5, "webshop": 5, "searchqa": 2}
"""Published limits by kind of environment."""

_MAX_STEP = 10_000


def read_step_skills(value: object, limit: int) -> StepSkills:
    """Read the ``step_skills`` of an answer, ``[{"step": 3, "skill": "..."}]`` or ``{"3": "..."}``.

    What cannot be used is left out; of a step named twice the first entry counts. The ``limit``
    entries of the earliest steps are kept.
    """
    found: dict[int, str] = {}
    for step, text in _entries(value):
        number = _step(step)
        line = clean(text).text if isinstance(text, str) else ""
        if number is not None and not is_trivial(line):
            found.setdefault(number, line)
    return tuple(sorted(found.items())[:limit])


def _entries(value: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from ((row.get("step"), row.get("skill")) for row in value if isinstance(row, dict))


def _step(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 5:
        value = int(value)
    return value if type(value) is int and 0 <= value < _MAX_STEP else None


def choose_skill(steps: StepSkills, episode_skill: str, step: int) -> str:
    """Return the advice for 0-based ``step``: its own where there is one, else the episode's."""
    return dict(steps).get(step, episode_skill)
