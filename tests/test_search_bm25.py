"""BM25: numbers worked out by hand, every document scored plainly, recorded Lucene rankings, torn folders."""

import json
import lzma
import math
import multiprocessing
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from seed_envs import DataError
from seed_envs.search import BM25Index, Hit, analyze, build_index, formula, inversion, seal, store
from seed_envs.search.postings import DTYPES
from seed_envs.seeding import Draws

DOCS = ["red shoes", "red red wine and bread", "", "the of", "blue shoes for running", "wine"]


def corpus(documents: int, words: int = 60, seed: str = "corpus") -> list[str]:
    """Make texts whose words are few and unevenly common, so that scores tie and lists are long."""
    draws = Draws(seed)
    return [
        " ".join(f"w{draws.below(draws.below(words) + 1)}" for _ in range(draws.below(30))) for _ in range(documents)
    ]


def plain(counts: list[Counter[str]], query: str) -> dict[int, float]:
    """Score every document by the formula, in 64 bits; those with a score of 0 are left out."""
    lengths = [sum(count.values()) for count in counts]
    counted = sum(length > 0 for length in lengths)
    average = sum(lengths) / max(counted, 1)
    scores = {}
    for doc, count in enumerate(counts):
        score = 0.0
        for term, boost in Counter(analyze(query)).items():
            if count[term]:
                df = sum(term in other for other in counts)
                idf = math.log(1 + (counted - df + 0.5) / (df + 0.5))
                length = formula.decode_length(formula.encode_length(lengths[doc]))
                norm = 0.9 * (1 - 0.4 + 0.4 * length / average)
                score += boost * idf * count[term] / (count[term] + norm)
        if score:
            scores[doc] = score
    return scores


# --- the formula ------------------------------------------------------------------------------------------------------


def test_lengths_in_one_byte() -> None:
    assert [formula.decode_length(formula.encode_length(n)) for n in (0, 1, 24, 40, 41, 42, 57, 100, 1_000)] == [
        *(0, 1, 24, 40, 40, 42, 56, 96, 984)
    ]
    assert formula.encode_length(2**31 - 1) == 255
    assert [formula.encode_length(formula.decode_length(byte)) for byte in range(256)] == list(range(256))
    assert all(formula.decode_length(formula.encode_length(n)) <= n for n in range(5_000))


def test_scores_by_hand() -> None:
    # Four documents have terms, 2 + 4 + 3 + 1 = 10 of them ("and", "for" are stop words): 2.5 on average.
    index = BM25Index.in_memory(DOCS)
    assert len(index) == 6
    idf = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    first = idf * 2 / (2 + 0.9 * (0.6 + 0.4 * 4 / 2.5))
    second = idf * 1 / (1 + 0.9 * (0.6 + 0.4 * 2 / 2.5))
    assert index.search("RED", 9) == [Hit(1, pytest.approx(first, rel=1e-6)), Hit(0, pytest.approx(second, rel=1e-6))]
    assert index.search("red red", 1)[0].score == pytest.approx(2 * first, rel=1e-6)
    assert [hit.doc for hit in index.search("shoes wine", 9)] == [5, 0, 4, 1]


def test_the_arithmetic_is_of_32_bits() -> None:
    score = BM25Index.in_memory(DOCS).search("red wine", 1)[0].score
    assert score == float(np.float32(score))


@pytest.mark.parametrize("query", ["", "the", "zebra", "\x00", "\ud800", "!!!"])
def test_nothing_to_find(query: str) -> None:
    assert BM25Index.in_memory(DOCS).search(query, 5) == []
    assert BM25Index.in_memory([]).search(query, 5) == []
    assert BM25Index.in_memory(["", "the"]).search(query, 5) == []


@pytest.mark.parametrize("k", [0, -1])
def test_no_documents_wanted(k: int) -> None:
    assert BM25Index.in_memory(DOCS).search("red", k) == []


def test_every_document_is_considered() -> None:
    """Leaving documents out early never changes what is found."""
    documents = corpus(300)
    counts = [Counter(analyze(text)) for text in documents]
    index = BM25Index.in_memory(documents)
    draws = Draws("queries")
    for _ in range(150):
        query = " ".join(f"w{draws.below(60)}" for _ in range(1 + draws.below(8)))
        k = draws.choice([1, 3, 10, 50, 1_000])
        hits, scores = index.search(query, k), plain(counts, query)
        assert [hit.score for hit in hits] == pytest.approx(sorted(scores.values(), reverse=True)[:k], rel=1e-6)
        assert [hit.score for hit in hits] == pytest.approx([scores[hit.doc] for hit in hits], rel=1e-6)
        assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.doc))


