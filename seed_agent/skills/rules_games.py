"""What the rule-based annotator knows of single games: which actions mattered and what went wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from seed_agent.skills import rules_search, rules_shop
from seed_agent.trajectory import Episode, Turn
from seed_envs.errors import DataError
from seed_envs.sokoban.engine import Room, State, cells, parse


def _verbatim(turn: Turn, episode: Episode) -> str:
    return turn.action


@dataclass(frozen=True)
class Game:
    """The rules of one kind of environment."""

    rule: Callable[[Episode], str]
    """What decides in such a task, as advice."""
    key_actions: Callable[[Episode], list[str]]
    """The actions of a success that mattered, in order."""
    mistakes: Callable[[Episode], Iterator[str]]
    """The mistakes of a failure as rules of avoidance, the gravest first."""
    told: Callable[[Turn, Episode], str] = _verbatim
    """How an action is quoted, where the action itself would give the solution away."""


def _done(episode: Episode) -> list[str]:
    """Return the actions that changed something."""
    return [turn.action for turn in episode.turns if turn.effective is not False and turn.action]


# --- ALFWorld ---------------------------------------------------------------------------------------------------------

_ALFWORLD_RULES = {
    "look_at_obj_in_light": "Take the object, carry it to a lamp and use the lamp while you hold the object.",
    "pick_clean_then_place_in_recep": "Take the object, clean it at the sink basin, and only then put it in its place.",
    "pick_heat_then_place_in_recep": "Take the object, heat it at the microwave, and only then put it in its place.",
    "pick_cool_then_place_in_recep": "Take the object, cool it at the fridge, and only then put it in its place.",
    "pick_two_obj_and_place": "Bring two objects of the kind to the very same place, one after the other.",
}
_PICK = "Take the object where you find it and put it straight in the place where it belongs."
_TREATMENTS = {
    "pick_clean_then_place_in_recep": ("clean", "at the sink basin"),
    "pick_heat_then_place_in_recep": ("heat", "at the microwave"),
    "pick_cool_then_place_in_recep": ("cool", "at the fridge"),
}
_DEEDS = {"take", "move", "put", "clean", "heat", "cool", "use", "slice"}


def _alfworld_rule(episode: Episode) -> str:
    return _ALFWORLD_RULES.get(episode.category, _PICK)


def _alfworld_actions(episode: Episode) -> list[str]:
    """Return what was done with objects and the last steps of the way to it; the search is left out."""
    kept: list[str] = []
    way: list[str] = []
    for action in _done(episode):
        verb = action.partition(" ")[0]
        if action.startswith("go to "):
            way = [action]
        elif verb == "open":
            way.append(action)
        elif verb in _DEEDS:
            kept += [*way, action]
            way = []
    return kept


def _alfworld_mistakes(episode: Episode) -> Iterator[str]:
    deeds = [action for action in _done(episode) if action.partition(" ")[0] in _DEEDS]
    verbs = [deed.partition(" ")[0] for deed in deeds]
    placed = [deed for deed, verb in zip(deeds, verbs, strict=True) if verb in ("move", "put")]
    if "take" not in verbs:
        yield (
            "Pick the wanted object up as soon as you see it: nothing was ever taken. "
            "Visit new places, open closed ones and do not look into one place twice."
        )
        return
    treatment, where = _TREATMENTS.get(episode.category, ("", ""))
    if treatment and treatment not in verbs:
        yield f"Do not forget to {treatment} the object {where} before you put it in its place: that was never done."
    elif episode.category == "look_at_obj_in_light" and "use" not in verbs:
        yield "Look for a lamp and use it while you hold the object: no lamp was ever switched on."
    elif episode.category == "pick_two_obj_and_place" and len(placed) == 1:
        yield "One object is not enough: after the first, find a second of the kind and bring it to the same place."
    elif not placed and episode.category != "look_at_obj_in_light":
        yield "With the object ready in hand, go to the place where it belongs at once: it was never put down."
    elif placed:
        yield f"Check object and place against the task before you put anything down: '{placed[-1]}' did not finish it."


# --- Sokoban ----------------------------------------------------------------------------------------------------------

_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


def _sokoban_rule(episode: Episode) -> str:
    return "Walk to the side of the box away from its target before you push, and keep boxes out of corners."


def _sokoban_mistakes(episode: Episode) -> Iterator[str]:
    stuck = _stuck_at(episode)
    if stuck is not None:
        action = episode.turns[stuck].action
        yield (
            f"Do not push a box into a corner that is no target: '{action}' at step {stuck} did, and nothing could "
            "save the room after it. Check what is behind the box before each push."
        )
    bumps = sum(turn.effective is False for turn in episode.turns)
    if bumps:
        yield f"Do not move against walls or blocked boxes: {bumps} of {len(episode.turns)} turns changed nothing."
    moves = [turn.action for turn in episode.turns]
    turned = sum(_OPPOSITE.get(a) == b for a, b in pairwise(moves))
    if turned >= 3:
        yield f"Do not walk to and fro: {turned} moves took back the one before. Choose the way first, then walk it."


def _stuck_at(episode: Episode) -> int | None:
    """Return the first step after which a box is in a corner for good; None where the text shows none."""
    seen = [turn.observation for turn in episode.turns] + ([episode.final] if episode.final else [])
    for step, after in enumerate(seen[1:]):
        try:
            if _cornered(*parse(after.text.split("\n"))):
                return step
        except DataError:  # a picture's fixed sentence
            return None
    return None


def _cornered(room: Room, state: State) -> bool:
    up, down, left, right = room.offsets
    return any(
        any(not room.floor >> box + across & 1 for across in (up, down))
        and any(not room.floor >> box + along & 1 for along in (left, right))
        for box in cells(state.boxes & ~room.targets)
    )


GAMES = {
    "alfworld": Game(_alfworld_rule, _alfworld_actions, _alfworld_mistakes),
    "sokoban": Game(_sokoban_rule, _done, _sokoban_mistakes),
    "webshop": Game(rules_shop.rule, rules_shop.key_actions, rules_shop.mistakes, rules_shop.told),
    "searchqa": Game(rules_search.rule, rules_search.key_actions, rules_search.mistakes, rules_search.told),
}
"""By kind of environment; a third party may add its own."""
