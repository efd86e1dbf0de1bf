"""What a run is: options resolved to environments, splits, tasks and policies, and their digest."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from pydantic import ValidationError

from harness import protocol as protocols
from harness.ceilings import ceilings
from harness.players import Seat, Seats, Speech, check_flags, limited
from harness.summary import Key
from seed_agent.rollout import Request, env_record
from seed_agent.trajectory import EnvRecord, storable, why
from seed_envs.cli.catalogue import resolve
from seed_envs.cli.foreign import call, closing
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.registry import load_plugins
from seed_envs.seeding import canonical, sha256_text
from seed_envs.tasks import Task, TaskSet, resolve_split
from seed_envs.vector import EnvMaker

T = TypeVar("T")
POLICIES = ("scripted:oracle", "scripted:noisy-oracle:0.3", "scripted:random")
FLAGS = {"split": "--split", "data": "--data", "backend": "--backend", "max_episode_steps": "--max-turns"}
"""Constructor arguments that have a flag of their own, and so are refused in ``--set``."""


@dataclass(frozen=True)
class Options:
    """What the command line says; the defaults are what it means when it says nothing."""

    envs: tuple[str, ...] = ()
    data: str = "embedded"
    splits: tuple[str, ...] = ()
    policies: tuple[str, ...] = POLICIES
    backend: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    max_turns: int | None = None
    protocol: str = protocols.FULL
    limit: str | None = None
    ids: Path | None = None
    attempts: int = 1
    seed: int = 0
    workers: int = 0
    batch: int | None = None
    plugins: tuple[str, ...] = ()
    out: Path | None = None
    speech: Speech = field(default_factory=Speech)

    @property
    def in_flight(self) -> int:
        """Episodes played side by side; no scripted policy's result depends on it."""
        return self.batch or 8 * max(1, self.workers)


@dataclass(frozen=True)
class SplitPlan:
    """The tasks of one split that are to be played, and how to make their environment."""

    name: str
    maker: EnvMaker
    tasks: TaskSet
    env: EnvRecord
    notices: tuple[str, ...] = ()
    image: bool = False
    """Whether observations hold a picture."""
    ceilings: Mapping[str, float] = field(default_factory=dict)
    """The best possible score of each task whose is below 1, by id."""
    draws: Mapping[str, int] = field(default_factory=dict)
    """How often each task is played, by id, where the protocol draws them; empty where each is played once."""


@dataclass(frozen=True)
class RunPlan:
    """One policy in one environment: what the episodes are, and where they are kept."""

    env_id: str
    splits: tuple[SplitPlan, ...]
    seat: Seat
    attempts: int
    seed: int
    folder: Path = Path()
    protocol: Mapping[str, Any] = field(default_factory=lambda: protocols.settings(protocols.FULL, ""))

    @property
    def policy(self) -> str:
        """What the policy calls itself."""
        return self.seat.name

    @property
    def total(self) -> int:
        """How many episodes there are."""
        return sum(map(self.count, self.splits))

    def count(self, split: SplitPlan) -> int:
        """Return how many episodes of a split there are."""
        return self.attempts * (sum(split.draws.values()) or len(split.tasks))

    def requests(self, split: SplitPlan) -> Iterator[Request]:
        """Yield the episodes of a split: every task once, then every task again that is to be played again."""
        for attempt in range(self.attempts * max(split.draws.values(), default=1)):
            for task in split.tasks:
                if attempt < self.attempts * split.draws.get(task.id, 1):
                    yield Request(task, attempt, self.seed)

    @cached_property
    def episodes(self) -> dict[Key, tuple[SplitPlan, Request]]:
        """Every episode by its key."""
        return {
            (split.name, request.task.id, request.attempt): (split, request)
            for split in self.splits
            for request in self.requests(split)
        }

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that decides the result, and nothing else (no paths, workers or batch)."""
        env = self.splits[0].env
        kwargs = {key: value for key, value in env.kwargs.items() if key != "split"}
        if any(split.env.kwargs.get("data") == "local" for split in self.splits):
            kwargs["data"] = "local"
        return {
            "env": {"id": env.id, "version": env.version, "kwargs": kwargs},
            "max_turns": env.max_turns,
            "splits": {
                split.name: {
                    "manifest": split.env.manifest,
                    "manifest_sha256": split.env.manifest_sha256,
                    "data_sha256": split.env.data_sha256,
                    "tasks": len(split.tasks),
                    "tasks_sha256": split.tasks.sha256,
                    "episodes": self.count(split),
                }
                for split in self.splits
            },
            "policy": self.policy,
            **self.seat.config,
            "protocol": dict(self.protocol),
            "attempts": self.attempts,
            "seed": self.seed,
        }

    @cached_property
    def stated(self) -> dict[str, Any]:
        """What results have to be read with: the environment's notices, and ceilings where 1 cannot be reached."""
        notices = dict.fromkeys(notice for split in self.splits for notice in split.notices)
        return {"notices": list(notices), "ceilings": ceilings(self.splits)}

    @property
    def digest(self) -> str:
        """The run's identity: sha256 of the canonical JSON of ``config``."""
        return sha256_text(canonical(self.config))


