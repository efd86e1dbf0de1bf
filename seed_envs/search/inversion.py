"""From documents to postings: sorted runs of bounded size, then one merge.

A run is the inverted index of as many documents as fit in ``RUN_TOKENS``; memory depends on that,
not on the corpus. Runs are arrays, so the caller may keep them in memory or map them from files.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seed_envs.errors import DataError
from seed_envs.search import formula
from seed_envs.search.analysis import to_term, tokenize
from seed_envs.search.postings import Array, encode

RUN_TOKENS = 8_000_000
"""Tokens of a run: about 400 MB of memory while it is made."""

FLUSH_POSTINGS = 2_000_000
"""Postings the merge holds before it passes them on."""


NARROW = 1 << 16
"""Codes up to this many are kept in two bytes each."""


@dataclass(frozen=True)
class Run:
    """The inverted index of consecutive documents."""

    first: int
    """Number of its first document."""
    terms: Array
    """UTF-8 of its terms, sorted."""
    term_starts: Array
    starts: Array
    docs: Array
    freqs: Array
    lengths: Array
    """Length of each document in terms."""


class _Numbers(dict[str, int]):
    """Token to the number of its term within a run, -1 for a stop word."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}

    def __missing__(self, token: str) -> int:
        term = to_term(token)
        number = self.terms.setdefault(term, len(self.terms)) if term else -1
        self[token] = number
        return number


def runs(documents: Iterable[str], first: int = 0, *, tokens: int | None = None) -> Iterator[Run]:
    """Yield the inverted index of ``documents``, run by run.

    Args:
        documents: texts.
        first: number of the first of them.
        tokens: tokens of a run (default ``RUN_TOKENS``).
    """
    tokens = RUN_TOKENS if tokens is None else tokens
    numbers, found, counts, held = _Numbers(), [], [], 0
    for text in documents:
        ids = np.fromiter(map(numbers.__getitem__, tokenize(text)), np.int32)
        found.append(ids)
        counts.append(len(ids))
        held += len(ids) + 1
        if held >= tokens:
            yield _run(first, found, counts, list(numbers.terms))
            first += len(counts)
            numbers, found, counts, held = _Numbers(), [], [], 0
    if counts:
        yield _run(first, found, counts, list(numbers.terms))


def _run(first: int, found: list[npt.NDArray[np.int32]], counts: list[int], terms: list[str]) -> Run:
    ids = np.concatenate(found)
    docs = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    kept = ids >= 0
    ids, docs = ids[kept], docs[kept]
    encoded = [encode(term) for term in terms]
    order = sorted(range(len(terms)), key=encoded.__getitem__)
    place = np.empty(len(terms), np.int64)
    place[order] = np.arange(len(terms))
    keys, freqs = np.unique(place[ids] * len(counts) + docs, return_counts=True)
    of_term = keys // len(counts)
    return Run(
        first=first,
        terms=np.frombuffer(b"".join(encoded[i] for i in order), np.uint8),
        term_starts=_offsets([len(encoded[i]) for i in order]),
        starts=np.searchsorted(of_term, np.arange(len(terms) + 1)).astype(np.uint64),
        docs=(keys - of_term * len(counts) + first).astype(np.uint32),
        freqs=freqs.astype(np.uint32),
        lengths=np.bincount(docs, minlength=len(counts)).astype(np.uint32),
    )


def _offsets(lengths: Sequence[int]) -> Array:
    result = np.zeros(len(lengths) + 1, np.uint64)
    np.cumsum(np.asarray(lengths, np.uint64), out=result[1:])
    return result


class Totals(NamedTuple):
    """What the merge has counted."""

    documents: int
    counted: int
    tokens: int
    terms: int
    postings: int


Write = Callable[[str, Array], None]
"""Appends to one of the arrays of ``Postings``."""


def merge(parts: Sequence[Run], write: Write, report: Callable[[int, int], None]) -> Totals:
    """Merge runs into the arrays of ``postings.Postings``, all but ``ranks``.

    Args:
        parts: runs of consecutive documents, in order.
        write: takes the arrays piece by piece.
        report: told (postings merged, all postings).
    """
    lengths = np.concatenate([run.lengths for run in parts]) if parts else np.zeros(0, np.uint32)
    sizes = np.array([formula.encode_length(n) for n in range(int(lengths.max(initial=0)) + 1)], np.uint32)
    bytes_ = sizes[lengths]
    counted, tokens = int(np.count_nonzero(lengths)), int(lengths.sum(dtype=np.uint64))
    pairs, code_of = _codes(parts, bytes_, tokens / counted if counted else 1.0)
    write("pairs", np.stack([pairs >> 8, pairs & 255], axis=1).astype(np.uint32))
    write("term_starts", np.zeros(1, np.uint64))
    write("starts", np.zeros(1, np.uint64))
    postings, end, total, terms = 0, 0, sum(len(run.docs) for run in parts), 0
    for names, counts, docs, freqs in _batches(parts):
        codes = code_of(freqs << np.uint32(8) | bytes_[docs])
        begins = _offsets(counts)
        write("terms", np.frombuffer(b"".join(names), np.uint8))
        write("term_starts", _offsets([len(name) for name in names])[1:] + np.uint64(end))
        write("starts", begins[1:] + np.uint64(postings))
        write("docs", docs)
        write("codes", codes)
        write("tops", np.maximum.reduceat(codes, begins[:-1].astype(np.int64)))
        end += sum(map(len, names))
        postings, terms = postings + len(docs), terms + len(names)
        report(postings, total)
    return Totals(len(lengths), counted, tokens, terms, postings)


