"""Task sets: identity, fractions, limits, splits and manifests."""

import hashlib
import itertools
import pickle
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from seed_envs.errors import ConfigError, DataError, UnknownName
from seed_envs.tasks import (
    Task,
    TaskSet,
    compare_manifests,
    exact_fraction,
    read_manifest,
    resolve_split,
    write_manifest,
)


def make(n: int, categories: str = "ab", prefix: str = "t") -> TaskSet:
    """Return ``n`` tasks whose categories take turns."""
    rows = []
    for i in range(n):
        digest = hashlib.sha256(str(i).encode()).hexdigest()
        rows.append(Task(f"{prefix}{i:04}", "train", categories[i % len(categories)], digest))
    return TaskSet(rows, name="made")


def shuffled(tasks: TaskSet, seed: int = 0) -> TaskSet:
    rows = list(tasks)
    random.Random(seed).shuffle(rows)
    return TaskSet(rows, name=tasks.name)


@pytest.mark.parametrize(
    ("n", "share", "expected"),
    [
        (100, 0.1, 10), (1000, 0.1, 100), (3, 0.5, 2), (7, 0.5, 4), (100, 0.07, 7), (100, "0.07", 7), (100, 1e-9, 1),
        (5, 0.2, 1), (10, 0.3, 3), (3553, 0.2, 711), (7, 1.0, 7), (7, "1.0", 7), (3, Fraction(1, 3), 1), (1, 0.5, 1),
    ],
)  # fmt: skip
def test_fraction_rounds_up_the_number_as_written(n: int, share: Any, expected: int) -> None:
    assert len(make(n).fraction(share)) == expected


def test_a_share_does_not_stick_to_the_first_set() -> None:
    share = 0.1
    assert [len(make(n).fraction(share)) for n in (100, 1000)] == [10, 100]


@pytest.mark.parametrize(
    "share", [0, 0.0, -0.1, 1.01, 2, "20%", "", "nan", "inf", float("nan"), float("inf"), None, "1/2"]
)
def test_no_share_of_a_task_set(share: Any) -> None:
    with pytest.raises(ConfigError, match=r"above 0 and at most 1\.0"):
        make(10).fraction(share)


def test_fractions_are_nested() -> None:
    tasks = make(173, "aaaaabbbcd")
    for seed in (0, 1):
        ids = [set(tasks.fraction(share, seed=seed).ids) for share in (0.01, 0.2, 0.4, 0.6, 0.8, 1.0)]
        assert all(small < large for small, large in itertools.pairwise(ids))
    assert tasks.fraction(0.2, seed=0).ids != tasks.fraction(0.2, seed=1).ids


def test_fractions_are_stratified() -> None:
    tasks = make(1000, "aaaaabbbcd")
    assert tasks.categories == {"a": 500, "b": 300, "c": 100, "d": 100}
    for share in (0.1, 0.2, 0.55):
        for category, count in tasks.fraction(share).categories.items():
            assert abs(count - share * tasks.categories[category]) <= 1


def test_every_category_comes_early() -> None:
    assert set(make(1000, "aaaaabbbcd").sample(12).categories) == set("abcd")


def test_membership_does_not_depend_on_the_order_of_the_input() -> None:
    tasks = make(100)
    for seed in range(3):
        assert set(shuffled(tasks, seed).fraction(0.3).ids) == set(tasks.fraction(0.3).ids)


def test_a_sample_keeps_the_order_of_its_set() -> None:
    tasks = shuffled(make(50))
    ids = tasks.sample(20).ids
    assert list(ids) == [i for i in tasks.ids if i in set(ids)]


def test_golden_sample() -> None:
    """Published fractions must stay the same tasks; worked out with sha256sum and sort."""
    assert make(20).sample(6, seed=0).ids == ("t0001", "t0004", "t0008", "t0009", "t0018", "t0019")


@pytest.mark.parametrize("count", [0, -1, 11])
def test_sample_counts_are_checked(count: int) -> None:
    with pytest.raises(ConfigError, match=f"cannot take {count} of 10 tasks"):
        make(10).sample(count)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (1, 1),
        ("1", 1),
        (1.0, 10),
        ("1.0", 10),
        ("3", 3),
        ("+3", 3),
        (" 3 ", 3),
        (99, 10),
        (0.25, 3),
        ("0.25", 3),
        (".5", 5),
    ],
)
def test_limit_counts_integers_and_shares_the_rest(amount: Any, expected: int) -> None:
    assert len(make(10).limit(amount)) == expected


@pytest.mark.parametrize("amount", [0, -1, "0", "-3", 0.0, -0.5, 1.5, "2.0", "x", "", "--3", "²", True, None])
def test_no_limit(amount: Any) -> None:
    with pytest.raises(ConfigError, match="expected a"):
        make(10).limit(amount)


def test_exact_fraction_is_the_decimal_as_written() -> None:
    assert exact_fraction(0.07) == Fraction(7, 100)
    assert exact_fraction("0.3333") == Fraction(3333, 10000)
    assert exact_fraction(1) == 1


