"""Generate ALFWorld houses and tasks; ``python -m`` rewrites the embedded data.

Everything is drawn from sha256 counters, so a scene depends on its number and a task on its
split, its position and the goals taken before it, and on nothing of the machine.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from seed_envs import paths
from seed_envs.alfworld import engine, house, oracle
from seed_envs.alfworld.embedded import (
    NAME,
    SPLITS,
    STORE,
    HouseTask,
    Place,
    Receptacle,
    Scene,
    Thing,
    fingerprint,
    problem_text,
    sentence,
    write_store,
)
from seed_envs.alfworld.grammar import MOVE
from seed_envs.alfworld.problem import TASK_TYPES, Goal, compile_game
from seed_envs.seeding import Draws
from seed_envs.tasks import Task, write_manifest

VERSION = 1
"""Part of every draw; raise it to get other tasks."""

LONGEST_PLAN = 25
TITLE = f"ALFWorld embedded tasks, generator version {VERSION}: id, split, category, sha256"
_CELL = 25  # centimetres

# Numbers 31 and up within each hundred: the room kind shows, and no official floor plan has them.
SCENES: Mapping[str, Mapping[str, range]] = {
    "train": {"Kitchen": range(31, 47), "LivingRoom": range(231, 243), "Bedroom": range(331, 343),
              "Bathroom": range(431, 441)},
    "valid_unseen": {"Kitchen": range(51, 54), "LivingRoom": range(251, 253), "Bedroom": range(351, 353),
                     "Bathroom": range(451, 453)},
}  # fmt: skip
"""Scene numbers by room kind; ``valid_seen`` plays in the scenes of ``train``."""

COUNTS: Mapping[str, tuple[int, ...]] = {
    "train": (133, 52, 110, 78, 90, 137),
    "valid_seen": (35, 13, 27, 16, 25, 24),
    "valid_unseen": (24, 18, 31, 23, 21, 17),
}
"""Tasks per type, in the order of ``TASK_TYPES``: the official numbers, or their shares for ``train``."""

_ANYWHERE = {"Kitchen": 3, "LivingRoom": 6, "Bedroom": 6, "Bathroom": 6}
_ROOMS_FOR: Mapping[str, Mapping[str, int]] = {
    "pick_and_place_simple": _ANYWHERE,
    "look_at_obj_in_light": {"Bedroom": 4, "LivingRoom": 1},
    "pick_clean_then_place_in_recep": {"Kitchen": 3, "Bathroom": 1},
    "pick_heat_then_place_in_recep": {"Kitchen": 1},
    "pick_cool_then_place_in_recep": {"Kitchen": 1},
    "pick_two_obj_and_place": _ANYWHERE,
}
_TREATED_BY = {
    "pick_clean_then_place_in_recep": ("cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("coolable", "Fridge"),
}
_NEVER_TARGETS = frozenset({"SinkBasin", "BathtubBasin", "TowelHolder", "HandTowelHolder", "LaundryHamper"})


def draw_scene(room: str, number: int) -> Scene:
    """Draw a room of one of the four kinds; the number alone decides."""
    draws = Draws(NAME, VERSION, "scene", number)
    plan = _FloorPlan(draws)
    spec = house.ROOMS[room]
    for kind, counts in spec.receptacles.items():
        for _ in range(draws.choice(counts)):
            plan.stand(kind)
    for kind, (counts, on) in spec.scenery.items():
        for _ in range(draws.choice(counts)):
            plan.furnish(kind, on.split())
    return Scene(number, room, tuple(plan.receptacles), tuple(plan.scenery))


class _FloorPlan:
    """A rectangular room that is being furnished along its walls."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        west, east = -6 - draws.below(5), 6 + draws.below(5)
        south, north = -6 - draws.below(5), 6 + draws.below(5)
        slots = [(x, north, 0) for x in range(west, east + 1)] + [(x, south, 2) for x in range(west, east + 1)]
        slots += [(east, z, 1) for z in range(south, north + 1)] + [(west, z, 3) for z in range(south, north + 1)]
        self.slots = slots
        self.free = draws.shuffled(slots)
        self.receptacles: list[Receptacle] = []
        self.scenery: list[Thing] = []
        self.taken: set[str] = set()

    def stand(self, kind: str) -> None:
        """Put a receptacle against a wall; stacked ones may share a place, others get their own."""
        slot = self.draws.choice(self.slots) if kind in house.STACKED else self.free.pop()
        door = self.draws.below(100) < house.OPENABLE_PERCENT.get(kind, 0)
        while True:
            x, y, z, place = self._spot(kind, slot)
            receptacle = Receptacle(kind, x, y, z, place, door)
            if receptacle.id not in self.taken:
                break
        self.taken.add(receptacle.id)
        self.receptacles.append(receptacle)
        if kind in house.BASIN_OF:
            self.scenery.append(Thing(house.BASIN_OF[kind], x, y, z, place, -1))
        if kind == "LaundryHamper":
            self.scenery.append(Thing("LaundryHamperLid", x, y + 60, z, place, -1))

    def furnish(self, kind: str, on: Sequence[str]) -> None:
        """Put a thing on one of the receptacle types ``on`` that there are, or by a wall when there is none."""
        holders = [i for i, receptacle in enumerate(self.receptacles) if receptacle.kind in on]
        if holders:
            self.scenery.append(_put(self.draws, kind, self.receptacles, self.draws.choice(holders), self.taken))
        elif kind != "DeskLamp":  # it has nothing to stand on
            while True:
                thing = Thing(kind, *self._spot(kind, self.draws.choice(self.slots)), -1)
                if thing.id not in self.taken:
                    break
            self.taken.add(thing.id)
            self.scenery.append(thing)

    def _spot(self, kind: str, slot: tuple[int, int, int]) -> tuple[int, int, int, Place]:
        """Return a position by the wall of ``slot``, and where one stands to reach it."""
        column, row, turn = slot
        y = self.draws.choice(house.HEIGHTS.get(kind, (45, 55, 65)))
        along, depth = self.draws.below(_CELL) - _CELL // 2, 45 + self.draws.below(20)
        dx, dz = ((along, depth), (depth, along), (along, -depth), (-depth, along))[turn]
        return column * _CELL + dx, y, row * _CELL + dz, Place(column, row, turn, _horizon(y))


