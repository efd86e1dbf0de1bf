"""What ``fetch searchqa`` brings: the seven question sets, and the passages when they are asked for."""

from pathlib import Path

from seed_envs.fetch_source import Archive, Row, Source
from seed_envs.searchqa.official import RELEASED, OfficialQuestions

_FLASHRAG = "RUC-NLPIR/FlashRAG_datasets"
_DEV = ("hotpotqa", "2wikimultihopqa", "musique")
"""Sets whose test answers are not public."""


def _questions(name: str, stem: str, part: str) -> Archive:
    address = f"https://huggingface.co/datasets/{_FLASHRAG}/resolve/main/{name}/{stem}.jsonl"
    path = f"{name}/{stem}.jsonl"
    return Archive(part, path, path, f"{name}-{stem}.jsonl", begins=b"{", address=address)


def _passages() -> Archive:
    path = "corpus/wiki-18.jsonl.gz"
    address = "https://huggingface.co/datasets/PeterJinGo/wiki-18-corpus/resolve/main/wiki-18.jsonl.gz"
    return Archive("corpus", path, path, begins=b"\x1f", address=address, optional=True)


def _complete(dest: Path, archive: Archive) -> bool:
    from seed_envs.fetch import begins_well, ends_well

    path = dest / archive.path
    return path.is_file() and begins_well(path, archive) and (path.suffix == ".gz" or ends_well(path))


def _compare(dest: Path) -> list[Row]:
    """Return a row per set of test questions and per set of training questions."""
    source, rows = OfficialQuestions(dest), list[Row]()
    for split, sets in RELEASED.items():
        counts = source.tasks(split).categories if split in source.splits else {}
        for name, wanted in sets.items():
            found = counts.get(name, 0)
            difference = f"{abs(wanted - found)} {'missing' if found < wanted else 'more'}"
            rows.append((f"{split} {name}", found, wanted, "" if found == wanted else difference))
    return rows


SEARCHQA = Source(
    name="searchqa",
    url=f"https://huggingface.co/datasets/{_FLASHRAG}/resolve/main",
    folder="",
    groups=(".",),
    archives=(
        *(
            _questions(name, "dev" if name in _DEV else "test", name)
            for split in ("seen", "unseen")
            for name in RELEASED[split]
        ),
        *(_questions(name, "train", f"{name}-train") for name in RELEASED["train"]),
        _passages(),
    ),
    complete=_complete,
    compare=_compare,
)
"""Source: Search-R1's scripts. The passages are 21 million, some gigabytes packed."""
