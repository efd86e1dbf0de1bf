"""Playing the tasks of an iteration in groups, with the prompts kept for training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seed_agent.chat import FULL, ChatPlayer, Language, with_limits
from seed_agent.images import encode_png, record
from seed_agent.methods import METHODS, Method
from seed_agent.policy import Decision, Pixels, Policy, Sampling
from seed_agent.rollout import Request, env_record, play
from seed_agent.train.limits import check_memory
from seed_agent.train.samples import Played
from seed_agent.train.settings import Settings
from seed_agent.trajectory import Episode, Image
from seed_envs.core import Info
from seed_envs.errors import ConfigError
from seed_envs.parsing import stops
from seed_envs.presets import get_preset
from seed_envs.prompting import builtin_template
from seed_envs.seeding import Draws
from seed_envs.tasks import Task, TaskSet
from seed_envs.vector import EnvMaker, GroupVectorEnv

SkillFor = Callable[[Info], str]


class ImageStore:
    """The images of an iteration, by the hash of their PNG file."""

    def __init__(self, *, keep: bool = True) -> None:
        """Start empty; ``keep`` false records what is shown and holds no pixels."""
        self.pixels: dict[str, Pixels] = {}
        self._keep = keep

    def save(self, pixels: Pixels) -> Image:
        """Keep an image and return its record."""
        image = record(encode_png(pixels), pixels)
        if self._keep:
            self.pixels[image.file_sha256] = pixels
        return image

    def load(self, file_sha256: str) -> Pixels:
        """Return a kept image."""
        return self.pixels[file_sha256]


def language_of(settings: Settings, method: Method, *, temperature: float) -> Language:
    """Return the language layer that rollouts and evaluation of a run share.

    Raises:
        UnknownName: when the preset or its template does not exist.
        ConfigError: when an episode is to be one sample and cannot.
    """
    preset = with_limits(
        get_preset(settings.language),
        history=settings.history,
        max_prompt_tokens=settings.max_prompt_tokens,
        max_reply_tokens=settings.max_reply_tokens,
    )
    if settings.samples == "episode" and preset.layout != "conversation":
        raise ConfigError(
            f"samples=episode needs a conversation, and language={preset.name} shows a fresh prompt every turn; "
            f"give language={preset.kind}/conversation, or samples=turn"
        )
    if settings.samples == "episode" and method.step_skills and method.distill is not None:
        raise ConfigError(
            f"method {method.name} has skills of single turns, and samples=episode has one prompt for all; "
            "give samples=turn"
        )
    sampling = Sampling(temperature, settings.top_p, preset.max_reply_tokens, stops(preset.kind))
    template = builtin_template(preset.kind, preset.style or method.prompt)
    return Language(template, preset, sampling, require_think=settings.think)


@dataclass
class Stage:
    """Where a run plays: environments of one split, made once."""

    settings: Settings
    split: str
    rows: int
    envs: GroupVectorEnv = field(init=False)
    tasks: TaskSet = field(init=False)

    def __post_init__(self) -> None:
        """Make the environments.

        Raises:
            SeedError: when they cannot be made.
        """
        settings = self.settings
        self.limit = settings.max_turns or get_preset(settings.language).max_turns
        kwargs = {**settings.env_args, "split": self.split, "max_episode_steps": self.limit}
        maker = EnvMaker(settings.env, kwargs)
        self.envs = GroupVectorEnv(maker, num_tasks=self.rows)
        self.record = env_record(maker, self.envs.prototype)
        self.tasks = self.envs.prototype.get_wrapper_attr("tasks")

    def play(
        self,
        requests: Sequence[Request],
        policy: Policy,
        language: Language,
        *,
        images: ImageStore,
        skill_for: SkillFor | None = None,
    ) -> tuple[list[Played], ChatPlayer]:
        """Play ``requests`` and return the episodes in their order, with the player.

        Raises:
            OutOfMemory: when a reply does not fit into memory.
        """
        player = ChatPlayer(policy, language, skill_for=skill_for)
        said: dict[tuple[str, int], list[Decision]] = {}

        def watch(request: Request, turn: int, decision: Decision) -> None:
            said.setdefault((request.task.id, request.attempt), []).append(decision)

        done: dict[tuple[str, int], Episode] = {}
        for episode in play(requests, player, self.envs, self.record, save_image=images.save, watch=watch):
            check_memory(episode, self.settings)
            done[episode.task_id, episode.attempt] = episode
        keys = [(request.task.id, request.attempt) for request in requests]
        return [Played(done[key], tuple(said.get(key, ()))) for key in keys], player

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()


def pool_of(tasks: TaskSet, settings: Settings) -> TaskSet:
    """Return the tasks a run may draw: in ``subset`` mode the nested share of them.

    Raises:
        ConfigError: when they are fewer than an iteration needs.
    """
    subset = settings.fraction_mode == "subset" and settings.fraction < 1
    pool = tasks.fraction(settings.fraction, seed=settings.seed) if subset else tasks
    if len(pool) < settings.tasks:
        raise ConfigError(
            f"tasks={settings.tasks} tasks an iteration exceed the pool of {len(pool)}; "
            f"give tasks={len(pool)} or less{', or a larger fraction' if subset else ''}"
        )
    return pool


def draw_tasks(pool: TaskSet, iteration: int, settings: Settings) -> list[Task]:
    """Return the tasks of an iteration, no task twice.

    A round goes through the pool in an order of its own; what does not fill an iteration is left
    out of that round. The draw depends on the run's seed and the iteration alone, so a resumed run
    goes on with it.
    """
    number, place = divmod(iteration, len(pool) // settings.tasks)
    order = Draws("task order", settings.seed, number).shuffled(range(len(pool)))
    return [pool[i] for i in order[place * settings.tasks : (place + 1) * settings.tasks]]


def requests_of(tasks: Sequence[Task], iteration: int, settings: Settings) -> list[Request]:
    """Return the episodes of an iteration, group after group; attempts are numbered over the whole run."""
    first = iteration * settings.group
    return [Request(task, first + member, settings.seed) for task in tasks for member in range(settings.group)]


def method_of(settings: Settings) -> Method:
    """Return the run's method, with the settings' coefficient where one is given.

    Raises:
        UnknownName: when there is no such method.
        ConfigError: when the method trains nothing, or compares whole distributions with a teacher
            that is gone when they are computed.
    """
    method = METHODS.get(settings.method)
    if not method.trained:
        raise ConfigError(f"method {method.name} trains nothing; evaluate it with python -m harness.eval")
    if method.distill is not None and method.distill.inputs == "logits" and settings.teacher != "current":
        raise ConfigError(f"method {method.name} compares whole distributions, never stored; give teacher=current")
    if settings.distill_coefficient is not None and method.distill is not None:
        method = replace(method, distill=replace(method.distill, coefficient=settings.distill_coefficient))
    return method


def rates(played: Sequence[Played]) -> dict[str, Any]:
    """Return what the episodes of an iteration looked like, as metrics."""
    episodes = [one.episode for one in played]
    turns = [turn for episode in episodes for turn in episode.turns]
    tokens = [len(turn.token_ids or ()) for turn in turns]
    n, t = max(len(episodes), 1), max(len(turns), 1)
    return {
        "env/success": sum(e.success for e in episodes) / n,
        "env/score": sum(e.score for e in episodes) / n,
        "env/reward": sum(turn.reward for turn in turns) / n,
        "env/turns": len(turns) / n,
        "env/errors": sum(e.failed_to_finish for e in episodes),
        "env/ill_formed": sum(not turn.format_ok for turn in turns) / t,
        "env/inadmissible": sum(turn.admissible is False for turn in turns) / t,
        "env/reply_tokens": sum(tokens) / t,
        "env/unasked": sum(turn.format_reason == FULL for turn in turns),
        "env/cut_replies": sum(turn.stop_reason == "length" for turn in turns) / t,
    }
