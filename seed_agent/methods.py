"""Methods as rows of one table; a third party adds a row from its own package."""

from dataclasses import dataclass
from typing import Literal

from seed_envs.registry import Registry


@dataclass(frozen=True)
class Method:
    """One way to make an agent, as data."""

    name: str
    """A slug: lower-case letters, digits and hyphens."""
    prompt: Literal["plain", "react"] = "plain"
    cites: str = ""


METHODS: Registry[Method] = Registry("method")
METHODS.add("vanilla", Method("vanilla"))
METHODS.add("react", Method("react", prompt="react", cites="arXiv 2210.03629"))
