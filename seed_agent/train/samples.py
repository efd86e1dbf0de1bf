"""From played episodes to training samples: one per turn or one per episode, the very tokens that were sampled."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seed_agent.backends.hf_model import Row, join
from seed_agent.policy import Decision, Prompt
from seed_agent.skills.skill import Skill
from seed_agent.train.settings import Settings
from seed_agent.trajectory import Episode
from seed_envs.errors import ConfigError


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
    """One turn, or one episode: prompt and replies as tokens, what they earned, and the teacher's prompt."""

    row: Row
    group: str
    episode: int
    """Index of the episode in its iteration."""
    turn: int
    """Of an episode's sample the last one."""
    score: float
    """The episode's return less this turn's penalty; of an episode's sample the mean over its turns."""
    rejected: bool
    sampled_logp: tuple[float, ...]
    teacher: Row | None = None
    """The same replies behind a prompt that holds the skill."""
    advantage: float = 0.0
    """Of an episode's sample the mean over its turns."""
    scores: dict[str, Any] = field(default_factory=dict)
    """``old``, ``ref``, ``teacher``: log-probabilities of the replies' tokens, 1-d tensors."""
    turn_scores: tuple[float, ...] = ()
    """Of an episode's sample: the score of each reply."""
    turn_advantages: tuple[float, ...] = ()

    @property
    def reply(self) -> int:
        """Tokens of the replies."""
        return sum(end - start for start, end in self.row.replies)

    @property
    def reply_ids(self) -> tuple[int, ...]:
        """The tokens of the replies."""
        return tuple(token for start, end in self.row.replies for token in self.row.ids[start:end])

    @property
    def earned(self) -> tuple[float, ...]:
        """The scores of its turns."""
        return self.turn_scores or (self.score,)

    def give(self, advantages: Sequence[float]) -> None:
        """Take the advantages of its turns."""
        self.turn_advantages = tuple(advantages) if self.turn_scores else ()
        self.advantage = advantages[0] if len(advantages) == 1 else sum(advantages) / len(advantages)


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
        teachers: Teacher prompts by (episode, turn); a turn without one is not distilled. For an
            episode's sample that of its last reply counts.
        settings: Reward and penalty, and what a sample is.

    Raises:
        ConfigError: when an episode is no growing conversation and its turns cannot be one sample.
    """
    samples = []
    for number, one in enumerate(played):
        worth = 0.0 if one.rejected else episode_return(one.episode, settings)
        turns = spoken(one)
        for group in [turns] if settings.samples == "episode" and turns else [[turn] for turn in turns]:
            samples.append(_sample(one, number, group, worth, teachers.get((number, group[-1])), settings))
    return samples


def spoken(one: Played) -> list[int]:
    """Return the turns of an episode in which the model said something."""
    return [turn for turn, decision in enumerate(one.decisions) if decision.prompt is not None and decision.token_ids]


def _sample(
    one: Played, number: int, turns: Sequence[int], worth: float, teacher: Prompt | None, settings: Settings
) -> Sample:
    """Return ``turns`` of an episode as one sample, all of them in the row of the last one."""
    said, episode = [one.decisions[turn] for turn in turns], settings.samples == "episode"
    prompt, reply = said[-1].prompt, said[-1].token_ids or ()
    assert prompt is not None
    row = join(prompt, reply, episode=episode)
    if episode:
        _check_growth(row, said)
    known = [decision.logp for decision in said]
    scores = tuple(worth - settings.invalid_penalty * (not decision.format_ok) for decision in said)
    return Sample(
        row=row,
        group=one.episode.task_id,
        episode=number,
        turn=turns[-1],
        score=scores[0] if len(scores) == 1 else sum(scores) / len(scores),
        rejected=one.rejected,
        sampled_logp=() if None in known else tuple(nats for line in known for nats in line or ()),
        teacher=None if teacher is None else join(teacher, reply, episode=episode),
        turn_scores=scores if episode else (),
    )


def _check_growth(row: Row, said: Sequence[Decision]) -> None:
    """Refuse turns whose prompts and replies are not all in the row, where it says they are.

    Raises:
        ConfigError: saying what to set.
    """
    told = [(_ids(decision), decision.token_ids) for decision in said]
    if [row.ids[:end] for _, end in row.replies] != [prompt + (reply or ()) for prompt, reply in told] or [
        row.ids[start:end] for start, end in row.replies
    ] != [reply for _, reply in told]:
        raise ConfigError(
            "samples=episode: the prompt of a turn does not begin with the tokens of the turns before, so this "
            "language, policy or chat template makes no single sequence of an episode; give samples=turn"
        )


def _ids(decision: Decision) -> tuple[int, ...]:
    return (decision.prompt.ids if decision.prompt else None) or ()


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
