"""What ``doctor`` looks at for Sokoban beside the embedded rooms."""

from seed_envs import paths
from seed_envs.errors import SeedError
from seed_envs.health import Finding
from seed_envs.sokoban.boxoban import RELEASED, BoxobanLevels

NAME = "seed_envs/Sokoban-v0"
FETCH = "python -m seed_envs fetch sokoban"
BY_HAND = f"{FETCH}  (or with --by-hand)"


def doctor() -> list[Finding]:
    """Return findings on the Boxoban levels; any part of the release can be played."""
    subject = f"{NAME} data=official"
    root = paths.data_root("sokoban")
    if not root.exists():
        return [Finding(subject, "missing", f"{root} does not exist", BY_HAND)]
    try:
        levels = BoxobanLevels(root)
        found = [(split, len(levels.tasks(split))) for split in levels.splits]
    except SeedError as error:
        return [Finding(subject, "wrong", str(error), f"{FETCH} --force")]
    counts = [f"{split} {n}" if n == RELEASED[split] else f"{split} {n} of {RELEASED[split]}" for split, n in found]
    return [Finding(subject, "ok", f"Boxoban levels in {levels.root}: {', '.join(counts)}")]
