"""The packed official ALFWorld games, read straight from the shared data."""

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def packed_games(shared: Path, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return games by name: all of them, or those in ``names``."""
    wanted = None if names is None else set(names)
    found = {}
    with lzma.open(shared / "data/alfworld/games_json_2.1.1.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if wanted is None or row["game"] in wanted:
                found[row["game"]] = row
    return found
