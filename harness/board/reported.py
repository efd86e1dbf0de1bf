"""Published numbers: ``leaderboards/reported``, each with its source, its metric and what is wrong with it."""

import csv
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seed_agent.trajectory import why
from seed_envs.cli.common import one_line
from seed_envs.errors import DataError

HEADER = "tables.toml"
Metric = Literal["pooled", "macro", "unknown"]
"""How a success rate averages: over episodes, over categories, or not said."""
ABOUT = ("metric", "paper", "table", "protocol", "problems")
"""The columns of a table that describe a row; ``metric`` may be absent."""
LAST_BATCH, QUESTIONS = 1, 125
"""Bamboogle questions in the last validation batch, and in all."""

_NUMBER = re.compile(r"([<>~]?)(\d+(?:\.\d+)?)")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Paper(_Model):
    """Where rows were published, and through what we know them."""

    name: str
    arxiv: str = ""
    note: str

    @property
    def url(self) -> str:
        """The paper's page, empty where there is none."""
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else ""


class Protocol(_Model):
    """How rows were measured; None is "not known"."""

    summary: str
    draws: int | None = None
    turns: int | None = None
    history: int | None = None
    temperature: float | None = None


class Problem(_Model):
    """Something a reader has to know; it concerns ``columns``, or every column when there are none."""

    text: str
    columns: tuple[str, ...] = ()


class Column(_Model):
    """A column of numbers. One with ``corrects`` is recomputed from others, not printed in the paper."""

    label: str
    unit: Literal["percent", "count", "number"] = "percent"
    metric: Metric | Literal["row"] | None = None
    corrects: str | None = None
    mean_of: tuple[str, ...] = ()
    decodes: str | None = None


class Header(_Model):
    """What a table is about."""

    title: str
    environments: tuple[str, ...] = Field(min_length=1)
    split: str | None = None
    model: str | None = None
    keys: tuple[str, ...] = Field(min_length=1)
    columns: dict[str, Column] = Field(min_length=1)


class _Tables(_Model):
    papers: dict[str, Paper]
    protocols: dict[str, Protocol]
    problems: dict[str, Problem]
    tables: dict[str, Header]


@dataclass(frozen=True)
class Cell:
    """A published number."""

    column: str
    printed: str
    """As in the file: "91.8", "~40" (read off a picture), "<80" (a bound)."""
    value: float
    metric: Metric | None
    """None for what is no rate or score."""
    source: str
    """Paper, table and row."""
    protocol: str
    problems: tuple[str, ...]
    """Names of the problems that concern this cell."""
    corrected: float | None
    """What it should have been, where that can be computed."""
    recomputed: bool
    """Whether it is ours and not in the paper."""


@dataclass(frozen=True)
class ReportedRow:
    """A row of a published table."""

    keys: tuple[str, ...]
    paper: str
    table: str
    protocol: str
    cells: Mapping[str, Cell]
    """By column; a number that was not reported is absent."""


@dataclass(frozen=True)
class ReportedTable:
    """A published table."""

    name: str
    header: Header
    rows: tuple[ReportedRow, ...]


@dataclass(frozen=True)
class Reported:
    """Every published table, with what their rows refer to."""

    papers: Mapping[str, Paper]
    protocols: Mapping[str, Protocol]
    problems: Mapping[str, Problem]
    tables: tuple[ReportedTable, ...]

    def cells(self) -> Iterator[Cell]:
        """Yield every number."""
        return (cell for table in self.tables for row in table.rows for cell in row.cells.values())


def mean_of(values: Sequence[float]) -> float:
    """Return the unweighted mean: of category rates, the macro average.

    Source: OPID (arXiv 2606.26790), appendix: the average of ALFWorld is over six types, that of search QA over seven
    data sets.
    """
    return math.fsum(values) / len(values)


def decode_bamboogle(printed: float) -> float | None:
    """Return the pooled rate, in percent, behind a Bamboogle cell of SEED's table 1.

    The cell is the mean of the rates of two validation batches, of 124 questions and of 1: with k and x right it prints
    (k / 124 + x) / 2, where (k + x) / 125 was meant. None when no k and x, or several, give it; a cell that is
    a count over 125 already is not of this form.

    Args:
        printed: The cell, percent with one decimal.

    Source: per-batch means in ``_validate`` of SEED's and SDAR's public trainers; inferred from 34 of 36 cells.
    """
    first = QUESTIONS - LAST_BATCH
    found = [
        k + x for k in range(first + 1) for x in range(LAST_BATCH + 1) if _prints(50 * (k / first + x), as_=printed)
    ]
    return 100 * found[0] / QUESTIONS if len(found) == 1 else None


def _prints(value: float, *, as_: float) -> bool:
    return abs(value - as_) <= 0.05 + 1e-9


def read_reported(directory: Path) -> Reported:
    """Read and check the published tables of ``directory``.

    Raises:
        DataError: naming the file, and the line, that is missing or not what the header says.
    """
    header = _header(directory / HEADER)
    found = sorted(path.stem for path in directory.glob("*.csv"))
    if found != sorted(header.tables):
        odd = sorted(set(found) ^ set(header.tables))
        raise DataError(
            f"{directory}: {', '.join(odd)}: expected one CSV file for every table of {HEADER}, and no other"
        )
    tables = tuple(_table(directory / f"{name}.csv", about, header) for name, about in header.tables.items())
    return Reported(header.papers, header.protocols, header.problems, tables)


