"""The leaderboard as one HTML page that loads nothing."""

import re
from collections.abc import Sequence

from harness.board.published import Published
from harness.board.standing import ALPHA, Ranking, between
from harness.html.packing import visible
from harness.html.rendering import render_page


def render(rankings: Sequence[Ranking], published: Sequence[Published]) -> bytes:
    """Return the page; a pure function of its arguments. Every text is escaped."""
    contests = [ranking.contest for ranking in rankings]
    models = [standing.result.model for ranking in rankings for standing in ranking.standings]
    filters = {
        "environment": {contest.family for contest in contests}
        | {e for table in published for e in table.environments},
        "split": {contest.split for contest in contests} | {table.split for table in published if table.split},
        "data": {contest.data for contest in contests} | {"official" for _ in published[:1]},
        "protocol": {contest.protocol for contest in contests},
        "model": {*models, *(line.model for table in published for line in table.lines if line.model)},
    }
    kinds = dict.fromkeys(contest.data for contest in contests)
    return render_page(
        "board",
        script="board.js",
        styles=("report.css", "board.css"),
        warnings=(),
        filters={name: sorted(map(visible, values)) for name, values in filters.items()},
        parts={kind: [ranking for ranking in rankings if ranking.contest.data == kind] for kind in kinds},
        published=published,
        measured=len(models),
        alpha=ALPHA,
        anchor=anchor,
        between=between,
        shown=lambda *values: [visible(value) for value in values],
    )


def anchor(row: str, split: str) -> str:
    """Return the name by which an address finds a row: ``index.html#ROW-SPLIT``, other characters as ``-``."""
    return re.sub("[^A-Za-z0-9._-]", "-", f"{row}-{split}")
