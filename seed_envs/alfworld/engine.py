"""The rules of ALFWorld as functions over explicit state; text equal to TextWorld's.

Source: alfworld 0.4.2 on TextWorld 1.7.0 as observed, quirks included: a place that shares the
agent's location refuses ``go to``; appliances need not be open; ``use`` never switches off;
``examine`` names an object only while it is held.
"""

from dataclasses import replace
from typing import NamedTuple

from seed_envs.alfworld.grammar import GOAL_MARK, NOTHING_HAPPENS
from seed_envs.alfworld.problem import Actions, Game, State

_APPLIANCES = (
    ("CleanObject", "cleanable", frozenset({"SinkBasin", "Sink"})),
    ("HeatObject", "heatable", frozenset({"Microwave"})),
    ("CoolObject", "coolable", frozenset({"Fridge"})),
)
_MARKS = {"CleanObject": "clean", "ToggleObject": "toggled", "SliceObject": "sliced"}
_KNIVES = frozenset({"Knife", "ButterKnife"})


class Outcome(NamedTuple):
    """What one command did."""

    state: State
    text: str
    admissible: bool


def listing(names: list[str]) -> str:
    """Join names the way the grammar does: ``a X, a Y, and a Z``; nothing for none."""
    items = [f"a {name}" for name in names]
    return _joined(items) if items else "nothing"


def _joined(items: list[str]) -> str:
    if len(items) == 1:
        return items[0]
    return ", ".join(items[:-1]) + ", and " + items[-1]


def intro(game: Game, state: State) -> str:
    """Return the first observation of an episode."""
    look = game.grammar.middle.format(list=listing(list(game.receptacles)))
    if game.at_location[state.at]:
        look = _look(game, state)
    return game.grammar.intro.format(look=look, task=GOAL_MARK + game.instruction)


def accessible(game: Game, state: State, receptacle: int) -> bool:
    """Whether things can be taken from or put into ``receptacle``: it has no door or is open."""
    return receptacle not in game.openable or receptacle in state.opened


def admissible(game: Game, state: State) -> Actions:
    """Return every command offered now, sorted, with what it does: (action, object, receptacle)."""
    actions = dict(_travel(game, state.at))
    for r in game.at_location[state.at]:
        _add_receptacle(actions, game, state, r)
    if state.held >= 0:
        _add_held(actions, game, state)
    return {command: actions[command] for command in sorted(actions)}


def _add_receptacle(actions: Actions, game: Game, state: State, r: int) -> None:
    """Add what can be done with receptacle ``r``, at which the agent stands."""
    templates, objects, name = game.grammar.templates, game.objects, game.receptacles[r]
    actions[templates["examineReceptacle"].format(r=name)] = ("examineReceptacle", -1, r)
    if r in game.openable:
        act = "CloseObject" if r in state.opened else "OpenObject"
        actions[templates[act].format(r=name)] = (act, -1, r)
    if state.held < 0 and accessible(game, state, r):
        take, pickupable = templates["PickupObject"], game.able["pickupable"]
        for o in state.contents[r]:
            if o in pickupable:
                actions[take.format(o=objects[o], r=name)] = ("PickupObject", o, r)
    for o in state.contents[r]:
        if o in game.able["toggleable"]:
            actions[templates["ToggleObject"].format(o=objects[o])] = ("ToggleObject", o, r)


def _add_held(actions: Actions, game: Game, state: State) -> None:
    """Add what can be done with the object in hand."""
    templates, held = game.grammar.templates, state.held
    name, kind = game.objects[held], game.object_types[held]
    actions[templates["examineObject"].format(o=name)] = ("examineObject", held, -1)
    for r in game.at_location[state.at]:
        if kind in game.accepts[r] and accessible(game, state, r):
            actions[templates["PutObject"].format(o=name, r=game.receptacles[r])] = ("PutObject", held, r)
        for act, ability, types in _APPLIANCES:
            if game.receptacle_types[r] in types and held in game.able[ability]:
                actions[templates[act].format(o=name, r=game.receptacles[r])] = (act, held, r)
    if kind in _KNIVES:
        for o in game.able["sliceable"]:
            if state.at in state.near[o]:
                actions[templates["SliceObject"].format(co=game.objects[o], ko=name)] = ("SliceObject", o, held)


def _travel(game: Game, at: int) -> Actions:
    """Return the commands that do not depend on anything but where the agent is."""
    cached = game.travel.get(at)
    if cached is None:
        templates = game.grammar.templates
        cached = {templates[act]: (act, -1, -1) for act in ("look", "inventory", "help") if act in templates}
        for r, name in enumerate(game.receptacles):
            if game.receptacle_at[r] != at:
                cached[templates["GotoLocation"].format(r=name)] = ("GotoLocation", -1, r)
        game.travel[at] = cached
    return cached


def step(game: Game, state: State, command: str, offered: Actions | None = None) -> Outcome:
    """Take one command; anything not offered leaves the state as it is and says so.

    ``offered`` is ``admissible(game, state)`` when the caller has it already.
    """
    if offered is None:
        offered = admissible(game, state)
    found = offered.get(command.strip())
    if found is None:
        return Outcome(state, NOTHING_HAPPENS, False)
    act, o, r = found
    after = _effect(game, state, act, o, r)
    return Outcome(after, _feedback(game, after, act, o, r), True)


