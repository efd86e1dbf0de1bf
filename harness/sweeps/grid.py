"""The grid of a sweep as flags or a file give it, checked, and the cells it has."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness.config import slug
from harness.protocol import FULL, for_training
from harness.train import sft_setting
from seed_agent.methods import METHODS
from seed_agent.train.presets import MODELS, get_preset
from seed_envs.errors import ConfigError, DataError, MissingDependency, UnknownName

ALL = "all"
MODES = ("budget", "subset")
LISTS = ("envs", "methods", "models", "fractions", "seeds", "splits", "settings", "plugins")
"""Entries of a grid that are lists; in a file one value may stand for itself."""
_MAY_BE_EMPTY = ("settings", "plugins")
_OWNED = {
    "preset": "--envs, --models and --methods",
    "env": "--envs",
    "model": "--models NAME=FOLDER",
    "method": "--methods",
    "seed": "--seeds",
    "fraction": "--fractions",
    "fraction_mode": "--fraction-mode",
    "milestones": "--fractions",
}
"""Settings of a training that the grid itself decides, and by what."""


@dataclass(frozen=True)
class Grid:
    """What to run: every method in every environment with every model of it, at every fraction, with every seed."""

    envs: tuple[str, ...]
    """Environments of presets, variants included: ``alfworld``, ``alfworld-sdar``."""
    methods: tuple[str, ...]
    models: tuple[str, ...]
    """``[ENV/]NAME[=PATH]``: a model of the presets, and the folder that stands for it."""
    fractions: tuple[float, ...] = (1.0,)
    fraction_mode: str = "budget"
    seeds: tuple[int, ...] = (0,)
    """Of training; evaluation has a seed of its own, the same in all cells."""
    data: str = "embedded"
    splits: tuple[str, ...] = ()
    """To evaluate; none for all but those of training and development."""
    protocol: str = FULL
    """Of evaluation: which tasks, how often."""
    limit: str | None = None
    """Tasks evaluated per split; training's fraction does not touch them."""
    eval_seed: int = 0
    settings: tuple[str, ...] = ()
    """``key=value`` for every training."""
    plugins: tuple[str, ...] = ()

    @property
    def every_method(self) -> bool:
        """Whether methods that do not fit an environment are left out instead of refused."""
        return self.methods == (ALL,)

    @property
    def method_names(self) -> tuple[str, ...]:
        """The methods, the untrained ones first where all are meant."""
        if not self.every_method:
            return self.methods
        return tuple(sorted(METHODS, key=lambda name: (METHODS.get(name).trained, name)))


@dataclass(frozen=True)
class Cell:
    """One result of a sweep."""

    env: str
    method: str
    model: str
    path: str
    """The folder given for the model, "" for the preset's own."""
    fraction: float | None = None
    """None where the method trains nothing."""
    seed: int | None = None

    @property
    def name(self) -> str:
        """Where it lies below the sweep's folder."""
        last = "untrained" if self.fraction is None else f"f{self.fraction:g}-s{self.seed}"
        return f"{slug(self.env)}/{self.method}/{slug(self.model)}/{last}"


def cells_of(grid: Grid) -> list[Cell]:
    """Return the cells of a grid in the order of its lists; a method that trains nothing has one cell a model.

    Raises:
        SeedError: when a name is not known, or environment and model do not go together.
    """
    cells: list[Cell] = []
    for env in grid.envs:
        for method in grid.method_names:
            for model, path in models_of(grid, env):
                get_preset(f"{env}/{model}/{method}")  # refuses what is not known
                if METHODS.get(method).trained:
                    varied = [(fraction, seed) for fraction in grid.fractions for seed in grid.seeds]
                    cells += [Cell(env, method, model, path, fraction, seed) for fraction, seed in varied]
                else:
                    cells.append(Cell(env, method, model, path))
    twice = [name for name, count in Counter(cell.name for cell in cells).items() if count > 1]
    if twice:
        raise ConfigError(f"two cells of the grid are {twice[0]}; name everything once")
    return cells


def models_of(grid: Grid, env: str) -> list[tuple[str, str]]:
    """Return the models of an environment and their folders.

    Raises:
        ConfigError: when there is none, or a model is written wrongly.
    """
    found = []
    for spec in grid.models:
        name, equals, path = spec.partition("=")
        place, slash, model = name.rpartition("/")
        if not model or (equals and not path) or (slash and not place):
            raise ConfigError(f"{spec!r} is no model; expected NAME, NAME=FOLDER or ENV/NAME=FOLDER")
        if slash and place not in grid.envs:
            raise UnknownName("environment of a model", place, grid.envs)
        if not slash or place == env:
            found.append((model, path))
    if not found:
        raise ConfigError(f"no model is named for {env}; give --models {env}/NAME, one of {', '.join(MODELS)}")
    return found


# --- reading ----------------------------------------------------------------------------------------------------------


