"""Which environments there are, what they are called and what can be said about them."""

import difflib
import inspect
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

import seed_envs
from seed_envs.cli.foreign import call, closing
from seed_envs.core import AgentEnv
from seed_envs.errors import ConfigError, SeedError, UnknownName
from seed_envs.tasks import TaskSet
from seed_envs.vector import EnvMaker


def environment_ids(plugins: Iterable[str] = ()) -> list[str]:
    """Return the ids of the suite's environments and of every plug-in's, sorted.

    A plug-in's are those it registers and those whose class is an ``AgentEnv``.

    Raises:
        ConfigError: when a plug-in cannot be loaded.
    """
    before = set(gym.registry)
    seed_envs.load_plugins(plugins)
    _PLUGGED.update(gym.registry.keys() - before)
    return sorted(
        env_id
        for env_id, spec in gym.registry.items()
        if spec.namespace == "seed_envs" or env_id in _PLUGGED or _is_agent_env(spec)
    )


_PLUGGED: set[str] = set()
"""Ids that plug-ins registered, remembered because a plug-in is loaded once per process."""


def _is_agent_env(spec: EnvSpec) -> bool:
    """Whether the class is an ``AgentEnv``, without importing anything for it."""
    entry: object = spec.entry_point
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return isinstance(entry, type) and issubclass(entry, AgentEnv)


def resolve(name: str, ids: Sequence[str]) -> str:
    """Return the id that ``name`` means: case, namespace and version may be left out.

    Raises:
        UnknownName: with the nearest ids.
        ConfigError: when ids of several packages fit.
    """
    name = name.removeprefix("seed_envs:")
    if name in ids:
        return name
    aliases: dict[str, list[str]] = {}
    for env_id in ids:
        spec = gym.spec(env_id)
        for alias in (env_id, f"{spec.name}-v{spec.version}", f"{spec.namespace}/{spec.name}", spec.name):
            aliases.setdefault(alias.lower(), []).append(env_id)
    found = aliases.get(name.lower(), [])
    if not found:
        near = difflib.get_close_matches(name.lower(), aliases, n=3)
        raise UnknownName("environment", name, sorted({env_id for alias in near for env_id in aliases[alias]}) or ids)
    if len({gym.spec(env_id).namespace for env_id in found}) > 1:
        raise ConfigError(f"{name!r} may be {' or '.join(found)}; type one of them in full")
    return max(found, key=lambda env_id: gym.spec(env_id).version or 0)


def env_class(env_id: str) -> type[Any]:
    """Return the class behind an id (or the class a maker function says it returns).

    Raises:
        ConfigError: when it cannot be imported.
    """
    entry = gym.spec(env_id).entry_point
    creator: Any = entry
    if isinstance(entry, str):
        creator = call(env_id, partial(load_env_creator, entry), problem="cannot be imported")
    if isinstance(creator, type):
        return creator
    returned = inspect.signature(creator).return_annotation
    return returned if isinstance(returned, type) and returned is not inspect.Signature.empty else gym.Env


def parse_settings(env_id: str, settings: Iterable[str]) -> dict[str, Any]:
    """Return ``key=value`` texts as constructor arguments.

    A value is JSON (``3``, ``true``, ``0.5``) where it can be read as such and the argument is
    not annotated as ``str``; otherwise it is the text itself.

    Raises:
        ConfigError: when a text has no ``=`` or the turn limit is not positive.
        UnknownName: when the environment has no such argument.
    """
    accepted = _parameters(env_class(env_id))
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise ConfigError(f"{setting!r} is no setting; expected key=value, for example split=train")
        if accepted and key not in accepted and key != "max_episode_steps":
            raise UnknownName(f"argument of {env_id}", key, [*accepted, "max_episode_steps"])
        value: Any = text
        if key not in accepted or accepted[key].annotation is not str:
            value = read_value(text)
        values[key] = value
    turns = values.get("max_episode_steps", 1)
    if type(turns) is not int or turns < 1:
        raise ConfigError(f"max_episode_steps={turns} is no turn limit; expected a whole number of 1 or more")
    return values


