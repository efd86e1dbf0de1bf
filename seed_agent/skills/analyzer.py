"""The analyzer's prompt: one played episode, written out for a model that draws a skill from it.

Source: the order of the parts is SEED's (``seed/analysis.py`` at 2cf2fad); the wording is ours.
"""

import hashlib
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image as PillowImage

from seed_agent.policy import Chat, Message, Pixels
from seed_agent.skills.parse import SKILL, STEP_SKILLS, SUMMARY
from seed_agent.skills.skill import Skill
from seed_agent.skills.text import neutralise
from seed_agent.trajectory import Episode, Image, Turn
from seed_envs.errors import ConfigError, DataError, SeedError
from seed_envs.presets import preset_for
from seed_envs.prompting import IMAGE
from seed_envs.sokoban.env import INSTRUCTION

ImageLoader = Callable[[str], Pixels]
"""From the ``file_sha256`` of a recorded image to its pixels."""
Fits = Callable[[Chat], bool]
"""Whether a prompt is short enough."""

MAX_CHARS = 48_000
"""Characters of a prompt where tokens cannot be counted; the published limit is 16,384 tokens."""
PAGE_HEAD, PAGE_TAIL = 300, 130
"""Characters that stay of a long observation, from its beginning and its end, where not everything fits."""

_SAME_TASK = "[the task]"

TASKS = {"sokoban": INSTRUCTION}
"""The task by kind of environment, where its observations do not state it."""

_LABELS = ("Your task is to:", "Your task is:", "Your current task is:", "Your question:", "Your goal is to")
_TASK = re.compile("|".join(rf"{label}\s*(.+)" for label in _LABELS))

_INSTRUCTION = """\
Below is the record of one episode that an agent played. Analyze it and answer with valid JSON only, nothing before it \
and nothing after it.

Fill in these fields:
- episode_summary: what happened in the episode, in one or two sentences.
- episode_skill: one skill that the episode teaches.
  - After a success, distil a workflow: the rule that decided each choice and the order of actions that worked.
  - After a failure, distil what to avoid: the central mistake and the signs that announce it.
  - Where the outcome is unknown, write either of the two.
{step_field}
Constraints:
- episode_skill is one short piece of advice to an agent about to act in a task like this; it does not retell the past.
- No other top-level fields.

Answer in exactly this form:
{schema}

Episode context:
- Task description: {task}
- episode_success: {label}
- Interaction trajectory:
{trajectory}"""

_STEP_FIELD = """\
- step_skills: advice for single steps that decided the episode, at most {n} of them, each for an agent at that step.
"""


class Contaminated(SeedError):
    """An episode outside the training split was offered to learn from."""


