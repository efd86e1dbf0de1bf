"""What a skill is, what stands in its place when there is none, and how both are counted."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FailureKind = Literal["empty", "no_json", "no_skill", "trivial", "too_long", "call_failed"]
FAILURE_KINDS: tuple[FailureKind, ...] = FailureKind.__args__  # type: ignore[attr-defined]
"""``empty``: no answer or no turns; ``no_json``: no object in it; ``no_skill``: an object without
the field; ``trivial``: a placeholder; ``too_long``: the episode; ``call_failed``: the model."""

StepSkills = tuple[tuple[int, str], ...]
"""(0-based step, advice for it), by step."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A short advice drawn from one episode."""

    summary: str
    """What happened; kept for training the analyzer, never shown to an agent."""
    text: str
    """The advice: one line without chat markers."""
    task_id: str
    attempt: int
    success: bool
    source: str
    """The annotator that wrote it."""
    cut: bool = False
    """Whether the text was longer than allowed."""
    markers: int = 0
    """Chat markers neutralised in the text."""
    steps: StepSkills = ()
    """Advice for single steps (OPID), where it was asked for."""

    @property
    def id(self) -> str:
        """Task and attempt, ``task:attempt``."""
        return f"{self.task_id}:{self.attempt}"


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """Stands where a skill should; the episode stays in every other part of training."""

    kind: FailureKind
    reason: str


def tally(results: Iterable[Skill | ParseFailure]) -> dict[str, int]:
    """Count what came of annotating; every key is always there.

    Returns:
        ``episodes``, ``usable``, ``successes`` (usable skills of successful episodes), ``cut``,
        ``marked`` (texts with neutralised markers), ``failed`` and ``failed_KIND`` per kind.
    """
    counts = dict.fromkeys(("episodes", "usable", "successes", "cut", "marked", "failed"), 0)
    counts |= {f"failed_{kind}": 0 for kind in FAILURE_KINDS}
    for result in results:
        counts["episodes"] += 1
        if isinstance(result, ParseFailure):
            counts["failed"] += 1
            counts[f"failed_{result.kind}"] += 1
            continue
        counts["usable"] += 1
        counts["successes"] += result.success
        counts["cut"] += result.cut
        counts["marked"] += result.markers > 0
    return counts