def read_value(text: str) -> Any:
    """Return the value that ``text`` is in JSON, else the text itself.

    Raises:
        ConfigError: when it is nested too deeply, or holds what UTF-8 cannot.
    """
    try:
        text.encode()
        return json.loads(text, parse_constant=str)
    except UnicodeEncodeError:
        raise ConfigError(f"the value {text!a} is no UTF-8 text; type it in another encoding") from None
    except RecursionError:
        raise ConfigError(f"the value {text[:20]}... is nested too deeply; expected plain JSON or text") from None
    except ValueError:
        return text


def _parameters(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """Return the constructor's named arguments; none when it takes any."""
    if cls.__init__ is object.__init__:
        return {}
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return {}
    return {p.name: p for p in parameters if p.kind is not p.VAR_POSITIONAL}


@dataclass(frozen=True, slots=True)
class Entry:
    """What can be said about an environment without playing it."""

    id: str
    version: str
    summary: str
    documentation: str
    max_episode_steps: int | None
    arguments: Mapping[str, Any]
    """Constructor arguments with their defaults."""
    backends: tuple[str, ...]
    splits: Mapping[str, TaskSet]


def describe(maker: EnvMaker) -> Entry:
    """Return what there is to know about an environment; its data are opened for the counts.

    Raises:
        SeedError: when its data cannot be opened.
    """
    return _entry(maker, _splits(maker, env_class(maker.id)))


def overview(env_id: str, plugins: Sequence[str] = ()) -> tuple[Entry | None, str]:
    """Return what there is to know with default arguments, and what is wrong, if anything.

    Without an entry the class cannot be imported; an entry without splits has none to open.
    """
    maker = EnvMaker(env_id, plugins=tuple(plugins))
    try:
        return describe(maker), ""
    except (Exception, SystemExit) as error:  # somebody else's environment may raise anything
        problem = str(error) if isinstance(error, SeedError) else f"raised {type(error).__name__}: {error}"
    try:
        return _entry(maker, {}), problem
    except SeedError:
        return None, problem


def _entry(maker: EnvMaker, splits: Mapping[str, TaskSet]) -> Entry:
    cls, spec = env_class(maker.id), gym.spec(maker.id)
    documentation = inspect.cleandoc(cls.__doc__ or "")
    return Entry(
        id=maker.id,
        version=str(getattr(cls, "version", spec.version)),
        summary=documentation.partition("\n")[0],
        documentation=documentation,
        max_episode_steps=maker.kwargs.get("max_episode_steps", spec.max_episode_steps),
        arguments={
            name: None if parameter.default is parameter.empty else parameter.default
            for name, parameter in _parameters(cls).items()
        },
        backends=tuple(getattr(sys.modules[cls.__module__], "BACKENDS", ("native",))),
        splits=splits,
    )


def _splits(maker: EnvMaker, cls: type[Any]) -> dict[str, TaskSet]:
    """Return the task set of the split asked for, else of every split of these data."""
    kwargs = dict(maker.kwargs)
    if not issubclass(cls, AgentEnv) or "split" in kwargs or "split" not in _parameters(cls):
        tasks = _tasks(maker)
        names = sorted({task.split for task in tasks})
        return {split: TaskSet((t for t in tasks if t.split == split), name=tasks.name) for split in names}
    arguments = {key: value for key, value in kwargs.items() if key != "max_episode_steps"}
    names = call(maker.id, lambda: list(cls.split_names(**arguments)), problem="cannot name its splits")
    return {split: _tasks(EnvMaker(maker.id, {**kwargs, "split": split}, maker.plugins)) for split in names}


def _tasks(maker: EnvMaker) -> TaskSet:
    with closing(call(maker.id, maker)) as env:
        tasks = getattr(env.unwrapped, "tasks", None)
    if not isinstance(tasks, TaskSet):
        raise ConfigError(f"{maker.id} has no task set; 'python -m seed_envs check {maker.id}' tells what it lacks")
    return tasks
