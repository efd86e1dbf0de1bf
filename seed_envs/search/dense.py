"""Dense retrieval: passages and queries as vectors of a transformers encoder, searched by FAISS.

Mean pooling over the tokens, unit length, inner product. E5 models get their prefixes. Vectors are
written shard by shard, so that hours of encoding go on where they stopped.

Source: Search-R1's and FlashRAG's retriever (E5-base-v2, 256 tokens, flat inner product).
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seed_envs.download import Report, silent
from seed_envs.errors import ConfigError, DataError, MissingDependency, UnknownName
from seed_envs.files import write_atomically
from seed_envs.search.passages import LINES, Passage, Passages, without_surrogates
from seed_envs.search.retrievers import Card

INDEX, VECTORS = "index.faiss", "vectors"

KINDS = ("flat", "hnsw")

HNSW_LINKS, HNSW_BUILD, HNSW_SEARCH = 64, 200, 256

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class DenseSettings:
    """How vectors are made and indexed."""

    model: str
    """Folder or hub name of a transformers encoder."""
    kind: str = "flat"
    """``flat`` (exact) or ``hnsw`` (approximate, far faster on millions)."""
    query_prefix: str = ""
    passage_prefix: str = ""
    """Put before the text; E5 models get ``query: `` and ``passage: `` by themselves."""
    max_tokens: int = 256
    """Longer texts are cut."""
    batch: int = 64
    device: str = "cpu"
    shard: int = 10_000
    """Passages encoded between two points an interrupted build can go on from."""


def settings(options: Mapping[str, Any]) -> DenseSettings:
    """Return the settings that ``options`` give.

    Raises:
        ConfigError: when one is missing, unknown or cannot be used.
    """
    known = {field.name for field in fields(DenseSettings)}
    for name in sorted(options.keys() - known):
        raise UnknownName("dense setting", name, known)
    if not options.get("model"):
        raise ConfigError("dense retrieval needs a model: a folder or hub name, such as intfloat/e5-base-v2")
    values = dict(options)
    if "e5" in Path(str(values["model"])).name.lower().split("-"):
        values.setdefault("query_prefix", "query: ")
        values.setdefault("passage_prefix", "passage: ")
    made = DenseSettings(**values)
    if made.kind not in KINDS:
        raise UnknownName("kind of dense index", made.kind, KINDS)
    if min(made.max_tokens, made.batch, made.shard) < 1:
        raise ConfigError("max_tokens, batch and shard must be positive")
    return made


class Encoder:
    """Texts to unit vectors."""

    def __init__(self, chosen: DenseSettings) -> None:
        """Load the model.

        Raises:
            MissingDependency: when torch or transformers is not installed.
            DataError: when the model cannot be loaded.
        """
        try:
            import torch
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise MissingDependency(
                error.name or "transformers", extra="dense", purpose="dense retrieval", instead="'bm25' needs nothing"
            ) from error
        self.settings, self._torch = chosen, torch
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(chosen.model)
            self._model = AutoModel.from_pretrained(chosen.model).to(chosen.device).eval()
        except (OSError, ValueError, RuntimeError) as error:
            raise DataError(f"the encoder {chosen.model} cannot be loaded: {str(error).splitlines()[0]}") from error

    def encode(self, texts: Sequence[str], prefix: str) -> Vectors:
        """Return the vectors of ``texts`` (texts, dimensions), each of length 1.

        Raises:
            DataError: when one is not finite: with such vectors anything would be found.
        """
        pieces = []
        for at in range(0, len(texts), self.settings.batch):
            batch = [prefix + without_surrogates(text) for text in texts[at : at + self.settings.batch]]
            pieces.append(self._encoded(batch))
        return np.concatenate(pieces) if pieces else np.zeros((0, self._model.config.hidden_size), np.float32)

    def _encoded(self, batch: list[str]) -> Vectors:
        torch = self._torch
        inputs = self._tokenizer(
            batch, padding=True, truncation=True, max_length=self.settings.max_tokens, return_tensors="pt"
        ).to(self.settings.device)
        with torch.inference_mode():
            states = self._model(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
            means = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
            unit: Vectors = torch.nn.functional.normalize(means.float(), dim=-1).cpu().numpy()
        if not np.isfinite(unit).all():
            raise DataError(f"the encoder {self.settings.model} gives vectors that are not finite; take another model")
        return unit


def build(passages: Passages, out: Path, chosen: DenseSettings, report: Report = silent) -> dict[str, Any]:
    """Encode and index a passage store; return the parameters.

    Raises:
        SeedError: when something is not installed or the model cannot be loaded.
    """
    faiss = load_faiss()
    out.mkdir(exist_ok=True)
    index = None
    for vectors in _shards(passages, out / VECTORS, chosen, report):
        if index is None:
            index = _empty(faiss, chosen.kind, vectors.shape[1])
        index.add(vectors)
    faiss.write_index(index, str(out / INDEX))
    for path in sorted((out / VECTORS).iterdir()):
        path.unlink()
    (out / VECTORS).rmdir()
    return asdict(chosen)


def _shards(passages: Passages, folder: Path, chosen: DenseSettings, report: Report) -> Iterator[Vectors]:
    """Yield the vectors shard by shard; those an interrupted build has made are read."""
    folder.mkdir(exist_ok=True)
    key = json.dumps(
        {**asdict(chosen), "passages": len(passages), "bytes": (passages.folder / LINES).stat().st_size}, sort_keys=True
    ).encode()
    mark = folder / "settings.json"
    if not mark.is_file() or mark.read_bytes() != key:
        for path in sorted(folder.iterdir()):
            path.unlink()
        write_atomically(mark, key)
    encoder = None
    for at in range(0, len(passages), chosen.shard):
        path, end = folder / f"{at:010d}.npy", min(at + chosen.shard, len(passages))
        if not path.is_file():
            encoder = encoder or Encoder(chosen)
            vectors = encoder.encode([passages[i].contents for i in range(at, end)], chosen.passage_prefix)
            temporary = path.with_suffix(".part")
            with temporary.open("wb") as file:
                np.save(file, vectors)
            temporary.replace(path)
        report("encoding", end, len(passages), "passages")
        yield np.load(path)


def _empty(faiss: Any, kind: str, dimensions: int) -> Any:
    if kind == "flat":
        return faiss.IndexFlatIP(dimensions)
    index = faiss.IndexHNSWFlat(dimensions, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = HNSW_BUILD
    return index


def load_faiss() -> Any:
    """Return the module.

    Raises:
        MissingDependency: when it is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingDependency(
            "faiss-cpu", extra="dense", purpose="dense retrieval", instead="'bm25' needs nothing"
        ) from error
    return faiss


