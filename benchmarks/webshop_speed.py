"""Count WebShop turns per second on one core, with and without searches, resets included.

    python benchmarks/webshop_speed.py [--data embedded|official|DIR] [--turns 20000]

Without: an episode is one search that is not timed, then clicks over pages of results, products,
sub-pages and options, and a purchase that is scored. With: every other turn is a search for words
of an instruction.
"""

import argparse
import time
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from seed_envs.seeding import Draws


def make(**kwargs: Any) -> gym.Env[Any, Any]:
    """Return the environment as ``gymnasium.make`` builds it."""
    return gym.make(
        EnvSpec("bench/WebShop-v0", "seed_envs.webshop.env:WebShopEnv", max_episode_steps=15, kwargs=kwargs)
    )


def clicks_per_second(env: gym.Env[Any, Any], turns: int) -> float:
    """Click what a draw says until something is bought; searches are made but not timed."""
    draws, taken, spent = Draws("clicks"), 0, 0.0
    while taken < turns:
        begun = time.process_time()
        env.reset(seed=taken)
        spent += time.process_time() - begun
        info = env.step(env.unwrapped.suggestions()[1])[4]  # type: ignore[attr-defined]
        begun, over = time.process_time(), False
        while not over:
            listed = [action for action in info["admissible_actions"] if action != "click[back to search]"]
            _, _, terminated, truncated, info = env.step(draws.choice(listed))
            taken, over = taken + 1, terminated or truncated
        spent += time.process_time() - begun
    return taken / spent


def with_searches_per_second(env: gym.Env[Any, Any], turns: int) -> float:
    """Search for an instruction and look at the first product, over and over."""
    begun, taken = time.process_time(), 0
    queries: list[str] = []
    while taken < turns:
        env.reset(seed=taken)
        queries.append(env.unwrapped.suggestions()[1])  # type: ignore[attr-defined]
        for turn in range(7):
            env.step(queries[(taken + turn * 31) % len(queries)])
            env.step("click[features]" if turn % 2 else f"click[{env.unwrapped._state.results[0].lower()}]")  # type: ignore[attr-defined]
            taken += 2
    return taken / (time.process_time() - begun)


def main() -> None:
    """Print a line per measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="embedded")
    parser.add_argument("--turns", type=int, default=20_000)
    options = parser.parse_args()
    for observation in ("text", "text_rich"):
        env = make(data=options.data, observation=observation, split="train")
        clicks_per_second(env, 500)  # warm up: the index is made at the first search
        print(f"{observation}: {clicks_per_second(env, options.turns):,.0f} turns/s without searches", flush=True)
        searches = with_searches_per_second(env, options.turns // 4)
        print(f"{observation}: {searches:,.0f} turns/s when every other turn is a search", flush=True)


if __name__ == "__main__":
    main()