def suite_ids() -> list[str]:
    """Return the registered environments that are not Gymnasium's own, sorted."""
    import seed_envs  # noqa: F401  (registers its environments)

    def home(entry: Any) -> str:
        return entry if isinstance(entry, str) else getattr(entry, "__module__", "") or ""

    return sorted(name for name, spec in gym.registry.items() if not home(spec.entry_point).startswith("gymnasium."))


def make_plans(options: Options) -> list[RunPlan]:
    """Resolve ``options`` to runs, one per environment and policy, with their folders.

    Raises:
        SeedError: when anything named does not exist or cannot be used.
    """
    named = [name.rpartition(":") for name in options.envs]
    plugins = tuple(dict.fromkeys([*options.plugins, *(module for module, _, _ in named if module)]))
    call("a plug-in", lambda: load_plugins(plugins))
    env_ids = list(dict.fromkeys(resolve(env_id, suite_ids()) for _, _, env_id in named))
    env_ids = env_ids or [name for name in suite_ids() if name.startswith("seed_envs/")]
    check_flags(options.speech, options.policies)
    chosen = options.limit is not None or options.ids is not None
    protocols.check(options.protocol, chosen=chosen, attempts=options.attempts)
    for env_id in env_ids:
        own = gym.registry[env_id].max_episode_steps if env_id in gym.registry else None
        protocols.check_turns(options.protocol, options.max_turns, limited(None, options.speech) or own)
    options = replace(options, max_turns=limited(options.max_turns, options.speech))
    seats = Seats(options.speech)
    plans = []
    for env_id in env_ids:
        protocol = protocols.settings(options.protocol, env_id)
        splits = tuple(_drawn(split, protocol, options.seed) for split in _resolve(env_id, options, plugins))
        for spec in dict.fromkeys(options.policies):
            seat = call(f"policy {spec}", partial(seats.seat, spec, env_id, image=splits[0].image))
            _check_text(f"the name of policy {spec}", seat.name)
            plans.append(RunPlan(env_id, splits, seat, options.attempts, options.seed, protocol=protocol))
    return _with_folders(plans, options)


def _drawn(split: SplitPlan, protocol: Mapping[str, Any], seed: int) -> SplitPlan:
    """Leave the tasks in a split that its protocol draws.

    Raises:
        ConfigError: when the protocol is not for it.
    """
    protocols.check_split(protocol["name"], split.name)
    draws = protocols.draw(protocol, split.tasks.ids, split=split.name, seed=seed)
    return split if draws is None else replace(split, tasks=split.tasks.subset(draws), draws=draws)


