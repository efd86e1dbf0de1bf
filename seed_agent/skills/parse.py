"""From an analyzer's answer to a skill: tolerant of how models write JSON, and it never raises.

Source: the published parser's leniency (fenced blocks, any ``{``, trailing commas, Python
literals, preference for an object with ``episode_skill``), written anew.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seed_agent.skills.skill import ParseFailure, StepSkills
from seed_agent.skills.steps import read_step_skills
from seed_agent.skills.text import MAX_SKILL, clean, is_trivial

SUMMARY, SKILL, STEP_SKILLS = "episode_summary", "episode_skill", "step_skills"

_MAX_ANSWER, _MAX_OBJECT, _MAX_BRACES, _MAX_FENCES = 100_000, 20_000, 32, 4
_FENCE = re.compile(r"```[\w-]*[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_STRING = r"\"(?:\\.|[^\"\\])*+\"|'(?:\\.|[^'\\])*+'"
_TOKEN = re.compile(rf"{_STRING}|[{{}}]", re.DOTALL)
_TRAILING = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)  # models write line ends inside strings
_UNREADABLE = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True)
class SkillFields:
    """What an answer says, cleaned."""

    summary: str
    text: str
    cut: bool = False
    markers: int = 0
    steps: StepSkills = ()


def parse_skill(raw: str, *, max_chars: int = MAX_SKILL, max_steps: int = 0) -> SkillFields | ParseFailure:
    """Read the first usable skill out of an answer; never raises.

    Args:
        raw: The answer; text before and after the JSON, thinking included, is passed over.
        max_chars: Characters of skill and of summary at most; what is longer is cut and says so.
        max_steps: Step skills at most.

    Returns:
        The fields, or why there is no usable ``episode_skill``.
    """
    if not raw.strip():
        return ParseFailure("empty", "the answer is empty")
    failure = ParseFailure("no_json", "no JSON object in the answer")
    for found in _objects(raw[-_MAX_ANSWER:]):
        fields = _fields(found, max_chars, max_steps)
        if isinstance(fields, SkillFields):
            return fields
        if failure.kind != "trivial":
            failure = fields
    return failure


def _fields(found: dict[Any, Any], max_chars: int, max_steps: int) -> SkillFields | ParseFailure:
    if SKILL not in found:
        return ParseFailure("no_skill", f"the JSON object has no field {SKILL}")
    skill, summary = found[SKILL], found.get(SUMMARY)
    if not isinstance(skill, str):
        return ParseFailure("trivial", f"{SKILL} is of type {type(skill).__name__}; expected a string")
    line = clean(skill, max_chars)
    if is_trivial(line.text):
        return ParseFailure("trivial", f"{SKILL} says nothing: {line.text[:40]!r}")
    story = clean(summary, max_chars).text if isinstance(summary, str) else ""
    return SkillFields(
        summary="" if is_trivial(story) else story,
        text=line.text,
        cut=line.cut,
        markers=line.markers,
        steps=read_step_skills(found.get(STEP_SKILLS), max_steps) if max_steps else (),
    )


def _objects(raw: str) -> Iterator[dict[Any, Any]]:
    """Yield the objects that can be read: behind the thinking first, in fenced blocks first."""
    behind = raw.rpartition("</think>")[2]
    for text in dict.fromkeys((behind, raw)):
        blocks = [match[1] for match in _FENCE.finditer(text)]
        for part in (*blocks[:_MAX_FENCES], text):
            yield from _objects_in(part)


def _objects_in(text: str) -> Iterator[dict[Any, Any]]:
    """Yield what can be read at each ``{``, at most the last few before the wanted field."""
    end = text.rfind(SKILL)
    braces = [match.start() for match in re.finditer(r"\{", text[: end if end >= 0 else len(text)])]
    for start in braces[-_MAX_BRACES:]:
        found = _read(text, start)
        if isinstance(found, dict):
            yield found


def _read(text: str, start: int) -> object:
    """Return the value at ``start``: as JSON, as JSON with commas too many, as a Python literal."""
    try:
        return _DECODER.raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        pass
    body = _balanced(text, start)
    if not body:
        return None
    try:
        return _DECODER.decode(_TRAILING.sub(lambda match: match[1] or "", body))
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unknown escapes in strings warn
            return ast.literal_eval(body)
    except _UNREADABLE:
        return None


def _balanced(text: str, start: int) -> str:
    """Return the text from the ``{`` at ``start`` to its partner, "" where it is missing or far."""
    depth = 0
    for token in _TOKEN.finditer(text, start, start + _MAX_OBJECT):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if not depth:
            return text[start : token.end()]
    return ""
