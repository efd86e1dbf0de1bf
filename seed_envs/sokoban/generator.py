"""Rooms from seeds: bounded work, never a failure, always a solution known.

A walk carves the floor and targets are drawn on it. Then the game is played backwards from the
solved room. For one and two boxes that is done exhaustively, one move at a time, so the layer in
which a start turns up is the length of its shortest solution: a proof, not an estimate. With more
boxes one drawn sequence of pulls is kept, and read forwards it is a solution.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from seed_envs.errors import ConfigError
from seed_envs.seeding import Draws
from seed_envs.sokoban.engine import Room, State, cells, interior, shift
from seed_envs.sokoban.solver import EXACT_BOXES, flood, push

VERSION = 1
"""Part of every stream of draws; a change that makes other rooms from the same seed raises it."""
SMALLEST, LARGEST = 5, 32
LONGEST = 12
"""The longest shortest solution of a room with one or two boxes, in moves."""
_FLOORS = 12
"""Carved floors tried for a room before open ones are, and those before the plain room."""
_SHAPES = (0o020, 0o020, 0o070, 0o222, 0o066, 0o330, 0o660, 0o033)
"""What a step of the carving walk opens: 3x3 cells around it, its own included, one bit each."""

Kind = Literal["optimal", "upper_bound", "unknown"]


class Level(NamedTuple):
    """A room, where it starts, and how hard it is known to be."""

    room: Room
    start: State
    difficulty: int | None
    """Moves of the shortest solution, or of the one known; none where no solution is known."""
    kind: Kind
    """What ``difficulty`` is."""
    plan: tuple[str, ...] = ()
    """The solution known from making the room; empty where a solver finds the shortest."""


@lru_cache(maxsize=2048)
def generate(height: int, width: int, boxes: int, seed: int) -> Level:
    """Make the room of a seed: closed, unsolved, no box on a target, the player on plain floor.

    Args:
        height: rows, 5 to 32.
        width: columns, 5 to 32.
        boxes: 1 to ``max_boxes(height, width)``.
        seed: not negative; equal arguments give equal rooms on every machine.

    Raises:
        ConfigError: when an argument is out of its range.
    """
    check_size(height, width, boxes)
    if seed < 0:
        raise ConfigError(f"a room's seed is not negative; got {seed}")
    draws = Draws("sokoban", VERSION, height, width, boxes, seed)
    begin = _exact if boxes <= EXACT_BOXES else _played
    for attempt in range(2 * _FLOORS):  # crowded rooms need all the floor there is
        floor = _carve(draws, height, width, boxes) if attempt < _FLOORS else interior(height, width)
        targets = sum(1 << cell for cell in draws.shuffled(list(cells(floor)))[:boxes])
        level = begin(draws, Room(height, width, floor, targets))
        if level is not None:
            return level
    return _plain(draws, height, width, boxes)


def max_boxes(height: int, width: int) -> int:
    """Return the largest number of boxes for which a room of this size can always be made."""
    return max(height, width) - 2


def check_size(height: int, width: int, boxes: int) -> None:
    """Refuse sizes and box counts that no room can be made of.

    Raises:
        ConfigError: saying which are possible.
    """
    if not (SMALLEST <= height <= LARGEST and SMALLEST <= width <= LARGEST):
        sizes = f"{SMALLEST}x{SMALLEST} to {LARGEST}x{LARGEST}"
        raise ConfigError(f"cannot make a {height}x{width} room; expected a size from {sizes}")
    if not 1 <= boxes <= max_boxes(height, width):
        most = max_boxes(height, width)
        raise ConfigError(f"cannot make a {height}x{width} room with {boxes} boxes; expected 1 to {most}")


def _carve(draws: Draws, height: int, width: int, boxes: int) -> int:
    """Return a connected floor that covers about half to four fifths of the interior."""
    inside = interior(height, width)
    area = (height - 2) * (width - 2)
    least = min(area, max(area * 45 // 100, 3 * boxes + 3))
    wanted = least + draws.below(max(1, area * 4 // 5 - least + 1))
    at = (1 + draws.below(height - 2)) * width + 1 + draws.below(width - 2)
    offsets = (-width, width, -1, 1)
    shapes = _stamps(width)
    floor, offset, word = 0, offsets[draws.below(4)], 0
    for _ in range(16 * area):
        if word < 256:  # eight bits a step are read from each word
            word = draws.random_raw() | 1 << 64
        if word & 7 < 3:
            offset = offsets[word >> 3 & 3]
        if inside >> (at + offset) & 1:
            at += offset
        floor |= shapes[word >> 5 & 7] << (at - width - 1) & inside
        if floor.bit_count() >= wanted:
            return floor
        word >>= 8
    return inside


@lru_cache(maxsize=64)
def _stamps(width: int) -> tuple[int, ...]:
    """Return the shapes as sets of cells whose centre is row 1, column 1."""
    return tuple(sum((shape >> 3 * row & 7) << row * width for row in range(3)) for shape in _SHAPES)


def _exact(draws: Draws, room: Room) -> Level | None:
    """Draw a length and a start whose shortest solution is that long: else a shorter, else a longer one."""
    wanted = 1 + draws.below(LONGEST)
    length, starts = 0, []
    for moves, layer in enumerate(_backwards(room), 1):
        plain = ~room.targets
        found = [(b, p & plain) for b, p in layer.items() if not b & room.targets and p & plain]
        if found:
            length, starts = moves, found
        if moves == LONGEST or (moves >= wanted and starts):
            break
    if not starts:
        return None
    index = draws.below(sum(players.bit_count() for _, players in starts))
    state = next(s for i, s in enumerate(State(b, p) for b, players in starts for p in cells(players)) if i == index)
    return Level(room, state, length, "optimal")


def _backwards(room: Room) -> Iterator[dict[int, int]]:
    """Yield, for 1, 2, 3 … moves, the positions (boxes to player cells) exactly that far from solved."""
    floor, width, offsets = room.floor, room.width, room.offsets
    front = {room.targets: floor & ~room.targets}
    seen = dict(front)
    while front:
        following: dict[int, int] = {}
        for boxes, players in front.items():
            free = floor & ~boxes
            walked = (players << 1 | players >> 1 | players << width | players >> width) & free
            if fresh := walked & ~seen[boxes]:
                following[boxes] = following.get(boxes, 0) | fresh
            for by in offsets:
                # The player steps back by one and pulls the box that was ahead: a push undone.
                for stand in cells(players & shift(boxes, -by) & shift(free, by)):
                    pulled = boxes ^ (1 << stand + by) ^ (1 << stand)
                    back = 1 << stand - by
                    if not seen.get(pulled, 0) & back:
                        following[pulled] = following.get(pulled, 0) | back
        for boxes, players in following.items():
            seen[boxes] = seen.get(boxes, 0) | players
        if following:
            yield following
        front = following


class _Pull(NamedTuple):
    """A push undone: the box goes to where the player stood, who steps back."""

    box: int
    stand: int
    back: int

    @property
    def changed(self) -> int:
        """The two cells a box leaves and enters."""
        return 1 << self.box | 1 << self.stand


def _played(draws: Draws, room: Room) -> Level | None:
    """Pull boxes about and keep the moment they are farthest from home, with none on a target."""
    boxes = room.targets
    player = draws.choice(list(cells(room.floor & ~boxes)))
    home = {cell: divmod(cell, room.width) for cell in cells(boxes)}
    pulls: list[_Pull] = []
    seen = {boxes}
    best, farthest = 0, 0
    for _ in range(6 * len(home) + 6):
        options = [pull for pull in _pulls(room, boxes, player) if boxes ^ pull.changed not in seen]
        # Rather not onto a target; mostly on with the same box, else with one still on a target.
        options = [pull for pull in options if not room.targets >> pull.stand & 1] or options
        same = [pull for pull in options if pulls and pull.box == pulls[-1].stand]
        if not options:
            break
        if not (same and draws.chance(0.6)):
            same = [pull for pull in options if room.targets >> pull.box & 1] or options
        pull = draws.choice(same)
        pulls.append(pull)
        boxes ^= pull.changed
        seen.add(boxes)
        player = pull.back
        home[pull.stand] = home.pop(pull.box)
        away = sum(
            abs(cell // room.width - row) + abs(cell % room.width - column) for cell, (row, column) in home.items()
        )
        if not boxes & room.targets and away > farthest:
            best, farthest = len(pulls), away
    return _forwards(draws, room, pulls[:best]) if best else None


def _pulls(room: Room, boxes: int, player: int) -> Iterator[_Pull]:
    free = room.floor & ~boxes
    reached = sum(flood(free, room.width, player))
    for by in room.offsets:
        for stand in cells(reached & shift(boxes, -by) & shift(free, by)):
            yield _Pull(stand + by, stand, stand - by)


def _forwards(draws: Draws, room: Room, pulls: list[_Pull]) -> Level | None:
    """Begin where the pulls end, the player on any plain floor around, and undo them one by one."""
    boxes = room.targets
    for pull in pulls:
        boxes ^= pull.changed
    around = sum(flood(room.floor & ~boxes, room.width, pulls[-1].back)) & ~room.targets
    if not around:
        return None
    start = state = State(boxes, draws.choice(list(cells(around))))
    plan: list[str] = []
    for pull in reversed(pulls):
        moves, state = push(room, state, pull.back, room.offsets.index(pull.box - pull.stand))
        plan += moves
    return Level(room, start, len(plan), "upper_bound", tuple(plan))


def _plain(draws: Draws, height: int, width: int, boxes: int) -> Level:
    """Make the room that always works: no inner walls, every box one push away from its target."""
    inside = interior(height, width)
    tall = height >= width
    first, along, by = width + 1, (width if tall else 1), (1 if tall else width)
    targets = [first + i * along for i in range(boxes)]
    room = Room(height, width, inside, sum(1 << cell for cell in targets))
    pulls = [_Pull(cell, cell + by, cell + 2 * by) for cell in targets]
    level = (_exact(draws, room) if boxes <= EXACT_BOXES else None) or _forwards(draws, room, pulls)
    assert level is not None, "a room without inner walls has a start"
    return level
