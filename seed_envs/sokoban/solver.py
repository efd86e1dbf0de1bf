"""Plans: exact in moves for one and two boxes, bounded search for more."""

from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

from seed_envs.errors import SeedError
from seed_envs.sokoban.engine import DIRECTIONS, Room, State, cells, shift, solved

EXACT_BOXES = 2
LIMIT = 20_000
"""Positions a search expands before it gives up; about a second on one core with four boxes."""
_GREED = 3
_NEVER = 1 << 20
_ASSIGNED = 6
"""Above this many boxes each counts its nearest target, for the best assignment takes too long."""


class Unreachable(SeedError):
    """No plan from here: a box is stuck, or none was found within the bound of the search."""


class _Node(NamedTuple):
    boxes: int
    player: int


def solve(room: Room, state: State, *, limit: int = LIMIT) -> list[str]:
    """Return moves that put every box on a target; none when they are there already.

    A* over the positions just after a push; walking in between is counted in moves. With one or
    two boxes no shorter plan exists; with more the search is greedy and the plan merely works.

    Raises:
        Unreachable: when there is no plan, or none within ``limit`` positions.
    """
    start = _Node(*state)
    if solved(room, state):
        return []
    exact = state.boxes.bit_count() <= EXACT_BOXES
    weight = 1 if exact else _GREED
    estimates: dict[int, int] = {}
    parents: dict[_Node, tuple[int, _Node | None]] = {start: (0, None)}
    queue = [(weight * _estimate(room, start.boxes, estimates), 0, 0, start)]
    closed: set[tuple[int, int]] = set()
    pushed = 0
    while queue and len(closed) < limit:
        _, _, cost, node = heappop(queue)
        if node.boxes == room.targets:
            return _moves(room, node, parents)
        layers = list(flood(room.floor & ~node.boxes, room.width, node.player))
        # Where the plan need not be the shortest, all cells the player can reach are one position.
        place = node.player if exact else min(next(cells(layer)) for layer in layers)
        if (node.boxes, place) in closed:
            continue
        closed.add((node.boxes, place))
        for walked, child in _pushes(room, node.boxes, layers):
            moves = cost + walked + 1
            if child in parents and parents[child][0] <= moves:
                continue
            left = _estimate(room, child.boxes, estimates)
            if left < _NEVER:
                parents[child] = (moves, node)
                pushed += 1
                heappush(queue, (moves + weight * left, pushed, moves, child))
    why = "a box is stuck" if not queue else f"none was found within {limit} positions"
    raise Unreachable(f"no plan solves the room from here: {why}")


def flood(free: int, width: int, player: int) -> Iterator[int]:
    """Yield the cells a player reaches in 0, 1, 2 … moves, as far as it gets."""
    front = seen = 1 << player
    while front:
        yield front
        front = (front << 1 | front >> 1 | front << width | front >> width) & free & ~seen
        seen |= front


def walk(free: int, width: int, start: int, goal: int) -> list[str]:
    """Return a shortest way from one cell to another that is known to be reachable."""
    layers: list[int] = []
    for layer in flood(free, width, start):
        if layer >> goal & 1:
            break
        layers.append(layer)
    steps, at = [], goal
    for layer in reversed(layers):
        for name, offset in zip(DIRECTIONS, (-width, width, -1, 1), strict=True):
            if layer >> (at - offset) & 1:
                steps.append(name)
                at -= offset
                break
    return steps[::-1]


def push(room: Room, state: State, stand: int, direction: int) -> tuple[list[str], State]:
    """Return the moves that walk to cell ``stand`` and push one step, and the state after them."""
    offset = room.offsets[direction]
    moves = walk(room.floor & ~state.boxes, room.width, state.player, stand)
    box = stand + offset
    after = State(state.boxes ^ (1 << box) ^ (1 << box + offset), box)
    return [*moves, DIRECTIONS[direction]], after


def _pushes(room: Room, boxes: int, layers: list[int]) -> Iterator[tuple[int, _Node]]:
    """Yield the moves walked before, and the position after, every push that keeps hope."""
    free = room.floor & ~boxes
    allowed = alive(room) & ~boxes
    stands = [free & shift(boxes, -by) & shift(allowed, -2 * by) for by in room.offsets]
    anywhere = stands[0] | stands[1] | stands[2] | stands[3]
    for walked, layer in enumerate(layers):
        if not layer & anywhere:
            continue
        for by, stand in zip(room.offsets, stands, strict=True):
            for cell in cells(layer & stand):
                box = cell + by
                after = boxes ^ (1 << box) ^ (1 << box + by)
                if not _jammed(room, after, box + by):
                    yield walked, _Node(after, box)


def _jammed(room: Room, boxes: int, box: int) -> bool:
    """Whether the box just pushed completes a 2x2 block that cannot be undone, off its targets."""
    solid = boxes | ~room.floor
    for corner in (box, box - 1, box - room.width, box - room.width - 1):
        block = (0b11 | 0b11 << room.width) << corner
        if solid & block == block and boxes & block & ~room.targets:
            return True
    return False


def _moves(room: Room, node: _Node, parents: dict[_Node, tuple[int, _Node | None]]) -> list[str]:
    nodes = [node]
    while (before := parents[nodes[-1]][1]) is not None:
        nodes.append(before)
    nodes.reverse()
    moves: list[str] = []
    state = State(*nodes[0])
    for node in nodes[1:]:
        offset = (node.boxes & ~state.boxes).bit_length() - 1 - node.player
        steps, state = push(room, state, node.player - offset, room.offsets.index(offset))
        moves += steps
    return moves


@lru_cache(maxsize=64)
def _push_counts(room: Room) -> dict[int, tuple[int, ...]]:
    """Return per cell the pushes a box alone needs to each target, walking left aside."""
    targets = list(cells(room.targets))
    counts = {cell: [_NEVER] * len(targets) for cell in cells(room.floor)}
    for index, target in enumerate(targets):
        front, seen, count = 1 << target, 1 << target, 0
        while front:
            for cell in cells(front):
                counts[cell][index] = count
            # A box is pulled by a player beside it, who needs one more free cell to step back to.
            pulled = 0
            for by in room.offsets:
                pulled |= shift(front, by) & room.floor & shift(room.floor, -by)
            front = pulled & ~seen
            seen |= front
            count += 1
    return {cell: tuple(row) for cell, row in counts.items()}


@lru_cache(maxsize=64)
def alive(room: Room) -> int:
    """Return the cells from which a box alone can be pushed to some target."""
    return sum(1 << cell for cell, row in _push_counts(room).items() if min(row) < _NEVER)


def _estimate(room: Room, boxes: int, known: dict[int, int]) -> int:
    """Return the least number of pushes if boxes and walks were never in each other's way."""
    if boxes not in known:
        counts = _push_counts(room)
        rows = [counts[cell] for cell in cells(boxes)]
        known[boxes] = _assign(rows) if len(rows) <= _ASSIGNED else min(_NEVER, sum(min(row) for row in rows))
    return known[boxes]


def _assign(rows: list[tuple[int, ...]]) -> int:
    """Return the smallest sum of one entry per row, each from another column; at most ``_NEVER``."""
    best = {0: 0}
    for row in rows:
        following: dict[int, int] = {}
        for taken, total in best.items():
            for column, count in enumerate(row):
                if not taken >> column & 1 and total + count < following.get(taken | 1 << column, _NEVER):
                    following[taken | 1 << column] = total + count
        best = following
    return min(best.values(), default=_NEVER)
