"""What ``doctor`` looks at for Sokoban beside the embedded rooms."""

from seed_envs import paths
from seed_envs.errors import SeedError
from seed_envs.health import Finding
from seed_envs.sokoban.boxoban import HELP, BoxobanLevels

NAME = "seed_envs/Sokoban-v0"


def doctor() -> list[Finding]:
    """Return findings on the Boxoban levels."""
    subject = f"{NAME} data=official"
    root = paths.data_root("sokoban")
    if not root.exists():
        return [Finding(subject, "missing", f"{root} does not exist", HELP)]
    try:
        levels = BoxobanLevels(root)
        found = ", ".join(f"{split} {len(levels.tasks(split))}" for split in levels.splits)
    except SeedError as error:
        return [Finding(subject, "wrong", str(error), HELP)]
    return [Finding(subject, "ok", f"Boxoban levels in {levels.root}: {found}")]