def test_leaving_out_happens_and_changes_nothing() -> None:
    """A large corpus, where the search does stop adding: the first k are those of a search for all."""
    documents = corpus(6_000, words=400, seed="large")
    index = BM25Index.in_memory(documents)
    draws = Draws("large queries")
    for _ in range(60):
        query = " ".join(f"w{draws.below(400)}" for _ in range(1 + draws.below(8)))
        assert index.search(query, 10) == index.search(query, len(documents))[:10]


def test_equal_scores_in_the_order_of_numbers_or_of_ids() -> None:
    documents = ["same text"] * 12
    assert [hit.doc for hit in BM25Index.in_memory(documents).search("same", 4)] == [0, 1, 2, 3]
    by_id = BM25Index.in_memory(documents, ids=map(str, range(12)))  # as text: 0 1 10 11 2 ...
    assert [hit.doc for hit in by_id.search("same", 5)] == [0, 1, 10, 11, 2]
    with pytest.raises(DataError, match="3 ids for 12 documents"):
        BM25Index.in_memory(documents, ids="abc")
    with pytest.raises(DataError, match="the id 'b' occurs twice"):
        BM25Index.in_memory(["one", "two", "three"], ids="bab")


@pytest.mark.parametrize("long", [False, True])
def test_ranks_follow_the_bytes_of_the_ids(long: bool) -> None:
    ids = ["b", "10", "2", "\u00e9", "Z", "", "1", "\U0001f600", "\uffff", *(["x" * 99] if long else [])]
    order = sorted(ids, key=lambda name: name.encode())
    assert [order[place] for place in inversion.ranks(ids, len(ids))] == ids
    assert len(inversion.ranks(order, len(order))) == 0
    assert len(inversion.ranks([], 0)) == 0


def test_more_codes_than_fit_two_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    documents = corpus(200)
    expected = BM25Index.in_memory(documents).search("w1 w5 w9", 20)
    monkeypatch.setattr(inversion, "NARROW", 10)
    assert BM25Index.in_memory(documents).postings.codes.dtype == np.uint32
    assert BM25Index.in_memory(documents).search("w1 w5 w9", 20) == expected
    build_index(documents, tmp_path / "ix")
    assert BM25Index.open(tmp_path / "ix").search("w1 w5 w9", 20) == expected


# --- recorded rankings ------------------------------------------------------------------------------------------------


