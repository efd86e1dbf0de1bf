"""The rules of Sokoban as functions over explicit, immutable state.

Source: gym-sokoban 0.0.6 and verl-agent's environment on top of it, as observed. A set of cells is
an integer: bit ``row * width + column``. Every room is closed by walls, so no shift ever wraps.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from seed_envs.errors import DataError

WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = range(7)
SYMBOLS = "#_O√XPS"
"""One character per cell code, as RAGEN and verl-agent print them."""
XSB = "# .*$@+"
"""The same in the usual Sokoban file format, which Boxoban uses."""
DIRECTIONS = ("up", "down", "left", "right")

STILL = 0
PUSH = range(1, 5)
"""Actions up, down, left, right that push a box in the way where it can move."""
MOVE = range(5, 9)
"""The same four, which never push; gym-sokoban has them, agents do not."""

TURN_REWARD, BOX_REWARD, SOLVED_REWARD = -0.1, 1.0, 10.0


class Room(NamedTuple):
    """What never changes: size, cells that are not wall, and targets among them."""

    height: int
    width: int
    floor: int
    targets: int

    @property
    def offsets(self) -> tuple[int, int, int, int]:
        """Index differences of a step up, down, left and right."""
        return (-self.width, self.width, -1, 1)


class State(NamedTuple):
    """What changes: the cells with boxes and the index of the player's cell."""

    boxes: int
    player: int


class Outcome(NamedTuple):
    """What one action did."""

    state: State
    reward: float
    solved: bool


def step(room: Room, state: State, action: int) -> Outcome:
    """Take an action from ``STILL``, ``PUSH`` or ``MOVE``; what is blocked leaves the state equal.

    -0.1 for every action, +1 when more boxes are on targets than before and -1 when fewer, +10
    while all are: stepping on after the end pays it again, as upstream does.

    Raises:
        ValueError: for another action.
    """
    after = _after(room, state, action)
    gained = (after.boxes & room.targets).bit_count() - (state.boxes & room.targets).bit_count()
    reward = TURN_REWARD + BOX_REWARD * gained
    done = solved(room, after)
    return Outcome(after, reward + SOLVED_REWARD if done else reward, done)


def _after(room: Room, state: State, action: int) -> State:
    if action == STILL:
        return state
    if action not in PUSH and action not in MOVE:
        raise ValueError(f"no action {action}; expected 0 to 8")
    offset = room.offsets[(action - 1) % 4]
    ahead = state.player + offset
    if state.boxes >> ahead & 1:
        behind = ahead + offset
        blocked = state.boxes >> behind & 1 or not room.floor >> behind & 1
        if blocked or action in MOVE:
            return state
        return State(state.boxes ^ (1 << ahead) ^ (1 << behind), ahead)
    return State(state.boxes, ahead) if room.floor >> ahead & 1 else state


def solved(room: Room, state: State) -> bool:
    """Whether every box is on a target."""
    return not state.boxes & ~room.targets


def cells(mask: int) -> Iterator[int]:
    """Yield the indices in a set of cells, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def shift(mask: int, offset: int) -> int:
    """Return a set of cells moved by an index difference."""
    return mask << offset if offset >= 0 else mask >> -offset


@lru_cache(maxsize=256)
def interior(height: int, width: int) -> int:
    """Return all cells but the outer ring."""
    row = (1 << width - 2) - 1 << 1
    return sum(row << r * width for r in range(1, height - 1))


@lru_cache(maxsize=1024)
def _empty(room: Room) -> bytes:
    codes = bytearray(room.height * room.width)
    for cell in cells(room.floor):
        codes[cell] = TARGET if room.targets >> cell & 1 else FLOOR
    return bytes(codes)


def codes(room: Room, state: State) -> bytearray:
    """Return the code of every cell, row by row."""
    result = bytearray(_empty(room))
    for cell in cells(state.boxes):
        result[cell] = BOX_ON_TARGET if result[cell] == TARGET else BOX
    result[state.player] = PLAYER_ON_TARGET if result[state.player] == TARGET else PLAYER
    return result


def rows(room: Room, state: State, alphabet: str = SYMBOLS) -> list[str]:
    """Return the room as one string per row, in the symbols of ``alphabet``."""
    text = "".join(alphabet[code] for code in codes(room, state))
    return [text[at : at + room.width] for at in range(0, len(text), room.width)]


def tabbed(room: Room, state: State) -> str:
    """Return the room as verl-agent prints it: a blank, the symbol, a blank and a tab per cell."""
    return "\n".join("".join(f" {symbol} \t" for symbol in row) for row in rows(room, state))


def parse(lines: Sequence[str], alphabet: str = SYMBOLS) -> tuple[Room, State]:
    """Read a room from one string per row.

    Raises:
        DataError: when a row has another length or an unknown symbol, the outer ring is not wall,
            there is not one player, or there are not as many boxes as targets and at least one.
    """
    height, width = len(lines), len(lines[0]) if lines else 0
    if height < 3 or width < 3 or any(len(line) != width for line in lines):
        raise DataError(f"a room has at least 3 rows of one length, 3 or more; got {[len(line) for line in lines]}")
    text = "".join(lines)
    unknown = sorted(set(text) - set(alphabet))
    if unknown:
        raise DataError(f"unknown symbols {unknown} in a room; expected only {alphabet!r}")
    found = [alphabet.index(symbol) for symbol in text]

    def where(*wanted: int) -> int:
        return sum(1 << cell for cell, code in enumerate(found) if code in wanted)

    players = where(PLAYER, PLAYER_ON_TARGET)
    room = Room(height, width, ~where(WALL) & (1 << len(found)) - 1, where(TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET))
    boxes = where(BOX, BOX_ON_TARGET)
    if room.floor & ~interior(height, width):
        raise DataError("the outer ring of a room must be wall")
    if players.bit_count() != 1:
        raise DataError(f"a room has one player; got {players.bit_count()}")
    if not boxes or boxes.bit_count() != room.targets.bit_count():
        counts = f"{boxes.bit_count()} boxes and {room.targets.bit_count()} targets"
        raise DataError(f"a room has as many boxes as targets, at least one; got {counts}")
    return room, State(boxes, players.bit_length() - 1)
