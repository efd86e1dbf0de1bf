"""The official ALFWorld games on disk, in a stable order and indexed once."""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from seed_envs import paths
from seed_envs.alfworld import grammar
from seed_envs.alfworld.problem import TASK_TYPES, content_sha256
from seed_envs.alfworld.sources import GameText
from seed_envs.errors import DataError
from seed_envs.files import write_atomically
from seed_envs.seeding import canonical, sha256_text
from seed_envs.tasks import Task, TaskSet, compare_manifests, read_manifest, resolve_split

SPLITS = ("train", "valid_train", "valid_seen", "valid_unseen")
GAME_FILE = "game.tw-pddl"
MANIFEST = "alfworld-official"
_INDEX_VERSION = 1
HELP = "type: python -m seed_envs fetch alfworld, or set ALFWORLD_DATA to the folder that holds json_2.1.1"

Row = dict[str, Any]
"""One game in the index: size, mtime, and either ``skip`` or category, sha256, grammar tag."""


class OfficialSource:
    """Games under a data root in the official layout, the root of ``json_2.1.1`` or that folder.

    As upstream does, games of movable receptacles and sliced objects, without a game file, or
    not marked solvable are skipped; unlike upstream they are counted by reason and the order is
    sorted. What was read is remembered in ``$SEED_CACHE``; the data folder is never written to.
    """

    name = MANIFEST

    def __init__(self, root: Path) -> None:
        """Look at ``root``.

        Raises:
            DataError: when there are no games below it.
        """
        self.root = root
        self.folder = _games_folder(root)
        self._human: dict[str, str] = {}
        self._opened: dict[str, tuple[TaskSet, Counter[str], dict[str, Row]]] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a folder."""
        return tuple(split for split in SPLITS if (self.folder / split).is_dir())

    def tasks(self, split: str) -> TaskSet:
        """Return the playable games of ``split``, sorted by id.

        Raises:
            DataError: when the split holds no playable game, a torn one, or two grammars.
        """
        return self._open(resolve_split(split, self.splits))[0]

    def load(self, task: Task) -> GameText:
        """Read one game.

        Raises:
            DataError: when the file is unreadable or its content is not the task's any more.
        """
        path = self.folder / task.id / GAME_FILE
        game = read_game(path)
        if content_sha256(game.problem, game.instruction, game.grammar.tag) != task.sha256:
            raise DataError(f"{path} changed since its split was opened; start again, or fetch the data anew")
        return game

    def human_goals(self, task: Task) -> tuple[str, ...]:
        """Return the goal sentences people wrote for the trial.

        Raises:
            DataError: when ``traj_data.json`` is missing or has none.
        """
        path = self.folder / task.id / "traj_data.json"
        try:
            anns = json.loads(path.read_text(encoding="utf-8"))["turk_annotations"]["anns"]
            goals = tuple(" ".join(ann["task_desc"].split()) for ann in anns if ann["task_desc"].strip())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"no human goal sentence in {path} ({type(error).__name__}); goal_style='human' needs the official "
                "json_2.1.1_json archive: python -m seed_envs fetch alfworld"
            ) from None
        if not goals:
            raise DataError(f"no human goal sentence in {path}; play this task with goal_style='templated'")
        return goals

    def human_goals_sha256(self, split: str) -> str:
        """Return the hash of all sentences people wrote for a split's games.

        Raises:
            DataError: when a game has none.
        """
        if split not in self._human:
            self._human[split] = sha256_text(canonical([[t.id, self.human_goals(t)] for t in self.tasks(split)]))
        return self._human[split]

    def describe(self, split: str) -> dict[str, Any]:
        """Return the counts of a split, what was skipped and how it compares with the release."""
        tasks, skipped, _ = self._open(resolve_split(split, self.splits))
        return {
            "tasks": len(tasks),
            "categories": tasks.categories,
            "skipped": dict(sorted(skipped.items())),
            **{key: len(ids) for key, ids in self.against_release(split).items()},
        }

    def against_release(self, split: str) -> dict[str, list[str]]:
        """Return ids missing from, added to and changed against the committed manifest."""
        found = {task.id: task for task in self.tasks(split)}
        return compare_manifests(found, {task.id: task for task in released(resolve_split(split, self.splits))})

    def _open(self, split: str) -> tuple[TaskSet, Counter[str], dict[str, Row]]:
        if split not in self._opened:
            self._opened[split] = self._read(split)
        return self._opened[split]

    def _read(self, split: str) -> tuple[TaskSet, Counter[str], dict[str, Row]]:
        index = _Index(self.folder, split)
        rows = {}
        for trial, found in _trials(self.folder / split):
            rows[trial] = index.row(trial, found)
        index.save(rows)
        skipped = Counter(row["skip"] for row in rows.values() if "skip" in row)
        games = {trial: row for trial, row in rows.items() if "skip" not in row}
        if not games:
            why = ", ".join(f"{n} {reason}" for reason, n in sorted(skipped.items())) or "empty folder"
            raise DataError(f"no playable game in {self.folder / split} ({why}); {HELP}")
        tags = Counter(row["grammar"] for row in games.values())
        if len(tags) > 1:
            mix = ", ".join(f"{n} {tag}" for tag, n in sorted(tags.items()))
            raise DataError(f"{self.folder / split} mixes grammars ({mix}); a split is one release: fetch it anew")
        tasks = TaskSet(Task(f"{split}/{trial}", split, row["category"], row["sha256"]) for trial, row in games.items())
        exact = tasks.sha256 == released(split).sha256
        tasks.name = f"{MANIFEST if exact else 'alfworld-local'}/{split}"
        return tasks, skipped, rows


@lru_cache(maxsize=8)
def open_source(root: str) -> OfficialSource:
    """Return the source at ``root``, one per process."""
    return OfficialSource(Path(root))


@lru_cache(maxsize=1)
def _released() -> dict[str, TaskSet]:
    path = paths.manifest_path(MANIFEST)
    return read_manifest(path) if path.exists() else {}


def released(split: str) -> TaskSet:
    """Return the tasks of ``split`` in the release the committed manifest describes."""
    return _released().get(split, TaskSet(()))


def read_game(path: Path) -> GameText:
    """Read one ``game.tw-pddl``.

    Raises:
        DataError: when it is not JSON, lacks a key or has no goal.
    """
    return _game_text(path, _read_json(path))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; {HELP}") from None
    except (ValueError, RecursionError):
        raise DataError(
            f"{path} is not valid JSON (half extracted?); delete its folder and fetch the data anew"
        ) from None
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no game; expected an object with pddl_problem and grammar")
    return content


def _game_text(path: Path, content: dict[str, Any]) -> GameText:
    for key in ("pddl_problem", "grammar"):
        if not isinstance(content.get(key), str):
            raise DataError(f"{path} has no {key!r}; expected an ALFWorld game of the tw-pddl format")
    if "(:goal" not in content["pddl_problem"]:
        raise DataError(f"{path}: the PDDL problem has no (:goal ...)")
    try:
        parsed, instruction = grammar.parse(content["grammar"])
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return GameText(content["pddl_problem"], instruction, parsed, path)


def _games_folder(root: Path) -> Path:
    """Return the folder whose children are splits."""
    candidates = [root / "json_2.1.1", *sorted(root.glob("json_2.*")), root] if root.is_dir() else []
    for folder in candidates:
        if any((folder / split).is_dir() for split in SPLITS):
            return folder
    state = "is empty of games" if root.is_dir() else "does not exist"
    raise DataError(f"ALFWorld data root {root} {state}: expected json_2.1.1/SPLIT/TASK/TRIAL/{GAME_FILE}; {HELP}")


def _trials(folder: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield ``TASK/TRIAL`` in sorted order with the stat of its game file."""
    for task in _folders(folder):
        for trial in _folders(folder / task):
            try:
                found = (folder / task / trial / GAME_FILE).stat()
            except OSError:
                found = None
            yield f"{task}/{trial}", found if found and stat.S_ISREG(found.st_mode) else None


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


