"""Make Sokoban rooms here and with gym-sokoban in one process, step with pictures, print the ratios.

    pip install --no-deps --target FOLDER gym-sokoban
    python benchmarks/sokoban_speed.py [--gym-sokoban FOLDER] [--rooms 200] [--steps 20000]

Only gym-sokoban's room generator is loaded, by its path: the package itself needs an old gym. Both
sides make rooms of the same kind one after the other; ours come with the length of their shortest
solution, theirs without. Their retries after a failed room are counted as their time, as in their
``reset``. Without gym-sokoban only our own figures are printed.
"""

import argparse
import importlib.util
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from seed_envs.sokoban import solver
from seed_envs.sokoban.generator import generate

KINDS = ((6, 1), (7, 2))


def upstream_generator(folder: Path | None) -> Callable[..., Any] | None:
    """Return gym-sokoban's ``generate_room``, or nothing where it is not installed."""
    if folder is None:
        found = importlib.util.find_spec("gym_sokoban")
        folders = list(found.submodule_search_locations or ()) if found else []
    else:
        folders = [str(folder / "gym_sokoban")]
    paths = [path for name in folders if (path := Path(name) / "envs" / "room_utils.py").is_file()]
    if not paths:
        return None
    spec = importlib.util.spec_from_file_location("room_utils", paths[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Callable[..., Any] = module.generate_room
    return made


def upstream_seconds(make: Callable[..., Any], side: int, boxes: int, rooms: int) -> tuple[float, int]:
    """Return seconds per room, and the failures that had to be made again."""
    failures = 0
    begun = time.process_time()
    for seed in range(rooms):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (what upstream draws from)
        while True:
            try:
                make(dim=(side, side), num_steps=int(1.7 * (side + side)), num_boxes=boxes)
                break
            except (RuntimeError, RuntimeWarning):
                failures += 1
    return (time.process_time() - begun) / rooms, failures


def our_seconds(side: int, boxes: int, rooms: int) -> tuple[float, float]:
    """Return seconds per room with its shortest length, and with the shortest plan as well."""
    begun = time.process_time()
    levels = [generate.__wrapped__(side, side, boxes, seed) for seed in range(rooms)]
    made = time.process_time() - begun
    for level in levels:
        assert len(solver.solve(level.room, level.start)) == level.difficulty
    return made / rooms, (time.process_time() - begun) / rooms


def steps_per_second(steps: int, **kwargs: Any) -> float:
    """Step an environment as ``gymnasium.make`` builds it, resets included."""
    spec = EnvSpec("bench/Sokoban-v0", "seed_envs.sokoban.env:SokobanEnv", max_episode_steps=15, kwargs=kwargs)
    env = gym.make(spec)
    moves = ["up", "left", "down", "right", "left"]
    env.reset(seed=0)
    begun = time.process_time()
    for step in range(steps):
        _, _, terminated, truncated, _ = env.step(moves[step * step % 5])
        if terminated or truncated:
            env.reset()
    return steps / (time.process_time() - begun)


def main() -> None:
    """Print a line per measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gym-sokoban", type=Path, metavar="FOLDER", help="where gym_sokoban is installed")
    parser.add_argument("--rooms", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    upstream = upstream_generator(options.gym_sokoban)
    if upstream is None:
        print("gym-sokoban not found: pip install --no-deps --target FOLDER gym-sokoban, then --gym-sokoban FOLDER")
    our_seconds(6, 1, 50)  # warm up
    for side, boxes in KINDS:
        ours, proven = our_seconds(side, boxes, options.rooms)
        line = f"rooms {side}x{side}/{boxes}: ours {ours * 1e3:.3f} ms (with a plan {proven * 1e3:.3f} ms)"
        if upstream is not None:
            theirs, failures = upstream_seconds(upstream, side, boxes, options.rooms)
            ratio, with_plan = theirs / ours, theirs / proven
            line += f", gym-sokoban {theirs * 1e3:.3f} ms ({failures} retries): {ratio:.1f} times ({with_plan:.1f})"
        print(line, flush=True)
    for observation in ("rgb", "tiny", "text"):
        print(f"steps {observation}: {steps_per_second(options.steps, observation=observation):,.0f} per second")


if __name__ == "__main__":
    main()