def _with_folders(plans: Sequence[RunPlan], options: Options) -> list[RunPlan]:
    placed: dict[Path, RunPlan] = {}
    for plan in plans:
        if options.out is not None and len(plans) == 1:
            folder = options.out
        else:
            folder = (options.out or Path("runs")) / slug(plan.env_id.removeprefix("seed_envs/")) / slug(plan.policy)
            if options.out is None:
                data = plan.config["env"]["kwargs"].get("data", "embedded")
                folder /= f"{data}-{plan.digest[:8]}"
        if folder in placed:
            raise ConfigError(
                f"{plan.env_id} with {plan.policy} and {placed[folder].env_id} with {placed[folder].policy} "
                f"would share {folder}; run them one by one with an --out each"
            )
        placed[folder] = replace(plan, folder=folder)
    return list(placed.values())


def _check_text(what: str, value: object) -> None:
    """Refuse what records cannot hold as text."""
    if not isinstance(value, str):
        raise ConfigError(f"{what} is {type(value).__name__}; expected text (str)")
    if storable(value) != value:
        raise ConfigError(f"{what}, {value!a}, holds a lone surrogate; expected text that UTF-8 can hold")


def slug(name: str) -> str:
    """Return ``name`` as a file name that needs no quoting, at most 80 characters."""
    text = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-.")
    return text if len(text) <= 80 else f"{text[:71]}-{sha256_text(name)[:8]}"