class EpisodeTooLong(SeedError):
    """Even the first and the last step of an episode alone do not fit."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """The prompt of one episode and what was done to make it."""

    chat: Chat
    steps: int
    """Steps of the episode."""
    elided: int
    """Steps left out."""
    shortened: int
    """Steps shown with a part of their observation."""
    markers: int
    """Chat markers neutralised in what the prompt shows."""


def schema(step_skills: int = 0) -> str:
    """Return the literal form of an answer."""
    form: dict[str, object] = {SUMMARY: "string", SKILL: "string"}
    if step_skills:
        form[STEP_SKILLS] = [{"step": 0, "skill": "string"}]
    return json.dumps(form)


def short_enough(chat: Chat) -> bool:
    """Whether the prompt has at most ``MAX_CHARS`` characters."""
    return sum(len(message.text) for message in chat) <= MAX_CHARS


def check_train(episode: Episode) -> None:
    """Refuse an episode that training must not see.

    Raises:
        Contaminated: when its split is neither ``train`` nor named ``...-train``.
    """
    if episode.split != "train" and not episode.split.endswith("-train"):
        raise Contaminated(
            f"task {episode.task_id} is of the split {episode.split!r}; skills are drawn from training tasks only: "
            "play split='train', or pass evaluation=True to look without training"
        )


def outcome_label(episode: Episode) -> str:
    """Return ``success``, ``failure`` or, for an episode that broke, ``unknown``."""
    if episode.success:
        return "success"
    return "unknown" if episode.failed_to_finish else "failure"


def task_description(episode: Episode) -> str:
    """Return the task as the agent was told it, else as the first observation states it, else ""."""
    if episode.instruction:
        return episode.instruction
    found = _TASK.search(episode.turns[0].observation.text) if episode.turns else None
    if found is None:
        return TASKS.get(preset_for(episode.env.id).kind, "")
    return str(found[found.lastindex or 0]).strip()


def action_valid(turn: Turn) -> bool:
    """Whether the reply was well-formed and named an action that the environment offered."""
    return turn.format_ok and turn.admissible is not False


def analyze(
    episode: Episode,
    *,
    images: ImageLoader | None = None,
    fits: Fits = short_enough,
    step_skills: int = 0,
    evaluation: bool = False,
) -> Analysis:
    """Return the prompt that asks for the skill of ``episode``: one user message.

    Steps count from 0 and show the environment's own observation, the full reply and whether the
    action was valid. In a prompt that does not fit, long observations (pages of a shop) lose their
    middle and the task, which stands above, is not repeated in them. Where that is not enough,
    whole steps go from the middle, as few as possible. The prompt says what is missing;
    instruction, first and last step stay.

    Args:
        episode: What was played.
        images: Loads the recorded images; needed where there are any.
        fits: Whether a prompt is short enough.
        step_skills: How many skills of single steps to ask for at most (OPID).
        evaluation: Allow an episode of another split than train, to look and not to learn.

    Raises:
        Contaminated: for an episode of another split without ``evaluation``.
        EpisodeTooLong: when not even two steps fit.
        ConfigError: when there are images and no loader.
    """
    if not evaluation:
        check_train(episode)
    if images is None and any(turn.observation.images for turn in episode.turns):
        raise ConfigError(f"the episodes of task {episode.task_id} have images; pass a loader, such as png_loader()")
    load = cache(images) if images else None
    for shorten in (False, True):
        writer = _Writer(episode, load, step_skills, shorten=shorten)
        whole = writer.write(writer.steps)
        if fits(whole.chat):
            return whole
    found = _most_steps(writer, fits)
    if found is None:
        raise EpisodeTooLong(
            f"the first and last step of task {episode.task_id}, attempt {episode.attempt}, do not fit the analyzer's "
            "prompt; raise its limit"
        )
    return found


def _most_steps(writer: "_Writer", fits: Fits) -> Analysis | None:
    """Return the prompt with the most steps that fits, found by bisection; None when not even two do."""
    best, low, high = None, min(2, writer.steps), writer.steps - 1
    while low <= high:
        middle = (low + high) // 2
        tried = writer.write(middle)
        if fits(tried.chat):
            best, low = tried, middle + 1
        else:
            high = middle - 1
    return best


def _shortened(observation: str, task: str) -> str:
    """Return an observation without the task and, where it is long, without its middle."""
    text = observation.replace(task, _SAME_TASK) if len(task) > len(_SAME_TASK) else observation
    left_out = len(text) - PAGE_HEAD - PAGE_TAIL
    mark = f"[... {left_out} characters are left out ...]"
    return f"{text[:PAGE_HEAD]} {mark} {text[-PAGE_TAIL:]}" if left_out > len(mark) else text


class _Writer:
    """Writes one episode out, with all of its steps or fewer."""

    def __init__(self, episode: Episode, images: ImageLoader | None, step_skills: int, *, shorten: bool) -> None:
        self.episode, self.images, self.step_skills = episode, images, step_skills
        self.steps = len(episode.turns)
        seen = [turn.observation.text for turn in episode.turns]
        texts = [_shortened(text, episode.instruction) for text in seen] if shorten else seen
        self._cut = {i for i in range(self.steps) if texts[i] != seen[i]}
        self._plain = [(neutralise(o, reply_tags=False), neutralise(t.reply, reply_tags=False))
                       for o, t in zip(texts, episode.turns, strict=True)]  # fmt: skip
        self._same_text = len(set(texts)) == 1

    def write(self, kept: int) -> Analysis:
        """Return the prompt with ``kept`` steps: the first half of them and the last."""
        left_out = range((kept + 1) // 2, self.steps - kept // 2)
        shown = [i for i in range(self.steps) if i not in left_out]
        parts = [self._step(i) for i in shown]
        if left_out:
            names = f"step {left_out[0]} is" if len(left_out) == 1 else f"steps {left_out[0]} to {left_out[-1]} are"
            parts.insert(left_out[0], f"[{names} left out]")
        text = _INSTRUCTION.format(
            step_field=_STEP_FIELD.format(n=self.step_skills) if self.step_skills else "",
            schema=schema(self.step_skills),
            task=neutralise(task_description(self.episode))[0] or "(not available)",
            label=outcome_label(self.episode),
            trajectory="\n\n".join(parts) or "(no steps)",
        )
        pixels = [self.images(image.file_sha256) for i in shown for image in self._images(i)] if self.images else []
        markers = sum(count for i in shown for _, count in self._plain[i])
        cut = len(self._cut.intersection(shown))
        return Analysis((Message("user", text, tuple(pixels)),), self.steps, len(left_out), cut, markers)

    def _images(self, i: int) -> tuple[Image, ...]:
        return self.episode.turns[i].observation.images

    def _step(self, i: int) -> str:
        """Write one step; a text that never changes beside images says nothing and is left out."""
        (observation, _), (reply, _) = self._plain[i]
        if images := self._images(i):
            marks = " ".join([IMAGE] * len(images))
            observation = marks if self._same_text else f"{marks}\n{observation}"
        valid = str(action_valid(self.episode.turns[i])).lower()
        return f"Step {i}\nObservation: {observation}\nResponse: {reply}\nAction valid: {valid}"


def sft_pair(
    episode: Episode,
    skill: Skill,
    *,
    images: ImageLoader | None = None,
    fits: Fits = short_enough,
    evaluation: bool = False,
) -> tuple[Chat, str]:
    """Return what teaches a model to analyze: the analyzer's prompt and the answer wanted.

    The answer is JSON of the two fields in the order and spelling that the prompt asks for.

    Raises:
        ConfigError: when the skill is of another episode.
        Contaminated, EpisodeTooLong: as ``analyze`` does.
    """
    if (skill.task_id, skill.attempt) != (episode.task_id, episode.attempt):
        raise ConfigError(f"skill {skill.id} was not drawn from episode {episode.task_id}:{episode.attempt}")
    analysis = analyze(episode, images=images, fits=fits, evaluation=evaluation)
    return analysis.chat, json.dumps({SUMMARY: skill.summary, SKILL: skill.text}, ensure_ascii=False)


def png_loader(folder: Path) -> ImageLoader:
    """Return a loader of the images that a run keeps in ``folder``, named by their sha256.

    It raises DataError where a file is missing or is not what its name says.
    """

    def load(sha256: str) -> Pixels:
        path = folder / f"{sha256}.png"
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != sha256:
                raise DataError(f"{path} is not the image its name says; restore the run's images")
            return np.asarray(PillowImage.open(io.BytesIO(content)).convert("RGB"), dtype=np.uint8)
        except OSError as error:
            raise DataError(f"cannot read the image {path}: {error}; expected the images folder of a run") from None

    return load
