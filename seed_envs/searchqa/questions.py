"""Question files: FlashRAG's JSON Lines, and the Parquet files that Search-R1 and verl-agent train on."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from seed_envs.errors import DataError, MissingDependency
from seed_envs.searchqa.asking import Question
from seed_envs.searchqa.scoring import golden

SUFFIXES = (".jsonl", ".parquet")


def read_questions(path: Path, default_set: str = "") -> tuple[Question, ...]:
    """Return the questions of a file, read once per process as long as the file stays the same.

    A row has a ``question`` and ``golden_answers``, or holds them where Search-R1
    (``reward_model``) and verl-agent (``env_kwargs``) put them. ``data_source`` names its set.

    Args:
        path: ends in one of ``SUFFIXES``.
        default_set: the set of rows that name none.

    Raises:
        DataError: naming the file and the row that is not as it should be.
        MissingDependency: for Parquet without pyarrow.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    return _read(path, default_set, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=32)
def _read(path: Path, default_set: str, changed: int, size: int) -> tuple[Question, ...]:
    rows = _parquet(path) if path.suffix == ".parquet" else _lines(path)
    return tuple(
        _question(row, f"{path}: row {number}", default_set, f"{path.stem}_{number - 1}") for number, row in rows
    )


def _question(row: Any, where: str, default_set: str, default_id: str) -> Question:
    if not isinstance(row, Mapping):
        raise DataError(f"{where} is a {type(row).__name__}; expected an object with question and golden_answers")
    kept = _object(row.get("env_kwargs"))
    truth = _object(_object(row.get("reward_model")).get("ground_truth") or kept.get("ground_truth"))
    text = kept.get("question") if row.get("question") is None else row["question"]
    answers = next((a for a in (row.get("golden_answers"), truth.get("target")) if a is not None), ())
    source = row.get("data_source") or kept.get("data_source") or default_set
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{where} has question {text!r:.60}; expected a text")
    if not isinstance(source, str) or not source or "/" in source:
        raise DataError(f"{where} has data_source {source!r:.60}; expected the name of a set")
    name = f"{source}/{default_id if row.get('id') is None else row['id']}"
    if not name.isprintable():
        raise DataError(f"{where} has the id {name!r:.60}; expected one without tabs, line breaks and the like")
    return Question(name, source, text, golden(answers, where))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: row {number} cannot be read: {error.msg}; expected JSON Lines in UTF-8") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}; expected JSON Lines in UTF-8") from None


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        instead = "or give the same rows as JSON Lines"
        raise MissingDependency("pyarrow", extra="parquet", purpose=f"reading {path.name}", instead=instead) from None
    wanted = {"id", "question", "golden_answers", "data_source", "reward_model", "env_kwargs"}
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if name in wanted]
            for batch in file.iter_batches(columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}; expected a Parquet file") from None
