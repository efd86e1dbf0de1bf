"""Choosing the committed rooms: ``python -m seed_envs.sokoban.manifest`` writes the manifest anew.

Each split takes seeds upwards from a start of its own and keeps a room when its category still
lacks one and no equal room, turned or mirrored, was kept before in any split.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

from seed_envs.paths import manifest_path
from seed_envs.sokoban.engine import Room, State, rows
from seed_envs.sokoban.generator import generate
from seed_envs.sokoban.sources import BANDS, NAME, RoomId, band, content_sha256
from seed_envs.tasks import Task, write_manifest

PLAN = (
    ("seen", 200_000, 6, 1, 128),
    ("unseen", 300_000, 7, 2, 64),
    ("unseen", 400_000, 8, 2, 64),
    ("train", 100_000, 6, 1, 3_000),
)
"""Split, first seed, side, boxes and number of rooms."""


def build() -> list[Task]:
    """Return the tasks of every split; about a second per thousand."""
    kept: set[tuple[str, ...]] = set()
    return [task for part in PLAN for task in _choose(*part, kept)]


def shape(room: Room, start: State) -> tuple[str, ...]:
    """Return one form for a room and all its rotations and mirror images."""
    forms = []
    grid = tuple(rows(room, start))
    for _ in range(4):
        grid = tuple("".join(column) for column in zip(*grid[::-1], strict=True))
        forms += [grid, grid[::-1]]
    return min(forms)


def _choose(split: str, seed: int, side: int, boxes: int, count: int, kept: set[tuple[str, ...]]) -> Iterator[Task]:
    wanted = Counter({name: count // len(BANDS) + (i < count % len(BANDS)) for i, (name, _) in enumerate(BANDS)})
    while wanted.total():
        level = generate(side, side, boxes, seed)
        assert level.difficulty is not None
        category, form = band(level.difficulty), shape(level.room, level.start)
        if wanted[category] and form not in kept:
            kept.add(form)
            wanted[category] -= 1
            yield Task(str(RoomId(side, side, boxes, seed)), split, category, content_sha256(level.room, level.start))
        seed += 1


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m seed_envs.sokoban.manifest", description=__doc__).parse_args()
    write_manifest(manifest_path(NAME), build(), title="Sokoban rooms: id, split, category, sha256 of the rows")
