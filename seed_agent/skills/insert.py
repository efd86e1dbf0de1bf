"""H(h, s): a skill in a prompt, in such a way that taking it out gives the prompt back byte for byte.

Source: SEED's prompting (2cf2fad): the block stands right behind the task line, else before the
line that asks for the decision, else at the end. The heading is this project's own.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from seed_agent.policy import Chat
from seed_agent.skills.text import clean, is_trivial

HEADING = "**Skill for this episode**"
GUIDE = "Advice from experience with this task; weigh it when you choose what to do next:"

_OPENING = f"\n\n{HEADING}\n{GUIDE}\n["
_CLOSING = "]\n"
_BLOCK = re.compile(re.escape(_OPENING) + r"[^\n]*" + re.escape(_CLOSING))

# No pattern may match a line of the block: taking it out looks for the same place again.
_SHOWN = r"^(?:You now observe: |Observation \d+: )?"
_TASK_LINES = tuple(
    re.compile(pattern + ".*$", re.MULTILINE)
    for pattern in (
        _SHOWN + "Your task is to:",
        _SHOWN + "Your current task is:",
        _SHOWN + "Your task is:",
        _SHOWN + "Your question:",
        _SHOWN + "Your goal is",
        r"^You play Sokoban\b",
    )
)
_DECISION = re.compile(r"^(?:Now it's your turn|Decide on the next |Choose one |Continue with Thought )", re.MULTILINE)


def insert_skill(prompt_text: str, skill_text: str) -> str:
    """Return the prompt with the skill behind its task line; unchanged for a skill that says nothing.

    The skill is cleaned (one line, no chat markers) and put in square brackets under a fixed
    heading, with blank lines around.
    """
    skill = clean(skill_text, None).text
    if is_trivial(skill):
        return prompt_text
    place = _place(prompt_text)
    return f"{prompt_text[:place]}{_OPENING}{skill}{_CLOSING}{prompt_text[place:]}"


def remove_skill(prompt_text: str) -> str:
    """Return the prompt as it was before ``insert_skill``; unchanged when there is no skill in it."""
    task = _task_end(prompt_text)
    if task is not None:
        start, block = task, _BLOCK.match(prompt_text, task)
    else:
        end = _place(prompt_text)
        start = max(prompt_text.rfind(_OPENING, 0, end), 0)
        block = _BLOCK.fullmatch(prompt_text, start, end)
    return prompt_text[:start] + prompt_text[block.end() :] if block else prompt_text


def _task_end(text: str) -> int | None:
    """Return where the task line ends, before its line end."""
    return next((found.end() for pattern in _TASK_LINES if (found := pattern.search(text))), None)


def _place(text: str) -> int:
    """Return where a skill goes, always behind the last character of a line."""
    task = _task_end(text)
    if task is not None:
        return task
    decision = _DECISION.search(text)
    return decision.start() - 1 if decision and decision.start() else len(text)


def insert_into_chat(chat: Chat, skill_text: str) -> Chat:
    """Return the chat with the skill in its last user message; images stay as they are."""
    return _last_user(chat, lambda text: insert_skill(text, skill_text))


def remove_from_chat(chat: Chat) -> Chat:
    """Return the chat as it was before ``insert_into_chat``."""
    return _last_user(chat, remove_skill)


def _last_user(chat: Chat, change: Callable[[str], str]) -> Chat:
    last = max((i for i, message in enumerate(chat) if message.role == "user"), default=None)
    return tuple(replace(m, text=change(m.text)) if i == last else m for i, m in enumerate(chat))
