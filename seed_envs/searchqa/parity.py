"""Published scorers of whole transcripts, for comparison with published numbers only.

The environment never scores a transcript: it scores the answer action, which only the model can
have written. These functions read a text in which the model's words and the passages are mixed.
"""

import re
from collections.abc import Sequence
from typing import Literal

from seed_envs.searchqa.scoring import em, normalize

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_INFORMATION = re.compile(r"<information>(.*?)</information>", re.DOTALL)
_ASSISTANT = re.compile(r"<\|im_start\|>assistant\s*")
_TAGS = ("think", "search", "information", "answer")
_TAG = re.compile(f"(</?(?:{'|'.join(_TAGS)})>)")
_MOVES = {
    ("<think>", "start"): "in_think",
    ("<think>", "information"): "in_think",
    ("</think>", "in_think"): "after_think",
    ("<search>", "after_think"): "in_search",
    ("</search>", "in_search"): "after_search",
    ("<information>", "after_search"): "in_information",
    ("</information>", "in_information"): "information",
    ("<answer>", "after_think"): "in_answer",
    ("</answer>", "in_answer"): "end",
}


def extract(transcript: str, *, least: Literal[1, 2]) -> str | None:
    """Return the last answer of a transcript that has at least ``least`` answer blocks.

    Search-R1 asks for two, since its prompt shows one as an example; verl-agent for one.
    """
    found = [match.strip() for match in _ANSWER.findall(transcript)]
    return found[-1] if len(found) >= least else None


def sequence_problem(transcript: str) -> str:
    """Return what breaks the order think, search, information, ..., answer; "" when nothing does.

    Source: Search-R1's ``is_valid_sequence`` at a14dc3a, as observed.
    """
    marker = _ASSISTANT.search(transcript)
    if marker is None:
        return "Missing assistant marker"
    content = transcript[marker.end() :]
    for tag in _TAGS:
        opened, closed = content.count(f"<{tag}>"), content.count(f"</{tag}>")
        if opened != closed:
            return f"Mismatch in {tag} tags: {opened} opening vs {closed} closing tags"
    state = "start"
    for part in filter(str.strip, _TAG.split(content)):
        if _TAG.fullmatch(part):
            if (part, state) not in _MOVES:
                return f"Unexpected tag {part} in state {state}"
            state = _MOVES[part, state]
        elif state == "end":
            return "Unexpected content in state end"
        elif not state.startswith("in_"):
            return f"Unexpected content '{part.strip()}' between tags (state: {state})"
    return "" if state == "end" else f"Incomplete sequence, ended in state {state}"


def retrieved_answer(transcript: str, answers: Sequence[str]) -> bool:
    """Whether an information block holds a golden answer."""
    blocks = [normalize(block) for block in _INFORMATION.findall(transcript)]
    return any(normalize(answer) in block for block in blocks for answer in answers)


def format_score(
    transcript: str,
    answers: Sequence[str],
    *,
    structure: float = 0.0,
    final: float = 0.0,
    retrieval: float = 0.0,
) -> float:
    """Return the score of Search-R1's format variant (v0.3), 0 to 1.

    Args:
        transcript: prompt and replies with the passages in between.
        answers: golden answers.
        structure: for a well-formed transcript with a wrong answer or none (0.2 in its scripts).
        final: for an ill-formed transcript with a wrong answer (0.1).
        retrieval: added to ``structure`` when a passage holds the answer (0).
    """
    valid = not sequence_problem(transcript)
    answer = extract(transcript, least=2)
    if answer is not None and em(answer, answers, reference=True):
        return 1.0 if valid else 1.0 - structure
    if valid:
        return structure + retrieval if retrieved_answer(transcript, answers) else structure
    return 0.0 if answer is None else final
