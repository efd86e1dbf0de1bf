"""Multi-turn agent environments with stable tasks, honest outcomes and one contract.

``import seed_envs`` registers the environments with Gymnasium and needs neither torch, Java nor
TextWorld. ``gymnasium.make("seed_envs:seed_envs/ALFWorld-v0")`` imports it by itself.
"""

from importlib.metadata import PackageNotFoundError, version

import gymnasium as gym

from seed_envs.core import AgentEnv, Info, Obs, View
from seed_envs.errors import ConfigError, DataError, MissingDependency, SeedError, UnknownName
from seed_envs.registry import Registry, load_plugins
from seed_envs.tasks import Task, TaskSet
from seed_envs.vector import EnvMaker, GroupVectorEnv

try:
    __version__ = version("seed-suite")
except PackageNotFoundError:  # used from a checkout that is not installed
    __version__ = "unknown"

_ENVIRONMENTS = {
    "ALFWorld-v0": ("seed_envs.alfworld.env:ALFWorldEnv", 30),
    "SearchQA-v0": ("seed_envs.searchqa.env:SearchQAEnv", 4),
    "Sokoban-v0": ("seed_envs.sokoban.env:SokobanEnv", 15),
    "WebShop-v0": ("seed_envs.webshop.env:WebShopEnv", 15),
}

for _name, (_entry, _turns) in _ENVIRONMENTS.items():
    gym.register(f"seed_envs/{_name}", entry_point=_entry, max_episode_steps=_turns)

__all__ = [
    "AgentEnv",
    "ConfigError",
    "DataError",
    "EnvMaker",
    "GroupVectorEnv",
    "Info",
    "MissingDependency",
    "Obs",
    "Registry",
    "SeedError",
    "Task",
    "TaskSet",
    "UnknownName",
    "View",
    "load_plugins",
]