class DenseRetriever:
    """Passages by the inner product of vectors; the model is loaded at the first search."""

    def __init__(self, folder: Path, passages: Passages, card: Card, *, device: str = "") -> None:
        """Map the index.

        Args:
            folder: what ``build`` made.
            passages: the store it was made from.
            card: its settings.
            device: for the encoder (default: as it was built).

        Raises:
            DataError: when the index is not there or does not fit the passages.
        """
        faiss = load_faiss()
        self.folder, self.passages, self.card, self.device = folder, passages, card, device
        try:
            self._index = faiss.read_index(str(folder / INDEX), faiss.IO_FLAG_MMAP)
        except RuntimeError as error:
            raise DataError(f"the dense index in {folder} cannot be read: {str(error).splitlines()[-1]}") from error
        if self._index.ntotal != len(passages):
            raise DataError(f"{folder} has {self._index.ntotal} vectors for {len(passages)} passages; build it again")
        with contextlib.suppress(AttributeError):
            self._index.hnsw.efSearch = HNSW_SEARCH
        chosen = settings(card.parameters)
        self.settings = DenseSettings(**{**asdict(chosen), "device": device or chosen.device})
        self._encoder: Encoder | None = None

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the ``k`` best passages for each query; equal scores in the order of the store."""
        if not queries or k <= 0:
            return [[] for _ in queries]
        self._encoder = self._encoder or Encoder(self.settings)
        vectors = self._encoder.encode(queries, self.settings.query_prefix)
        scores, numbers = self._index.search(vectors, min(k, len(self.passages)))
        found = []
        for row, places in zip(scores.tolist(), numbers.tolist(), strict=True):
            hits = sorted((-score, place) for score, place in zip(row, places, strict=True) if place >= 0)
            found.append([self.passages[place].scored(-score) for score, place in hits])
        return found

    def describe(self) -> dict[str, Any]:
        """Return what the result depends on; the folder of a local model does not matter."""
        described = self.card.describe()
        described["parameters"]["model"] = Path(described["parameters"]["model"]).name
        return described

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as folders."""
        return _reopened, (self.folder, self.passages, self.card, self.device)


def _reopened(folder: Path, passages: Passages, card: Card, device: str) -> DenseRetriever:
    return DenseRetriever(folder, passages, card, device=device)
