"""Published tables as they are shown: cells with the marks of their problems, and the notes beneath."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.board.reported import Cell, Column, Header, Reported, ReportedRow, ReportedTable

MARKS = "abcdefghijklmnopqrstuvwxyz"
METRICS = {"pooled": "pooled (every episode the same weight)", "macro": "macro (mean of the categories)"}


@dataclass(frozen=True)
class Item:
    """A cell: what is printed, and letters for the problems that not all cells of its row have."""

    text: str
    marks: str
    title: str
    ours: bool
    """Whether it is recomputed, not printed in the paper."""


@dataclass(frozen=True)
class Line:
    """A row; None where a number was not reported."""

    keys: tuple[str, ...]
    marks: str
    """Of problems that all its printed cells have."""
    items: tuple[Item | None, ...]
    source: str
    model: str


@dataclass(frozen=True)
class Published:
    """A table, and what stands beneath it."""

    title: str
    environments: tuple[str, ...]
    split: str | None
    model: str | None
    keys: tuple[str, ...]
    columns: tuple[tuple[str, bool], ...]
    """Label, and whether it is recomputed."""
    lines: tuple[Line, ...]
    problems: tuple[tuple[str, str], ...]
    """Letter and text."""
    notes: tuple[tuple[str, str], ...]
    """What a note is about, and its text: averages, protocols, papers."""


def published(reported: Reported) -> list[Published]:
    """Return every published table as it is shown."""
    return [_table(table, reported) for table in reported.tables]


def _table(table: ReportedTable, reported: Reported) -> Published:
    about = table.header
    used = {name for row in table.rows for cell in row.cells.values() for name in cell.problems}
    marks = dict(zip((name for name in reported.problems if name in used), MARKS, strict=False))
    protocols = {name: f"P{i}" for i, name in enumerate(dict.fromkeys(row.protocol for row in table.rows), 1)}
    lines = tuple(_line(row, about, reported, marks, protocols[row.protocol]) for row in table.rows)
    notes = (
        *_averages(about),
        *((mark, reported.protocols[name].summary) for name, mark in protocols.items()),
        *_papers(table, reported),
    )
    return Published(
        title=about.title,
        environments=about.environments,
        split=about.split,
        model=about.model,
        keys=about.keys,
        columns=tuple((column.label, column.corrects is not None) for column in about.columns.values()),
        lines=lines,
        problems=tuple((mark, reported.problems[name].text) for name, mark in marks.items()),
        notes=notes,
    )


def _line(row: ReportedRow, about: Header, reported: Reported, marks: dict[str, str], protocol: str) -> Line:
    printed = [set(cell.problems) for cell in row.cells.values() if not cell.recomputed]
    common = set.intersection(*printed) if printed else set()
    own = {name: mark for name, mark in marks.items() if name not in common}
    items = []
    for name, column in about.columns.items():
        cell = row.cells.get(name)
        items.append(None if cell is None else _item(cell, column, reported, own))
    key = about.keys.index("model") if "model" in about.keys else None
    model = row.keys[key] if key is not None else about.model or ""
    shared = "".join(mark for name, mark in marks.items() if name in common)
    return Line(row.keys, shared, tuple(items), f"{reported.papers[row.paper].name}, {row.table}; {protocol}", model)


def _item(cell: Cell, column: Column, reported: Reported, marks: dict[str, str]) -> Item:
    text = f"{cell.printed} {cell.metric}" if column.metric == "row" else cell.printed
    average = f"; {METRICS.get(cell.metric, 'average not said')}" if cell.metric else ""
    corrected = f"; corrected {cell.corrected:g}" if cell.corrected is not None else ""
    title = f"{cell.source}{average}; {reported.protocols[cell.protocol].summary}{corrected}"
    return Item(text, "".join(mark for name, mark in marks.items() if name in cell.problems), title, cell.recomputed)


def _averages(about: Header) -> Iterator[tuple[str, str]]:
    """Yield which columns average how."""
    for metric in ("pooled", "macro", "unknown"):
        labels = [column.label for column in about.columns.values() if column.metric == metric]
        if labels:
            yield METRICS.get(metric, "average not said"), ", ".join(labels)


def _papers(table: ReportedTable, reported: Reported) -> Iterable[tuple[str, str]]:
    for name in dict.fromkeys(row.paper for row in table.rows):
        paper = reported.papers[name]
        yield paper.name, f"{f'arXiv {paper.arxiv}. ' if paper.arxiv else ''}{paper.note}"
