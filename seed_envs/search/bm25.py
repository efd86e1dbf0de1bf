"""BM25 over an index in memory or in a folder that worker processes share."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seed_envs.download import Report, silent
from seed_envs.search import inversion, store
from seed_envs.search.analysis import analyze
from seed_envs.search.postings import DTYPES, Hit, Postings, search
from seed_envs.search.store import Manifest


def build_index(
    documents: Iterable[str],
    folder: Path,
    *,
    ids: Iterable[str] | None = None,
    meta: Mapping[str, Any] | None = None,
    report: Report = silent,
) -> Manifest:
    """Index ``documents`` in ``folder``, which appears only when it is complete.

    Memory is bounded whatever the size of the corpus. A build that was interrupted goes on where
    it stopped when it is called again with the same documents.

    Args:
        documents: texts; their numbers in the index are their places here.
        folder: where to; an index that is there is replaced.
        ids: one per document; equal scores are ordered by them as Lucene does it (default: by
            number). Read after ``documents``.
        meta: what else to keep in the manifest, for ``BM25Index.open(expect=...)``.
        report: told (what, done, total or None, unit).

    Raises:
        DataError: when an interrupted build had other documents, or the number of ids differs.
        OSError: when the disk is full or the folder cannot be written; what was there stays.
    """
    return store.build(documents, folder, ids=ids, meta=meta or {}, report=report)


class BM25Index:
    """Lucene's BM25 (k1 0.9, b 0.4) over the terms of ``analyze``; safe to use from several threads."""

    def __init__(self, postings: Postings, manifest: Manifest | None = None, folder: Path | None = None) -> None:
        """Take what ``open`` or ``in_memory`` made."""
        self.postings, self.manifest, self.folder = postings, manifest, folder
        self._local = threading.local()

    @classmethod
    def open(cls, folder: Path, *, expect: Mapping[str, Any] | None = None, again: str = store.AGAIN) -> "BM25Index":
        """Map the index of a folder.

        Args:
            folder: what ``build_index`` made.
            expect: entries that its ``meta`` must have, such as the hash of a catalogue.
            again: what to do about an index that cannot be used, for messages.

        Raises:
            DataError: when there is none, it is torn, another version made it, or it was made from
                something else.
        """
        manifest, postings = store.load(Path(folder), expect or {}, again=again)
        return cls(postings, manifest, Path(folder).absolute())

    @classmethod
    def in_memory(cls, documents: Iterable[str], *, ids: Iterable[str] | None = None) -> "BM25Index":
        """Index a small corpus without a folder; pickling copies it."""
        totals, arrays = inversion.collect(list(inversion.runs(documents)), DTYPES)
        if ids is not None:
            arrays["ranks"] = inversion.ranks(ids, totals.documents)
        return cls(Postings(totals.documents, totals.counted, totals.tokens, **arrays))

    def __len__(self) -> int:
        """Return the number of documents."""
        return self.postings.documents

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the ``k`` best documents that hold a term of ``query``, best first; never raises for a text."""
        if k <= 0:
            return []
        scores = getattr(self._local, "scores", None)
        if scores is None:
            scores = self._local.scores = np.zeros(len(self), np.float64)
        try:
            return search(self.postings, Counter(analyze(query)), k, scores)
        except BaseException:
            del self._local.scores  # interrupted half-way: they may not be zero
            raise

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Search for each of ``queries``."""
        return [self.search(query, k) for query in queries]

    def __getstate__(self) -> dict[str, Any]:
        """Pickle an opened index as its folder, one in memory as its arrays."""
        if self.folder is None:
            return {"postings": self.postings}
        return {"folder": self.folder, "manifest": self.manifest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the folder again, or take the arrays."""
        if "postings" in state:
            self.__init__(state["postings"])  # type: ignore[misc]
        else:
            manifest, postings = store.load(state["folder"], {}, same=state["manifest"])
            self.__init__(postings, manifest, state["folder"])  # type: ignore[misc]
