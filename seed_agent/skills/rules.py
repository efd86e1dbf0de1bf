"""Skills written by rules from the record of an episode: no model, no network, always the same."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from seed_agent.skills.analyzer import check_train, outcome_label, task_description
from seed_agent.skills.annotators import Options
from seed_agent.skills.rules_games import GAMES, Game
from seed_agent.skills.skill import ParseFailure, Skill
from seed_agent.skills.text import clean, is_trivial
from seed_agent.trajectory import Episode, Turn
from seed_envs.errors import ConfigError
from seed_envs.presets import preset_for

_MOST_ACTIONS, _MOST_LESSONS, _LOOP = 14, 3, 3


def make(rest: str, options: Options) -> "RulesAnnotator":
    """Make the annotator of ``rules``.

    Raises:
        ConfigError: when there is anything behind the name.
    """
    if rest:
        raise ConfigError(f"the annotator rules takes no argument; got {rest!r}")
    return RulesAnnotator(options)


class RulesAnnotator:
    """Writes a workflow from a success and avoidance rules from a failure.

    A kind of environment with rules of its own (``GAMES``) is read by them first; every other
    episode is read by what all records have: actions, flags and outcome.
    """

    name = "rules"

    def __init__(self, options: Options | None = None) -> None:
        """Take the length limit and the evaluation flag of ``options``; the rest is for models."""
        self.options = options or Options()

    def annotate(self, episodes: Sequence[Episode]) -> list[Skill | ParseFailure]:
        """Return one result per episode; only an episode without turns has no skill.

        Raises:
            Contaminated: for an episode outside the training split.
        """
        if not self.options.evaluation:
            for episode in episodes:
                check_train(episode)
        return [self._draw(episode) for episode in episodes]

    def _draw(self, episode: Episode) -> Skill | ParseFailure:
        if not episode.turns:
            return ParseFailure("empty", "the episode has no turns")
        skill = clean(_workflow(episode) if episode.success else _avoidance(episode), self.options.max_skill_chars)
        if is_trivial(skill.text):
            return ParseFailure("trivial", f"the limit of {self.options.max_skill_chars} characters leaves nothing")
        return Skill(
            summary=clean(_summary(episode)).text,
            text=skill.text,
            task_id=episode.task_id,
            attempt=episode.attempt,
            success=episode.success,
            source=self.name,
            cut=skill.cut,
            markers=skill.markers,
        )


def _summary(episode: Episode) -> str:
    task = task_description(episode) or f"a task of the kind {episode.category}"
    end = {"success": "succeeded", "failure": "failed", "unknown": "broke off"}[outcome_label(episode)]
    return f"The agent {end} after {len(episode.turns)} turns at: {task}"


def _workflow(episode: Episode) -> str:
    """Return the order of actions that worked, with the kind's rule before it."""
    game = GAMES.get(preset_for(episode.env.id).kind)
    actions = game.key_actions(episode) if game else []
    if not actions:
        actions = [turn.action for turn in episode.turns if turn.effective is not False]
    rule = game.rule(episode) if game else "Go straight for the goal and take no action that changes nothing."
    return f"{rule} This order works: {'; '.join(_runs(actions))}."


def _avoidance(episode: Episode) -> str:
    """Return the gravest mistakes as rules; what the game says comes before what holds everywhere."""
    game = GAMES.get(preset_for(episode.env.id).kind)
    lessons = [*(game.mistakes(episode) if game else ()), *_mistakes(episode, game)][:_MOST_LESSONS]
    if not lessons:
        rule = game.rule(episode) if game else "Decide first what the goal still needs, then act on it."
        lessons = [f"The turns ran out before the goal was reached: do not try things out. {rule}"]
    return " ".join(lessons)


def _mistakes(episode: Episode, game: Game | None) -> Iterator[str]:
    """Yield the mistakes that any record shows."""
    turns = episode.turns

    def told(turn: Turn) -> str:
        return game.told(turn, episode) if game else turn.action

    cut = sum(turn.stop_reason == "length" for turn in turns)
    if cut:
        yield f"Think more briefly: {cut} replies were cut off before they named an action."
    elif ill := sum(not turn.format_ok for turn in turns):
        yield f"Close the thought, then name exactly one action in its tags: {ill} replies were not well-formed."
    refused = [turn for turn in turns if turn.format_ok and turn.admissible is False]
    if refused:
        yield f"Use only actions that are offered: '{told(refused[0])}' was refused."
    first = {(_shown(turn), turn.action): turn for turn in reversed(turns)}
    for situation, count in Counter((_shown(turn), turn.action) for turn in turns).most_common(1):
        if count >= _LOOP and situation[1] and len({_shown(turn) for turn in turns}) > 1:
            yield f"Do not go in circles: '{told(first[situation])}' was chosen {count} times in the same situation."


def _shown(turn: Turn) -> tuple[str, ...]:
    """Return what identifies a situation: the hashes of its text and images."""
    return (turn.observation.sha256, *(image.pixels_sha256 for image in turn.observation.images))


def _runs(actions: Sequence[str]) -> list[str]:
    """Return the actions with repetitions counted and, of many, the middle left out."""
    runs = [(action, len(list(group))) for action, group in groupby(actions)]
    words = [action if n == 1 else f"{action} ({n} times)" for action, n in runs]
    if len(words) <= _MOST_ACTIONS:
        return words
    half = _MOST_ACTIONS // 2
    return [*words[:half], "and so on", *words[-half:]]
