"""The rules of the native engine, one by one, in a kitchen written by hand."""

import pytest

from seed_envs.alfworld import engine
from seed_envs.alfworld.grammar import MOVE, NOTHING_HAPPENS, PUT, Grammar
from seed_envs.alfworld.problem import Game, State, compile_game
from seed_envs.errors import DataError

# Where, the receptacles there (* = has a door), and what lies in them. Within one name the first
# id in sorted order gets the highest number: Cabinet_bar_a is cabinet 2, Cabinet_bar_b cabinet 1.
HOUSE = {
    "loc_bar_1": {"CounterTop_bar_a": ["Mug_bar_a", "Knife_bar_a", "Lettuce_bar_a", "PaperTowelRoll_bar_a"]},
    "loc_bar_2": {"*Cabinet_bar_a": ["Mug_bar_b"], "Cabinet_bar_b": []},
    "loc_bar_3": {"*Drawer_bar_a": [], "*Drawer_bar_b": ["Spoon_bar_a"], "*Drawer_bar_c": []},
    "loc_bar_4": {"*Fridge_bar_a": ["Apple_bar_a"]},
    "loc_bar_5": {"*Microwave_bar_a": []},
    "loc_bar_6": {"Sink_bar_a_bar_SinkBasin": []},
    "loc_bar_7": {"Desk_bar_a": ["DeskLamp_bar_a", "Apple_bar_b"], "SideTable_bar_a": []},
}
ABLE = {
    "pickupable": ["Mug", "Knife", "Lettuce", "PaperTowelRoll", "Spoon", "Apple"],
    "cleanable": ["Mug", "Knife", "Lettuce", "Spoon", "Apple"],
    "heatable": ["Mug", "Apple"],
    "coolable": ["Mug", "Apple", "Lettuce"],
    "toggleable": ["DeskLamp"],
    "sliceable": ["Lettuce", "Apple"],
    "isReceptacleObject": ["Mug"],
}
PLACED = "(receptacleType ?r {r}Type) (objectType ?o {o}Type) (inReceptacle ?o ?r)"
GOALS = {
    "pick": PLACED,
    "two": f"{PLACED} (exists (?o2 - object) (and (not (= ?o ?o2)) {PLACED.replace('?o', '?o2')}))",
    "clean": f"(cleanable ?o) (isClean ?o) {PLACED}",
    "heat": f"(heatable ?o) (isHot ?o) {PLACED}",
    "cool": f"(coolable ?o) (isCool ?o) {PLACED}",
    "look": "(exists (?t - object ?l - location ?a - agent) (and (objectType ?t {r}Type) (toggleable ?t) "
    "(isToggled ?t) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?t ?r) "
    "(objectType ?o {o}Type) (holds ?a ?o)))",
}


def kind_of(entity: str) -> str:
    return "SinkBasin" if "SinkBasin" in entity else entity.lstrip("*").split("_", 1)[0]


def kitchen_problem(goal: str = "pick", o: str = "Mug", r: str = "Desk") -> str:
    """Return the house with a goal as a PDDL problem, complete enough for a planner to read."""
    facts = ["atLocation agent1 loc_bar_0", "isCool Apple_bar_a", "inReceptacleObject Spoon_bar_a Mug_bar_a"]
    objects: list[str] = []
    for place, receptacles in HOUSE.items():
        for name, contents in receptacles.items():
            receptacle = name.lstrip("*")
            facts += [f"receptacleType {receptacle} {kind_of(name)}Type", f"receptacleAtLocation {receptacle} {place}"]
            facts += [f"openable {receptacle}"] if name.startswith("*") else []
            for thing in contents:
                facts += [f"inReceptacle {thing} {receptacle}", f"objectAtLocation {thing} {place}"]
            objects += contents
    places = [name.lstrip("*") for receptacles in HOUSE.values() for name in receptacles]
    types = sorted({kind_of(place) for place in places})
    for thing in objects:
        facts.append(f"objectType {thing} {kind_of(thing)}Type")
        facts += [f"{ability} {thing}" for ability, kinds in ABLE.items() if kind_of(thing) in kinds]
    kinds = sorted({kind_of(thing) for thing in objects})
    for thing in kinds:
        if thing != "PaperTowelRoll":
            facts += [f"canContain {receptacle}Type {thing}Type" for receptacle in types]
    declared = [f"{entity} - object" for entity in objects] + [f"{place} - receptacle" for place in places]
    declared += [f"{place} - location" for place in ("loc_bar_0", *HOUSE)] + ["agent1 - agent"]
    declared += [f"{kind}Type - otype" for kind in kinds] + [f"{kind}Type - rtype" for kind in types]
    wanted = f"(exists (?r - receptacle ?o - object) (and {GOALS[goal].format(o=o, r=r)}))"
    return (
        "(define (problem p) (:domain alfred)\n(:objects\n" + "\n".join(declared) + ")\n"
        "(:init\n" + "\n".join(f"({fact})" for fact in facts) + ")\n"
        f"(:goal (and {wanted})))"
    )


