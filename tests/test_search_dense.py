"""Dense retrieval with a tiny random encoder: equal to a plain product of vectors, resumable, refused when torn."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seed_envs import ConfigError, DataError, UnknownName
from seed_envs.search import Passage, build_retriever, dense, open_retriever

PIP = "needs pip install 'seed-suite[dense]'"
WORDS = [f"w{n}" for n in range(40)]
PASSAGES = [Passage.of(f"p{n}", "", " ".join(WORDS[(n * k) % 40] for k in range(1, 6))) for n in range(25)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("faiss", reason=PIP)
    transformers = pytest.importorskip("transformers", reason=PIP)
    torch = pytest.importorskip("torch", reason=PIP)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model") / "tiny-e5-encoder"
    folder.mkdir()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "passage", ":"]
    (folder / "vocab.txt").write_text("\n".join([*special, *WORDS]))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(special) + len(WORDS),
        **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def vectors(model: Path, texts: list[str]) -> Any:
    """Mean-pool one text at a time: no padding, no batch."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    with torch.inference_mode():
        states = [encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in texts]
    return np.stack([(state / state.norm()).numpy() for state in states])


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_the_nearest_are_found(kind: str, model: Path, tmp_path: Path) -> None:
    options = {"model": str(model), "kind": kind, "batch": 4, "shard": 10}
    card = build_retriever(PASSAGES, tmp_path / "ix", backend="dense", options=options)
    assert card.parameters["query_prefix"] == "query: "
    assert not (tmp_path / "ix" / "dense" / "vectors").exists()
    retriever = open_retriever(tmp_path / "ix", device="cpu")
    queries = ["w1 w2", "w7", ""]
    found = retriever.search(queries, 4)
    scores = (
        vectors(model, [f"query: {q}" for q in queries]) @ vectors(model, [f"passage: {p.text}" for p in PASSAGES]).T
    )
    for row, passages in zip(scores, found, strict=True):
        assert [p.score for p in passages] == pytest.approx(sorted(row, reverse=True)[:4], abs=1e-5)
        assert [row[int(p.id[1:])] for p in passages] == pytest.approx([p.score for p in passages], abs=1e-5)
    assert len(retriever.search(["w1"], 99)[0]) == len(PASSAGES)
    assert retriever.search(["w1"], 0) == [[]]
    assert retriever.search([], 3) == []
    assert pickle.loads(pickle.dumps(retriever)).search(queries, 4) == found
    assert retriever.describe()["parameters"]["model"] == model.name


def test_an_interrupted_build_goes_on(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"model": str(model), "shard": 10}
    encoded: list[int] = []
    original = dense.Encoder.encode

    def torn(self: dense.Encoder, texts: list[str], prefix: str) -> Any:
        encoded.append(len(texts))
        if len(encoded) == 3:
            raise KeyboardInterrupt
        return original(self, texts, prefix)

    monkeypatch.setattr(dense.Encoder, "encode", torn)
    with pytest.raises(KeyboardInterrupt):
        build_retriever(PASSAGES, tmp_path / "ix", backend="dense", options=options)
    assert not (tmp_path / "ix").exists()
    build_retriever(PASSAGES, tmp_path / "ix", backend="dense", options=options)
    assert encoded == [10, 10, 5, 5]
    assert len(open_retriever(tmp_path / "ix").search(["w1"], 99)[0]) == 25


def _settings(folder: Path, **values: Any) -> None:
    path = folder / "retriever.json"
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, "parameters": {**card["parameters"], **values}}))


def _exchange(folder: Path) -> None:
    """Put a sound index of as many other vectors in the place of the one that was built."""
    import faiss

    other = faiss.IndexFlatIP(16)
    other.add(np.eye(25, 16, dtype=np.float32))
    faiss.write_index(other, str(folder / "dense" / "index.faiss"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda ix: (ix / "dense" / "index.faiss").write_bytes(b"x"), r"index\.faiss has 1 bytes, expected \d+; "),
        (lambda ix: (ix / "dense" / "index.faiss").unlink(), r"index\.faiss is missing, expected \d+ bytes; "),
        (_exchange, r"index\.faiss has changed: its sha256 is \w+, expected \w+; "),
        (lambda ix: _settings(ix, query_prefix=""), r"retriever\.json has changed: .*; "),
    ],
)
def test_a_torn_index_is_refused(spoil: Callable[[Path], object], message: str, model: Path, tmp_path: Path) -> None:
    build_retriever(PASSAGES, tmp_path / "ix", backend="dense", options={"model": str(model)})
    spoil(tmp_path / "ix")
    with pytest.raises(
        DataError, match=message + "build it again: python -m seed_envs build search .* --force"
    ) as told:
        open_retriever(tmp_path / "ix")
    assert "\n" not in str(told.value)


def test_an_index_that_goes_while_it_is_opened(model: Path, tmp_path: Path) -> None:
    build_retriever(PASSAGES, tmp_path / "ix", backend="dense", options={"model": str(model)})
    frozen = pickle.dumps(open_retriever(tmp_path / "ix"))
    (tmp_path / "ix" / "dense" / "index.faiss").write_bytes(b"x")
    with pytest.raises(DataError, match="cannot be read"):
        pickle.loads(frozen)


def test_an_encoder_whose_vectors_are_not_finite(model: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    broken = AutoModel.from_pretrained(model)
    with torch.no_grad():
        broken.embeddings.word_embeddings.weight.fill_(float("nan"))
    broken.save_pretrained(tmp_path / "broken")
    AutoTokenizer.from_pretrained(model).save_pretrained(tmp_path / "broken")
    with pytest.raises(DataError, match=r"broken gives vectors that are not finite"):
        build_retriever(PASSAGES, tmp_path / "ix", backend="dense", options={"model": str(tmp_path / "broken")})
    assert not (tmp_path / "ix").exists()


def test_a_model_that_is_none(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the encoder .* cannot be loaded"):
        build_retriever(PASSAGES, tmp_path / "ix", backend="dense", options={"model": str(tmp_path)})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ConfigError, "needs a model"),
        ({"model": "x", "kind": "falt"}, UnknownName, "did you mean flat"),
        ({"model": "x", "bacth": 1}, UnknownName, "did you mean batch"),
        ({"model": "x", "batch": 0}, ConfigError, "must be positive"),
    ],
)
def test_settings(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dense.settings(options)


def test_prefixes_are_those_of_the_model() -> None:
    assert dense.settings({"model": "intfloat/e5-base-v2"}).passage_prefix == "passage: "
    assert dense.settings({"model": "some/minilm"}).passage_prefix == ""
    assert dense.settings({"model": "intfloat/e5-base-v2", "query_prefix": ""}).query_prefix == ""
