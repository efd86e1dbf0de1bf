"""The committed manifest of official goals: ``python -m seed_envs.webshop.release FOLDER`` writes it anew.

FOLDER holds the official files. Beside the usual four columns it has each goal's ceiling: the reward
for its own product with the options asked for. Only hashes of goals are written, none of their texts.
"""

import argparse

from seed_envs.paths import manifest_path
from seed_envs.webshop.sources import MANIFEST, best_score, open_goals

PROFILE = "small-synthetic"


def lines(data: str) -> list[str]:
    """Return the lines of the manifest, in upstream's order."""
    source = open_goals(data, PROFILE, "fixed", 0)
    rows = [
        (task.id, task.split, task.category, task.sha256, f"{best_score(source, task):.4f}")
        for split in source.splits
        for task in source.tasks(split)
    ]
    title = "# Official WebShop goals (1,000 products, synthetic): id, split, category, sha256 of the goal, ceiling"
    return [title, *("\t".join(row) for row in sorted(rows))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m seed_envs.webshop.release", description=__doc__)
    parser.add_argument("folder", help="of the official files")
    folder = parser.parse_args().folder
    manifest_path(MANIFEST.format(PROFILE)).write_text("\n".join(lines(folder)) + "\n", encoding="utf-8")