def kitchen(goal: str = "pick", o: str = "Mug", r: str = "Desk", grammar: Grammar = MOVE) -> Game:
    return compile_game(kitchen_problem(goal, o, r), "do it.", grammar)


def play(game: Game, *commands: str, state: State | None = None) -> tuple[State, list[str]]:
    """Take ``commands``; every one must be admissible unless it starts with ``!``."""
    state, texts = state or game.start, []
    for command in commands:
        outcome = engine.step(game, state, command.removeprefix("!"))
        assert outcome.admissible is not command.startswith("!"), command
        state = outcome.state
        texts.append(outcome.text)
    return state, texts


def said(*commands: str, grammar: Grammar = MOVE) -> str:
    """Return what the last of ``commands`` prints."""
    return play(kitchen(grammar=grammar), *commands)[1][-1]


def test_the_intro_lists_receptacles_in_id_order_with_falling_numbers() -> None:
    game = kitchen()
    assert engine.intro(game, game.start) == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a cabinet 2, a cabinet 1, a countertop 1, a desk 1, a drawer 3, a drawer 2, a drawer 1, a fridge 1, "
        "a microwave 1, a sidetable 1, and a sinkbasin 1.\n\nYour task is to: do it."
    )


@pytest.mark.parametrize(
    ("commands", "text"),
    [
        (["look"], "You are in the middle of a room. Looking quickly around you, you see nothing."),
        (["inventory"], "You are not carrying anything."),
        (["go to countertop 1", "take mug 2 from countertop 1", "inventory"], "You are carrying: a mug 2."),
        (
            ["go to countertop 1"],
            "You arrive at countertop 1. On the countertop 1, you see a knife 1, a lettuce 1, a mug 2, "
            "and a papertowelroll 1.",
        ),
        (["go to desk 1"], "You arrive at desk 1. On the desk 1, you see a apple 1, and a desklamp 1."),
        (["go to sinkbasin 1"], "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing."),
        (["go to fridge 1"], "You arrive at fridge 1. The fridge 1 is closed."),
        (["go to fridge 1", "examine fridge 1"], "The fridge 1 is closed."),
        (["go to fridge 1", "open fridge 1"], "You open the fridge 1. The fridge 1 is open. In it, you see a apple 2."),
        (["go to fridge 1", "open fridge 1", "close fridge 1"], "You close the fridge 1."),
        (["go to cabinet 1"], "You arrive at cabinet 1. On the cabinet 1, you see nothing."),  # has no door
        (["go to cabinet 2", "look"], "You are facing the cabinet 2, and cabinet 1. Next to it, you see nothing."),
        (["go to countertop 1", "take mug 2 from countertop 1"], "You pick up the mug 2 from the countertop 1."),
        (["go to desk 1", "use desklamp 1"], "You turn on the desklamp 1."),
        (["go to desk 1", "use desklamp 1", "use desklamp 1"], "You turn on the desklamp 1."),  # never off
    ],
)
def test_feedback(commands: list[str], text: str) -> None:
    assert said(*commands) == text


def test_help_lists_the_commands_and_ends_the_line() -> None:
    text = said("help")
    assert text.startswith(
        "Available commands:\n  look:                             look around your current location\n"
    )
    assert "  move (object) to (receptacle):  place an object in or on a receptacle\n" in text
    assert text.count("\n") == 14 and text.endswith("\n")