def test_recorded_webshop_searches(shared: Path) -> None:
    with lzma.open(shared / "data" / "webshop" / "products_1000_lucene_docs.jsonl.xz", "rt") as lines:
        products = [json.loads(line) for line in lines]
    ids = [product["id"] for product in products]
    index = BM25Index.in_memory((product["contents"] for product in products), ids=ids)
    golden = (shared / "golden" / "webshop" / "search_top50.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in golden]
    found = [index.search(row["query"], 50) for row in rows]
    equal = sum([ids[hit.doc] for hit in hits] == row["asins"] for hits, row in zip(found, rows, strict=True))
    assert (equal, len(rows)) == (305, 305)
    for hits, row in zip(found, rows, strict=True):
        assert np.allclose([hit.score for hit in hits], row["scores"], atol=6e-5)


@pytest.mark.slow
def test_recorded_questions_over_real_passages(shared: Path, tmp_path: Path) -> None:
    with lzma.open(shared / "data" / "searchqa" / "corpus_59807.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    ids = [row["id"] for row in rows]
    build_index((f'"{row["title"]}"\n{row["text"]}' for row in rows), tmp_path / "ix", ids=ids)
    index = BM25Index.open(tmp_path / "ix")
    golden = (shared / "golden" / "searchqa" / "bm25_top10.jsonl").read_text(encoding="utf-8").splitlines()
    asked = [json.loads(line) for line in golden]
    equal = sum([ids[hit.doc] for hit in index.search(row["question"], 10)] == row["doc_ids"] for row in asked)
    assert (equal, len(asked)) == (300, 300)


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_finds_what_memory_finds(tmp_path: Path) -> None:
    documents = corpus(200)
    manifest = build_index(documents, tmp_path / "deep" / "ix", meta={"catalogue": "abc"})
    index = BM25Index.open(tmp_path / "deep" / "ix", expect={"catalogue": "abc"})
    memory = BM25Index.in_memory(documents)
    assert manifest == index.manifest
    assert manifest.documents == len(index) == 200
    for name in DTYPES:
        assert np.array_equal(getattr(index.postings, name), getattr(memory.postings, name)), name
    assert index.search_many(["w1 w2", "w30"], 5) == memory.search_many(["w1 w2", "w30"], 5)
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["ix"]


def test_many_runs_merge_to_the_same_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = corpus(200)
    one = build_index(documents, tmp_path / "one")
    monkeypatch.setattr(inversion, "RUN_TOKENS", 90)
    monkeypatch.setattr(inversion, "FLUSH_POSTINGS", 70)
    many = build_index(documents, tmp_path / "many")
    assert one == many
    assert len(list(inversion.runs(documents))) > 20


def test_an_interrupted_build_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents, out = corpus(200), tmp_path / "ix"
    monkeypatch.setattr(inversion, "RUN_TOKENS", 300)
    whole = build_index(documents, tmp_path / "whole")
    made: list[int] = []
    original = inversion._run
    monkeypatch.setattr(inversion, "_run", lambda first, *rest: made.append(first) or original(first, *rest))

    def torn() -> Iterator[str]:
        yield from documents[:150]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(torn(), out)
    assert not out.exists()
    before = len(made)
    assert before > 3
    assert build_index(documents, out) == whole
    assert made == sorted(made), "no run was made twice"
    assert len(set(made)) == len(made)


def test_an_interrupted_build_refuses_other_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents, out = corpus(100), tmp_path / "ix"
    monkeypatch.setattr(inversion, "RUN_TOKENS", 300)

    def torn() -> Iterator[str]:
        yield from documents[:90]
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        build_index(torn(), out)
    for other in (["changed", *documents[1:]], documents[:3]):
        with pytest.raises(DataError, match="had other documents; give the same ones, or remove it"):
            build_index(other, out)
    assert build_index(documents, out).documents == 100


@pytest.mark.parametrize("state", ["", "[]", "3", "{}", json.dumps({"key": f"{store.FORMAT} {store.ANALYZER}"})])
def test_a_torn_note_of_an_interrupted_build_is_passed_over(state: str, tmp_path: Path) -> None:
    (tmp_path / ".ix.partial").mkdir()
    (tmp_path / ".ix.partial" / store.STATE).write_text(state)
    assert build_index(DOCS, tmp_path / "ix").documents == len(DOCS)


def test_a_failed_build_leaves_the_old_index(tmp_path: Path) -> None:
    build_index(["old"], tmp_path / "ix")
    with pytest.raises(DataError, match="1 ids for 2"):
        build_index(["new", "newer"], tmp_path / "ix", ids=["a"])
    assert [hit.doc for hit in BM25Index.open(tmp_path / "ix").search("old", 1)] == [0]
    build_index(["new", "newer"], tmp_path / "ix")
    assert len(BM25Index.open(tmp_path / "ix")) == 2


def _edit(folder: Path, **values: object) -> None:
    path = folder / store.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _unsealed(folder: Path, **values: object) -> bytes:
    """Return the manifest as another version of the package would have written it, with a seal that fits."""
    manifest = json.loads((folder / store.MANIFEST).read_text())
    manifest.pop(seal.OWN)
    return seal.manifest({**manifest, **values})


TAMPERED: list[dict[str, object]] = [
    {"counted": 3},
    {"tokens": 99},
    {"documents": "3"},
    {"meta": {"catalogue": "def"}},
    {"meta": {"catalogue": math.nan}},
    {"surplus": 1},
    {seal.OWN: None},
]
"""Entries that were believed once; what they change is the ranking, and what an index is taken for."""


def _edit_files(folder: Path, **values: object) -> None:
    files = json.loads((folder / store.MANIFEST).read_text())["files"]
    _edit(folder, files={name: {**entry, **values} for name, entry in files.items()})


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda ix: (ix / "docs.bin").unlink(), "docs.bin is missing"),
        (lambda ix: (ix / "docs.bin").write_bytes(b"\0"), "docs.bin has 1 bytes, expected"),
        (lambda ix: _flip(ix / "codes.bin"), "codes.bin has changed"),
        (lambda ix: _flip(ix / "terms.bin"), "terms.bin has changed"),
        (lambda ix: _edit(ix, analyzer="english-0"), "has analyzer 'english-0', expected 'english-"),
        (lambda ix: _edit(ix, format=99), "has format 99, expected 2"),
        (lambda ix: _edit(ix, parameters={"k1": 1.2, "b": 0.75}), "has parameters"),
        *((lambda ix, e=entry: _edit(ix, **e), "manifest.json has changed") for entry in TAMPERED),
        (lambda ix: _edit_files(ix, dtype="garbage"), "manifest.json has changed"),
        (lambda ix: (ix / store.MANIFEST).write_bytes(_unsealed(ix, surplus=1)), "lacks entries or has unknown ones"),
        (lambda ix: (ix / store.MANIFEST).write_text("[" * 100_000), "is damaged"),
        (lambda ix: (ix / store.MANIFEST).write_text("{"), "is damaged"),
        (lambda ix: (ix / store.MANIFEST).write_text("[]"), "has kind None"),
        (lambda ix: (ix / store.MANIFEST).unlink(), r"there is no search index in .*; build the search index again"),
    ],
)
def test_a_damaged_index_is_refused_in_one_line(spoil: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    build_index(DOCS, tmp_path / "ix")
    spoil(tmp_path / "ix")
    with pytest.raises(DataError, match=message) as raised:
        BM25Index.open(tmp_path / "ix")
    assert "\n" not in str(raised.value)


def test_an_index_of_something_else_is_refused(tmp_path: Path) -> None:
    build_index(DOCS, tmp_path / "ix", meta={"catalogue": "abc"})
    with pytest.raises(DataError, match="its catalogue is 'abc', expected 'def'; type this"):
        BM25Index.open(tmp_path / "ix", expect={"catalogue": "def"}, again="type this")


# --- sharing ----------------------------------------------------------------------------------------------------------


def _found(index: BM25Index, query: str) -> list[Hit]:
    return index.search(query, 5)


def test_processes_share_a_folder(tmp_path: Path) -> None:
    build_index(corpus(200), tmp_path / "ix")
    index = BM25Index.open(tmp_path / "ix")
    assert len(pickle.dumps(index)) < 5_000, "a folder is pickled by its path"
    assert pickle.loads(pickle.dumps(BM25Index.in_memory(DOCS))).search("red", 5) == _found(
        BM25Index.in_memory(DOCS), "red"
    )
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_found, (index, "w1 w2")) == _found(index, "w1 w2")
    frozen = pickle.dumps(index)
    build_index(DOCS, tmp_path / "ix")
    with pytest.raises(DataError, match="was replaced while it was in use"):
        pickle.loads(frozen)


