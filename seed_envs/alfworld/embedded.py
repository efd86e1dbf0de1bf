"""The embedded ALFWorld data: houses and tasks stored as tables, read back as PDDL problems."""

import json
import lzma
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from seed_envs import paths
from seed_envs.alfworld.grammar import MOVE
from seed_envs.alfworld.house import ABILITIES, BASIN_OF, CONTAINS, FIXED
from seed_envs.alfworld.problem import Goal, content_sha256
from seed_envs.alfworld.sources import GameText
from seed_envs.errors import DataError
from seed_envs.files import write_atomically
from seed_envs.seeding import canonical
from seed_envs.tasks import Task, TaskSet, read_manifest, resolve_split

NAME = "alfworld-embedded"
SPLITS = ("train", "valid_seen", "valid_unseen")
STORE = Path(__file__).parents[1] / "data" / f"{NAME}.jsonl.xz"

_SENTENCES = {
    "pick_and_place_simple": ("put a {o} in {t}.", "put some {o} on {t}."),
    "look_at_obj_in_light": ("look at {o} under the {t}.", "examine the {o} with the {t}."),
    "pick_clean_then_place_in_recep": ("put a clean {o} in {t}.", "clean some {o} and put it in {t}."),
    "pick_heat_then_place_in_recep": ("put a hot {o} in {t}.", "heat some {o} and put it in {t}."),
    "pick_cool_then_place_in_recep": ("put a cool {o} in {t}.", "cool some {o} and put it in {t}."),
    "pick_two_obj_and_place": ("put two {o} in {t}.", "find two {o} and put them in {t}."),
}
_TREATED = {
    "pick_clean_then_place_in_recep": ("cleanable", "isClean"),
    "pick_heat_then_place_in_recep": ("heatable", "isHot"),
    "pick_cool_then_place_in_recep": ("coolable", "isCool"),
}


class Place(NamedTuple):
    """Where the agent stands and looks: a grid cell of 25 cm, a quarter turn and a horizon in degrees."""

    x: int
    z: int
    turn: int
    horizon: int

    @property
    def id(self) -> str:
        """The location's PDDL name."""
        x, z, turn, horizon = (str(value).replace("-", "_minus_") for value in self)
        return f"loc_bar_{x}_bar_{z}_bar_{turn}_bar_{horizon}"


class Receptacle(NamedTuple):
    """Something that holds things, at a position in centimetres, reached from ``place``."""

    kind: str
    x: int
    y: int
    z: int
    place: Place
    openable: bool

    @property
    def id(self) -> str:
        """The receptacle's PDDL name; basins carry the name of what they are the inside of."""
        if self.kind in BASIN_OF:
            return f"{entity_id(BASIN_OF[self.kind], self.x, self.y, self.z)}_bar_{self.kind}"
        return entity_id(self.kind, self.x, self.y, self.z)


class Thing(NamedTuple):
    """An object, in or on the receptacle with index ``holder`` (-1: none)."""

    kind: str
    x: int
    y: int
    z: int
    place: Place
    holder: int

    @property
    def id(self) -> str:
        """The object's PDDL name."""
        return entity_id(self.kind, self.x, self.y, self.z)


class Scene(NamedTuple):
    """A room: what stands in it, whatever the task."""

    number: int
    room: str
    receptacles: tuple[Receptacle, ...]
    scenery: tuple[Thing, ...]


class HouseTask(NamedTuple):
    """A task in a scene: the goal, where the agent starts and what lies where."""

    id: str
    goal: Goal
    template: int
    """Which of the goal's two sentences the agent is told."""
    start: Place
    objects: tuple[Thing, ...]

    @property
    def scene(self) -> int:
        """The number of the scene, the last part of the task's folder."""
        return int(self.id.split("/")[1].rsplit("-", 1)[1])


def entity_id(kind: str, x: int, y: int, z: int) -> str:
    """Return the PDDL name of an entity at a position in centimetres."""
    position = "_bar_".join(
        f"{'_minus_' if value < 0 else '_plus_'}{abs(value) // 100:02d}_dot_{abs(value) % 100:02d}"
        for value in (x, y, z)
    )
    return f"{kind}_bar_{position}"


