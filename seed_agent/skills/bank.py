"""Skill-SD's bank: the agent's own skills by task, and which of them to try next.

Source: arXiv 2604.10674: retrieval by UCB, mean reward + c * sqrt(ln N / n), untried skills first.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seed_agent.skills.text import clean, is_trivial
from seed_envs.errors import ConfigError, DataError
from seed_envs.files import write_atomically
from seed_envs.seeding import canonical

VERSION = 1


@dataclass(slots=True)
class Entry:
    """A skill in the bank and how it did."""

    id: int
    """Unique under its key; older entries have smaller ids."""
    text: str
    tries: int = 0
    total: float = 0.0
    """Sum of the rewards of all tries."""

    @property
    def mean(self) -> float:
        """Mean reward, 0 when untried."""
        return self.total / self.tries if self.tries else 0.0


class SkillBank:
    """Skills under keys (a task id, a category), bounded in both directions.

    Everything is decided by what was added and rewarded, in which order: ties go to the older
    entry. A full key gives up its worst tried entry, or the oldest where none was tried; a full
    bank gives up the key that was added to longest ago.
    """

    def __init__(self, *, c: float = 1.0, per_key: int = 16, max_keys: int = 10_000) -> None:
        """Make an empty bank.

        Args:
            c: Weight of exploration, 0 or more; 0 always takes the best mean.
            per_key: Entries under one key at most.
            max_keys: Keys at most.

        Raises:
            ConfigError: when a value cannot be used.
        """
        if not 0 <= c < math.inf or per_key < 1 or max_keys < 1:
            given = f"c={c}, per_key={per_key}, max_keys={max_keys}"
            raise ConfigError(f"a skill bank cannot have {given}; expected c from 0 and the others from 1")
        self.c, self.per_key, self.max_keys = c, per_key, max_keys
        self._entries: dict[str, list[Entry]] = {}
        self._next: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of entries under all keys."""
        return sum(map(len, self._entries.values()))

    def entries(self, key: str) -> tuple[Entry, ...]:
        """Return copies of the entries under ``key``, oldest first."""
        return tuple(Entry(e.id, e.text, e.tries, e.total) for e in self._entries.get(key, ()))

    def add(self, key: str, text: str) -> int | None:
        """Put a skill under ``key``.

        Returns:
            Its id; that of the entry which has the same text already; None for a text that says nothing.
        """
        line = clean(text).text
        if is_trivial(line):
            return None
        entries = self._entries.pop(key, [])
        self._entries[key] = entries  # the youngest key is the last one
        known = next((entry.id for entry in entries if entry.text == line), None)
        if known is not None:
            return known
        if len(entries) >= self.per_key:
            entries.remove(min(entries, key=lambda e: (not e.tries, e.mean, e.id)))
        number = self._next.get(key, 0)
        self._next[key] = number + 1
        entries.append(Entry(number, line))
        if len(self._entries) > self.max_keys:
            oldest = next(iter(self._entries))
            del self._entries[oldest], self._next[oldest]
        return number

    def choose(self, *keys: str) -> tuple[str, Entry] | None:
        """Return the skill to try next under the first of ``keys`` that has any, and that key.

        Untried entries come first, oldest first; then the largest mean + c * sqrt(ln N / n).
        """
        key = next((key for key in keys if self._entries.get(key)), None)
        if key is None:
            return None
        entries = self._entries[key]
        total = sum(entry.tries for entry in entries)

        def rank(entry: Entry) -> tuple[float, int]:
            if not entry.tries:
                return math.inf, -entry.id
            return entry.mean + self.c * math.sqrt(math.log(total) / entry.tries), -entry.id

        best = max(entries, key=rank)
        return key, Entry(best.id, best.text, best.tries, best.total)

    def update(self, key: str, entry_id: int, reward: float) -> bool:
        """Count one try; false when the bank has given the entry up since it was chosen.

        Raises:
            ConfigError: when the reward is not a finite number.
        """
        if not math.isfinite(reward):
            raise ConfigError(f"the reward {reward} of a skill of {key!r} cannot be counted; expected a finite number")
        for entry in self._entries.get(key, ()):
            if entry.id == entry_id:
                entry.tries += 1
                entry.total += float(reward)
                return True
        return False

    def to_json(self) -> str:
        """Return everything as canonical JSON."""
        rows = [[key, self._next[key], [asdict(e) for e in entries]] for key, entries in self._entries.items()]
        facts = {"version": VERSION, "c": self.c, "per_key": self.per_key, "max_keys": self.max_keys}
        return canonical({**facts, "keys": rows})

    @classmethod
    def from_json(cls, text: str) -> "SkillBank":
        """Return the bank that ``to_json`` wrote.

        Raises:
            DataError: when it is none, or one of a newer version.
        """
        try:
            found = json.loads(text)
            if found["version"] > VERSION:
                raise DataError(f"the skill bank has version {found['version']}; this one reads up to {VERSION}")
            bank = cls(c=found["c"], per_key=found["per_key"], max_keys=found["max_keys"])
            for key, following, rows in found["keys"]:
                bank._entries[str(key)] = [_entry(row) for row in rows]
                bank._next[str(key)] = int(following)
        except (ValueError, TypeError, KeyError, ConfigError) as error:
            raise DataError(f"not a skill bank: {error}; expected what SkillBank.save wrote") from None
        return bank

    def save(self, path: Path) -> None:
        """Write the bank; a crash leaves the old file or the new one."""
        write_atomically(path, self.to_json().encode())

    @classmethod
    def load(cls, path: Path) -> "SkillBank":
        """Read a bank.

        Raises:
            DataError: when the file cannot be read or is no bank.
        """
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read the skill bank {path}: {error}") from None


def _entry(row: dict[str, Any]) -> Entry:
    entry = Entry(**row)
    if type(entry.id) is not int or type(entry.tries) is not int or not isinstance(entry.text, str):
        raise ValueError(f"an entry has fields of other types: {row!r:.80}")
    return Entry(entry.id, entry.text, entry.tries, float(entry.total))
