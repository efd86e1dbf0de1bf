"""From a model's reply to an environment action: pure text functions."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from seed_envs.errors import UnknownName

Parser = Callable[[str], "Parsed"]
PROJECTED = ("alfworld", "webshop", "sokoban")
"""Environments whose published projection ``verl_agent`` knows."""

# Possessive: a "<" before thousands of blanks must not be tried over and over.
_TAG = re.compile(r"<\s*+(/?)\s*+(think|action)\s*+>", re.IGNORECASE)
_DIRECTIONS = ("up", "down", "left", "right", "still")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a reply says: the action to execute ("" for none) and whether it is well-formed."""

    action: str
    format_ok: bool
    thought: str = ""
    reason: str = ""
    """What is wrong with the form, empty when nothing is."""


def strict(reply: str, *, lower: bool = True, require_think: bool = True) -> Parsed:
    """Read ``<think>...</think><action>...</action>`` and flag everything else.

    Tags are matched in any case and do not count inside the think block; a block that is not
    closed executes nothing. Of several or nested action blocks the first complete one is
    executed and the reply is flagged. The action's blanks are squeezed and, unless ``lower`` is
    false, its letters lower-cased; what it names is the environment's to judge.
    """
    thought, rest, problems = _split_thought(reply, require_think)
    tags = [(m.start(), m.end(), bool(m[1]), m[2].lower()) for m in _TAG.finditer(rest)]
    action, blocks = "", 0
    for before, after in pairwise(tags):
        if before[2:] == (False, "action") and after[2:] == (True, "action"):
            blocks += 1
            if blocks == 1:
                action = " ".join(rest[before[1] : after[0]].split())
    if not blocks:
        problems.append("no complete <action> block")
    elif blocks > 1:
        problems.append(f"{blocks} action blocks; the first is executed")
    elif len(tags) != 2:
        problems.append("stray tags around the action block")
    if blocks and not action:
        problems.append("the action block is empty")
    if blocks and _outside(rest, tags).strip():
        problems.append("text outside the think and action blocks")
    return Parsed(action.lower() if lower else action, not problems, thought, "; ".join(problems))


def _split_thought(reply: str, required: bool) -> tuple[str, str, list[str]]:
    """Return the thought, what follows the think block, and what is wrong with the block."""
    opened = [m for m in _TAG.finditer(reply) if m[2].lower() == "think" and not m[1]]
    closed = [m for m in _TAG.finditer(reply) if m[2].lower() == "think" and m[1]]
    if not opened and not closed:
        return "", reply, ["no <think> block"] if required else []
    if not closed or (opened and closed[-1].start() < opened[0].start()):
        return "", "", ["the think block is not closed"]
    rest = reply[closed[-1].end() :]
    start = opened[0].end() if opened else 0
    thought = reply[start : closed[-1].start()].strip()
    if any(tag.start() > closed[-1].start() for tag in opened):
        return thought, "", ["the think block is not closed"]
    problems = []
    if len(opened) != 1 or len(closed) != 1:
        problems.append("think tags do not pair up")
    elif reply[: opened[0].start()].strip():
        problems.append("text before the think block")
    return thought, rest, problems


def _outside(text: str, tags: list[tuple[int, int, bool, str]]) -> str:
    """Return what stands before the first and after the last tag."""
    return text[: tags[0][0]] + text[tags[-1][1] :] if tags else text


def verl_agent(reply: str, *, kind: str, require_think: bool = True) -> Parsed:
    """Read a reply exactly as verl-agent and SEED project it, for parity with published runs.

    Source: projections of verl-agent 8ca3a46 and SEED 2cf2fad, as observed. The first
    ``<action>`` and the first ``</action>`` of the lower-cased text delimit the action even
    when they are in the wrong order; without a pair the last 30 (ALFWorld) or 20 (WebShop)
    characters are the action. Whether the environment offers the action is not asked.

    Raises:
        UnknownName: when ``kind`` is none of ``PROJECTED``.
    """
    if kind not in PROJECTED:
        raise UnknownName("verl-agent projection", kind, PROJECTED)
    lowered = reply.lower()
    start, end = lowered.find("<action>"), lowered.find("</action>")
    tagged = start >= 0 and end >= 0
    content = lowered[start + len("<action>") : end].strip() if tagged else ""
    if kind == "sokoban":
        action = next((word for word in _DIRECTIONS if word in content), "")
        valid = bool(action)
    else:
        action = content if tagged else lowered[-30 if kind == "alfworld" else -20 :]
        valid = tagged and not re.search("[\u4e00-\u9fff]", reply)
    if require_think:
        valid = valid and "<think>" in reply and "</think>" in reply
    return Parsed(action, valid, reason="" if valid else "invalid by verl-agent's rules")