def _effect(game: Game, state: State, act: str, o: int, r: int) -> State:
    match act:
        case "GotoLocation":
            return replace(state, at=game.receptacle_at[r])
        case "OpenObject":
            return replace(state, opened=state.opened | {r})
        case "CloseObject":
            return replace(state, opened=state.opened - {r})
        case "PickupObject":
            return replace(
                state,
                held=o,
                contents=_with(state.contents, r, tuple(x for x in state.contents[r] if x != o)),
                near=_with(state.near, o, state.near[o] - {state.at}),
                taken=state.taken | {(o, r)},
            )
        case "PutObject":
            return replace(
                state,
                held=-1,
                contents=_with(state.contents, r, tuple(sorted({*state.contents[r], o}))),
                near=_with(state.near, o, state.near[o] | {state.at}),
                taken=state.taken - {(o, r)},
            )
        case "HeatObject":
            return replace(state, hot=state.hot | {o}, cool=state.cool - {o})
        case "CoolObject":
            return replace(state, cool=state.cool | {o}, hot=state.hot - {o})
        case "CleanObject" | "ToggleObject" | "SliceObject":
            marked = getattr(state, _MARKS[act])
            return state if o in marked else replace(state, **{_MARKS[act]: marked | {o}})
    return state


def _with(values: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])


def _feedback(game: Game, state: State, act: str, o: int, r: int) -> str:
    grammar = game.grammar
    match act:
        case "look":
            return _look(game, state)
        case "inventory":
            held = [game.objects[state.held]] if state.held >= 0 else []
            return grammar.inventory[not held].format(list=listing(held))
        case "help":
            return grammar.feedback["help"]
        case "examineReceptacle":
            return _examine_receptacle(game, state, r)
        case "examineObject":
            return _examine_object(game, state, o)
        case "SliceObject":
            return grammar.feedback[act].format(co=game.objects[o], ko=game.objects[r])
        case "GotoLocation" | "OpenObject":
            examined, place = _examine_receptacle(game, state, r), game.locations[state.at]
            return grammar.feedback[act].format(r=game.receptacles[r], loc=place, examine=examined)
    return grammar.feedback[act].format(
        o=game.objects[o] if o >= 0 else "", r=game.receptacles[r], loc=game.locations[state.at]
    )


def _examine_receptacle(game: Game, state: State, r: int) -> str:
    case = 2 if r not in game.openable else 0 if r in state.opened else 1
    contents = listing([game.objects[o] for o in state.contents[r]])
    return game.grammar.examine_receptacle[case].format(r=game.receptacles[r], list=contents)


def _examine_object(game: Game, state: State, o: int) -> str:
    sentences = game.grammar.examine_object
    clean, hot, cool, sliced = o in state.clean, o in state.hot, o in state.cool, o in state.sliced
    tests = (
        o in game.able["vessel"], clean and hot and sliced, clean and cool and sliced, clean and sliced,
        hot and sliced, cool and sliced, clean and hot, clean and cool, hot, clean, cool,
        o in game.able["toggleable"] and o in state.toggled,
        False,  # "off" asks for a fact that upstream never states
        o in game.able["sliceable"] and sliced, True,
    )  # fmt: skip
    inside = listing([game.objects[x] for x in game.inside.get(o, ())])
    return sentences[tests.index(True)].format(o=game.objects[o], list=inside)


def _look(game: Game, state: State) -> str:
    here = game.at_location[state.at]
    if not here:
        return game.grammar.middle.format(list="nothing")
    floor = [game.objects[o] for o, r in sorted(state.taken) if r in here and state.at in state.near[o]]
    return game.grammar.facing.format(receptacles=_joined([game.receptacles[r] for r in here]), list=listing(floor))


def won(game: Game, state: State) -> bool:
    """Whether the goal holds in ``state``."""
    kind, wanted, target = game.goal.kind, game.goal.object_type, game.goal.target_type
    types = game.object_types
    if kind == "look_at_obj_in_light":
        if state.held < 0 or types[state.held] != wanted or not state.toggled:
            return False
        lit = {o for o in state.toggled if types[o] == target}
        return any(not lit.isdisjoint(state.contents[r]) for r in game.at_location[state.at])
    need = 2 if kind == "pick_two_obj_and_place" else 1
    for r, receptacle_type in enumerate(game.receptacle_types):
        if receptacle_type == target:
            placed = [o for o in state.contents[r] if types[o] == wanted and _ready(game, state, o)]
            if len(placed) >= need:
                return True
    return False


def _ready(game: Game, state: State, o: int) -> bool:
    """Whether object ``o`` has the property the goal asks for."""
    match game.goal.kind:
        case "pick_clean_then_place_in_recep":
            return o in state.clean and o in game.able["cleanable"]
        case "pick_heat_then_place_in_recep":
            return o in state.hot and o in game.able["heatable"]
        case "pick_cool_then_place_in_recep":
            return o in state.cool and o in game.able["coolable"]
    return True