def test_get_names_near_ids_or_the_range() -> None:
    tasks = make(200)
    assert tasks.get("t0007").id == "t0007"
    with pytest.raises(UnknownName, match="unknown task id 't007'; did you mean t0"):
        tasks.get("t007")
    with pytest.raises(UnknownName, match="200 are known, from t0000 to t0199"):
        tasks.get("!")
    for wrong in (None, 3, ["t0007"]):
        with pytest.raises(UnknownName, match="unknown task id"):
            tasks.get(wrong)  # type: ignore[arg-type]


def test_subset_refuses_unknown_ids_and_keeps_order() -> None:
    tasks = make(10)
    assert tasks.subset(["t0005", "t0001", "t0005"]).ids == ("t0001", "t0005")
    with pytest.raises(UnknownName):
        tasks.subset(["t0005", "t9999"])


def test_ids_are_distinct() -> None:
    with pytest.raises(DataError, match="task id 't0001' occurs twice in made"):
        TaskSet([*make(3), make(3)[1]], name="made")


def test_it_is_a_sequence() -> None:
    tasks = make(10)
    assert (len(tasks), tasks[-1].id, tasks[2:4].ids) == (10, "t0009", ("t0002", "t0003"))
    assert tasks[0] in tasks
    assert isinstance(tasks[:2], TaskSet)
    assert repr(tasks) == "TaskSet('made', n=10)"
    assert pickle.loads(pickle.dumps(tasks)).ids == tasks.ids


def test_hash_is_of_the_rows_not_of_their_order() -> None:
    tasks = make(30)
    assert shuffled(tasks).sha256 == tasks.sha256
    assert tasks[:29].sha256 != tasks.sha256
    changed = [*tasks[:29], Task(tasks[29].id, "train", "b", "0" * 64)]
    assert TaskSet(changed).sha256 != tasks.sha256
    assert TaskSet([Task("a", "s", "c", "h")]).sha256 == hashlib.sha256(b'[["a","s","c","h"]]').hexdigest()


def test_manifest_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "made.tsv"
    rows = [*make(5), *(Task(f"ü {i}\u2028x", "unseen", "c", f"{i:064}") for i in (2, 1))]
    write_manifest(path, reversed(rows), title="made for a test")
    assert path.read_text(encoding="utf-8").startswith("# made for a test\nt0000\ttrain\ta\t")
    splits = read_manifest(path)
    assert {name: (s.name, list(s)) for name, s in splits.items()} == {
        "train": ("made/train", list(make(5))),
        "unseen": ("made/unseen", sorted(rows[5:])),
    }
    before = path.read_bytes()
    write_manifest(path, itertools.chain.from_iterable(splits.values()), title="made for a test")
    assert path.read_bytes() == before


def test_a_torn_manifest_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "torn.tsv"
    path.write_text("# title\na\ttrain\tc\t0\nb\ttrain\n")
    with pytest.raises(DataError, match=r"torn\.tsv:3: expected id, split, category and sha256"):
        read_manifest(path)


def test_compare_manifests_names_what_differs() -> None:
    listed = {task.id: task for task in make(4)}
    found = {**listed, "new": Task("new", "train", "a", "0")}
    del found["t0001"]
    found["t0002"] = Task("t0002", "train", "a", "other")
    assert compare_manifests(found, listed) == {"missing": ["t0001"], "added": ["new"], "changed": ["t0002"]}


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("seen", ("train", "valid_seen", "valid_unseen"), "valid_seen"),
        ("unseen", ("train", "valid_seen", "valid_unseen"), "valid_unseen"),
        ("valid_seen", ("train", "valid_seen", "valid_unseen"), "valid_seen"),
        ("seen", ("train", "dev", "test", "unseen"), "test"),
        ("unseen", ("train", "dev", "test", "unseen"), "unseen"),
        ("seen", ("train", "seen", "unseen"), "seen"),
    ],
)
def test_splits_have_aliases(name: str, known: tuple[str, ...], expected: str) -> None:
    assert resolve_split(name, known) == expected


def test_an_unknown_split_names_what_there_is() -> None:
    with pytest.raises(UnknownName, match="unknown split 'tset'; did you mean test"):
        resolve_split("tset", ("train", "test"))
    with pytest.raises(UnknownName, match="known: train"):
        resolve_split("unseen", ("train",))


@pytest.mark.parametrize("share", ["1e-999999999", "1e999999999", "NaN", "sNaN", "-Infinity"])
def test_enormous_exponents_are_refused_at_once(share):
    with pytest.raises(ConfigError):
        exact_fraction(share)


def test_a_limit_of_thousands_of_digits_means_all():
    tasks = TaskSet(Task(f"t{n}", "train", "c", "0") for n in range(3))
    assert len(tasks.limit("9" * 5000)) == 3
    with pytest.raises(ConfigError):
        tasks.limit("-" + "9" * 5000)