class _Environment:
    """A registered environment and the arguments it is to be made with."""

    def __init__(self, env_id: str, options: Options, plugins: tuple[str, ...]) -> None:
        if env_id not in gym.registry:
            raise UnknownName("environment", env_id, suite_ids())
        entry: Any = gym.registry[env_id].entry_point
        self.id, self.options, self.plugins = env_id, options, plugins
        self.creator: Any = entry
        if isinstance(entry, str):
            self.creator = call(env_id, lambda: load_env_creator(entry), problem="cannot be imported")
        parameters = call(env_id, lambda: inspect.signature(self.creator)).parameters
        self.takes_split = "split" in parameters
        self.kwargs = dict(options.settings)
        if options.backend is not None:
            _check_backend(env_id, parameters)
            self.kwargs["backend"] = options.backend
        if "data" in parameters or options.data != "embedded":
            self.kwargs["data"] = options.data

    def make(self, kwargs: Mapping[str, Any]) -> tuple[EnvMaker, gym.Env[Any, Any]]:
        limit = {} if self.options.max_turns is None else {"max_episode_steps": self.options.max_turns}
        maker = EnvMaker(self.id, {**kwargs, **limit}, self.plugins)
        return maker, call(self.id, maker)

    def split_names(self) -> tuple[str, ...]:
        """Return the splits to play: those named, else all but training splits, else all."""
        listing = getattr(self.creator, "split_names", None) if self.takes_split else None
        named = self.options.splits
        if listing is not None:
            known = self._ask(lambda: tuple(listing(**self.kwargs)))
        elif self.takes_split and named:
            return named  # the constructor knows best
        else:
            with closing(self.make(self.kwargs)[1]) as env:
                known = tuple(sorted({task.split for task in self.tasks(env)}))
        if not known:
            raise ConfigError(f"{self.id} has no splits and no tasks; there is nothing to play")
        for name in known:
            _check_text(f"a split of {self.id}", name)
        if named:
            groups: Mapping[str, Sequence[str]] = getattr(self.creator, "split_groups", {})
            members = [[part for part in groups.get(name, ()) if part in known] or [name] for name in named]
            wanted = {resolve_split(name, known) for names in members for name in names}
            return tuple(name for name in known if name in wanted)
        return tuple(name for name in known if not protocols.for_training(name)) or known

    def tasks(self, env: gym.Env[Any, Any]) -> TaskSet:
        try:
            tasks, _ = env.get_wrapper_attr("tasks"), env.get_wrapper_attr("identity")
        except AttributeError:
            raise ConfigError(f"{self.id} is no environment of this suite: it has no tasks or no identity()") from None
        found = self._ask(lambda: tasks if isinstance(tasks, TaskSet) else TaskSet(tasks))
        for task in found:
            if not isinstance(task, Task):
                raise ConfigError(f"the tasks of {self.id} are {type(task).__name__}; expected seed_envs.tasks.Task")
            for what in ("id", "split", "category", "sha256"):
                _check_text(f"the {what} of a task of {self.id}", getattr(task, what))
        return found

    def plan(self, split: str) -> SplitPlan:
        """Open ``split`` once to learn its tasks and what the records say about it."""
        kwargs = {**self.kwargs, "split": split} if self.takes_split else self.kwargs
        maker, env = self.make(kwargs)
        with closing(env):
            tasks = self.tasks(env)
            if not self.takes_split:
                tasks = TaskSet((task for task in tasks if task.split == split), name=tasks.name)
            if not len(tasks):
                raise ConfigError(f"split {split} of {self.id} has no tasks")
            record = self._ask(lambda: self._record(maker, env))
            notices: tuple[str, ...] = self._ask(lambda: tuple(map(str, getattr(env.unwrapped, "notices", list)())))
            image = "image" in getattr(env.observation_space, "spaces", {})
            ceiling = getattr(env.unwrapped, "ceiling", lambda task: 1.0)
            best = self._ask(lambda: {task.id: value for task in tasks if (value := float(ceiling(task))) < 1})
            return SplitPlan(tasks[0].split, maker, tasks, record, notices, image, best)

    def _record(self, maker: EnvMaker, env: gym.Env[Any, Any]) -> EnvRecord:
        try:
            record = env_record(maker, env)
        except ValidationError as error:
            raise ConfigError(f"identity() of {self.id}: {why(error)}") from None
        _check_text(f"what the records say about {self.id}", canonical(record.model_dump(mode="json")))
        return record

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask the environment something; whatever it raises becomes one line."""
        return call(self.id, question, problem="cannot be planned")


def _check_backend(env_id: str, parameters: Mapping[str, inspect.Parameter]) -> None:
    """Refuse ``--backend`` where the constructor does not take one, and say what it takes."""
    if "backend" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = ", ".join(name for name in parameters if name not in (*FLAGS, "render_mode"))
    raise ConfigError(f"{env_id} has no --backend; what --set KEY=VALUE can change there: {known or 'nothing'}")


def _resolve(env_id: str, options: Options, plugins: tuple[str, ...]) -> tuple[SplitPlan, ...]:
    """Find the splits of an environment and the tasks to play in each."""
    environment = _Environment(env_id, options, plugins)
    plans = {plan.name: plan for plan in map(environment.plan, environment.split_names())}
    return _select(list(plans.values()), options)


def _select(plans: Sequence[SplitPlan], options: Options) -> tuple[SplitPlan, ...]:
    """Apply ``--ids`` or ``--limit``."""
    if options.ids is not None:
        wanted = read_ids(options.ids)
        ids = {plan.name: set(plan.tasks.ids) for plan in plans}
        known = set().union(*ids.values())
        for task_id in wanted:
            if task_id not in known:
                raise UnknownName("task id", task_id, known)
        chosen = [(plan, plan.tasks.subset(i for i in wanted if i in ids[plan.name])) for plan in plans]
    elif options.limit is not None:
        chosen = [(plan, plan.tasks.limit(options.limit, seed=options.seed)) for plan in plans]
    else:
        return tuple(plans)
    return tuple(replace(plan, tasks=tasks) for plan, tasks in chosen if len(tasks))


def read_ids(path: Path) -> list[str]:
    """Read task ids, one a line; blank lines and lines that begin with ``#`` do not count.

    Raises:
        ConfigError: when the file cannot be read, lists nothing, or lists an id twice.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"cannot read {path}: {reason}; --ids expects a file with one task id a line") from None
    ids = [line for line in lines if line and not line.startswith("#")]
    if not ids:
        raise ConfigError(f"{path} lists no task; --ids expects a file with one task id a line")
    twice = next((task_id for task_id, count in Counter(ids).items() if count > 1), None)
    if twice is not None:
        raise ConfigError(f"{path} lists {twice} twice; remove one, so that the counts are what they seem")
    return ids
