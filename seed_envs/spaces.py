"""A text space that holds what agents and worlds really write."""

from typing import Any

import numpy as np
from gymnasium import spaces

from seed_envs.seeding import below

_SAMPLE_CHARS = "abcdefghijklmnopqrstuvwxyz 0123456789[]"


class Utf8(spaces.Text):
    """Any ``str`` of at most ``max_length`` characters, the empty one included.

    ``gymnasium.spaces.Text`` refuses blanks, newlines and everything outside ASCII letters
    and digits unless told each character; this one asks only for the type and the length.
    Samples are short strings over a small alphabet, drawn from the space's own generator.
    """

    def __init__(self, max_length: int, *, seed: int | np.random.Generator | None = None) -> None:
        """Accept strings of 0 to ``max_length`` characters."""
        super().__init__(max_length, min_length=0, charset=_SAMPLE_CHARS, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a ``str`` short enough."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return 1 to 24 characters, or fewer where ``max_length`` is smaller."""
        rng = self.np_random.bit_generator
        length = 1 + below(rng, min(24, self.max_length))
        return "".join(_SAMPLE_CHARS[below(rng, len(_SAMPLE_CHARS))] for _ in range(length))

    def __repr__(self) -> str:
        """Name the space as it is constructed."""
        return f"Utf8({self.max_length})"

    def __eq__(self, other: object) -> bool:
        """Spaces of one length are equal."""
        return isinstance(other, Utf8) and other.max_length == self.max_length

    def __hash__(self) -> int:
        """Agree with ``__eq__``."""
        return hash((Utf8, self.max_length))
