"""An ALFWorld problem: the PDDL text of a house and a goal, compiled to indexed tables."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from seed_envs.alfworld.grammar import Grammar
from seed_envs.errors import DataError
from seed_envs.seeding import sha256_text

Facts = Mapping[str, list[list[str]]]
Actions = dict[str, tuple[str, int, int]]

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six task types in upstream's order (ids 1 to 6); a task's ``category`` is one of them."""

_FLAG_OF_KIND = {
    "pick_clean_then_place_in_recep": ("isClean", "cleanable"),
    "pick_heat_then_place_in_recep": ("isHot", "heatable"),
    "pick_cool_then_place_in_recep": ("isCool", "coolable"),
}
_PLACED = ("objectType", "receptacleType", "inReceptacle")
_GOAL_ATOMS = {
    "pick_and_place_simple": Counter(_PLACED),
    "look_at_obj_in_light": Counter(
        ["objectType", "toggleable", "isToggled", "receptacleAtLocation", "atLocation", "inReceptacle",
         "objectType", "holds"]
    ),
    **{kind: Counter([*_PLACED, *flags]) for kind, flags in _FLAG_OF_KIND.items()},
    "pick_two_obj_and_place": Counter([*_PLACED, *_PLACED, "="]),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Goal:
    """What wins: a task type with the object type and the receptacle or lamp type it names."""

    kind: str
    object_type: str
    target_type: str
    """Receptacle type, or the lamp type of ``look_at_obj_in_light``."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything that can change, as immutable values; entities are indices into ``Game``."""

    at: int
    held: int
    """Object in hand, or -1."""
    opened: frozenset[int]
    contents: tuple[tuple[int, ...], ...]
    """Objects in each receptacle, sorted."""
    near: tuple[frozenset[int], ...]
    """Locations each object is recorded at."""
    taken: frozenset[tuple[int, int]]
    """(object, receptacle) pairs: taken from there and not put back there."""
    clean: frozenset[int]
    hot: frozenset[int]
    cool: frozenset[int]
    toggled: frozenset[int]
    sliced: frozenset[int]


@dataclass(frozen=True, eq=False)
class Game:
    """The fixed part of a game. Receptacles, objects and locations are numbered in id order."""

    grammar: Grammar
    instruction: str
    goal: Goal
    receptacles: tuple[str, ...]
    receptacle_types: tuple[str, ...]
    receptacle_at: tuple[int, ...]
    openable: frozenset[int]
    objects: tuple[str, ...]
    object_types: tuple[str, ...]
    accepts: tuple[frozenset[str], ...]
    """Object types each receptacle takes."""
    able: Mapping[str, frozenset[int]]
    """Objects by property: pickupable, cleanable, heatable, coolable, toggleable, sliceable, vessel."""
    inside: Mapping[int, tuple[int, ...]]
    """Objects recorded inside a movable receptacle; never changes."""
    locations: tuple[str, ...]
    at_location: tuple[tuple[int, ...], ...]
    start: State
    travel: dict[int, Actions] = field(default_factory=dict, repr=False)
    """The ``go to`` commands from each location, filled as they are asked for."""


def read_facts(problem: str) -> tuple[dict[str, list[list[str]]], str]:
    """Return the initial facts by predicate and the goal's text.

    Raises:
        DataError: when there is no ``(:init`` or no ``(:goal``.
    """
    init, goal = problem.find("(:init"), problem.find("(:goal")
    if init < 0 or goal < init:
        raise DataError("the PDDL problem has no (:init ...) followed by a (:goal ...)")
    facts: dict[str, list[list[str]]] = defaultdict(list)
    for fact in re.findall(r"\(([^()]+)\)", problem[init + 6 : goal]):
        predicate, *args = fact.split()
        facts[predicate].append(args)
    return facts, problem[goal:]


def read_goal(text: str) -> Goal:
    """Recognise one of the six goals; the order of the conditions does not matter.

    Raises:
        DataError: for any other goal (movable receptacles and slicing, which upstream skips too).
    """
    innermost = (group.split() for group in re.findall(r"\(([^()]+)\)", text))
    atoms = [group for group in innermost if "-" not in group]  # the rest declare variables
    names = Counter(atom[0] for atom in atoms)
    kind = next((kind for kind, wanted in _GOAL_ATOMS.items() if names == wanted), None)
    if kind is None:
        raise DataError("the goal is none of ALFWorld's six (pick, look, clean, heat, cool, pick two)")
    types = {(atom[0], atom[1]): atom[2].removesuffix("Type") for atom in atoms if atom[0].endswith("Type")}
    objects = {value for (predicate, _), value in types.items() if predicate == "objectType"}
    targets = {value for (predicate, _), value in types.items() if predicate == "receptacleType"}
    if kind == "look_at_obj_in_light":
        lamp = next(atom[1] for atom in atoms if atom[0] == "isToggled")
        targets = {types["objectType", lamp]}
        objects = {types["objectType", arg] for atom in atoms if atom[0] == "holds" for arg in atom[2:]}
    if len(objects) != 1 or len(targets) != 1:
        raise DataError(f"the goal names {len(objects)} object and {len(targets)} target types; expected one of each")
    return Goal(kind, objects.pop(), targets.pop())


def content_sha256(problem: str, goal: str, grammar_tag: str) -> str:
    """Hash what a game is: problem (white space aside), goal sentence and grammar tag."""
    return sha256_text("\0".join([" ".join(problem.split()), goal, grammar_tag]))


def display_names(facts: Facts) -> dict[str, str]:
    """Return the printed name of every entity in ``facts``, by lower-cased id.

    Within one name the first id in sorted order gets the highest number.
    Source: AlfredDemangler of alfworld 0.4.2, as observed.
    """
    ids = sorted({arg.lower() for rows in facts.values() for args in rows for arg in args})
    groups: dict[str, list[str]] = defaultdict(list)
    for entity in ids:
        base = entity.split("_bar_", 1)[0]
        groups[base + "basin" if "basin" in entity else base].append(entity)
    return {
        entity: f"{name} {len(members) - i}" for name, members in groups.items() for i, entity in enumerate(members)
    }


def compile_game(problem: str, instruction: str, grammar: Grammar) -> Game:
    """Compile a PDDL ``problem`` and its goal sentence into a game at its start.

    Raises:
        DataError: when a part every game has is absent.
    """
    facts, goal_text = read_facts(problem)
    try:
        return _compile(facts, read_goal(goal_text), instruction, grammar)
    except (KeyError, IndexError, ValueError, StopIteration) as error:
        raise DataError(f"the PDDL problem is incomplete: {error!r}") from error


def _compile(facts: Facts, goal: Goal, instruction: str, grammar: Grammar) -> Game:
    names = display_names(facts)
    where = {r.lower(): loc.lower() for r, loc in facts["receptacleAtLocation"]}
    rtype = {r.lower(): t.removesuffix("Type") for r, t in facts["receptacleType"]}
    otype = {o.lower(): t.removesuffix("Type") for o, t in facts["objectType"]}
    receptacles, objects = sorted(where), sorted(otype)
    agent_at = facts["atLocation"][0][1].lower()
    places = {agent_at, *where.values(), *(args[1].lower() for args in facts["objectAtLocation"])}
    locations = sorted(places)
    r_index = {r: i for i, r in enumerate(receptacles)}
    o_index = {o: i for i, o in enumerate(objects)}
    l_index = {loc: i for i, loc in enumerate(locations)}
    at_location: list[list[int]] = [[] for _ in locations]
    for r in receptacles:
        at_location[l_index[where[r]]].append(r_index[r])
    takes: dict[str, set[str]] = defaultdict(set)
    for receptacle_type, object_type in facts["canContain"]:
        takes[receptacle_type.removesuffix("Type")].add(object_type.removesuffix("Type"))
    frozen = {name: frozenset(types) for name, types in takes.items()}

    def having(predicate: str) -> frozenset[int]:
        return frozenset(o_index[args[0].lower()] for args in facts.get(predicate, ()) if args[0].lower() in o_index)

    contents: list[set[int]] = [set() for _ in receptacles]
    for o, r in facts["inReceptacle"]:
        contents[r_index[r.lower()]].add(o_index[o.lower()])
    near: list[set[int]] = [set() for _ in objects]
    for o, loc in facts["objectAtLocation"]:
        if o.lower() in o_index:
            near[o_index[o.lower()]].add(l_index[loc.lower()])
    inside: dict[int, list[int]] = defaultdict(list)
    for inner, outer in facts.get("inReceptacleObject", ()):
        inside[o_index[outer.lower()]].append(o_index[inner.lower()])
    start = State(
        at=l_index[agent_at],
        held=next((o_index[args[1].lower()] for args in facts.get("holds", ())), -1),
        opened=frozenset(r_index[args[0].lower()] for args in facts.get("opened", ())),
        contents=tuple(tuple(sorted(found)) for found in contents),
        near=tuple(frozenset(found) for found in near),
        taken=frozenset(),
        clean=having("isClean"),
        hot=having("isHot"),
        cool=having("isCool"),
        toggled=having("isToggled"),
        sliced=having("isSliced"),
    )
    able = {name: having(name) for name in
            ("pickupable", "cleanable", "heatable", "coolable", "toggleable", "sliceable")}  # fmt: skip
    return Game(
        grammar=grammar,
        instruction=instruction,
        goal=goal,
        receptacles=tuple(names[r] for r in receptacles),
        receptacle_types=tuple(rtype[r] for r in receptacles),
        receptacle_at=tuple(l_index[where[r]] for r in receptacles),
        openable=frozenset(r_index[args[0].lower()] for args in facts["openable"] if args[0].lower() in r_index),
        objects=tuple(names[o] for o in objects),
        object_types=tuple(otype[o] for o in objects),
        accepts=tuple(frozen.get(rtype[r], frozenset()) for r in receptacles),
        able={**able, "vessel": having("isReceptacleObject")},
        inside={outer: tuple(sorted(found)) for outer, found in inside.items()},
        locations=tuple(names[loc] for loc in locations),
        at_location=tuple(tuple(found) for found in at_location),
        start=start,
    )
