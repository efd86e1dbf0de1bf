"""An inverted index as plain arrays, in memory or mapped from files, and the search over them."""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seed_envs.search import formula

Array = npt.NDArray[Any]
Scores = npt.NDArray[np.float64]

DTYPES: dict[str, type[np.generic]] = {
    "terms": np.uint8,
    "term_starts": np.uint64,
    "starts": np.uint64,
    "docs": np.uint32,
    "codes": np.uint16,
    "pairs": np.uint32,
    "tops": np.uint16,
    "ranks": np.uint32,
}
"""The arrays of an index; ``codes`` and ``tops`` are wider in the rare corpus that needs it."""


class Hit(NamedTuple):
    """A document found."""

    doc: int
    """Its number: 0 for the first document of the corpus."""
    score: float
    """Lucene's BM25, a 32-bit float."""


class Terms(Sequence[bytes]):
    """A sorted vocabulary in one block of UTF-8."""

    def __init__(self, block: Array, starts: Array) -> None:
        """Take the block and where each term starts in it, the end of the last one included."""
        self._block, self._starts = block, starts

    def __len__(self) -> int:
        """Return the number of terms."""
        return max(len(self._starts) - 1, 0)

    def __getitem__(self, index: Any) -> Any:
        """Return a term, encoded."""
        return self._block[int(self._starts[index]) : int(self._starts[index + 1])].tobytes()

    def find(self, term: str) -> int:
        """Return the number of ``term``, or -1."""
        wanted = encode(term)
        index = bisect.bisect_left(self, wanted)
        return index if index < len(self) and self[index] == wanted else -1


def encode(text: str) -> bytes:
    """Return ``text`` in UTF-8; lone surrogates are kept, not refused."""
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Postings:
    """What the search needs; term t's postings are ``docs[starts[t]:starts[t + 1]]``."""

    documents: int
    """All of them, those without terms too."""
    counted: int
    """Those with terms: only they take part in averages."""
    tokens: int
    """Terms of all documents, with repeats."""
    terms: Array
    """UTF-8 of the vocabulary, sorted (uint8)."""
    term_starts: Array
    """Where each term starts in ``terms`` (terms + 1)."""
    starts: Array
    """Where each term's postings start (terms + 1)."""
    docs: Array
    """Documents of each posting, ascending within a term."""
    codes: Array
    """Rows of ``pairs``; a larger code is a larger contribution."""
    pairs: Array
    """Frequency and length byte (codes, 2)."""
    tops: Array
    """The largest code of each term."""
    ranks: Array
    """Place of each document among equal scores; empty where that is its number."""

    @cached_property
    def vocabulary(self) -> Terms:
        """The terms."""
        return Terms(self.terms, self.term_starts)

    @cached_property
    def saturation(self) -> formula.Floats:
        """The part of the score that a code stands for."""
        average = self.tokens / self.counted if self.counted else 1.0
        return formula.saturations(self.pairs[:, 0], self.pairs[:, 1], average)


class _Term(NamedTuple):
    docs: Array
    codes: Array
    table: formula.Floats
    """Contribution of each code."""
    bound: float
    """The largest contribution to any document."""


def search(postings: Postings, boosts: Mapping[str, int], k: int, scores: Scores) -> list[Hit]:
    """Return the ``k`` best documents, best first; equal scores in the order of ``ranks``.

    Terms are added strongest first. Once the documents that hold none of those added so far
    cannot reach the first ``k``, only candidates are followed, and those that fall behind are
    dropped (MaxScore). No document is lost by it. Sums are kept in 64 bits, where adding 32-bit
    floats is exact for any query of practical length, so their order does not matter.

    Args:
        postings: the index.
        boosts: terms of the query and how often each occurs in it.
        k: documents wanted.
        scores: zeros (documents,); zeros again afterwards.
    """
    terms = sorted(_terms(postings, boosts), key=lambda term: -term.bound)
    rest = sum(term.bound for term in terms)
    needed, added = 0.0, list[Array]()
    candidates: Array | None = None
    for term in terms:
        rest -= term.bound
        if candidates is None or len(term.docs) < _LOOKUP_COST * len(candidates):
            scores[term.docs] += term.table[term.codes]
            added.append(term.docs)
        else:
            _look_up(term, candidates, scores)
        totals = scores[term.docs if candidates is None else candidates]
        if len(totals) >= k:
            needed = max(needed, float(_kth(totals, k)) * _SLACK)
        if candidates is not None:
            candidates = candidates[totals >= needed - rest]
        elif rest < needed:
            candidates = _candidates(added, scores, needed - rest)
    if candidates is None:
        candidates = _candidates(added, scores, needed)
    found = scores[candidates].astype(np.float32)
    for docs in added:
        scores[docs] = 0
    return _best(postings, candidates, found, k)


_SLACK = 1 - 1e-6
"""Sums within rounding of the k-th count as equal to it: only the final 32-bit scores decide."""

_LOOKUP_COST = 8
"""Looking a candidate up in the postings of a term takes as long as adding about so many postings."""


def _candidates(added: Sequence[Array], scores: Scores, floor: float) -> Array:
    """Return the documents of the lists whose sum reaches ``floor``, each once."""
    docs, totals = [np.zeros(0, np.uint32)], [np.zeros(0)]
    for listed in added:
        sums = scores[listed]
        kept = (sums >= floor) & (sums > 0)
        docs.append(listed[kept])
        totals.append(sums[kept])
        scores[docs[-1]] = 0  # the lists to come leave it out
    found = np.concatenate(docs)
    scores[found] = np.concatenate(totals)
    return found


def _look_up(term: "_Term", candidates: Array, scores: Scores) -> None:
    """Add a term to the candidates alone."""
    places = np.searchsorted(term.docs, candidates)
    places[places == len(term.docs)] = 0
    present = term.docs[places] == candidates
    scores[candidates[present]] += term.table[term.codes[places[present]]]


def _kth(values: npt.NDArray[np.floating], k: int) -> np.floating:
    """Return the ``k``-th largest of at least ``k`` values.

    ``np.partition`` takes a hundred times as long where many are equal, as they are here.
    """
    if len(values) > 64 * k:  # the k-th largest maximum of 16 k blocks is reached by k values at least
        block = len(values) // (16 * k)
        maxima = values[: block * 16 * k].reshape(-1, block).max(axis=1)
        values = values[values >= np.sort(maxima)[-k]]
    kth: np.floating = np.sort(values)[-k]
    return kth


def _terms(postings: Postings, boosts: Mapping[str, int]) -> list[_Term]:
    found = []
    for text, boost in boosts.items():
        number = postings.vocabulary.find(text)
        if number < 0:
            continue
        start, end = int(postings.starts[number]), int(postings.starts[number + 1])
        weight = np.float32(boost) * formula.idf(postings.counted, end - start)
        table = formula.contributions(weight, postings.saturation)
        bound = float(table[postings.tops[number]])
        found.append(_Term(postings.docs[start:end], postings.codes[start:end], table, bound))
    return found


def _best(postings: Postings, docs: Array, scores: formula.Floats, k: int) -> list[Hit]:
    if len(docs) > k:  # leave out what is below the k-th, so that few are sorted
        kept = scores >= _kth(scores, k)
        docs, scores = docs[kept], scores[kept]
    ranks = postings.ranks[docs] if len(postings.ranks) else docs
    order = np.lexsort((ranks, -scores))[:k]
    return [Hit(int(docs[i]), float(scores[i])) for i in order]
