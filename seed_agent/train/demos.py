"""Demonstrations for tiny models: imperfect play with honest thoughts, play that follows a skill, analyses.

Everything is played on training tasks and everything is drawn from the seed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from seed_agent.chat import ChatPlayer, Language
from seed_agent.policy import Chat, Decision, Prompt, Situation
from seed_agent.rollout import Request, play
from seed_agent.skills.analyzer import check_train, sft_pair
from seed_agent.skills.insert import insert_into_chat
from seed_agent.skills.library import skill_for
from seed_agent.skills.rules import RulesAnnotator
from seed_agent.skills.skill import Skill
from seed_agent.train.readers import READERS, SLIP, codes_of, rename
from seed_agent.train.rollouts import ImageStore, Stage
from seed_agent.train.samples import Played
from seed_envs.errors import SeedError, UnknownName
from seed_envs.parsing import write_block
from seed_envs.seeding import Draws
from seed_envs.tasks import Task
from seed_envs.vector import Failure, GroupVectorEnv

Kind = Literal["play", "skill", "analysis"]
Thinker = Callable[[Sequence[str], bool, str], str]
"""From a plan, whether an action is drawn at random instead, and the scene, to a thought."""

_PURPOSE = {
    "take": "find {1}",
    "move": "bring {1} to {-2}",
    "put": "bring {1} to {-2}",
    "clean": "clean {1}",
    "heat": "heat {1}",
    "cool": "cool {1}",
    "use": "use {1}",
}


class BrokenDemonstration(SeedError):
    """An episode that was to be shown did not come to its end."""


@dataclass(frozen=True, slots=True)
class Example:
    """A chat and the reply that a model should give."""

    kind: Kind
    chat: Chat
    reply: str
    task_id: str


def think_household(plan: Sequence[str], drawn: bool, scene: str) -> str:
    """Say what the next deed of the plan is for, never where a thing is that was not seen."""
    if drawn:
        return SLIP
    for action in plan:
        words = action.split()
        if words[0] in _PURPOSE:
            text = _PURPOSE[words[0]].replace("{1}", words[1]).replace("{-2}", words[-2])
            if words[0] not in ("take", "use"):
                return text
            return f"{text} {words[2]}" if action is plan[0] else f"{text} elsewhere"
    return "go on"


def think_moves(plan: Sequence[str], drawn: bool, scene: str) -> str:
    """Say where things are, row and column from 1, and whether there is a plan: a player has to look first."""
    found: dict[str, list[str]] = {"at": [], "box": [], "to": []}
    for row, line in enumerate(scene.splitlines(), 1):
        for column, symbol in enumerate(line, 1):
            for name, symbols in (("at", "PS"), ("box", "X"), ("to", "OS")):
                if symbol in symbols:
                    found[name].append(f"{name} {row} {column}")
    return " ".join([*found["at"], *found["box"], *found["to"], "try" if drawn else "go"])


THINKERS: dict[str, Thinker] = {"alfworld": think_household, "sokoban": think_moves}
"""By kind of environment."""

SCENES = {"sokoban": "board"}
"""The environment's method that tells a thinker what a picture shows, by kind."""


