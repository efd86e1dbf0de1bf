"""A full-knowledge player: the shortest direct plan from any state to the goal."""

from collections.abc import Iterator

from seed_envs.alfworld.engine import accessible, won
from seed_envs.alfworld.problem import Game, State
from seed_envs.errors import SeedError

_TREATMENTS = {
    "pick_clean_then_place_in_recep": ("CleanObject", "cleanable", "clean", ("SinkBasin", "Sink")),
    "pick_heat_then_place_in_recep": ("HeatObject", "heatable", "hot", ("Microwave",)),
    "pick_cool_then_place_in_recep": ("CoolObject", "coolable", "cool", ("Fridge",)),
}


class Unreachable(SeedError):
    """The goal cannot be reached from here by any direct plan."""


def plan(game: Game, state: State) -> list[str]:
    """Return commands that win from ``state``; empty when it is won already.

    Every direct plan (which object, from where, which appliance, which target) is tried and the
    shortest kept, ties by its text. Following it one command at a time and planning again never
    goes astray: the rest of a plan is a candidate of the next state, one command shorter.

    Raises:
        Unreachable: when no direct plan exists.
    """
    if won(game, state):
        return []
    candidates = {
        "look_at_obj_in_light": _look_plans,
        "pick_two_obj_and_place": _pair_plans,
    }.get(game.goal.kind, _place_plans)
    best = min(candidates(game, state), key=lambda commands: (len(commands), commands), default=None)
    if best is None:
        raise Unreachable(f"no plan reaches '{game.instruction}' from here")
    return best


class _Walk:
    """Commands under way, with the little of the state that they depend on."""

    def __init__(self, game: Game, state: State) -> None:
        self.game, self.state = game, state
        self.at, self.held = state.at, state.held
        self.opened: set[int] = set()
        self.commands: list[str] = []

    def say(self, action: str, **names: str) -> None:
        self.commands.append(self.game.grammar.templates[action].format(**names))

    def reach(self, r: int, *, inside: bool) -> None:
        """Stand at receptacle ``r``, opened when its ``inside`` is needed."""
        if self.game.receptacle_at[r] != self.at:
            self.say("GotoLocation", r=self.game.receptacles[r])
            self.at = self.game.receptacle_at[r]
        if inside and not accessible(self.game, self.state, r) and r not in self.opened:
            self.say("OpenObject", r=self.game.receptacles[r])
            self.opened.add(r)

    def take(self, o: int, r: int) -> None:
        self.reach(r, inside=True)
        self.say("PickupObject", o=self.game.objects[o], r=self.game.receptacles[r])
        self.held = o

    def put(self, r: int) -> None:
        self.reach(r, inside=True)
        self.say("PutObject", o=self.game.objects[self.held], r=self.game.receptacles[r])
        self.held = -1

    def drop(self) -> bool:
        """Put down what is held where that takes the fewest commands; false when nothing takes it."""
        kind = self.game.object_types[self.held]
        places = [r for r, accepted in enumerate(self.game.accepts) if kind in accepted]
        if not places:
            return False

        def effort(r: int) -> tuple[int, int]:
            closed = not accessible(self.game, self.state, r) and r not in self.opened
            return (self.game.receptacle_at[r] != self.at) + closed, r

        self.put(min(places, key=effort))
        return True


def _sources(game: Game, state: State, *, ability: str = "pickupable") -> list[tuple[int, int]]:
    """Return (object, receptacle) pairs of the wanted type; receptacle -1 for one in hand."""
    wanted = game.goal.object_type
    fits = [o for o, kind in enumerate(game.object_types) if kind == wanted and o in game.able[ability]]
    found = [(state.held, -1)] if state.held in fits else []
    for r, contents in enumerate(state.contents):
        found += [(o, r) for o in contents if o in fits and o in game.able["pickupable"] and o != state.held]
    return found


def _holding(game: Game, state: State, o: int, r: int) -> _Walk | None:
    """Begin a walk that gets object ``o`` from ``r`` into the hand."""
    walk = _Walk(game, state)
    if r < 0:
        return walk
    if walk.held >= 0 and not walk.drop():
        return None
    walk.take(o, r)
    return walk


def _targets(game: Game, target_type: str, object_type: str) -> list[int]:
    return [r for r, kind in enumerate(game.receptacle_types) if kind == target_type and object_type in game.accepts[r]]


def _place_plans(game: Game, state: State) -> Iterator[list[str]]:
    goal = game.goal
    action, ability, flag, appliance_types = _TREATMENTS.get(goal.kind, ("", "pickupable", "", ()))
    appliances = [r for r, kind in enumerate(game.receptacle_types) if kind in appliance_types]
    for o, source in _sources(game, state, ability=ability):
        ready = not flag or o in getattr(state, flag)
        for target in _targets(game, goal.target_type, goal.object_type):
            for appliance in [-1] if ready else appliances:
                walk = _holding(game, state, o, source)
                if walk is None:
                    continue
                if appliance >= 0:
                    walk.reach(appliance, inside=False)
                    walk.say(action, o=game.objects[o], r=game.receptacles[appliance])
                walk.put(target)
                yield walk.commands


def _look_plans(game: Game, state: State) -> Iterator[list[str]]:
    lamps = [
        (o, r)
        for r, contents in enumerate(state.contents)
        for o in contents
        if game.object_types[o] == game.goal.target_type and o in game.able["toggleable"]
    ]
    for o, source in _sources(game, state):
        for lamp, r in lamps:
            walk = _holding(game, state, o, source)
            if walk is None:
                continue
            walk.reach(r, inside=False)
            if lamp not in state.toggled:
                walk.say("ToggleObject", o=game.objects[lamp])
            yield walk.commands


def _pair_plans(game: Game, state: State) -> Iterator[list[str]]:
    sources = _sources(game, state)
    for target in _targets(game, game.goal.target_type, game.goal.object_type):
        there = {o for o in state.contents[target] if game.object_types[o] == game.goal.object_type}
        outside = [(o, r) for o, r in sources if o not in there]
        for o, r in outside:
            walk = _holding(game, state, o, r)
            if walk is None:
                continue
            walk.put(target)
            if there:
                yield walk.commands
                continue
            for second, second_at in outside:
                if second != o and second_at >= 0:
                    rest = _holding(game, state, o, r)
                    assert rest is not None
                    rest.put(target)
                    rest.take(second, second_at)
                    rest.put(target)
                    yield rest.commands
