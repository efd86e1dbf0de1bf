"""From a model's reply to an environment action: pure text functions."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal

from seed_envs.errors import UnknownName
from seed_envs.searchqa.dialects import write_action

Parser = Callable[[str], "Parsed"]
PROJECTED = ("alfworld", "webshop", "sokoban", "searchqa")
"""Environments whose published projection ``verl_agent`` knows."""
_BLOCKS = {"searchqa": ("search", "answer")}
"""The tags around an action, by kind of environment; ``<action>`` elsewhere."""

_DIRECTIONS = ("up", "down", "left", "right", "still")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a reply says: the action to execute ("" for none) and whether it is well-formed."""

    action: str
    format_ok: bool
    thought: str = ""
    reason: str = ""
    """What is wrong with the form, empty when nothing is."""


def blocks(kind: str) -> tuple[str, ...]:
    """Return the tags that an action of this kind of environment stands in."""
    return _BLOCKS.get(kind, ("action",))


def stops(kind: str) -> tuple[str, ...]:
    """Return the texts that end a reply."""
    return tuple(f"</{name}>" for name in blocks(kind))


def write_block(action: str, kind: str) -> str:
    """Return an action in the tags that a reply to this kind of environment puts around it.

    Words to search for or to answer stand behind a blank, as they do in running text: most
    tokenizers have other tokens for a word without one.
    """
    verb, opened, rest = action.partition("[")
    return f"<{verb}> {rest.removesuffix(']')}</{verb}>" if kind in _BLOCKS and opened else f"<action>{action}</action>"


def read_reply(
    reply: str, *, kind: str, parser: Literal["strict", "verl_agent"] = "strict", require_think: bool = True
) -> Parsed:
    """Read a reply to an environment of this kind by one of the parsers.

    Raises:
        UnknownName: when the parser does not know the kind.
    """
    if parser == "verl_agent":
        return verl_agent(reply, kind=kind, require_think=require_think)
    return strict(
        reply, lower=kind != "searchqa", squeeze=kind != "webshop", require_think=require_think, tags=blocks(kind)
    )


@cache
def _tag(names: tuple[str, ...]) -> re.Pattern[str]:
    # Possessive: a "<" before thousands of blanks must not be tried over and over.
    known = "|".join(("think", *names))
    return re.compile(rf"<\s*+(/?)\s*+({known})\s*+>", re.IGNORECASE)


def strict(
    reply: str,
    *,
    lower: bool = True,
    squeeze: bool = True,
    require_think: bool = True,
    tags: tuple[str, ...] = ("action",),
) -> Parsed:
    """Read ``<think>...</think><action>...</action>`` and flag everything else.

    With other ``tags`` than ``action`` the tag is part of the action: ``<search>x</search>`` is
    ``search[x]``.

    Tags are matched in any case and do not count inside the think block; a block that is not
    closed executes nothing. Of several or nested action blocks the first complete one is
    executed and the reply is flagged. Unless ``squeeze`` is false the action's blanks are
    squeezed (some texts to click in WebShop hold two), and unless ``lower`` is false its letters
    lower-cased; what it names is the environment's to judge.
    """
    thought, rest, problems = _split_thought(reply, require_think)
    found = [(m.start(), m.end(), bool(m[1]), m[2].lower()) for m in _tag(tags).finditer(rest)]
    complete = [
        (after[3], " ".join(rest[before[1] : after[0]].split()) if squeeze else rest[before[1] : after[0]].strip())
        for before, after in pairwise(found)
        if not before[2] and after[2] and before[3] == after[3] != "think"
    ]
    verb, action = complete[0] if complete else ("", "")
    if not complete:
        problems.append(f"no complete {' or '.join(f'<{name}>' for name in tags)} block")
    elif len(complete) > 1:
        problems.append(f"{len(complete)} action blocks; the first is executed")
    elif len(found) != 2:
        problems.append("stray tags around the action block")
    if complete and not action:
        problems.append("the action block is empty")
    if complete and _outside(rest, found).strip():
        problems.append("text outside the think and action blocks")
    if action and tags != ("action",):
        action = write_action(verb, action)
    return Parsed(action.lower() if lower else action, not problems, thought, "; ".join(problems))


def _split_thought(reply: str, required: bool) -> tuple[str, str, list[str]]:
    """Return the thought, what follows the think block, and what is wrong with the block."""
    found = list(_tag(()).finditer(reply))
    opened = [m for m in found if not m[1]]
    closed = [m for m in found if m[1]]
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
    characters are the action. Whether the environment offers the action is not asked. SearchQA has
    rules of its own: the text up to the first ``</search>`` (else ``</answer>``) counts, its first
    search block (else answer block) is the action, no thought is asked for, and a reply with both
    kinds of block or two of a kind is executed all the same but invalid.

    Raises:
        UnknownName: when ``kind`` is none of ``PROJECTED``.
    """
    if kind not in PROJECTED:
        raise UnknownName("verl-agent projection", kind, PROJECTED)
    if kind == "searchqa":
        return _search_projection(reply)
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


def _search_projection(reply: str) -> Parsed:
    end = next((at + len(tag) for tag in stops("searchqa") if (at := reply.find(tag)) >= 0), len(reply))
    contents = [(verb, _first_block(verb, reply[:end])) for verb in blocks("searchqa")]
    action = next((write_action(verb, text.strip()) for verb, text in contents if text is not None), "")
    count = sum(len(re.findall(f"<{verb}>", reply, re.IGNORECASE)) for verb in blocks("searchqa"))
    valid = bool(action) and count == 1
    return Parsed(action, valid, reason="" if valid else "invalid by verl-agent's rules")


def _first_block(verb: str, text: str) -> str | None:
    opened = re.search(f"<{verb}>", text, re.IGNORECASE)
    closed = opened and re.compile(f"</{verb}>", re.IGNORECASE).search(text, opened.end())
    return text[opened.end() : closed.start()] if opened and closed else None
