"""The policy ``toy:NAME`` and the method ``toy-method``."""

from collections.abc import Sequence

from seed_agent.methods import Method
from seed_agent.policy import Decision, Situation
from seed_envs.errors import UnknownName
from seed_envs.vector import Failure, GroupVectorEnv

METHOD = Method("toy-method", prompt="react", cites="a third-party package")


class First:
    """Always takes the first or the last action on the list of admissible ones."""

    def __init__(self, name: str) -> None:
        """Choose ``first`` or ``last``."""
        self.name = f"toy:{name}"
        self._index = {"first": 0, "last": -1}[name]

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        """Decide for every situation."""
        actions = [(s.info["admissible_actions"] or [""])[self._index] for s in situations]
        return [Decision(reply=action, action=action) for action in actions]


def make(name: str) -> First:
    """Make the policy ``toy:first`` or ``toy:last``."""
    if name not in ("first", "last"):
        raise UnknownName("toy policy", name, ["first", "last"])
    return First(name)