@pytest.mark.parametrize(
    "command",
    ["", "dance", "Look", "LOOK", "go to", "go to bathtub 1", "go to  desk 1", "open desk 1",
     "take mug 1 from cabinet 2", "go to desk 1\nlook", "examine mug 2", "use knife 1", "go to d\udcffsk 1"],
)  # fmt: skip
def test_anything_else_changes_nothing_and_says_so(command: str) -> None:
    game = kitchen()
    assert engine.step(game, game.start, command) == (game.start, NOTHING_HAPPENS, False)


def test_blanks_around_a_command_do_not_matter() -> None:
    game = kitchen()
    assert engine.step(game, game.start, " \tgo to desk 1\n") == engine.step(game, game.start, "go to desk 1")


def test_going_where_one_is_is_refused() -> None:
    play(kitchen(), "go to desk 1", "!go to desk 1", "go to cabinet 1", "go to desk 1")


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
def test_places_that_share_a_location_are_all_in_reach_and_refuse_go_to(order: tuple[int, ...]) -> None:
    first, second, third = (f"drawer {number}" for number in order)
    game = kitchen()
    state, _ = play(game, f"go to {first}", f"!go to {second}", f"open {second}", f"open {third}", f"open {first}")
    assert engine.step(game, state, "look").text == (
        "You are facing the drawer 3, drawer 2, and drawer 1. Next to it, you see nothing."
    )
    state, _ = play(game, "take spoon 1 from drawer 2", "move spoon 1 to drawer 3", state=state)
    play(game, "go to desk 1", f"go to {third}", "go to desk 1", f"go to {second}", state=state)


def test_a_closed_door_keeps_things_in_and_out() -> None:
    play(kitchen(), "go to fridge 1", "!take apple 2 from fridge 1", "open fridge 1", "!open fridge 1",
         "take apple 2 from fridge 1", "close fridge 1", "!close fridge 1", "!move apple 2 to fridge 1",
         "open fridge 1", "move apple 2 to fridge 1")  # fmt: skip


def test_one_thing_in_hand_at_a_time() -> None:
    play(kitchen(), "go to countertop 1", "take mug 2 from countertop 1", "!take knife 1 from countertop 1")


def test_only_what_a_place_accepts_goes_there() -> None:
    take = ["go to countertop 1", "take papertowelroll 1 from countertop 1"]
    play(kitchen(), *take, "!move papertowelroll 1 to countertop 1")  # not even back


def test_scenery_cannot_be_taken() -> None:
    play(kitchen(), "go to desk 1", "!take desklamp 1 from desk 1")


@pytest.mark.parametrize(("place", "verb"), [("sinkbasin 1", "clean"), ("microwave 1", "heat"), ("fridge 1", "cool")])
def test_appliances_work_behind_closed_doors_on_what_is_held(place: str, verb: str) -> None:
    game = kitchen()
    state, _ = play(game, f"go to {place}", f"!{verb} mug 2 with {place}", "go to countertop 1",
                    f"!{verb} mug 2 with {place}", "take mug 2 from countertop 1", f"go to {place}")  # fmt: skip
    assert play(game, f"{verb} mug 2 with {place}", state=state)[1] == [f"You {verb} the mug 2 using the {place}."]
    play(game, *(f"!{other} mug 2 with {place}" for other in {"clean", "heat", "cool"} - {verb}), state=state)


def test_appliances_refuse_what_they_do_not_suit() -> None:
    play(kitchen(), "go to countertop 1", "take knife 1 from countertop 1", "go to microwave 1",
         "!heat knife 1 with microwave 1")  # fmt: skip


FETCH = ["go to desk 1", "take apple 1 from desk 1"]
CLEAN = ["go to sinkbasin 1", "clean apple 1 with sinkbasin 1"]
HEAT = ["go to microwave 1", "heat apple 1 with microwave 1"]
COOL = ["go to fridge 1", "cool apple 1 with fridge 1"]
SLICE = ["go to countertop 1", "take knife 1 from countertop 1", "go to desk 1", "slice apple 1 with knife 1",
         "go to countertop 1", "move knife 1 to countertop 1"]  # fmt: skip


