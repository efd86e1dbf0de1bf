"""Skill text made fit for a prompt: no chat markers, one line, not too long, not a placeholder."""

import re
from typing import NamedTuple

MAX_SKILL = 2_000
"""Characters of a skill at most; about 500 tokens."""

_PLACEHOLDERS = {"", "none", "nan", "na", "null", "nil", "string", "undefined"}

_CHAT = (
    r"<\s*[|\uff5c]([^<>\n]{0,40})[|\uff5c]\s*>",  # <|im_start|> and its many relatives
    r"<\s*(/?\s*(?:s|bos|eos|pad|unk|image|video|audio|start_of_turn|end_of_turn|tool_call|tool_response))\s*>",
    r"<<\s*(/?\s*SYS)\s*>>",
    r"\[\s*(/?\s*(?:INST|SYSTEM_PROMPT|IMG|TOOL_CALLS))\s*\]",
)
_REPLY = r"<\s*(/?\s*(?:think|action|search|answer|information))\s*>"
_CHAT_MARKERS = re.compile("|".join(_CHAT), re.IGNORECASE)
_ALL_MARKERS = re.compile("|".join((*_CHAT, _REPLY)), re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?][\"')\]]?(?=\s|\Z)|[\u3002\uff01\uff1f]")


class Cleaned(NamedTuple):
    """A text and what was done to it."""

    text: str
    cut: bool
    markers: int
    """Chat markers that were neutralised."""


def is_trivial(text: str) -> bool:
    """Whether ``text`` says nothing: no letters, or a placeholder such as ``None`` or ``string``."""
    core = re.sub(r"[\W_]+", "", text).casefold()
    return core in _PLACEHOLDERS or not any(map(str.isalpha, core))


def neutralise(text: str, *, reply_tags: bool = True) -> tuple[str, int]:
    """Return ``text`` with markers that a chat template or a parser reads put in round brackets.

    ``<|im_end|>`` becomes ``(im_end)``; with ``reply_tags``, ``<action>`` becomes ``(action)``.

    Returns:
        The text, never longer than before, and how many markers there were.
    """
    pattern, count = _ALL_MARKERS if reply_tags else _CHAT_MARKERS, 0
    while True:  # a marker taken away may leave another one behind
        text, found = pattern.subn(_bracketed, text)
        if not found:
            return text, count
        count += found


def _bracketed(marker: re.Match[str]) -> str:
    return f"({(marker[marker.lastindex or 0]).strip()})"


def shorten(text: str, limit: int) -> tuple[str, bool]:
    """Return ``text`` cut to ``limit`` characters and whether it was cut.

    It ends with a whole sentence where that keeps at least half of the room, else with a whole
    word, else at the limit.
    """
    if len(text) <= limit:
        return text, False
    ends = [m.end() for m in _SENTENCE_END.finditer(text) if m.end() <= limit]
    end = ends[-1] if ends else 0
    if 2 * end < limit:
        end = text.rfind(" ", 0, limit + 1)
    return text[: end if 2 * end >= limit else limit].rstrip(), True


def clean(text: str, limit: int | None = MAX_SKILL) -> Cleaned:
    """Return ``text`` as one line that a prompt can hold; doing it twice changes nothing more.

    Characters that cannot be printed go, runs of blanks and line ends become one blank, chat
    markers are neutralised and what exceeds ``limit`` characters is cut.
    """
    printable = "".join(char for char in text if char.isprintable() or char.isspace())
    line, markers = neutralise(" ".join(printable.split()))
    line, cut = (line, False) if limit is None else shorten(line, limit)
    return Cleaned(line, cut, markers)