def sentence(goal: Goal, template: int) -> str:
    """Return one of the two official sentences (``template`` 0 or 1) for a goal."""
    return _SENTENCES[goal.kind][template].format(o=goal.object_type.lower(), t=goal.target_type.lower())


def goal_text(goal: Goal) -> str:
    """Return the goal in PDDL, with the same conditions as the official ones."""
    o, t = f"{goal.object_type}Type", f"{goal.target_type}Type"
    if goal.kind == "look_at_obj_in_light":
        lamp = (
            f"(objectType ?ot {t}) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) "
            "(atLocation ?a ?l) (inReceptacle ?ot ?r)"
        )
        return (
            f"(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and {lamp})) "
            f"(exists (?o - object ?a - agent) (and (objectType ?o {o}) (holds ?a ?o))))"
        )
    if goal.kind == "pick_two_obj_and_place":
        one, two = (f"(objectType ?o{n} {o}) (receptacleType ?r {t}) (inReceptacle ?o{n} ?r)" for n in (1, 2))
        second = f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) {two}))"
        return f"(and (exists (?r - receptacle) (exists (?o1 - object) (and {one} {second}))))"
    treated = "".join(f"({predicate} ?o) " for predicate in _TREATED.get(goal.kind, ()))
    placed = f"{treated}(objectType ?o {o}) (receptacleType ?r {t}) (inReceptacle ?o ?r)"
    return f"(and (exists (?r - receptacle) (exists (?o - object) (and {placed}))))"


def problem_text(scene: Scene, task: HouseTask) -> str:
    """Return the PDDL problem of ``task`` in ``scene``; the same tables give the same text."""
    receptacles = [(r.id, r) for r in scene.receptacles]
    things = [(thing.id, thing) for thing in (*scene.scenery, *task.objects)]
    holders, kinds = sorted({r.kind for r in scene.receptacles}), sorted({thing.kind for _, thing in things})
    places = {r.place.id for _, r in receptacles} | {thing.place.id for _, thing in things} | {task.start.id}
    declared = [
        "agent1 - agent",
        *(f"{kind}Type - otype" for kind in kinds),
        *(f"{kind}Type - rtype" for kind in holders),
        *(f"{name} - object" for name, _ in sorted(things)),
        *(f"{name} - receptacle" for name, _ in sorted(receptacles)),
        *(f"{place} - location" for place in sorted(places)),
    ]
    facts = [
        *(f"receptacleType {name} {r.kind}Type" for name, r in receptacles),
        *(f"objectType {name} {thing.kind}Type" for name, thing in things),
        *(f"canContain {r}Type {o}Type" for r in holders for o in kinds if o in CONTAINS[r]),
        *(f"pickupable {name}" for name, thing in things if thing.kind not in FIXED),
        *(f"openable {name}" for name, r in receptacles if r.openable),
        f"atLocation agent1 {task.start.id}",
        *(f"{ability} {name}" for ability, able in ABILITIES.items() for name, thing in things if thing.kind in able),
        *(f"isCool {name}" for name, thing in things if _starts_cool(scene, task.goal, thing)),
        *(f"inReceptacle {name} {receptacles[thing.holder][0]}" for name, thing in things if thing.holder >= 0),
        *(f"receptacleAtLocation {name} {r.place.id}" for name, r in receptacles),
        *(f"objectAtLocation {name} {thing.place.id}" for name, thing in things),
    ]
    objects, init = "\n    ".join(declared), "\n    ".join(f"({fact})" for fact in facts)
    return (
        f"(define (problem plan_FloorPlan{scene.number})\n(:domain alfred)\n(:objects\n    {objects}\n)\n"
        f"(:init\n    {init}\n)\n(:goal\n    {goal_text(task.goal)}\n)\n)\n"
    )


def _starts_cool(scene: Scene, goal: Goal, thing: Thing) -> bool:
    """Whether ``thing`` is cool from the start, as upstream has it.

    In official games that holds for the goal's objects that start in the fridge, and for no
    other object; where cooling is the task, not for those either.
    """
    if goal.kind == "pick_cool_then_place_in_recep" or thing.kind != goal.object_type or thing.holder < 0:
        return False
    return thing.kind in ABILITIES["coolable"] and scene.receptacles[thing.holder].kind == "Fridge"


