"""A summary in one pass: little memory an episode, and the same numbers as by hand."""

import hashlib
import tracemalloc

import pytest
from test_summary import episode

from harness.summary import Row, summarise, summarise_rows
from seed_agent.trajectory import records_sha256
from seed_envs.errors import DataError


def rows(count, tasks):
    """Yield rows as records give them: every text of every row is an object of its own."""
    base = Row.of(episode("x"))
    for number in range(count):
        attempt, task = divmod(number, tasks)
        sha256 = hashlib.sha256(str(number).encode()).hexdigest()
        values = {name: getattr(base, name) for name in Row.__slots__}
        values |= {"key": ("seen", f"task/{task:04d}", attempt), "sha256": sha256, "task_sha256": f"sha-{task}"}
        yield Row(**values)


def test_memory_an_episode_is_small():
    """A million are then 130 MB beside the interpreter and the tasks; benchmarks/summary_scale.py measures it."""

    def peak(count):
        tracemalloc.start()
        try:
            assert summarise_rows(rows(count, 50), planned=count)["n"] == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)  # whatever is loaded and cached at first
    assert (peak(9_000) - peak(1_000)) / 8_000 < 130


def test_hashes_that_end_in_zeros_are_not_cut():
    made = [Row(**{**{n: getattr(r, n) for n in Row.__slots__}, "sha256": f"{i:02x}" + "00" * 31})
            for i, r in enumerate(rows(3, 3))]  # fmt: skip
    assert summarise_rows(made)["records_sha256"] == records_sha256(row.sha256 for row in made)


def test_the_records_hash_is_that_of_all_sorted_hashes():
    made = list(rows(2_000, 50))  # more than are joined at once
    assert summarise_rows(made)["records_sha256"] == records_sha256(row.sha256 for row in made)


def test_a_task_that_changes_between_attempts_is_refused():
    with pytest.raises(DataError, match="occurs twice"):
        summarise([episode("a"), episode("a", attempt=1, task_sha256="other")])


def test_a_hash_that_is_none_is_refused():
    [row] = rows(1, 1)
    values = {name: getattr(row, name) for name in Row.__slots__}
    with pytest.raises(DataError, match="cannot be counted"):
        summarise_rows([Row(**{**values, "sha256": "zz"})])
