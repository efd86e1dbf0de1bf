"""Why a command was refused, for ``info["reason"]``; never part of an observation."""

import re

from seed_envs.alfworld.problem import Game, State


def explain(game: Game, state: State, command: str) -> str:
    """Return one line on why ``command`` is not offered in ``state``."""
    text = command.strip()
    if not text:
        return "empty command"
    if text != text.lower():
        return "commands are lower case"
    templates = game.grammar.templates
    put = templates["PutObject"]
    if (found := re.match(r"(put|move)\b", text)) and not put.startswith(found.group(1)):
        return f"this game's grammar says '{put.format(o='OBJECT', r='PLACE')}'"
    go = templates["GotoLocation"].format(r="")
    if text.startswith(go):
        place = text.removeprefix(go)
        if place not in game.receptacles:
            return f"there is no place called '{place}' here"
        here = [game.receptacles[r] for r in game.at_location[state.at]]
        if place in here:
            others = [name for name in here if name != place]
            shared = f" (it shares its spot with {', '.join(others)})" if others else ""
            return f"already at {place}{shared}: its other commands work without going there"
    if text.startswith(("take ", "heat ", "cool ", "clean ", "open ", "close ", "examine ", "use ", "slice ", put[:4])):
        return "not possible now: see the admissible actions for what is reachable, open and in hand"
    return "not a command of this game: see the admissible actions"
