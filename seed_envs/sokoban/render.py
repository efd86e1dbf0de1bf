"""Pictures of a room: tiles drawn by code, put together by table look-up."""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from seed_envs.sokoban.engine import WALL, Room, State, codes

Pixels = NDArray[np.uint8]
TILE = 16
"""Side of a tile in pixels."""

_BLACK, _GREEN = (0, 0, 0), (41, 202, 26)
_BRICK, _MORTAR = (176, 61, 0), (176, 154, 142)
_YELLOW, _ORANGE, _RED = (215, 196, 0), (215, 114, 0), (238, 0, 0)
_TINY = (
    (0, 0, 0), (243, 248, 238), (254, 126, 125), (254, 95, 56), (142, 121, 56), (160, 212, 56), (219, 212, 56),
)  # fmt: skip
"""gym-sokoban's colour of a cell per code, for one pixel a cell."""


def rgb(room: Room, state: State, *, canvas: tuple[int, int] | None = None) -> Pixels:
    """Return the picture, uint8 of shape (16 * rows, 16 * columns, 3).

    ``canvas`` is a size in cells at least the room's; what lies beyond the room is wall.
    """
    height, width = canvas or (room.height, room.width)
    tiles = _tiles()[_grid(room, state, height, width)]
    return tiles.transpose(0, 2, 1, 3, 4).reshape(height * TILE, width * TILE, 3)


def tiny(room: Room, state: State, *, canvas: tuple[int, int] | None = None) -> Pixels:
    """Return one pixel per cell, uint8 of shape (rows, columns, 3), in gym-sokoban's colours."""
    palette: Pixels = np.array(_TINY, dtype=np.uint8)
    return palette[_grid(room, state, *(canvas or (room.height, room.width)))]


def _grid(room: Room, state: State, height: int, width: int) -> Pixels:
    grid = np.frombuffer(codes(room, state), dtype=np.uint8).reshape(room.height, room.width)
    if (height, width) == grid.shape:
        return grid
    canvas = np.full((height, width), WALL, dtype=np.uint8)
    canvas[: room.height, : room.width] = grid
    return canvas


@cache
def _tiles() -> Pixels:
    """Return one tile per cell code: shape (7, 16, 16, 3)."""
    drawn = [_wall(), _floor(), _target(), _box(on_target=True), _box(on_target=False), _floor(), _target()]
    for image in drawn[-2:]:
        _figure(ImageDraw.Draw(image))
    tiles = np.stack([np.asarray(image, dtype=np.uint8) for image in drawn])
    tiles.setflags(write=False)
    return tiles


def _floor() -> Image.Image:
    return Image.new("RGB", (TILE, TILE), _BLACK)


def _wall() -> Image.Image:
    """Brick courses of three pixels over a line of mortar, every other one shifted by half a brick."""
    image = Image.new("RGB", (TILE, TILE), _BRICK)
    draw = ImageDraw.Draw(image)
    for course, top in enumerate(range(0, TILE, 4)):
        draw.line((0, top + 3, TILE - 1, top + 3), fill=_MORTAR)
        for x in (3, 11) if course % 2 else (7, 15):
            draw.line((x, top, x, top + 3), fill=_MORTAR)
    return image


def _target() -> Image.Image:
    """A red frame one pixel inside the tile and a red diamond of five pixels in its middle."""
    image = _floor()
    draw = ImageDraw.Draw(image)
    draw.rectangle((1, 1, 14, 14), outline=_RED)
    draw.line((7, 8, 9, 8), fill=_RED)
    draw.line((8, 7, 8, 9), fill=_RED)
    return image


def _box(*, on_target: bool) -> Image.Image:
    """A yellow crate with frame and X; orange, or red with a red middle when it is on a target."""
    image = Image.new("RGB", (TILE, TILE), _YELLOW)
    draw = ImageDraw.Draw(image)
    mark = _RED if on_target else _ORANGE
    draw.rectangle((0, 0, 15, 15), outline=mark, width=2)
    for stroke in ((2, 2, 13, 13), (3, 2, 13, 12), (2, 3, 12, 13), (13, 2, 2, 13), (12, 2, 2, 12), (13, 3, 3, 13)):
        draw.line(stroke, fill=mark)
    if on_target:
        draw.rectangle((5, 5, 10, 10), fill=_RED)
    return image


def _figure(draw: ImageDraw.ImageDraw) -> None:
    """A small green figure: two antennae, a round head with black eyes, a body with arms, two legs."""
    for left, top, right, bottom in ((5, 5, 10, 8), (4, 6, 11, 7), (6, 9, 9, 11), (6, 12, 6, 13), (9, 12, 9, 13)):
        draw.rectangle((left, top, right, bottom), fill=_GREEN)
    antennae = [(5, 2), (5, 3), (6, 4), (10, 2), (10, 3), (9, 4)]
    arms = [(4, 10), (5, 9), (11, 10), (10, 9)]
    draw.point(antennae + arms, fill=_GREEN)
    draw.rectangle((6, 6, 6, 7), fill=_BLACK)
    draw.rectangle((9, 6, 9, 7), fill=_BLACK)