class Demonstrator:
    """Follows the environment's plan, except for a share of actions drawn at random, and says why."""

    def __init__(self, player: ChatPlayer, noise: float, search: float = 0.0) -> None:
        """Speak through ``player``'s prompts.

        Take a random action with probability ``noise``. Where the plan goes for a thing that was not
        seen, look somewhere else first with probability ``search``: a player who always finds at
        once teaches that things are wherever one goes.

        Raises:
            UnknownName: when there are no thoughts for the player's kind of environment.
        """
        kind = player.language.preset.kind
        if kind not in THINKERS and kind not in READERS:
            raise UnknownName("kind of demonstration", kind, [*THINKERS, *READERS])
        self.player, self.noise, self.search = player, noise, search
        self.thinker, self.scene = THINKERS.get(kind, think_household), SCENES.get(kind)
        self.reader = READERS.get(kind)
        self.name = f"scripted:demonstrator:{noise:g}"

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        """Decide every row; where no plan leads on, act at random."""
        plans = envs.run((s.row, "oracle", (), {}) for s in situations)
        scenes: list[Any] = [""] * len(plans)
        if self.scene is not None:
            scenes = envs.run((s.row, self.scene, (), {}) for s in situations)
        return [self._decide(*given) for given in zip(situations, plans, scenes, strict=True)]

    def _decide(self, situation: Situation, plan: "list[str] | Failure", scene: "str | Failure") -> Decision | Failure:
        if isinstance(scene, Failure):  # what cannot be looked at cannot be thought about
            return scene
        draws = Draws("demonstration", situation.seed, len(situation.turns))
        known = [] if isinstance(plan, Failure) else plan
        if self.reader is not None:
            thought, action = self.reader(situation, known, draws, draws.chance(self.noise))
            return self._decision(situation, f" {thought}", action)  # in the tokens that running text has
        drawn = draws.chance(self.noise) or not known
        hidden = self.player.language.preset.hidden_actions
        offered = [a for a in situation.info["admissible_actions"] or [] if a not in hidden and a[:8] != "examine "]
        action = draws.choice(offered) if drawn else known[0]
        if not drawn and self.search and _is_search(known) and draws.chance(self.search):
            action = draws.choice(_places(situation, offered) or offered)
        return self._decision(situation, self.thinker(known, drawn, scene), action)

    def _decision(self, situation: Situation, thought: str, action: str) -> Decision:
        prompt = self.player.render(situation, min(self.player.language.preset.history, len(situation.turns)))
        reply = f"<think>{thought}</think>{write_block(action, self.player.language.preset.kind)}"
        return Decision(reply=reply, action=action, stop_reason="scripted", prompt=prompt)


def _is_search(plan: Sequence[str]) -> bool:
    """Whether the plan begins by walking to something that is to be taken."""
    deeds = (action.partition(" ")[0] for action in plan[1:] if not action.startswith(("go to ", "open ")))
    return plan[0].startswith("go to ") and next(deeds, "") == "take"


def _places(situation: Situation, offered: Sequence[str]) -> list[str]:
    """Return where to look next: the closed place before one, else the places where one has not been."""
    done = {turn.action for turn in situation.turns}
    doors = [action for action in offered if action.startswith("open ") and action not in done]
    return doors or [action for action in offered if action.startswith("go to ") and action not in done]


class _Untokenized:
    """Stands where a model will be: keeps chats as they are, so that demonstrations come before a tokenizer."""

    name = "scripted:demonstrator"

    def prompt(self, chat: Chat) -> Prompt:
        return Prompt(chat, ())


@dataclass(frozen=True)
class Recipe:
    """How much of what a base policy is shown; counts of episodes are per training task unless said otherwise."""

    noise: float
    """Share of random actions in imperfect play."""
    imperfect: int
    """Imperfect episodes."""
    skilled: int
    """Tasks played without fault behind a skill, in all."""
    analyses: int
    """Pairs of an episode and its analysis, in all."""
    analysis_chars: int
    """Characters of an analyzer's prompt at most; longer ones lose steps from the middle."""
    search: float = 0.0
    """Share of wrong places looked at in imperfect play before what is wanted is found."""
    tasks: int | None = None
    """Training tasks used; None for all."""


@dataclass
class Demos:
    """What was gathered."""

    examples: list[Example] = field(default_factory=list)
    episodes: dict[str, int] = field(default_factory=dict)
    """Episodes played, by kind."""
    successes: dict[str, int] = field(default_factory=dict)