class _Index:
    """What was read of a split's games before, by path, size and time."""

    def __init__(self, folder: Path, split: str) -> None:
        self._folder = folder / split
        key = sha256_text(f"{self._folder.resolve()}")[:16]
        self._file = paths.cache_root() / "alfworld-index" / f"{split}-{key}.json"
        self._known: dict[str, Row] = {}
        try:
            stored = json.loads(self._file.read_bytes())
            if stored.get("version") == _INDEX_VERSION:
                self._known = stored["rows"]
        except (OSError, ValueError, KeyError, AttributeError):
            pass  # no index or a torn one: read the games again
        self._stored = dict(self._known)

    def row(self, trial: str, found: os.stat_result | None) -> Row:
        """Return the row of a game, from the index when the file is unchanged."""
        if "movable" in trial or "Sliced" in trial:
            return {"skip": "movable or sliced"}
        if found is None:
            return {"skip": "without a game file"}
        stamp = {"size": found.st_size, "mtime": found.st_mtime_ns}
        known = self._known.get(trial, {})
        if all(known.get(key) == value for key, value in stamp.items()):
            return known
        return stamp | self._examine(trial)

    def _examine(self, trial: str) -> Row:
        path = self._folder / trial / GAME_FILE
        content = _read_json(path)
        category = trial.split("-", 1)[0]
        if "solvable" not in content:
            return {"skip": "without a solvable mark"}
        if not content["solvable"]:
            return {"skip": "unsolvable"}
        if category not in TASK_TYPES:
            return {"skip": "of an unknown task type"}
        game = _game_text(path, content)
        digest = content_sha256(game.problem, game.instruction, game.grammar.tag)
        return {"category": category, "sha256": digest, "grammar": game.grammar.tag}

    def save(self, rows: dict[str, Row]) -> None:
        """Remember ``rows``; a cache that cannot be written only costs time."""
        if rows == self._stored:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, canonical({"version": _INDEX_VERSION, "rows": rows}).encode())
        except OSError:
            return
