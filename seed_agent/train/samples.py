"""From played episodes to training samples: one per turn, the very tokens that were sampled."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seed_agent.backends.hf_model import Row
from seed_agent.policy import Decision, Prompt
from seed_agent.skills.skill import Skill
from seed_agent.train.settings import Settings
from seed_agent.trajectory import Episode


@dataclass(eq=False)
class Played:
    """An episode with what a trainer needs beside its record."""

    episode: Episode
    decisions: tuple[Decision, ...]
    """With prompt and token ids, one per turn that was carried out."""
    skill: Skill | None = None
    """A usable skill for the teacher, None where there is none."""
    why: str = ""
    """Why there is none."""

    @property
    def rejected(self) -> bool:
        """Whether the episode broke: its reward is unknown, so it teaches nothing."""
        return self.episode.failed_to_finish


@dataclass(eq=False)
class Sample:
    """One turn: prompt and reply as tokens, what it earned, and the teacher's prompt."""

    row: Row
    group: str
    episode: int
    """Index of the episode in its iteration."""
    turn: int
    score: float
    """The episode's return less this turn's penalty."""
    rejected: bool
    sampled_logp: tuple[float, ...]
    teacher: Row | None = None
    """The same reply behind a prompt that holds the skill."""
    advantage: float = 0.0
    scores: dict[str, Any] = field(default_factory=dict)
    """``old``, ``ref``, ``teacher``: log-probabilities of the reply's tokens, 1-d tensors."""

    @property
    def reply(self) -> int:
        """Tokens of the reply."""
        return len(self.row.ids) - self.row.prompt


def episode_return(episode: Episode, settings: Settings) -> float:
    """Return what an episode is worth to the trainer."""
    if settings.reward == "native":
        raw = sum(turn.reward for turn in episode.turns)
    else:
        raw = float(episode.success) if settings.reward == "success" else episode.score
    return settings.reward_scale * raw


def build_samples(
    played: Sequence[Played], teachers: Mapping[tuple[int, int], Prompt], settings: Settings
) -> list[Sample]:
    """Return the samples of an iteration, in the order of its episodes and turns.

    Args:
        played: The episodes.
        teachers: Teacher prompts by (episode, turn); a turn without one is not distilled.
        settings: Reward and penalty.
    """
    samples = []
    for number, one in enumerate(played):
        worth = 0.0 if one.rejected else episode_return(one.episode, settings)
        for turn, decision in enumerate(one.decisions):
            if decision.prompt is None or not decision.token_ids:
                continue
            teacher = teachers.get((number, turn))
            samples.append(
                Sample(
                    row=as_row(decision.prompt, decision.token_ids),
                    group=one.episode.task_id,
                    episode=number,
                    turn=turn,
                    score=worth - settings.invalid_penalty * (not decision.format_ok),
                    rejected=one.rejected,
                    sampled_logp=decision.logp or (),
                    teacher=None if teacher is None else as_row(teacher, decision.token_ids),
                )
            )
    return samples


def as_row(prompt: Prompt, reply: tuple[int, ...]) -> Row:
    """Join a prompt's ids and a reply's; the ids are never made from text again."""
    if prompt.ids is None:
        raise ValueError("a training prompt needs token ids; the policy rendered none")
    return Row(prompt.ids + reply, len(prompt.ids), prompt.images)


def micro_batches(samples: Sequence[Sample], budget: int, *, teacher: bool = False) -> Iterator[list[Sample]]:
    """Yield batches of like length whose padded size is at most ``budget`` tokens, or one sample.

    The order is by length, longest first, so the first batch shows whether memory suffices.
    """

    def length(sample: Sample) -> int:
        longest = len(sample.row.ids)
        return max(longest, len(sample.teacher.ids)) if teacher and sample.teacher else longest

    ordered = sorted(samples, key=lambda s: (-length(s), s.episode, s.turn))
    batch: list[Sample] = []
    for sample in ordered:
        if batch and (len(batch) + 1) * length(batch[0]) > budget:
            yield batch
            batch = []
        batch.append(sample)
    if batch:
        yield batch