def test_threads_do_not_disturb_one_another() -> None:
    index = BM25Index.in_memory(corpus(2_000))
    queries = [f"w{i} w{i + 7} w3" for i in range(40)]
    expected = index.search_many(queries, 20)
    results: dict[int, list[list[Hit]]] = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: index.search_many(queries, 20)})) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results[n] == expected for n in range(4))


# --- texts made to hurt -----------------------------------------------------------------------------------------------


def hostile(count: int) -> Iterator[str]:
    """Yield odd queries: control characters, halves of pairs, emoji, stop words, repeats, long ones."""
    draws = Draws("hostile")
    pieces = [
        *("\x00", "\x1b[2J", "\ud83d", "\udc00", "\U0001f600\u200d", "\ufeff", "\u202e", "the", "a", "AND", "OR", "-"),
        *('"', "title:", "*", "?", "~2", "\\", "(", "]", "<search>", "\u0130", "\u00df", "w1", "w2 " * 50, "\n", "\t"),
        *("x" * 300, "_" * 300, "1.2.3", "'s", "\u2019", "\u0e01\u0e02", "\u6f22", "\u05d0'", "e\u0301" * 9),
    ]
    for _ in range(count):
        yield "".join(draws.choice(pieces) + draws.choice(["", " "]) for _ in range(draws.below(12)))


def test_no_query_raises() -> None:
    index = BM25Index.in_memory(corpus(100))
    for query in hostile(10_000):
        assert all(isinstance(hit, Hit) for hit in index.search(query, 3))
    for query in ("w1 " * 400_000, "x" * 1_000_000, "\ud800" * 300_000, " ".join(f"t{i}" for i in range(30_000))):
        assert len(index.search(query, 3)) <= 3
    assert not index._local.scores.any(), "what one search leaves must not reach the next"
