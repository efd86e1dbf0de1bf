"""Episodes as the page carries them: an index of all, and compressed chunks that it opens one by one."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness.html.reading import RunFiles
from harness.runs import IMAGES, RECORDS
from harness.summary import Row
from seed_agent.trajectory import OUTCOMES
from seed_envs.visible import HIDDEN

T = TypeVar("T")
MAX_EPISODES = 5_000
MAX_BYTES = 64_000_000
"""Above either, the page holds episodes evenly spaced over the sorted list, and says so."""
CHUNK, IMAGE_PACK = 25, 64
"""Episodes per compressed chunk, images per pack; the script reads both from the index."""
LABELS = {
    "success": "success",
    "failure": "failure",
    "step_limit": "out of turns",
    "invalid_format": "ill-formed reply",
    "generation_truncated": "reply cut off",
    "env_error": "environment error",
    "policy_error": "policy error",
}
"""Outcome classes as people read them."""
COLUMNS = (
    "split", "category", "id", "attempt", "outcome", "score", "turns",
    "illFormed", "inadmissible", "ineffective", "cut", "task",
)  # fmt: skip
"""The fields of an index row, by the names that the script gives them."""

_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Packed:
    """What the page embeds; every text is safe between script tags."""

    index: str
    """JSON: the labels, and one row per embedded episode."""
    chunks: tuple[str, ...]
    """Base64 of zlib of JSON: the turns of ``CHUNK`` episodes each, in the order of the index."""
    images: tuple[str, ...]
    """Base64 PNG files, one a line, ``IMAGE_PACK`` each; empty lines where a file is missing."""
    rows: tuple[Row, ...]
    """The episodes embedded."""
    total: int

    @property
    def embedded(self) -> int:
        """How many episodes are embedded."""
        return len(self.rows)

    @property
    def size(self) -> int:
        """Characters in all."""
        return sum(map(len, (self.index, *self.chunks, *self.images)))


def visible(text: str) -> str:
    """Return ``text`` with characters that hide or reorder what stands beside them spelled out: NUL is ``⟨U+0000⟩``.

    Tabs and line ends stay; a carriage return before a line end goes.
    """
    return HIDDEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text.replace("\r\n", "\n"))


def pack(run: RunFiles) -> Packed:
    """Pack the episodes of ``run``: all of them, or as many as the limits allow."""
    count = min(len(run.rows), MAX_EPISODES)
    while True:
        packed = _pack(run, spaced(run.rows, count))
        if packed.size <= MAX_BYTES or count <= 1:
            return packed
        count = max(1, int(0.95 * count * MAX_BYTES / packed.size))


def spaced(items: Sequence[T], count: int) -> list[T]:
    """Return ``count`` of ``items``, evenly spaced."""
    return [items[i * len(items) // count] for i in range(count)]


def _pack(run: RunFiles, rows: Sequence[Row]) -> Packed:
    images = _Images(run.folder / IMAGES)
    index, chunks, chunk = [], [], []
    splits, categories = (
        sorted(dict.fromkeys(names)) for names in ((r.key[0] for r in rows), (r.category for r in rows))
    )
    for row, record in zip(rows, records(run, rows), strict=True):
        chunk.append(_episode(record, images))
        index.append(_index_row(row, record, splits, categories))
        if len(chunk) == CHUNK:
            chunks.append(compress(chunk))
            chunk = []
    if chunk:
        chunks.append(compress(chunk))
    if len(dict.fromkeys(row[-1] for row in index)) == 1:  # it tells no task from another
        index = [[*row[:-1], ""] for row in index]
    about = {
        "chunk": CHUNK,
        "imagePack": IMAGE_PACK,
        "splits": [visible(name) for name in splits],
        "categories": [visible(name) for name in categories],
        "outcomes": [[name, LABELS[name]] for name in OUTCOMES],
        "columns": COLUMNS,
        "rows": index,
    }
    return Packed(script_json(about), tuple(chunks), images.packs(), tuple(rows), len(run.rows))


def records(run: RunFiles, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield the record of each row; they were validated when they were indexed."""
    if not run.rows:
        return
    with (run.folder / RECORDS).open("rb") as file:
        for row in rows:
            file.seek(run.offsets[row.key])
            yield json.loads(file.readline())


def _index_row(row: Row, record: Mapping[str, Any], splits: list[str], categories: list[str]) -> list[Any]:
    """Return what list, filters and sorting need, in the order of ``COLUMNS``."""
    split, task_id, attempt = row.key
    return [
        splits.index(split),
        categories.index(row.category),
        visible(task_id),
        attempt,
        OUTCOMES.index(row.outcome),
        row.score,
        row.turns,
        row.ill_formed,
        row.inadmissible,
        row.ineffective,
        row.cut_replies,
        visible(record.get("instruction", ""))[:160],
    ]


def _episode(record: Mapping[str, Any], images: "_Images") -> dict[str, Any]:
    error, final = record["error"], record["final"]
    return {
        "seed": str(record["seed"]),  # 63 bits are more than a number in the browser holds
        "error": None if error is None else visible(f"{error['type']}: {error['message']}"),
        "turns": [_turn(turn, images) for turn in record["turns"]],
        "final": None if final is None else _seen(final, images),
    }


def _turn(turn: Mapping[str, Any], images: "_Images") -> dict[str, Any]:
    tokens = turn["token_ids"]
    return {
        "seen": _seen(turn["observation"], images),
        "reply": visible(turn["reply"]),
        "form": visible(turn.get("format_reason", "")),
        "action": visible(turn["action"]),
        "wellFormed": turn["format_ok"],
        "admissible": turn["admissible"],
        "effective": turn["effective"],
        "cut": turn["stop_reason"] == "length",
        "reward": turn["reward"],
        "reason": visible(turn["reason"]),
        "tokens": None if tokens is None else len(tokens),
    }


def _seen(seen: Mapping[str, Any], images: "_Images") -> dict[str, Any]:
    return {"text": visible(seen["text"]), "images": [images.number(image["file_sha256"]) for image in seen["images"]]}


class _Images:
    """The images of the episodes packed so far, each once, numbered in the order of their first use."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers, self._contents = folder, dict[str, int](), list[str]()

    def number(self, sha256: str) -> int:
        if sha256 not in self._numbers:
            self._numbers[sha256] = len(self._contents)
            self._contents.append(self._read(sha256))
        return self._numbers[sha256]

    def _read(self, sha256: str) -> str:
        """Return the file in base64; nothing when it is missing or is not what its name says."""
        if not _SHA256.fullmatch(sha256):
            return ""
        try:
            content = (self._folder / f"{sha256}.png").read_bytes()
        except OSError:
            return ""
        return base64.b64encode(content).decode() if hashlib.sha256(content).hexdigest() == sha256 else ""

    def packs(self) -> tuple[str, ...]:
        starts = range(0, len(self._contents), IMAGE_PACK)
        return tuple("\n".join(self._contents[start : start + IMAGE_PACK]) for start in starts)


def compress(value: object) -> str:
    """Return base64 of zlib of JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 5)).decode()


def script_json(value: object) -> str:
    """Return ``value`` as ASCII JSON in which no tag or comment can begin or end."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