def fingerprint(scene: Scene, task: HouseTask) -> str:
    """Return the identity of a task's content, which a manifest lists."""
    return content_sha256(problem_text(scene, task), sentence(task.goal, task.template), MOVE.tag)


def write_store(path: Path, scenes: Iterable[Scene], tasks: Iterable[HouseTask]) -> None:
    """Write scenes and tasks as compressed JSON lines, one table each."""
    write_atomically(path, lzma.compress(store_text(scenes, tasks).encode(), preset=9))


def store_text(scenes: Iterable[Scene], tasks: Iterable[HouseTask]) -> str:
    """Return the store before compression: scenes, then tasks, both in the order given."""
    lines = [canonical({"scene": [*scene]}) for scene in scenes]
    for task in tasks:
        goal = [task.goal.kind, task.goal.object_type, task.goal.target_type]
        objects = [[o.kind, o.x, o.y, o.z, o.holder] for o in task.objects]  # the holder gives the place
        lines.append(canonical({"task": [task.id, goal, task.template, task.start, objects]}))
    return "\n".join(lines) + "\n"


def read_store(path: Path) -> tuple[dict[int, Scene], dict[str, HouseTask]]:
    """Read a store: scenes by number and tasks by id.

    Raises:
        DataError: when the file is missing, torn or not such a store.
    """
    scenes: dict[int, Scene] = {}
    tasks: dict[str, HouseTask] = {}
    try:
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            record = json.loads(line)
            if "scene" in record:
                scene = _scene(*record["scene"])
                scenes[scene.number] = scene
            else:
                task = _task(scenes, *record["task"])
                tasks[task.id] = task
    except (OSError, lzma.LZMAError, ValueError, KeyError, IndexError, TypeError) as error:
        raise DataError(
            f"{path} is no readable store of ALFWorld tasks ({error}); install the package again, or write it "
            "with python -m seed_envs.alfworld.generator"
        ) from error
    return scenes, tasks


def _scene(number: int, room: str, receptacles: list[Any], scenery: list[Any]) -> Scene:
    return Scene(
        number,
        room,
        tuple(Receptacle(kind, x, y, z, Place(*place), bool(door)) for kind, x, y, z, place, door in receptacles),
        tuple(Thing(kind, x, y, z, Place(*place), holder) for kind, x, y, z, place, holder in scenery),
    )


def _task(scenes: Mapping[int, Scene], name: str, goal: list[str], template: int, start: list[int],
          objects: list[Any]) -> HouseTask:  # fmt: skip
    task = HouseTask(name, Goal(*goal), template, Place(*start), ())
    standing = scenes[task.scene].receptacles
    return task._replace(objects=tuple(Thing(k, x, y, z, standing[h].place, h) for k, x, y, z, h in objects))


@cache
def _store() -> tuple[dict[int, Scene], dict[str, HouseTask]]:
    return read_store(STORE)


@cache
def _manifest() -> dict[str, TaskSet]:
    return read_manifest(paths.manifest_path(NAME))


class EmbeddedSource:
    """The tasks that come with the package; nothing to download."""

    name = NAME
    splits = SPLITS

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split, sorted by id.

        Raises:
            UnknownName: when there is no such split.
        """
        return _manifest()[resolve_split(split, self.splits)]

    def load(self, task: Task) -> GameText:
        """Return the text of a game.

        Raises:
            DataError: when the store lacks the task or holds another one under its id.
        """
        scenes, tasks = _store()
        found = tasks.get(task.id)
        if found is None:
            raise DataError(f"the embedded data hold no task {task.id!r}; list them with EmbeddedSource().tasks(split)")
        text = problem_text(scenes[found.scene], found)
        instruction = sentence(found.goal, found.template)
        if content_sha256(text, instruction, MOVE.tag) != task.sha256:
            raise DataError(
                f"the stored task {task.id!r} is not the one that was asked for (its content hash differs); "
                "the task list is of another version: take it from EmbeddedSource().tasks(split)"
            )
        return GameText(problem=text, instruction=instruction, grammar=MOVE)

    def describe(self, split: str) -> dict[str, Any]:
        """Return the number of tasks, of scenes and of tasks per category."""
        tasks = self.tasks(split)
        scenes = {task.id.split("/")[1].rsplit("-", 1)[1] for task in tasks}
        return {"tasks": len(tasks), "categories": tasks.categories, "scenes": len(scenes)}