@pytest.mark.parametrize(
    ("done", "text"),
    [
        ([*FETCH], "There's nothing special about apple 1."),
        ([*FETCH, *CLEAN], "This is a clean apple 1."),
        ([*FETCH, *HEAT], "This is a hot apple 1."),
        ([*FETCH, *COOL], "This is a cold apple 1."),
        ([*FETCH, *COOL, *HEAT], "This is a hot apple 1."),  # heating undoes cooling, and the reverse
        ([*FETCH, *HEAT, *COOL], "This is a cold apple 1."),
        ([*FETCH, *CLEAN, *HEAT], "This is a hot and clean apple 1."),
        ([*FETCH, *CLEAN, *HEAT, *COOL, *CLEAN], "This is a cool and clean apple 1."),
        ([*SLICE, *FETCH], "This is a sliced apple 1."),
        ([*SLICE, *FETCH, *CLEAN], "This is a clean sliced apple 1."),
        ([*SLICE, *FETCH, *HEAT], "This is a hot sliced apple 1."),
        ([*SLICE, *FETCH, *COOL], "This is a cool sliced apple 1."),
        ([*SLICE, *FETCH, *CLEAN, *HEAT], "This is a hot and clean sliced apple 1."),
        ([*SLICE, *FETCH, *CLEAN, *COOL], "This is a cool and clean sliced apple 1."),
    ],
)
def test_examining_what_is_held_tells_its_state(done: list[str], text: str) -> None:
    assert said(*done, "examine apple 1") == text


def test_a_vessel_tells_its_contents_whatever_its_state() -> None:
    take = ["go to countertop 1", "take mug 2 from countertop 1", "go to sinkbasin 1", "clean mug 2 with sinkbasin 1"]
    assert said(*take, "examine mug 2") == "This is a normal mug 2. In it, you see a spoon 1."
    fetch = ["go to cabinet 2", "open cabinet 2", "take mug 1 from cabinet 2"]
    assert said(*fetch, "examine mug 1") == "This is a normal mug 1. In it, you see nothing."


def test_objects_are_examined_only_while_held() -> None:
    play(kitchen(), "go to desk 1", "!examine apple 1", "take apple 1 from desk 1", "examine apple 1",
         "move apple 1 to desk 1", "!examine apple 1")  # fmt: skip


def test_slicing_needs_a_knife_and_the_thing_here() -> None:
    game = kitchen()
    state, texts = play(game, "go to countertop 1", "!slice lettuce 1 with knife 1", "take knife 1 from countertop 1",
                        "slice lettuce 1 with knife 1", "!slice apple 1 with knife 1")  # fmt: skip
    assert texts[3] == "You sliced the lettuce 1 with the knife 1."
    play(game, "go to fridge 1", "slice apple 2 with knife 1", "!slice lettuce 1 with knife 1", state=state)


def test_look_shows_what_was_moved_between_two_places_here() -> None:
    game = kitchen()
    state, _ = play(game, *FETCH, "move apple 1 to sidetable 1")
    facing = "You are facing the desk 1, and sidetable 1. Next to it, you see "
    assert play(game, "look", state=state)[1] == [f"{facing}a apple 1."]
    _, texts = play(game, "take apple 1 from sidetable 1", "look", "move apple 1 to desk 1", "look", state=state)
    assert [texts[1], texts[3]] == [f"{facing}nothing.", f"{facing}a apple 1."]


def test_a_start_in_front_of_something_is_told_in_the_intro() -> None:
    game = kitchen()
    state, _ = play(game, "go to desk 1")
    assert "\n\nYou are facing the desk 1, and sidetable 1. Next to it, you see nothing.\n\n" in engine.intro(
        game, state
    )


PUT_MUG = ["go to countertop 1", "take mug 2 from countertop 1", "go to desk 1", "move mug 2 to desk 1"]


