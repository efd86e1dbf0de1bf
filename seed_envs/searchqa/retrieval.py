"""The retriever that a process shares among its environments, named by a text such as ``bm25``."""

import shlex
from collections import OrderedDict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from seed_envs import paths
from seed_envs.errors import ConfigError, DataError
from seed_envs.searchqa import embedded
from seed_envs.searchqa.world import world
from seed_envs.seeding import sha256_text

if TYPE_CHECKING:
    from seed_envs.search.passages import Passage
    from seed_envs.search.retrievers import Retriever

KINDS = "bm25, bm25:DIR, pyserini:DIR, dense:DIR, http:URL"
BUILD_AT_ONCE = 128 << 20
"""Bytes of a corpus up to which its index is built when it is first needed."""
_REMEMBERED = 4_096


class Searcher:
    """A retriever that answers many queries at once and remembers its last answers."""

    def __init__(self, retriever: "Retriever", data_sha256: str | None) -> None:
        """Wrap ``retriever``; ``data_sha256`` is of the passages behind it, where it is known."""
        self.retriever, self.data_sha256 = retriever, data_sha256
        self._answers: OrderedDict[tuple[str, int], tuple[Passage, ...]] = OrderedDict()

    def search(self, query: str, k: int) -> "tuple[Passage, ...] | None":
        """Return the ``k`` best passages, best first; None when a server has nothing at all to say.

        Raises:
            RetrievalError: when a server cannot be reached.
        """
        if (query, k) not in self._answers:
            self.prepare([query], k)
        return self._answers.get((query, k))

    def prepare(self, queries: Iterable[str], k: int) -> None:
        """Ask for all that is not remembered in one batch."""
        wanted = [query for query in dict.fromkeys(queries) if (query, k) not in self._answers]
        if not wanted:
            return
        for query, found in zip(wanted, self.retriever.search(wanted, k), strict=False):
            self._answers[query, k] = tuple(found)
        while len(self._answers) > max(_REMEMBERED, len(wanted)):
            self._answers.popitem(last=False)


@lru_cache(maxsize=4)
def open_searcher(name: str, data: str) -> Searcher:
    """Open a retriever once per process.

    Args:
        name: one of ``KINDS``; ``bm25`` alone searches the passages that belong to ``data``, and
            ``http:URL#verl_agent`` names the dialect of a server.
        data: ``embedded``, or the data root.

    Raises:
        ConfigError: when the name is none of ``KINDS``.
        SeedError: when its index or a package is missing.
    """
    from seed_envs.search.retrievers import open_retriever, read_card

    kind, _, where = name.partition(":")
    if name == "bm25" and data == "embedded":
        return Searcher(embedded.encyclopedia(), world().sha256())
    if kind in ("http", "https") and where:
        address = where if where.startswith(("http://", "https://")) else f"{kind}://{where.removeprefix('//')}"
        address, _, dialect = address.partition("#")
        return Searcher(open_retriever(address, **({"dialect": dialect} if dialect else {})), None)
    if kind not in ("bm25", "pyserini", "dense") or not (where or name == "bm25"):
        raise ConfigError(f"{name!r} is no retriever; expected one of {KINDS}")
    folder, again = (Path(where).expanduser(), "") if where else _own_index(Path(data))
    found = open_retriever(folder, again=again)
    card = read_card(folder) if (folder / "retriever.json").is_file() else None
    backend = card.backend if card else "pyserini"
    if backend != kind:
        raise ConfigError(f"{folder} holds an index of {backend}; say retriever={backend}:{folder}")
    return Searcher(found, card.corpus_sha256 if card else None)


def _own_index(root: Path) -> tuple[Path, str]:
    """Return the BM25 index of a data root's corpus and how to get it again; a small one is built here.

    Raises:
        DataError: when there is no corpus, or none of its indexes and it is large.
    """
    from seed_envs.search.passages import read_corpus
    from seed_envs.search.retrievers import CARD, FORMAT, build_retriever

    corpus = next(iter(sorted((root / "corpus").glob("*.jsonl*"))), None)
    if corpus is None:
        raise DataError(
            f"there are no passages in {root}/corpus; expected a .jsonl file; get them with: "
            f"python -m seed_envs fetch searchqa --only corpus, or name a retriever: {KINDS}"
        )
    state = corpus.stat()
    key = sha256_text(f"{FORMAT} {corpus.absolute()} {state.st_size} {state.st_mtime_ns}")[:16]
    folder = paths.cache_root() / "searchqa" / f"bm25-{key}"
    places = f"--corpus {shlex.quote(str(corpus))} --out {shlex.quote(str(folder))}"
    command = f"python -m seed_envs build search {places}"
    if not (folder / CARD).is_file():
        if state.st_size > BUILD_AT_ONCE:
            raise DataError(f"{corpus} is not indexed yet; index it once with: {command}")
        build_retriever(read_corpus(corpus), folder, once=True)
    return folder, f"build it again: {command} --force"
