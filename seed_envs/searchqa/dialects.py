"""How published programs write an action and its result; the environment itself knows only one form.

The environment takes ``search[...]`` or ``answer[...]`` and shows a result as two lines a passage,
``Doc 1: "Title"`` and its text, or as one sentence when there is none. Prompt templates turn these
into a dialect with the filters of ``FILTERS``. Everything here is text to text.
"""

import json
import re
from collections.abc import Callable, Iterable

VERBS = ("search", "answer")
NOTHING = "No search results found."

_ACTION = re.compile(rf"({'|'.join(VERBS)})\[(.*)\]", re.DOTALL)
_DOCUMENT = re.compile(r'^Doc ([0-9]+): ("[^\n]*")\n([^\n]*)$', re.MULTILINE)
_MARKER = re.compile(
    r"<(?=\s*/?\s*(?:think|search|answer|information|action|image|s|bos|eos|start_of_turn|end_of_turn)\b[^<>]*>"
    r"|\s*[|\uff5c]|<\s*/?\s*SYS\s*>>)|\[(?=\s*/?\s*(?:INST|SYSTEM_PROMPT|TOOL_CALLS)\s*\])",
    re.IGNORECASE,
)


def read_action(action: str) -> tuple[str, str] | None:
    """Return verb and argument of ``search[...]`` or ``answer[...]``; None for anything else."""
    found = _ACTION.fullmatch(action)
    return None if found is None else (found[1], found[2])


def write_action(verb: str, argument: str) -> str:
    """Return the action: the opposite of ``read_action``."""
    return f"{verb}[{argument}]"


def escape(text: str) -> str:
    """Return ``text`` with the first character of every protocol or chat marker as a character reference.

    A passage that holds ``</information>``, ``<answer>`` or ``<|im_start|>`` shows it as
    ``&lt;/information>`` and so on; a plain ``<`` stays.
    """
    return _MARKER.sub(lambda found: "&lt;" if found[0] == "<" else "&#91;", text)


def documents(passages: Iterable[tuple[str, str]]) -> str:
    """Return the text that the environment shows for (title, text) pairs, best first; "" for none.

    Each passage takes two lines and its markers are escaped, so that no passage can pretend to
    be two or to end the result.
    """
    pairs = ([escape(" ".join(part.split())) for part in pair] for pair in passages)
    return "\n".join(f'Doc {number}: "{title}"\n{text}' for number, (title, text) in enumerate(pairs, 1))


def verbatim(contents: Iterable[str]) -> str:
    """Return the same for passages as they are, as upstream shows them; "" for none."""
    return "\n".join(f"Doc {number}: {text}" for number, text in enumerate(contents, 1))


def tagged(action: str) -> str:
    """Return an action as ``<search>...</search>`` or ``<answer>...</answer>``; "" for anything else."""
    found = read_action(action)
    return "" if found is None else f"<{found[0]}>{found[1]}</{found[0]}>"


def json_information(result: str, action: str = "search[]") -> str:
    """Return a result as verl-agent and SkyRL show it: a JSON dump; "" when ``action`` was no search."""
    if not action.startswith("search["):
        return ""
    ended = f"{result}\n" if result.startswith("Doc 1: ") else result
    return f"<information>{json.dumps({'result': ended})}</information>"


def r1_information(result: str, action: str = "search[]") -> str:
    """Return a result as Search-R1 shows it: a line a passage; "" when ``action`` was no search."""
    if not action.startswith("search["):
        return ""
    lines = _DOCUMENT.sub(r"Doc \1(Title: \2) \3", result)
    return f"<information>{lines}</information>"


FILTERS: dict[str, Callable[..., str]] = {
    "tagged": tagged,
    "json_information": json_information,
    "r1_information": r1_information,
}
"""Filters of prompt templates, by name."""