def _horizon(y: int) -> int:
    """Return the degrees one looks down to see something at height ``y``."""
    limits = ((75, 60), (110, 45), (130, 30), (160, 15), (175, 0), (195, -15))
    return next((degrees for limit, degrees in limits if y < limit), -30)


def _put(draws: Draws, kind: str, receptacles: Sequence[Receptacle], holder: int, taken: set[str]) -> Thing:
    """Lay a thing somewhere in or on a receptacle, where no other of its kind lies."""
    on = receptacles[holder]
    while True:
        x, z = on.x + draws.below(41) - 20, on.z + draws.below(41) - 20
        thing = Thing(kind, x, on.y + 5, z, on.place, holder)
        if thing.id not in taken:
            taken.add(thing.id)
            return thing


@cache
def stock(scene: Scene) -> dict[str, house.Counts]:
    """Return the object types that tasks in this scene strew about, each with its possible numbers."""
    draws = Draws(NAME, VERSION, "stock", scene.number)
    kinds = {receptacle.kind for receptacle in scene.receptacles}
    return {
        kind: counts
        for kind, (percent, counts) in house.ROOMS[scene.room].stock.items()
        if draws.below(100) < percent and not kinds.isdisjoint(house.PLACES[kind])
    }


def goals(scene: Scene, kind: str) -> dict[str, list[str]]:
    """Return what a task of type ``kind`` can ask for here: target types by object type."""
    kinds = sorted({receptacle.kind for receptacle in scene.receptacles})
    if kind == "look_at_obj_in_light":
        lamp = any(thing.kind == "DeskLamp" for thing in scene.scenery)
        return {o: ["DeskLamp"] for o in stock(scene)} if lamp else {}
    ability, appliance = _TREATED_BY.get(kind, ("", ""))
    if appliance and appliance not in kinds:
        return {}
    targets = [r for r in kinds if r not in _NEVER_TARGETS and r != appliance]
    if kind == "pick_two_obj_and_place":
        targets = [r for r in targets if r not in house.HOLDS_ONE]
    able = house.ABILITIES[ability] if ability else stock(scene).keys()
    found = {o: [r for r in targets if o in house.CONTAINS[r]] for o in stock(scene) if o in able}
    return {o: fitting for o, fitting in found.items() if fitting}


