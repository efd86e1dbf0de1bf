"""Passages and where they are kept: JSON lines, mapped into memory, with the offset of every line.

A line is an object with ``id`` and ``contents`` (the title in quotation marks, a line break, the
text), the format of Search-R1 and FlashRAG.
"""

import gzip
import hashlib
import json
import lzma
import mmap
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from seed_envs.download import Report, silent
from seed_envs.errors import DataError
from seed_envs.seeding import canonical

LINES, OFFSETS = "passages.jsonl", "offsets.bin"

OPENERS: dict[str, Callable[..., IO[Any]]] = {".gz": gzip.open, ".xz": lzma.open}
"""How a corpus is read, by the end of its name; others are plain text."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text that can be found."""

    id: str
    contents: str
    """The title in quotation marks, a line break, the text; or the text alone."""
    score: float = 0.0
    """The retriever's; higher is better. Scores of different retrievers cannot be compared."""

    @classmethod
    def of(cls, id: str, title: str, text: str, score: float = 0.0) -> "Passage":
        """Make one from its parts."""
        return cls(id, f'"{title}"\n{text}' if title else text, score)

    @property
    def title(self) -> str:
        """The first line without its quotation marks; empty where there is one line only."""
        line, _, rest = self.contents.partition("\n")
        return (line[1:-1] if len(line) > 1 and line[0] == line[-1] == '"' else line) if rest else ""

    @property
    def text(self) -> str:
        """What follows the title."""
        line, _, rest = self.contents.partition("\n")
        return rest or line

    def scored(self, score: float) -> "Passage":
        """Return the same passage with a score."""
        return replace(self, score=score)


def read_corpus(path: Path) -> Iterator[Passage]:
    """Yield the passages of a corpus: JSON lines with ``contents``, or with ``title`` and ``text``.

    Args:
        path: ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.xz``; an id that is absent,
            empty or null is the line's number from 0.

    Raises:
        DataError: naming the line that cannot be used.
        OSError: when the file cannot be read.
    """
    opener = OPENERS.get(path.suffix, open)
    number = -1
    try:
        with opener(path, "rb") as lines:
            for number, line in enumerate(lines):
                if line.strip():
                    yield _passage(json.loads(line.decode("utf-8")), str(number))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}, line {number + 1}: {error}; expected JSON lines with 'id' and 'contents', or 'title' and 'text'"
        ) from error
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}, after line {number + 1}: {error}; expected a whole {path.suffix} file; get it again"
        ) from error


def _passage(row: object, number: str) -> Passage:
    if not isinstance(row, dict):
        raise ValueError(f"{type(row).__name__} where an object belongs")
    name, contents = _label(row, "id") or number, row.get("contents")
    if contents is None and isinstance(row.get("text"), str):
        return Passage.of(name, _label(row, "title"), row["text"])
    if not isinstance(contents, str):
        raise ValueError("no text")
    return Passage(name, contents)


def _label(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        raise ValueError(f"{key} is {value!r:.40}, neither a text nor a number")
    return "" if value is None else str(value)


def without_surrogates(text: str) -> str:
    """Return ``text`` with U+FFFD for what is no character: UTF-8, Java and servers cannot take it."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def write_passages(passages: Iterable[Passage], folder: Path, report: Report = silent) -> tuple[int, str]:
    """Write a store into an existing folder; return the number of passages and the sha256 of its lines."""
    offsets, hasher = [0], hashlib.sha256()
    with (folder / LINES).open("wb") as file:
        for number, passage in enumerate(passages, 1):
            row = {"id": without_surrogates(passage.id), "contents": without_surrogates(passage.contents)}
            line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
            file.write(line)
            hasher.update(line)
            offsets.append(offsets[-1] + len(line))
            if number % 1_000 == 0:
                report("reading", number, None, "passages")
    np.array(offsets, np.uint64).tofile(folder / OFFSETS)
    return len(offsets) - 1, hasher.hexdigest()


class Passages:
    """A store of passages by number; nothing is read before it is asked for."""

    def __init__(self, folder: Path) -> None:
        """Map the store of ``folder``.

        Raises:
            DataError: when there is none or it is torn.
        """
        self.folder = Path(folder)
        lines, offsets = self.folder / LINES, self.folder / OFFSETS
        try:
            self._offsets = (
                np.fromfile(offsets, np.uint64) if not offsets.stat().st_size else np.memmap(offsets, np.uint64, "r")
            )
            size = lines.stat().st_size
        except (FileNotFoundError, ValueError) as error:
            raise DataError(f"there are no passages in {folder} ({error}); build the index again") from error
        if not len(self._offsets) or int(self._offsets[-1]) != size:
            raise DataError(f"the passages in {folder} are damaged: {LINES} has {size} bytes; build the index again")
        with lines.open("rb") as file:
            self._lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> Passage:
        """Return passage ``number``, counted from 0.

        Raises:
            IndexError: when there are not as many.
            DataError: when it is torn.
        """
        if not 0 <= number < len(self):
            raise IndexError(f"passage {number} of {len(self)}")
        try:
            row = json.loads(self._lines[int(self._offsets[number]) : int(self._offsets[number + 1])])
            return Passage(row["id"], row["contents"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"passage {number} in {self.folder} is damaged ({error}); build the index again") from error

    def __iter__(self) -> Iterator[Passage]:
        """Yield all passages in order."""
        return map(self.__getitem__, range(len(self)))

    def __reduce__(self) -> tuple[type["Passages"], tuple[Path]]:
        """Pickle as the folder."""
        return Passages, (self.folder,)


def corpus_id(passages: Iterable[Passage]) -> str:
    """Return the sha256 that identifies a corpus in memory."""
    hasher = hashlib.sha256()
    for passage in passages:
        hasher.update(canonical([passage.id, passage.contents]).encode("utf-8", "surrogatepass") + b"\n")
    return hasher.hexdigest()