def _codes(parts: Sequence[Run], bytes_: Array, average: float) -> tuple[Array, Callable[[Array], Array]]:
    """Return the (frequency << 8 | length byte) that occur, by contribution, and how to number them."""
    seen = np.zeros(0, np.uint32)
    for run in parts:
        for at in range(0, len(run.docs), FLUSH_POSTINGS):
            piece = slice(at, at + FLUSH_POSTINGS)
            seen = np.union1d(seen, run.freqs[piece] << np.uint32(8) | bytes_[run.docs[piece]])
    order = np.lexsort((seen, formula.saturations(seen >> 8, seen & 255, average)))
    numbers = np.empty(len(seen), np.uint16 if len(seen) <= NARROW else np.uint32)
    numbers[order] = np.arange(len(seen))
    return seen[order], lambda packed: numbers[np.searchsorted(seen, packed)]


Batch = tuple[list[bytes], list[int], Array, Array]


def _batches(parts: Sequence[Run]) -> Iterator[Batch]:
    """Yield terms with their posting counts, documents and frequencies, in the order of the terms."""

    def stream(number: int, run: Run) -> Iterator[tuple[bytes, int, int, int]]:
        for at in range(0, len(run.starts) - 1, _TERMS_AT_ONCE):  # all of them, of all runs, would not fit
            starts = run.starts[at : at + _TERMS_AT_ONCE + 1].tolist()
            begins = run.term_starts[at : at + _TERMS_AT_ONCE + 1].tolist()
            block, first = run.terms[begins[0] : begins[-1]].tobytes(), begins[0]
            for i in range(len(starts) - 1):
                yield block[begins[i] - first : begins[i + 1] - first], number, starts[i], starts[i + 1]

    names: list[bytes] = []
    counts: list[int] = []
    docs: list[Array] = []
    freqs: list[Array] = []
    held = 0
    merged = heapq.merge(*(stream(number, run) for number, run in enumerate(parts)))
    for name, group in groupby(merged, key=lambda entry: entry[0]):
        count = 0
        for _, number, start, end in group:
            docs.append(parts[number].docs[start:end])
            freqs.append(parts[number].freqs[start:end])
            count += end - start
        names.append(name)
        counts.append(count)
        held += count
        if held >= FLUSH_POSTINGS:
            yield names, counts, np.concatenate(docs), np.concatenate(freqs)
            names, counts, docs, freqs, held = [], [], [], [], 0
    if names:
        yield names, counts, np.concatenate(docs), np.concatenate(freqs)


def ranks(ids: Iterable[str], documents: int) -> Array:
    """Return the place of each document in the order of ``ids``; empty where that is its number.

    Raises:
        DataError: when there is not one id per document, or one occurs twice.
    """
    remaining, pieces = iter(ids), [np.zeros(0, "S1")]
    while piece := [encode(name) for name in islice(remaining, _IDS_AT_ONCE)]:
        wide = max(map(len, piece)) > _ID_BYTES  # one long id must not make all of them long
        pieces.append(np.array(piece, object) if wide else np.array(piece))
    names = np.concatenate(pieces)
    if len(names) != documents:
        raise DataError(f"{len(names)} ids for {documents} documents; expected one each")
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    if (twice := np.flatnonzero(ordered[1:] == ordered[:-1])).size:
        name = bytes(ordered[twice[0]]).decode("utf-8", "replace")
        raise DataError(f"the id {name!r} occurs twice; expected documents with ids of their own")
    if np.array_equal(order, np.arange(documents)):
        return np.zeros(0, np.uint32)
    places = np.empty(documents, np.uint32)
    places[order] = np.arange(documents, dtype=np.uint32)
    return places


_TERMS_AT_ONCE, _IDS_AT_ONCE, _ID_BYTES = 4_096, 1 << 18, 64


def collect(parts: Sequence[Run], dtypes: dict[str, Any]) -> tuple[Totals, dict[str, Array]]:
    """Merge runs into arrays in memory."""
    pieces: dict[str, list[Array]] = {name: [] for name in dtypes}
    totals = merge(parts, lambda name, array: pieces[name].append(array), lambda done, total: None)
    return totals, {
        name: np.concatenate(found) if found else np.zeros(0, dtypes[name]) for name, found in pieces.items()
    }
