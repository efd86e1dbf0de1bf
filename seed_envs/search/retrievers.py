"""One interface to find passages, whatever finds them, and folders that hold all a retriever needs.

A folder made by ``build_retriever``: ``retriever.json`` (what it is and what it was made from),
``passages/`` and, by backend, ``bm25/``, ``lucene/`` or ``dense/``.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from seed_envs.download import Report, silent
from seed_envs.errors import ConfigError, DataError, SeedError, UnknownName
from seed_envs.files import write_atomically
from seed_envs.search import seal, store
from seed_envs.search.bm25 import BM25Index, build_index
from seed_envs.search.passages import Passage, Passages, write_passages

FORMAT, CARD = 2, "retriever.json"

BACKENDS = ("bm25", "pyserini", "dense")
"""What ``build_retriever`` makes."""

_AGAIN = "build it again: python -m seed_envs build search --corpus FILE.jsonl --out "


class RetrievalError(SeedError):
    """A search could not be made: a server is away, or answers what cannot be read."""


class Retriever(Protocol):
    """Finds passages."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the ``k`` best passages for each query, best first.

        Raises:
            RetrievalError: when a server cannot be reached; no query is refused.
        """

    def describe(self) -> dict[str, Any]:
        """Return what the result depends on: backend, corpus, parameters, versions."""


@dataclass(frozen=True)
class Card:
    """What a retriever's folder holds."""

    backend: str
    passages: int
    corpus_sha256: str
    """Of the lines of the passage store."""
    parameters: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Path within the folder to seal (``seal.of``). For the arrays of ``bm25`` the manifest beside them stands."""
    format: int = FORMAT

    def describe(self) -> dict[str, Any]:
        """Return what a result depends on: not the seals, for Lucene and HNSW write other bytes every time."""
        return {key: value for key, value in asdict(self).items() if key != "files"}

    def again(self, folder: Path) -> str:
        """Return what to do about an index that cannot be used."""
        words = [shlex.quote(str(folder)), "--force --backend", self.backend]
        for name in ("model", "kind"):
            words += [f"--{name}", shlex.quote(str(self.parameters[name]))] if name in self.parameters else []
        return _AGAIN + " ".join(words)


class BM25Retriever:
    """Our BM25 over a passage store, or over passages in memory."""

    def __init__(self, index: BM25Index, passages: Sequence[Passage] | Passages, card: Card | None = None) -> None:
        """Take an index and its passages, in the same order."""
        if len(index) != len(passages):
            raise DataError(f"the index has {len(index)} documents and the store {len(passages)} passages; build again")
        self.index, self.passages, self.card = index, passages, card

    @classmethod
    def in_memory(cls, passages: Iterable[Passage]) -> "BM25Retriever":
        """Index a small corpus without a folder."""
        passages = list(passages)
        return cls(BM25Index.in_memory((p.contents for p in passages), ids=(p.id for p in passages)), passages)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the ``k`` best passages for each query."""
        found = self.index.search_many(queries, k)
        return [[self.passages[hit.doc].scored(hit.score) for hit in hits] for hits in found]

    def describe(self) -> dict[str, Any]:
        """Return what the result depends on."""
        return self.card.describe() if self.card else {"backend": "bm25", "passages": len(self.passages)}


def build_retriever(
    passages: Iterable[Passage],
    folder: Path,
    *,
    backend: str = "bm25",
    options: Mapping[str, Any] | None = None,
    report: Report = silent,
    once: bool = False,
) -> Card:
    """Make a folder that ``open_retriever`` opens; it appears only when it is complete.

    Another build of the same folder waits until this one has ended.

    Args:
        passages: the corpus.
        folder: where to; what is there is replaced at the end.
        backend: one of ``BACKENDS``.
        options: of the backend: ``threads`` for pyserini, those of ``dense.DenseSettings`` for dense.
        report: told (what, done, total or None, unit).
        once: leave a folder that is there as it is: of several processes that need it, one makes it.

    Raises:
        SeedError: when the corpus or the backend cannot be used.
        OSError: when the disk is full or the folder cannot be written.
    """
    _check(backend, options or {})
    folder = Path(folder).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    with store.locked(partial):
        if once and (folder / CARD).is_file():
            store.discard(partial)
            return read_card(folder)
        (partial / "done" / "passages").mkdir(parents=True, exist_ok=True)
        done = partial / "done"
        count, sha256 = _store(passages, done / "passages", report)
        stored = Passages(done / "passages")
        parameters, packages = _index(backend, stored, done, dict(options or {}), report)
        seals = {name: seal.of(done / name) for name in _sealed(done)}
        card = Card(backend, count, sha256, parameters, store.versions(*packages), seals)
        write_atomically(done / CARD, seal.manifest(asdict(card)))
        store.put_in_place(done, folder)
        store.discard(partial)
    return card


def _check(backend: str, options: Mapping[str, Any]) -> None:
    """Say what is missing before a corpus is read for an hour."""
    if backend not in BACKENDS:
        raise UnknownName("search backend", backend, BACKENDS)
    if backend == "pyserini":
        from seed_envs.search import lucene

        lucene.java_class(lucene.INDEXER)
    if backend == "dense":
        from seed_envs.search import dense

        dense.settings(options)
        dense.load_faiss()


def _store(passages: Iterable[Passage], folder: Path, report: Report) -> tuple[int, str]:
    count, sha256 = write_passages(passages, folder, report)
    report("reading", count, count, "passages")
    if not count:
        raise DataError("the corpus holds no passages; expected JSON lines with 'id' and 'contents'")
    return count, sha256


