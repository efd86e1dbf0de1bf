"""Write games in ALFWorld's official folder layout, for upstream's own programs to read."""

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from seed_envs.alfworld import grammar as grammars
from seed_envs.alfworld import oracle
from seed_envs.alfworld.problem import Goal, compile_game, read_facts, read_goal
from seed_envs.alfworld.sources import GameSource, GameText
from seed_envs.errors import ConfigError, DataError, MissingDependency
from seed_envs.files import write_atomically
from seed_envs.tasks import Task

GAMES = "json_2.1.1"
GAME_FILE = "game.tw-pddl"
DOMAIN_FILE, GRAMMAR_FILE = "alfred.pddl", "alfred.twl2"


def export_split(source: GameSource, tasks: Iterable[Task], dest: Path, *, logic: Path | None = None) -> int:
    """Write the games of ``tasks`` under ``dest``; return how many.

    Each game becomes ``json_2.1.1/SPLIT/TASK/TRIAL/{game.tw-pddl,traj_data.json}``; the game file
    comes last and whole, so what is there can be played even after an interruption, and the same
    call again completes it. ``logic`` is a folder with ``alfred.pddl`` and ``alfred.twl2``; by
    default they come from the installed alfworld package.

    Raises:
        ConfigError: when ``dest`` holds other things, or other games of the same split.
        DataError: when ``logic`` is incomplete or does not say what the games say.
        MissingDependency: when ``logic`` is not given and alfworld is not installed.
    """
    tasks = list(tasks)
    domain, grammar = read_logic(logic)
    _check_destination(source, {task.split for task in tasks}, dest)
    for name, content in ((DOMAIN_FILE, domain), (GRAMMAR_FILE, grammar)):
        if not (dest / "logic" / name).exists():
            _write(dest / "logic" / name, content)
    for task in tasks:
        folder, text = dest / GAMES / _parts(task), source.load(task)
        if text.path is not None and text.path.resolve() == (folder / GAME_FILE).resolve():
            raise ConfigError(f"{dest} is where the games come from; name another folder")
        game = {"pddl_domain": domain, "grammar": fill_grammar(grammar, text), **game_fields(text)}
        _write(folder / "traj_data.json", json.dumps(trajectory_data(task, text), indent=1, ensure_ascii=False) + "\n")
        _write(folder / GAME_FILE, json.dumps(game, ensure_ascii=False))
    return len(tasks)


def read_logic(logic: Path | None) -> tuple[str, str]:
    """Return the texts of the domain and of the grammar, from ``logic`` or from alfworld.

    Nothing of alfworld is imported: importing it creates a cache folder and sets a variable.

    Raises:
        DataError: when one of the two files is missing.
        MissingDependency: when ``logic`` is None and alfworld is not installed.
    """
    if logic is None:
        spec = importlib.util.find_spec("alfworld")
        if spec is None or spec.origin is None:
            raise MissingDependency(
                "alfworld",
                extra="alfworld",
                purpose="exporting to the official format (its domain and grammar)",
                instead=f"or name a folder that has {DOMAIN_FILE} and {GRAMMAR_FILE}",
            )
        logic = Path(spec.origin).parent / "data"
    try:
        domain, grammar = ((logic / name).read_text(encoding="utf-8") for name in (DOMAIN_FILE, GRAMMAR_FILE))
    except OSError as error:
        raise DataError(f"{logic} must have {DOMAIN_FILE} and {GRAMMAR_FILE}: {error.strerror}") from error
    return domain, grammar


def fill_grammar(grammar: str, text: GameText) -> str:
    """Return ``grammar`` with the game's goal sentence in it.

    Raises:
        DataError: when that does not give the sentences of the game, as with another release's.
    """
    sentence = json.dumps(text.instruction, ensure_ascii=False)[1:-1]
    filled = grammar.replace("UNKNOWN GOAL.", sentence).replace("UNKNOWN GOAL", sentence)
    tag = grammars.parse(filled)[0].tag
    if filled == grammar or tag != text.grammar.tag:
        raise DataError(
            f"the game speaks the grammar '{text.grammar.tag}' and {GRAMMAR_FILE} is "
            f"{'filled in already' if filled == grammar else repr(tag)}; take it from an alfworld release of that kind"
        )
    return filled


def game_fields(text: GameText) -> dict[str, Any]:
    """Return the fields of ``game.tw-pddl`` that depend on the game: problem and walkthrough."""
    game = compile_game(text.problem, text.instruction, text.grammar)
    try:
        walkthrough = oracle.plan(game, game.start)
    except oracle.Unreachable:
        walkthrough = None
    return {"pddl_problem": text.problem, "solvable": walkthrough is not None, "walkthrough": walkthrough}


def trajectory_data(task: Task, text: GameText) -> dict[str, Any]:
    """Return what ``traj_data.json`` says of a game: what upstream's loader and expert read."""
    _, folder, trial = _parts(task).parts
    number = folder.rsplit("-", 1)[1]
    goal = read_goal(read_facts(text.problem)[1])
    return {
        "task_id": trial,
        "task_type": task.category,
        "pddl_params": _parameters(goal),
        "scene": {"floor_plan": f"FloorPlan{number}", "scene_num": int(number) if number.isdigit() else number},
        "turk_annotations": {"anns": []},
    }


def _parameters(goal: Goal) -> dict[str, Any]:
    look = goal.kind == "look_at_obj_in_light"
    return {
        "mrecep_target": "",
        "object_sliced": False,
        "object_target": goal.object_type,
        "parent_target": "" if look else goal.target_type,
        "toggle_target": goal.target_type if look else "",
    }


def _parts(task: Task) -> PurePosixPath:
    """Return the folder of a task below ``json_2.1.1``: split, task and trial."""
    path = PurePosixPath(task.id)
    if len(path.parts) != 3 or path.is_absolute() or ".." in path.parts or "-" not in path.parts[1]:
        raise ConfigError(f"task id {task.id!r} is no place in the official layout; expected SPLIT/TASK-SCENE/TRIAL")
    return path


def _check_destination(source: GameSource, splits: Iterable[str], dest: Path) -> None:
    """Refuse to write among things that are not an export, or to mix another split's games in."""
    if not dest.exists():
        return
    if not dest.is_dir():
        raise ConfigError(f"{dest} is a file; expected a folder to write games to")
    if any(dest.iterdir()) and not (dest / GAMES).is_dir() and not (dest / "logic").is_dir():
        raise ConfigError(f"{dest} is not empty and holds no {GAMES}; name an empty or a new folder")
    for split in sorted(splits):
        ours = set(source.tasks(split).ids)
        found = sorted((dest / GAMES / split).glob("*/trial_*"))
        other = [path for path in found if f"{split}/{path.parent.name}/{path.name}" not in ours]
        if other:
            raise ConfigError(
                f"{dest / GAMES / split} holds {len(other)} games that are not from {source.name}, {other[0].name} "
                "first; a mixed split would be scored as one: name another folder"
            )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
