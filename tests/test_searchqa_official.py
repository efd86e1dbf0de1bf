"""Official question sets: files of several makers, identities, splits, and how they are fetched."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from download_server import StandIn, serve  # noqa: F401 (a fixture, `server`)

from seed_envs import DataError, MissingDependency, UnknownName, fetch, paths
from seed_envs.__main__ import main
from seed_envs.searchqa import health
from seed_envs.searchqa.fetching import SEARCHQA
from seed_envs.searchqa.official import RELEASED, OfficialQuestions, content_sha256, released
from seed_envs.searchqa.questions import read_questions

ROWS: list[dict[str, Any]] = [
    {"id": "test_0", "question": "who is it", "golden_answers": ["A b"]},
    {"id": "test_1", "question": "when\u2028is it", "golden_answers": ["1", "one"], "metadata": {"x": 1}},
]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def write(root: Path, files: dict[str, list[dict[str, Any]]]) -> Path:
    for name, rows in files.items():
        path = root / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines(rows))
    return root


def test_official_sizes() -> None:
    assert released("train") == {"nq": 79_168, "hotpotqa": 90_447} and sum(released("train").values()) == 169_615
    assert sum(released("test").values()) == 51_713 and len(released("test")) == 7
    assert set(released("seen")) == {"nq", "hotpotqa"} and len(released("unseen")) == 5


def test_splits_files_and_ids(tmp_path: Path) -> None:
    rows = [{**row, "id": f"train_{n}"} for n, row in enumerate(ROWS)]
    files = {"nq/train": rows, "nq/dev": ROWS, "nq/test": ROWS[:1], "hotpotqa/dev": ROWS, "musique/train": rows}
    source = OfficialQuestions(write(tmp_path, {**files, "popqa/test": ROWS, "r1searcher/train": rows}))
    assert source.splits == ("train", "seen", "unseen")
    ids = {split: source.tasks(split).ids for split in (*source.splits, "test")}
    assert ids["train"] == ("nq/train_0", "nq/train_1"), "musique is no training set"
    assert ids["seen"] == ("hotpotqa/test_0", "hotpotqa/test_1", "nq/test_0"), "test files win over dev files"
    assert ids["unseen"] == ("popqa/test_0", "popqa/test_1"), "a set without a test or dev file is not tested"
    assert ids["test"] == tuple(sorted(ids["seen"] + ids["unseen"]))
    for task in source.tasks("test"):
        assert (task.split, task.category) == ("unseen" if "popqa" in task.id else "seen", task.id.split("/")[0])
        assert source.load(task).answers in (("A b",), ("1", "one"))
    assert source.tasks("seen").name == "searchqa-local/seen"
    assert source.differences("seen") == ["nq 1 of 3610", "hotpotqa 2 of 7405"]


def test_an_identity_is_of_the_content(tmp_path: Path) -> None:
    one = OfficialQuestions(write(tmp_path / "a", {"nq/test": ROWS})).tasks("seen")
    same = OfficialQuestions(write(tmp_path / "b", {"nq/test": [{**r, "extra": 1} for r in reversed(ROWS)]}))
    assert [(t.id, t.sha256) for t in one] == [(t.id, t.sha256) for t in same.tasks("seen")]
    other = OfficialQuestions(write(tmp_path / "c", {"nq/test": [{**ROWS[0], "golden_answers": ["A c"]}]}))
    assert other.tasks("seen")[0].sha256 != one[0].sha256
    assert one[0].sha256 == content_sha256(same.load(same.tasks("seen")[0]))


def test_a_complete_set_is_official(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RELEASED, "seen", {"nq": 2})  # type: ignore[arg-type]
    source = OfficialQuestions(write(tmp_path, {"nq/test": ROWS}))
    assert source.tasks("seen").name == "searchqa-official/seen" and source.differences("seen") == []


def test_files_that_change_in_between_are_noticed(tmp_path: Path) -> None:
    tasks = OfficialQuestions(write(tmp_path, {"nq/test": ROWS})).tasks("seen")
    write(tmp_path, {"nq/test": [{**ROWS[0], "question": "another one"}]})
    with pytest.raises(DataError, match="the files have changed"):
        OfficialQuestions(tmp_path).load(tasks[0])


NESTED = {
    "data_source": "hotpotqa", "prompt": [{"role": "user", "content": "Answer the given question."}],
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Yes", "yes"]}}, "extra_info": {"index": 0},
}  # fmt: skip


def test_rows_of_other_makers(tmp_path: Path) -> None:
    verl = {
        "data_source": "nq",
        "env_kwargs": {"question": "q2", "ground_truth": {"target": ["x"]}, "data_source": "nq"},
    }
    root = write(tmp_path, {"train": [{**NESTED, "question": "q1"}, verl]})
    one, two = OfficialQuestions(root).questions("train").values()
    assert (one.id, one.style, one.text, one.answers) == ("hotpotqa/train_0", "hotpotqa", "q1", ("Yes", "yes"))
    assert (two.id, two.style, two.text, two.answers) == ("nq/train_1", "nq", "q2", ("x",))


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    rows = [{**NESTED, "question": "q1", "id": "train_0"}, {**NESTED, "question": "q2", "id": "train_1"}]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    as_lines = read_questions(write(tmp_path, {"train": rows}) / "train.jsonl")
    assert read_questions(tmp_path / "train.parquet") == as_lines and len(as_lines) == 2
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "train.parquet").read_bytes()[:200])
    with pytest.raises(DataError, match=r"torn\.parquet cannot be read: .*; expected a Parquet file"):
        read_questions(tmp_path / "torn.parquet")


def test_parquet_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "train.parquet").touch()
    with pytest.raises(MissingDependency, match=r"pip install 'seed-suite\[parquet\]'; or give the same rows as JSON"):
        read_questions(tmp_path / "train.parquet")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (b'{"question": "q", "golden_answers": "x"}\n{', "jsonl: row 2 cannot be read: Expecting .*; expected JSON"),
        (b"\xff\n", "expected JSON Lines in UTF-8"),
        (b"[1]\n", "row 1 is a list; expected an object"),
        (b'{"golden_answers": ["x"]}\n', "row 1 has question None; expected a text"),
        (b'{"question": "", "golden_answers": ["x"]}\n', "row 1 has question ''; expected a text"),
        (b'{"question": " ", "golden_answers": ["x"]}\n', "row 1 has question ' '"),
        (b'{"question": "q", "golden_answers": []}\n', "row 1: no golden answers"),
        (b'{"question": "q"}\n', "row 1: no golden answers"),
        (b'{"question": "q", "golden_answers": [null]}\n', "row 1: golden answer None"),
        (b'{"question": "q", "golden_answers": "x", "data_source": "a/b"}\n', "data_source 'a/b'"),
        (b'{"question": "q", "golden_answers": "x", "id": 1}\n' * 2, "the id 'nq/1' occurs twice"),
        (b"[" * 100_000 + b"\n", "expected JSON Lines"),
        (b'{"question": "q", "golden_answers": "x", "id": "a\\tb"}\n', "has the id .*; expected one without tabs"),
        (b"", "no questions of the split 'seen' in .*nq/test.jsonl; expected {'nq': 3610,"),
    ],
)
def test_torn_files(row: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "nq").mkdir()
    (tmp_path / "nq/test.jsonl").write_bytes(row)
    with pytest.raises(DataError, match=says):
        OfficialQuestions(tmp_path).tasks("seen")


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"nq/test.jsonl and the like; get them with: python -m seed_envs fetch searchqa"
    ):
        OfficialQuestions(tmp_path)
    with pytest.raises(DataError, match="No such file"):
        read_questions(tmp_path / "x.jsonl")


def test_the_real_sets(shared: Path, tmp_path: Path) -> None:
    import lzma

    for packed, name in (
        ("nq_test3610", "nq/test"),
        ("hotpotqa_dev7405", "hotpotqa/dev"),
        ("bamboogle_125", "bamboogle/test"),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(lzma.decompress((shared / f"data/searchqa/{packed}.jsonl.xz").read_bytes()))
    source = OfficialQuestions(tmp_path)
    assert source.tasks("seen").categories == {"hotpotqa": 7_405, "nq": 3_610}
    assert source.tasks("seen").name == "searchqa-official/seen" and source.differences("seen") == []
    assert source.tasks("unseen").categories == {"bamboogle": 125}
    assert len(source.tasks("seen").sample(100).categories) == 2


# --- fetch ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mirror(server: StandIn) -> StandIn:
    """Serve every file under the path that mirrors have."""
    for archive in SEARCHQA.archives:
        server.files[f"/{archive.path}"] = lines(ROWS)
    server.files["/corpus/wiki-18.jsonl.gz"] = gzip.compress(lines([{"id": "0", "contents": '"T"\nx'}]))
    return server


def test_fetch_brings_questions_once_and_passages_when_asked(mirror: StandIn, tmp_path: Path) -> None:
    first = fetch.fetch(SEARCHQA, tmp_path, base_url=mirror.url)
    assert len(first.new) == 9 and "corpus" not in first.new
    assert fetch.fetch(SEARCHQA, tmp_path, base_url="http://127.0.0.1:9").new == ()
    assert fetch.fetch(SEARCHQA, tmp_path, base_url=mirror.url, parts=["corpus"]).new == ("corpus",)
    found = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert found == sorted(["fetched.json", *(archive.path for archive in SEARCHQA.archives)])
    assert OfficialQuestions(tmp_path).splits == ("train", "seen", "unseen")
    env = gym.make("seed_envs/SearchQA-v0", data=str(tmp_path), split="unseen")
    assert env.reset(seed=0)[1]["split"] == "unseen" and env.step("search[x]")[0]["text"] == 'Doc 1: "T"\nx'


def test_addresses_and_places() -> None:
    addresses = {archive.part: SEARCHQA.address(archive) for archive in SEARCHQA.archives}
    assert addresses["nq"].endswith("RUC-NLPIR/FlashRAG_datasets/resolve/main/nq/test.jsonl")
    assert addresses["musique"].endswith("/musique/dev.jsonl") and addresses["nq-train"].endswith("/nq/train.jsonl")
    assert addresses["corpus"].endswith("PeterJinGo/wiki-18-corpus/resolve/main/wiki-18.jsonl.gz")
    assert len({archive.names for archive in SEARCHQA.archives}) == len(SEARCHQA.archives), "downloads would mix"


def test_a_page_instead_of_questions_is_refused(mirror: StandIn, tmp_path: Path) -> None:
    mirror.files["/nq/test.jsonl"] = b"<!doctype html>not today"
    with pytest.raises(DataError, match="is not what it should be: it begins with b'<!doctype"):
        fetch.fetch(SEARCHQA, tmp_path, base_url=mirror.url, parts=["nq"])
    assert not (tmp_path / "nq/test.jsonl").exists()
    with pytest.raises(UnknownName, match="part of the data 'nq-dev'"):
        fetch.fetch(SEARCHQA, tmp_path, parts=["nq-dev"])


def test_the_command(mirror: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED_FETCH_BASE", mirror.url)
    assert main(["fetch", "searchqa"]) == 0
    out = capsys.readouterr().out
    assert "seen nq" in out and "3608 missing" in out and str(paths.data_root("searchqa")) in out
    assert main(["fetch", "searchqa", "--only", "corpus"]) == 0
    findings = {f.subject.rpartition(" ")[2]: f for f in health.doctor()}
    assert findings["data=official"].status == "ok" and findings["retriever=bm25"].status == "ok"
    assert findings["split=seen"].status == "wrong" and "nq 2 of 3610" in findings["split=seen"].message
    capsys.readouterr()
    monkeypatch.delenv("SEED_FETCH_BASE")
    assert main(["fetch", "searchqa", "--by-hand"]) == 0
    out = capsys.readouterr().out
    assert "nq/test.jsonl  as nq/test.jsonl" in out and "wiki-18" not in out


def test_doctor_without_data_and_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    real = health.importlib.util.find_spec
    monkeypatch.setattr(health.importlib.util, "find_spec", lambda name: None if name == "faiss" else real(name))
    finding, *others = health.doctor()
    assert finding.status == "missing" and "fetch searchqa" in finding.remedy
    (dense,) = (other for other in others if "dense" in other.subject)
    assert (dense.status, dense.remedy) == ("missing", "pip install 'seed-suite[dense]'")
    assert all(bool(other.remedy) == (other.status == "missing") for other in others)
