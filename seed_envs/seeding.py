"""Seeds and draws that no numpy release, process or hash seed can change."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class RawBits(Protocol):
    """What numpy's bit generators offer: raw 64-bit words."""

    def random_raw(self) -> Any:
        """Return the next 64-bit word."""


def canonical(value: object) -> str:
    """Return ``value`` as JSON with sorted keys, no blanks and no NaN: one text per value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def sha256_text(text: str) -> str:
    """Return the hex sha256 of ``text`` in UTF-8; lone surrogates are kept, not refused."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def derive(*parts: object) -> int:
    """Return a 63-bit seed from ``parts``: equal parts, equal seed, on every machine."""
    digest = hashlib.sha256(canonical([str(part) for part in parts]).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def below(bits: RawBits, n: int) -> int:
    """Draw an integer in ``[0, n)`` without bias from raw words.

    ``Generator.integers`` may change its stream between numpy releases; raw words may not.

    Raises:
        ValueError: when ``n`` is not positive.
    """
    if n <= 0:
        raise ValueError(f"cannot draw below {n}")
    limit = (1 << 64) - (1 << 64) % n
    while (word := int(bits.random_raw())) >= limit:
        pass
    return word % n


class Draws:
    """A stream of draws from sha256 counters, named by the parts it is made from."""

    def __init__(self, *parts: object) -> None:
        """Start the stream of ``parts``; equal parts give equal streams everywhere."""
        self._key = canonical([str(part) for part in parts]).encode("utf-8", "surrogatepass")
        self._count = 0

    def random_raw(self) -> int:
        """Return the next 64-bit word."""
        block = hashlib.sha256(self._key + self._count.to_bytes(8, "big")).digest()
        self._count += 1
        return int.from_bytes(block[:8], "big")

    def below(self, n: int) -> int:
        """Draw an integer in ``[0, n)``."""
        return below(self, n)

    def chance(self, probability: float) -> bool:
        """Return true with the given probability, at a resolution of 2**-53."""
        return (self.random_raw() >> 11) < probability * (1 << 53)

    def choice(self, items: Sequence[T]) -> T:
        """Draw one of ``items``."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return ``items`` in a drawn order (Fisher-Yates)."""
        result = list(items)
        for i in range(len(result) - 1, 0, -1):
            j = self.below(i + 1)
            result[i], result[j] = result[j], result[i]
        return result