def _header(path: Path) -> _Tables:
    try:
        found = _Tables.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        reason = why(error) if isinstance(error, ValidationError) else one_line(error)
        raise DataError(f"{path} cannot be read ({reason}); expected papers, protocols, problems and tables") from None
    for name, table in found.tables.items():
        for key, column in table.columns.items():
            named = {*column.mean_of, *(part for part in (column.corrects, column.decodes) if part)}
            if named - set(table.columns) or bool(column.corrects) != bool(column.mean_of or column.decodes):
                raise DataError(
                    f"{path}: tables.{name}.columns.{key}: expected corrects, with mean_of or decodes, to name columns"
                )
    return found


def _table(path: Path, about: Header, header: _Tables) -> ReportedTable:
    expected = [*about.keys, *about.columns, *ABOUT]
    if "row" not in [column.metric for column in about.columns.values()]:
        expected.remove("metric")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}); expected a CSV file") from None
    if not lines or lines[0] != expected:
        raise DataError(f"{path}:1: the columns are not those of {HEADER}; expected {','.join(expected)}")
    rows: dict[tuple[str, ...], ReportedRow] = {}
    for number, values in enumerate(lines[1:], 2):
        where = f"{path}:{number}"
        if len(values) != len(expected):
            raise DataError(f"{where}: {len(values)} values; expected {len(expected)}")
        row = _row(dict(zip(expected, values, strict=True)), about, header, where)
        if row.keys in rows:
            raise DataError(f"{where}: a second row {' / '.join(row.keys)}; expected one")
        rows[row.keys] = row
    return ReportedTable(path.stem, about, tuple(rows.values()))


def _row(line: Mapping[str, str], about: Header, header: _Tables, where: str) -> ReportedRow:
    problems = line["problems"].split()
    for kind, names, known in (
        ("paper", [line["paper"]], header.papers),
        ("protocol", [line["protocol"]], header.protocols),
        ("problem", problems, header.problems),
        ("metric", [line.get("metric", "unknown")], ("pooled", "macro", "unknown")),
    ):
        for name in names:
            if name not in known:
                raise DataError(f"{where}: unknown {kind} {name!r}; expected one of {', '.join(known)}")
    keys = tuple(line[key] for key in about.keys)
    source = f"{header.papers[line['paper']].name}, {line['table']}, {' / '.join(keys)}"
    numbers = {name: _number(line[name], column, f"{where}: {name}") for name, column in about.columns.items()}
    values = {name: value for name, value in numbers.items() if value is not None}
    corrected = _corrected(values, about, where)
    cells = {}
    for name, value in values.items():
        metric = about.columns[name].metric
        touching = [key for key in problems if not header.problems[key].columns or name in header.problems[key].columns]
        recomputed = about.columns[name].corrects is not None
        cells[name] = Cell(
            column=name,
            printed=line[name],
            value=value,
            metric=_metric(line["metric"]) if metric == "row" else metric,
            source=f"recomputed from {source}" if recomputed else source,
            protocol=line["protocol"],
            problems=() if recomputed else tuple(touching),
            corrected=corrected.get(name),
            recomputed=recomputed,
        )
    return ReportedRow(keys, line["paper"], line["table"], line["protocol"], cells)


def _metric(name: str) -> Metric:
    return "pooled" if name == "pooled" else "macro" if name == "macro" else "unknown"


def _number(text: str, column: Column, where: str) -> float | None:
    """Return the number of a cell, None for one that was not reported."""
    if not text:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None or (column.unit == "percent" and float(found[2]) > 100):
        kind = "percent, 0 to 100" if column.unit == "percent" else "a number"
        raise DataError(f"{where}: {text!r} is no number; expected {kind}, or nothing")
    return float(found[2])


def _corrected(values: Mapping[str, float], about: Header, where: str) -> dict[str, float]:
    """Return what printed cells should have been, by the columns they stand in, having recomputed each of them.

    Raises:
        DataError: when a recomputed column is not what its rule gives, to a tenth.
    """
    found: dict[str, float] = {}
    for name, column in about.columns.items():
        if column.corrects is None:
            continue
        given, expected = values.get(name), recompute(column, values)
        printed = values.get(column.corrects)
        if given is None or expected is None or printed is None or abs(given - expected) > 0.1:
            raise DataError(f"{where}: {name} is {given}; expected {expected}, as recomputed from the printed cells")
        if abs(given - printed) > 0.1:
            found[column.corrects] = given
    return found


def recompute(column: Column, values: Mapping[str, Any]) -> float | None:
    """Return what ``column`` should hold given the other ``values`` of its row; None when they do not say."""
    if column.decodes is not None:
        printed = values.get(column.decodes)
        if printed is None:
            return None
        decoded = decode_bamboogle(printed)
        return printed if decoded is None else decoded
    parts = [values.get(name) for name in column.mean_of]
    return None if not parts or None in parts else mean_of([float(part) for part in parts if part is not None])
