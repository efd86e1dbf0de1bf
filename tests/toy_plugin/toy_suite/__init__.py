"""A third-party package: it adds environments, a policy and a method without touching the suite.

Installed, it is found through the entry point ``seed.plugins``; not installed, through
``--plugin toy_suite:register`` with this folder on the path.
"""

import gymnasium as gym

from seed_agent.methods import METHODS
from seed_agent.policy import POLICIES

ENVIRONMENTS = {"toy/Counter-v0": ("toy_suite.counter:Counter", 12), "toy/Parrot-v0": ("toy_suite.parrot:Parrot", 5)}


def register() -> None:
    """Add everything this package offers; adding it again changes nothing."""
    for env_id, (entry_point, turns) in ENVIRONMENTS.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=entry_point, max_episode_steps=turns)
    POLICIES.add("toy", "toy_suite.policy:make")
    METHODS.add("toy-method", "toy_suite.policy:METHOD")