@pytest.mark.parametrize(
    ("goal", "before", "last"),
    [
        (("pick", "Mug", "Desk"), PUT_MUG[:-1], PUT_MUG[-1]),
        (("pick", "Apple", "SideTable"), FETCH, "move apple 1 to sidetable 1"),
        (("clean", "Apple", "Desk"), [*FETCH, *CLEAN, "go to desk 1"], "move apple 1 to desk 1"),
        (("heat", "Apple", "Microwave"), [*FETCH, *HEAT, "open microwave 1"], "move apple 1 to microwave 1"),
        (("cool", "Apple", "Desk"), [*FETCH, *COOL, "go to desk 1"], "move apple 1 to desk 1"),
        # Upstream's own start: what lies in a fridge is cool already.
        (("cool", "Apple", "Desk"), ["go to fridge 1", "open fridge 1", "take apple 2 from fridge 1", "go to desk 1"],
         "move apple 2 to desk 1"),
        (("two", "Mug", "Desk"), [*PUT_MUG, "go to cabinet 2", "open cabinet 2", "take mug 1 from cabinet 2",
                                  "go to desk 1"], "move mug 1 to desk 1"),
        (("look", "Apple", "DeskLamp"), FETCH, "use desklamp 1"),
        (("look", "Apple", "DeskLamp"), ["go to desk 1", "use desklamp 1"], "take apple 1 from desk 1"),
        (("look", "Mug", "DeskLamp"), ["go to desk 1", "use desklamp 1", *PUT_MUG[:2]], "go to sidetable 1"),
    ],
)  # fmt: skip
def test_goals_are_won_by_the_last_command_and_not_before(
    goal: tuple[str, str, str], before: list[str], last: str
) -> None:
    game = kitchen(*goal)
    state = game.start
    for command in before:
        assert not engine.won(game, state)
        state, _ = play(game, command, state=state)
    assert not engine.won(game, state)
    assert engine.won(game, play(game, last, state=state)[0])


@pytest.mark.parametrize(
    ("goal", "commands"),
    [
        (("pick", "Mug", "SideTable"), PUT_MUG),  # another place at the same location
        (("clean", "Mug", "Desk"), PUT_MUG),
        (("heat", "Apple", "Desk"), [*FETCH, *HEAT, *COOL, "go to desk 1", "move apple 1 to desk 1"]),
        (("cool", "Apple", "Desk"), [*FETCH, *COOL, *HEAT, "go to desk 1", "move apple 1 to desk 1"]),
        (("two", "Mug", "Desk"), [*PUT_MUG, "go to cabinet 2", "open cabinet 2", "take mug 1 from cabinet 2",
                                  "go to desk 1", "move mug 1 to sidetable 1"]),
        (("look", "Apple", "DeskLamp"), ["go to desk 1", "use desklamp 1", "examine desk 1"]),
        (("look", "Apple", "DeskLamp"), ["go to desk 1", "use desklamp 1", "take apple 1 from desk 1",
                                         "go to cabinet 1"]),
    ],
)  # fmt: skip
def test_what_nearly_reaches_a_goal_does_not_win(goal: tuple[str, str, str], commands: list[str]) -> None:
    game = kitchen(*goal)
    assert not engine.won(game, play(game, *commands)[0])


def test_a_won_state_can_be_lost_again() -> None:
    game = kitchen("pick")
    state, _ = play(game, *PUT_MUG)
    assert engine.won(game, state)
    assert not engine.won(game, play(game, "take mug 2 from desk 1", state=state)[0])


@pytest.mark.parametrize(
    ("grammar", "works", "refused"),
    [
        (MOVE, "move mug 2 to desk 1", ["put mug 2 in/on desk 1", "put mug 2 in desk 1", "put mug 2 on desk 1"]),
        (PUT, "put mug 2 in/on desk 1", ["move mug 2 to desk 1", "put mug 2 in / on desk 1", "help"]),
    ],
)
def test_each_grammar_refuses_the_verbs_of_the_other(grammar: Grammar, works: str, refused: list[str]) -> None:
    game = kitchen(grammar=grammar)
    state, _ = play(game, *PUT_MUG[:-1])
    assert works in engine.admissible(game, state)
    play(game, *(f"!{command}" for command in refused), works, state=state)
    assert engine.won(game, play(game, works, state=state)[0])


def test_the_old_grammar_names_locations_and_says_put() -> None:
    assert said("go to fridge 1", grammar=PUT) == "You arrive at loc 4. The fridge 1 is closed."
    assert said(*PUT_MUG[:-1], "put mug 2 in/on desk 1", grammar=PUT) == "You put the mug 2 in/on the desk 1."


@pytest.mark.parametrize("problem", ["", "(:goal (and))", "(:init (atLocation a l)) (:goal (and (a b)))"])
def test_a_torn_problem_is_refused(problem: str) -> None:
    with pytest.raises(DataError):
        compile_game(problem, "", MOVE)