def draw_task(scene: Scene, goal: Goal, draws: Draws, *, name: str) -> HouseTask:
    """Strew objects about ``scene`` for ``goal``; whether the task is any good is for ``playable`` to say."""
    receptacles = scene.receptacles
    taken = {thing.id for thing in scene.scenery}
    objects: list[Thing] = []
    full: set[int] = set()
    for kind, counts in stock(scene).items():
        count, wanted = draws.choice(counts), kind == goal.object_type
        if wanted and goal.kind == "pick_two_obj_and_place":
            count = max(2, count)
        for _ in range(count):
            open_to = [i for i, r in enumerate(receptacles) if r.kind in house.PLACES[kind] and i not in full]
            if wanted and goal.kind == "pick_and_place_simple":
                open_to = [i for i in open_to if receptacles[i].kind != goal.target_type]
            if not open_to:
                continue
            kinds = sorted({receptacles[i].kind for i in open_to})
            there = _weighted(draws, {r: house.PLACES[kind][r] for r in kinds})
            holder = draws.choice([i for i in open_to if receptacles[i].kind == there])
            if there in house.HOLDS_ONE:
                full.add(holder)
            objects.append(_put(draws, kind, receptacles, holder, taken))
    places = {receptacle.place for receptacle in receptacles}
    columns, rows = sorted({place.x for place in places}), sorted({place.z for place in places})
    inside = [Place(x, z, turn, 30) for x in range(columns[0] + 1, columns[-1]) for z in range(rows[0] + 1, rows[-1])
              for turn in range(4)]  # fmt: skip
    start = draws.choice([place for place in inside if place not in places])
    return HouseTask(name, goal, draws.below(2), start, tuple(objects))


def _weighted(draws: Draws, weights: Mapping[str, int]) -> str:
    return draws.choice([name for name, weight in weights.items() for _ in range(weight)])


def playable(scene: Scene, task: HouseTask) -> bool:
    """Whether the task is open at the start and can be won by a plan of at most 25 commands."""
    game = compile_game(problem_text(scene, task), sentence(task.goal, task.template), MOVE)
    if engine.won(game, game.start):
        return False
    try:
        return len(oracle.plan(game, game.start)) <= LONGEST_PLAN
    except oracle.Unreachable:
        return False


def draw_split(split: str, scenes: Iterable[Scene], used: set[tuple[Goal, int]]) -> Iterator[HouseTask]:
    """Draw the tasks of a split; ``used`` collects (goal, scene) pairs, none of which comes twice."""
    by_room: dict[str, list[Scene]] = {room: [] for room in house.ROOMS}
    for scene in scenes:
        by_room[scene.room].append(scene)
    kinds = [kind for kind, count in zip(TASK_TYPES, COUNTS[split], strict=True) for _ in range(count)]
    for number, kind in enumerate(kinds, 1):
        fitting = {room: [s for s in by_room[room] if goals(s, kind)] for room in _ROOMS_FOR[kind]}
        rooms = {room: weight for room, weight in _ROOMS_FOR[kind].items() if fitting[room]}
        attempt = 0
        while (task := _attempt(split, number, attempt, kind, rooms, fitting, used)) is None:
            attempt += 1
        yield task


def _attempt(split: str, number: int, attempt: int, kind: str, rooms: Mapping[str, int],
             fitting: Mapping[str, Sequence[Scene]], used: set[tuple[Goal, int]]) -> HouseTask | None:  # fmt: skip
    draws = Draws(NAME, VERSION, split, number, attempt)
    scene = draws.choice(fitting[_weighted(draws, rooms)])
    options = goals(scene, kind)
    wanted = draws.choice(sorted(options))
    goal = Goal(kind, wanted, draws.choice(options[wanted]))
    if (goal, scene.number) in used:
        return None
    folder = f"{kind}-{goal.object_type}-None-{goal.target_type}-{scene.number}"
    task = draw_task(scene, goal, draws, name=f"{split}/{folder}/trial_{number:04d}")
    if not playable(scene, task):
        return None
    used.add((goal, scene.number))
    return task


def generate() -> tuple[list[Scene], list[HouseTask]]:
    """Draw all scenes and the tasks of all splits, in the order of the store."""
    scenes = {
        split: [draw_scene(room, number) for room, numbers in rooms.items() for number in numbers]
        for split, rooms in SCENES.items()
    }
    used: set[tuple[Goal, int]] = set()
    tasks = [task for split in SPLITS for task in draw_split(split, scenes.get(split, scenes["train"]), used)]
    return [scene for group in scenes.values() for scene in group], tasks


def manifest_rows(scenes: Iterable[Scene], tasks: Iterable[HouseTask]) -> list[Task]:
    """Return the manifest rows of generated tasks."""
    by_number = {scene.number: scene for scene in scenes}
    return [Task(t.id, t.id.split("/")[0], t.goal.kind, fingerprint(by_number[t.scene], t)) for t in tasks]


def main() -> int:
    """Rewrite the embedded store and its manifest."""
    argparse.ArgumentParser(prog="python -m seed_envs.alfworld.generator", description=__doc__).parse_args()
    scenes, tasks = generate()
    write_store(STORE, scenes, tasks)
    manifest = paths.manifest_path(NAME)
    write_manifest(manifest, manifest_rows(scenes, tasks), title=TITLE)
    sys.stdout.write(f"{len(tasks)} tasks in {len(scenes)} scenes: {STORE.name}, {manifest.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