def make_grid(values: Mapping[str, Any]) -> Grid:
    """Return the grid that flags and file give together; a list may be text with commas.

    Raises:
        SeedError: naming the first value that cannot be used.
    """
    found: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
    _check_keys(found)
    found |= {key: _distinct(key, _items(key, found[key])) for key in LISTS if key in found}
    found["fractions"] = _distinct("fractions", tuple(map(_fraction, found.get("fractions", ("1",)))))
    found["seeds"] = _distinct("seeds", tuple(_seed("seed", text) for text in found.get("seeds", ("0",))))
    found["eval_seed"] = _seed("eval_seed", str(found.get("eval_seed", 0)))
    found |= {key: str(found[key]) for key in ("limit", "data", "protocol") if key in found}
    if found.get("fraction_mode", "budget") not in MODES:
        raise UnknownName("fraction mode", found["fraction_mode"], MODES)
    if ALL in found["methods"] and len(found["methods"]) > 1:
        raise ConfigError(f"--methods {ALL} already names every method; leave the others out")
    grid = Grid(**found)
    _check_splits(grid.splits)
    _check_settings(grid)
    return grid


def _check_splits(splits: Iterable[str]) -> None:
    """Refuse to evaluate on what trainings learn from."""
    for name in splits:
        if for_training(name):
            raise ConfigError(f"splits names {name}, which trainings learn from; name splits of evaluation, or none")


def _check_settings(grid: Grid) -> None:
    """Refuse settings that are given twice, that the grid decides, or that no method of it has.

    What stage 2 does not know is refused where its settings are made.
    """
    keys = [text.partition("=")[0] for text in grid.settings]
    _distinct("settings", tuple(keys))
    for key in keys:
        if key in _OWNED:
            raise ConfigError(f"{key}= cannot be set in a sweep: {_OWNED[key]} says it")
    of_stage1 = [text for text in grid.settings if text.startswith("sft.")]
    for text in of_stage1:
        sft_setting(text)
    if of_stage1 and not any(METHODS.get(name).init == "sft" for name in grid.method_names):
        raise ConfigError(
            f"{of_stage1[0]} is for stage 1, and none of the methods starts from it ({', '.join(grid.method_names)}); "
            "leave it out"
        )


def _check_keys(found: Mapping[str, Any]) -> None:
    known = [field.name for field in fields(Grid)]
    for key in found:
        if key not in known:
            raise UnknownName("entry of a sweep", key, known)
    for key, example in _NEEDED.items():
        if not found.get(key):
            raise ConfigError(f"a sweep needs --{key}, for example --{key} {example}")
    for key in LISTS:
        if found.get(key) in ([], ()) and key not in _MAY_BE_EMPTY:
            raise ConfigError(f"{key} is an empty list; name something, or leave the entry out for its default")


_NEEDED = {"envs": "alfworld", "methods": "grpo,seed", "models": "micro"}


def read_file(path: Path) -> dict[str, Any]:
    """Return the entries of a grid written as JSON or, by any other name, YAML.

    Raises:
        DataError: when the file cannot be read or is no mapping.
        MissingDependency: when it is YAML and PyYAML is not installed.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text, object_pairs_hook=_mapping) if path.suffix == ".json" else _yaml(path, text)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; give a file with the grid, in YAML or JSON") from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is no {path.suffix.lstrip('.') or 'YAML'} ({reason[:160]})") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise DataError(f"{path} holds no grid; expected entries such as 'methods: [grpo, seed]'")
    for key, value in found.items():
        _check_plain(path, key, value)
    return found


def _mapping(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a mapping of a file; the parsers would take the last of two values and say nothing.

    Raises:
        ValueError: when a key is there twice.
    """
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the entry {key!r} is there twice; remove one")
        found[key] = value
    return found


def _check_plain(path: Path, key: str, value: Any) -> None:
    """Refuse values that are neither text, numbers nor made of them; YAML reads 2024-01-01 as a date."""
    if isinstance(value, dict | list):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_plain(path, key, item)
    elif value is not None and not isinstance(value, str | int | float):
        raise DataError(
            f"{path}: {key} holds a {type(value).__name__} ({value}); expected text, a number or a list; "
            "put it in quotes if it is text"
        )


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingDependency(
            "pyyaml", extra="train", purpose=f"reading {path}", instead="or write it as JSON in a file named .json"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Reads plain values; refuses an entry that is there twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            _mapping((key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(str(error)) from None


def _items(key: str, value: Any) -> tuple[str, ...]:
    """Return the entries of a list as text; settings may be a mapping."""
    if key == "settings" and isinstance(value, dict):
        return tuple(f"{name}={_setting(item)}" for name, item in value.items())
    if isinstance(value, str) and key != "settings":
        value = value.split(",")
    items = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, dict | list | bool) or item is None for item in items):
        raise ConfigError(f"{key}: {value!r} is no list of names or numbers")
    texts = tuple(str(item).strip() for item in items)
    if not all(texts):
        raise ConfigError(f"{key} has an empty entry; expected values separated by commas")
    return texts


def _setting(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ",".join(map(str, value)) if isinstance(value, list) else json.dumps(value)


def _distinct(key: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ConfigError(f"{key} names {twice[0]} twice; name everything once")
    return values


def _fraction(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 < number <= 1:
        hint = f"{number / 100:g} for {number:g} %" if 1 < number <= 100 else "0.2 for 20 %"
        raise ConfigError(f"fraction {text} cannot be used; expected a share above 0 and at most 1, for example {hint}")
    return number


def _seed(kind: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise ConfigError(f"{kind} {text!r} cannot be used; expected a whole number from 0 on")
    return int(text)


def grid_json(grid: Grid) -> dict[str, Any]:
    """Return a grid as a file holds it; no splits are the default ones, and not an empty list."""
    found = {field.name: _plain(getattr(grid, field.name)) for field in fields(Grid)}
    return {**found, "splits": found["splits"] or None}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
