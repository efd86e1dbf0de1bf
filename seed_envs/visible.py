"""Texts with characters that hide, reorder or command what stands beside them, made harmless."""

import re

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters but for tab and line feed, marks that reorder or end lines, lone surrogates."""


def escaped(text: str) -> str:
    r"""Return ``text`` as a terminal may have it: ESC is ``\x1b``, a right-to-left override ``\u202e``."""
    return HIDDEN.sub(lambda match: _code(ord(match[0])), text)


def escaped_json(text: str) -> str:
    """Return JSON that holds the same and no hidden character: all of them can only stand in its strings."""
    return HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _code(number: int) -> str:
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
