"""Rooms in a terminal: two columns a cell, to be read by colour or by the characters alone."""

from rich.color import Color
from rich.console import Group
from rich.style import Style
from rich.text import Text

from seed_envs.sokoban import render
from seed_envs.sokoban.engine import (
    BOX,
    BOX_ON_TARGET,
    FLOOR,
    PLAYER,
    PLAYER_ON_TARGET,
    TARGET,
    WALL,
    Room,
    State,
    codes,
)

GLYPHS = {WALL: "##", FLOOR: "  ", TARGET: "()", BOX_ON_TARGET: "{}", BOX: "[]", PLAYER: "@@", PLAYER_ON_TARGET: "@)"}
LEGEND = {
    PLAYER: "you", BOX: "box", TARGET: "target", BOX_ON_TARGET: "box on a target", PLAYER_ON_TARGET: "you on a target",
}  # fmt: skip


def picture(room: Room, state: State) -> Group:
    """Return the room, one line a row, with what the characters mean beside it.

    Colours are those of ``render.tiny``; a terminal with fewer shows the nearest, or none.
    """
    found, pixels = codes(room, state), render.tiny(room, state).reshape(-1, 3).tolist()
    meanings = [f"  {GLYPHS[code]} {meaning}" for code, meaning in LEGEND.items()]
    lines = []
    for row, start in enumerate(range(0, len(found), room.width)):
        cells = [(GLYPHS[found[i]], _style(*pixels[i])) for i in range(start, start + room.width)]
        meaning = meanings[row] if row < len(meanings) else ""
        lines.append(Text.assemble(*cells, meaning, no_wrap=True, overflow="crop"))
    return Group(*lines)


def _style(red: int, green: int, blue: int) -> Style:
    """Return dark characters on a light cell, grey ones on a dark cell."""
    ink = 0 if red + green + blue > 200 else 110
    return Style(color=Color.from_rgb(ink, ink, ink), bgcolor=Color.from_rgb(red, green, blue), bold=True)