def _index(
    backend: str, passages: Passages, done: Path, options: dict[str, Any], report: Report
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Make the backend's part; return its parameters and the packages whose versions matter."""
    if backend == "bm25":
        texts, ids = (p.contents for p in passages), (p.id for p in passages)
        manifest = build_index(texts, done / "bm25", ids=ids, report=report)
        return {**manifest.parameters, "analyzer": manifest.analyzer}, ("regex", "snowballstemmer")
    if backend == "pyserini":
        from seed_envs.search import lucene

        return lucene.build(passages, done / "lucene", report=report, **options), ("pyserini", "pyjnius")
    from seed_envs.search import dense

    return dense.build(passages, done / "dense", dense.settings(options), report), (
        "faiss-cpu",
        "transformers",
        "torch",
    )


def read_card(folder: Path, again: str = "") -> Card:
    """Return what the retriever in ``folder`` was made from.

    Args:
        folder: what ``build_retriever`` made.
        again: what to do about a damaged one, for the message (default: a command).

    Raises:
        DataError: when there is none, another version made it or it was changed.
    """
    path, given = folder / CARD, again
    again = again or f"{_AGAIN}{shlex.quote(str(folder))} --force"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.get("format") != FORMAT:
            raise DataError(f"{path} has format {values.get('format')!r}, expected {FORMAT}; {again}")
        card = Card(**{key: value for key, value in values.items() if key != seal.OWN})
        seal.opened(values, path, given or card.again(folder))  # in the words of the backend it names
        return card
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"there is no search index in {folder} (no {CARD}); make one with: "
            f"python -m seed_envs build search --corpus FILE.jsonl --out {folder}"
        ) from None
    except (AttributeError, OSError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); {again}") from error


def _sealed(folder: Path) -> list[str]:
    """Return the files of a retriever's folder that its card seals, hidden ones and Lucene's lock left out."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    own = {CARD, "lucene/write.lock"} | {name for name in names if name.startswith("bm25/") and name.endswith(".bin")}
    return [name for name in names if name not in own and not any(part.startswith(".") for part in name.split("/"))]


def _check_files(folder: Path, card: Card, again: str, *, whole: bool = False) -> None:
    seal.check({folder / name: entry for name, entry in card.files.items()}, again, whole=whole)
    for name in _sealed(folder):  # Lucene would take the newest commit, whoever put it there
        if name not in card.files:
            raise DataError(f"{folder / name} is no part of the index, expected {len(card.files)} other files; {again}")


def open_retriever(where: str | Path, *, corpus_sha256: str = "", again: str = "", **options: Any) -> Retriever:
    """Open a retriever: a folder of ``build_retriever``, a Lucene index with stored text, or a server.

    Args:
        where: a folder, or an ``http(s)`` address.
        corpus_sha256: what a folder must have been made from; empty for anything.
        again: what to do about a damaged folder, for messages (default: the command that builds it).
        options: of the backend: for a server those of ``http.HttpRetriever``, for dense ``device``.

    Raises:
        SeedError: when it cannot be opened, or does not take an option.
    """
    if str(where).startswith(("http://", "https://")):
        _only(options, "a server", "dialect", "retries", "timeout_s", "sleep")
        from seed_envs.search.http import HttpRetriever

        return HttpRetriever(str(where), **options)
    folder = Path(where).expanduser()
    if not (folder / CARD).is_file() and any(folder.glob("segments_*")):
        _only(options, f"{folder}, an index of pyserini")
        from seed_envs.search.lucene import LuceneRetriever

        return LuceneRetriever(folder)
    card = read_card(folder, again)
    again = again or card.again(folder)
    if corpus_sha256 and card.corpus_sha256 != corpus_sha256:
        raise DataError(f"the search index in {folder} was made from another corpus; {again}")
    _check_files(folder, card, again)
    return _opened(folder, card, again, options)


def verify(folder: Path) -> Card:
    """Hash every byte of a retriever's folder.

    Raises:
        DataError: when something is not what it was when it was written.
    """
    card = read_card(folder)
    _check_files(folder, card, card.again(folder), whole=True)
    if card.backend == "bm25":
        store.verify(folder / "bm25", card.again(folder))
    return card


def _only(options: Mapping[str, Any], what: str, *known: str) -> None:
    """Refuse an option that would change nothing.

    Raises:
        ConfigError: when one is not among ``known``.
    """
    if unknown := [name for name in options if name not in known]:
        raise ConfigError(f"{what} takes no {', '.join(unknown)}; expected {', '.join(known) or 'no options'}")


def _opened(folder: Path, card: Card, again: str, options: Mapping[str, Any]) -> Retriever:
    _only(options, f"{folder}, an index of {card.backend}", *(["device"] if card.backend == "dense" else []))
    if card.backend == "pyserini":
        from seed_envs.search.lucene import LuceneRetriever

        return LuceneRetriever(folder / "lucene", card)
    passages = Passages(folder / "passages")
    if card.backend == "dense":
        from seed_envs.search.dense import DenseRetriever

        return DenseRetriever(folder / "dense", passages, card, **options)
    if card.backend != "bm25":
        raise UnknownName("search backend", card.backend, BACKENDS)
    return BM25Retriever(BM25Index.open(folder / "bm25", again=again), passages, card)