def gather(stage: Stage, language: Language, recipe: Recipe, *, seed: int) -> Demos:
    """Play training tasks and write down what a base policy learns from.

    Raises:
        Contaminated: when the stage is not of the training split.
        UnknownName: when nobody wrote down how such an environment is thought about.
        BrokenDemonstration: when an episode fails by an error.
    """
    tasks = stage.tasks if recipe.tasks is None else stage.tasks.limit(recipe.tasks, seed=seed)
    images, demos = ImageStore(), Demos()

    def played(tasks: Sequence[Task], how: Sequence[float], attempts: Sequence[int]) -> list[Played]:
        player = Demonstrator(ChatPlayer(_Untokenized(), language), *how)  # type: ignore[arg-type]
        requests = [Request(task, attempt, seed) for task in tasks for attempt in attempts]
        return _play(requests, player, stage, images)

    imperfect = played(list(tasks), (recipe.noise, recipe.search), range(recipe.imperfect))
    chosen = Draws("skilled", seed).shuffled(list(tasks))[: recipe.skilled]
    faultless = played(chosen, (0.0,), [recipe.imperfect]) if chosen else []
    for name, found in (("imperfect", imperfect), ("faultless", faultless)):
        demos.episodes[name] = len(found)
        demos.successes[name] = sum(one.episode.success for one in found)
    demos.examples = [
        *(example for one in imperfect for example in _turns("play", one)),
        *_skilled(faultless, imperfect, language.preset.kind),
        *_analyses(imperfect, recipe, images, seed),
    ]
    if codes := codes_of(language.preset.kind):
        demos.examples = [_renamed(e, codes, Draws("codes", seed, i)) for i, e in enumerate(demos.examples)]
    return demos


def _renamed(example: Example, codes: Sequence[str], draws: Draws) -> Example:
    """Return an example of play with other codes; an analysis, which has them in capitals too, as it is."""
    if example.kind == "analysis":
        return example
    *texts, reply = rename([*(message.text for message in example.chat), example.reply], codes, draws)
    chat = tuple(replace(message, text=text) for message, text in zip(example.chat, texts, strict=True))
    return replace(example, chat=chat, reply=reply)


def _play(requests: Sequence[Request], player: Demonstrator, stage: Stage, images: ImageStore) -> list[Played]:
    said: dict[tuple[str, int], list[Decision]] = {}

    def watch(request: Request, turn: int, decision: Decision) -> None:
        said.setdefault((request.task.id, request.attempt), []).append(decision)

    done = {}
    for episode in play(requests, player, stage.envs, stage.record, save_image=images.save, watch=watch):
        check_train(episode)
        if episode.error is not None:
            raise BrokenDemonstration(f"task {episode.task_id} cannot be demonstrated: {episode.error.message}")
        done[episode.task_id, episode.attempt] = episode
    keys = [(request.task.id, request.attempt) for request in requests]
    return [Played(done[key], tuple(said.get(key, ()))) for key in keys]


def _turns(kind: Kind, one: Played, skill: str = "") -> Iterator[Example]:
    for decision in one.decisions:
        assert decision.prompt is not None
        yield Example(kind, insert_into_chat(decision.prompt.chat, skill), decision.reply, one.episode.task_id)


def _skilled(faultless: Sequence[Played], imperfect: Sequence[Played], kind: str) -> Iterator[Example]:
    """Yield faultless play behind a skill: the play's own workflow, a failure's warning or the library's text."""
    rules = RulesAnnotator()
    failures: dict[str, Any] = {one.episode.task_id: one.episode for one in imperfect if not one.episode.success}
    for number, one in enumerate(one for one in faultless if one.episode.success):
        episode = one.episode
        if number % 4 == 3:
            yield from _turns("skill", one, skill_for(kind, episode.category, episode.task_id))
            continue
        skill = rules.annotate([failures.get(episode.task_id, episode) if number % 4 == 2 else episode])[0]
        if isinstance(skill, Skill):
            yield from _turns("skill", one, skill.text)


def _analyses(played: Sequence[Played], recipe: Recipe, images: ImageStore, seed: int) -> Iterator[Example]:
    rules = RulesAnnotator()
    chosen = Draws("analyses", seed).shuffled(played)[: recipe.analyses]
    for one, skill in zip(chosen, rules.annotate([one.episode for one in chosen]), strict=True):
        if isinstance(skill, Skill):
            chat, reply = sft_pair(
                one.episode,
                skill,
                images=images.load,
                fits=lambda chat: sum(len(message.text) for message in chat) <= recipe.analysis_chars,
            )
            yield Example("analysis", chat, reply, one.episode.task_id)
