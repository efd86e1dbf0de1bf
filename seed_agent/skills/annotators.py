"""Who writes skills: rules, a model here or a model behind a server, by one interface."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from seed_agent.skills.analyzer import MAX_CHARS, ImageLoader
from seed_agent.skills.skill import ParseFailure, Skill
from seed_agent.skills.text import MAX_SKILL
from seed_agent.trajectory import Episode
from seed_envs.errors import ConfigError
from seed_envs.registry import Registry


class Annotator(Protocol):
    """Draws skills from episodes."""

    name: str

    def annotate(self, episodes: Sequence[Episode]) -> list[Skill | ParseFailure]:
        """Return one result per episode, in order; what fails is a ``ParseFailure`` in its place.

        Raises:
            Contaminated: for an episode outside the training split, before anything is asked.
        """


@dataclass(frozen=True)
class Options:
    """What annotators have in common. The defaults are the published values for text."""

    images: ImageLoader | None = None
    """Loads the recorded images; needed where there are any."""
    max_prompt_tokens: int = 16_384
    """Longer prompts lose steps from the middle; 24,576 for vision."""
    max_prompt_chars: int = MAX_CHARS
    """The same where a server does the rendering and tokens cannot be counted."""
    max_reply_tokens: int = 4_096
    """2,048 for vision."""
    max_skill_chars: int = MAX_SKILL
    step_skills: int = 0
    """Skills of single steps to ask for at most (OPID)."""
    batch: int = 32
    """Prompts handed to the model at once."""
    evaluation: bool = False
    """Allow episodes of other splits than train, to look and not to learn."""


ANNOTATORS: Registry[Callable[[str, Options], Annotator]] = Registry("annotator")
"""Annotators by the part of the specification before the first colon."""
ANNOTATORS.add("rules", "seed_agent.skills.rules:make")
ANNOTATORS.add("model", "seed_agent.skills.model:make")
ANNOTATORS.add("openai", "seed_agent.skills.model:make_openai")


def make_annotator(spec: str, options: Options | None = None) -> Annotator:
    """Make the annotator that ``spec`` names.

    ``rules``; ``model:SPEC`` with any model policy, such as ``model:hf:PATH``;
    ``openai:MODEL@URL``, which asks again where an answer cannot be read.

    Raises:
        ConfigError: when the specification is malformed.
        UnknownName: when its kind or the policy's is not known.
    """
    kind, _, rest = spec.partition(":")
    if not kind:
        raise ConfigError(f"{spec!r} is no annotator; expected rules, model:hf:PATH or openai:MODEL@URL")
    return ANNOTATORS.get(kind)(rest, options or Options())
