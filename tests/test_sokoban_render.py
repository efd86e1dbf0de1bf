"""The pictures: what the published prompt describes, and the same pixels everywhere."""

import hashlib

import numpy as np

from seed_envs.sokoban import engine, render
from seed_envs.sokoban.engine import BOX, BOX_ON_TARGET, FLOOR, PLAYER, PLAYER_ON_TARGET, TARGET, WALL

ROOM = ["######", "#OP_O#", "#X√__#", "##__X#", "#____#", "######"]
RED, GREEN, YELLOW, ORANGE, BLACK = (238, 0, 0), (41, 202, 26), (215, 196, 0), (215, 114, 0), (0, 0, 0)
BRICK, MORTAR = (176, 61, 0), (176, 154, 142)


def colours(code: int) -> dict[tuple[int, ...], int]:
    """Return how many pixels of a tile have each colour."""
    pixels, counts = np.unique(render._tiles()[code].reshape(-1, 3), axis=0, return_counts=True)
    return {tuple(map(int, pixel)): int(count) for pixel, count in zip(pixels, counts, strict=True)}


def test_tiles_have_the_features_the_prompt_names() -> None:
    assert colours(WALL).keys() == {BRICK, MORTAR}
    assert colours(WALL)[BRICK] > 150
    assert colours(FLOOR) == {BLACK: 256}
    assert colours(TARGET) == {BLACK: 256 - 52 - 5, RED: 52 + 5}
    assert colours(BOX).keys() == {YELLOW, ORANGE}
    assert colours(BOX_ON_TARGET).keys() == {YELLOW, RED}
    assert colours(PLAYER).keys() == {BLACK, GREEN}
    assert colours(PLAYER_ON_TARGET).keys() == {BLACK, GREEN, RED}
    target, box = render._tiles()[TARGET], render._tiles()[BOX]
    assert all(tuple(target[1, i]) == tuple(target[i, 14]) == RED for i in range(1, 15)), "a red frame"
    assert [tuple(target[y, x]) for y, x in ((8, 8), (7, 8), (9, 8), (8, 7), (8, 9))] == [RED] * 5, "a diamond"
    assert all(tuple(box[i, i]) == tuple(box[i, 15 - i]) == ORANGE for i in range(16)), "an X"
    assert (box == box[:, ::-1]).all() and (box == box[::-1]).all()
    antennae = render._tiles()[PLAYER][:5]
    assert [tuple(antennae[2, x]) for x in (5, 7, 10)] == [GREEN, BLACK, GREEN]
    assert (render._tiles()[PLAYER] == render._tiles()[PLAYER][:, ::-1]).all()
    assert len({tile.tobytes() for tile in render._tiles()}) == 7


def test_a_picture_is_the_tiles_of_the_cells() -> None:
    room, state = engine.parse(ROOM)
    image = render.rgb(room, state)
    assert image.shape == (96, 96, 3) and image.dtype == np.uint8
    for cell, code in enumerate(engine.codes(room, state)):
        top, left = cell // 6 * 16, cell % 6 * 16
        assert (image[top : top + 16, left : left + 16] == render._tiles()[code]).all()


def test_tiny_pictures_have_gym_sokobans_colours() -> None:
    room, state = engine.parse(ROOM)
    image = render.tiny(room, state)
    assert image.shape == (6, 6, 3)
    assert [tuple(map(int, image[at])) for at in ((0, 0), (1, 3), (1, 1), (2, 2), (2, 1), (1, 2))] == [
        (0, 0, 0), (243, 248, 238), (254, 126, 125), (254, 95, 56), (142, 121, 56), (160, 212, 56),
    ]  # fmt: skip
    room, state = engine.parse(["#####", "#SX_#", "#####"])
    assert tuple(map(int, render.tiny(room, state)[1, 1])) == (219, 212, 56)


def test_a_larger_canvas_is_wall() -> None:
    room, state = engine.parse(ROOM)
    image = render.rgb(room, state, canvas=(8, 7))
    assert image.shape == (128, 112, 3)
    assert (image[:96, :96] == render.rgb(room, state)).all()
    assert (image[96:112, 96:112] == render._tiles()[WALL]).all()


def test_tiles_are_the_ones_first_published() -> None:
    """Models are trained on these pixels, whatever the version of pillow."""
    assert (
        hashlib.sha256(render._tiles().tobytes()).hexdigest()
        == "19b85bc9cb23d089844a3e63aa6e5106aafbb1769b5d868c3c6bf215b2509c3a"
    )
