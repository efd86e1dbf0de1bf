"""What ``doctor`` looks at for SearchQA beside the embedded questions."""

import importlib.util

from seed_envs import paths
from seed_envs.errors import SeedError
from seed_envs.health import Finding
from seed_envs.searchqa.official import OfficialQuestions

NAME = "seed_envs/SearchQA-v0"
FETCH = "python -m seed_envs fetch searchqa"
PACKAGES = (
    ("retriever=pyserini:DIR", "pyserini", "search"),
    ("retriever=dense:DIR", "faiss", "dense"),
    ("data in Parquet files", "pyarrow", "parquet"),
    ("serve-search", "uvicorn", "serve"),
)
"""What needs which module, of which extra."""


def doctor() -> list[Finding]:
    """Return findings on the official questions and passages, and on what optional parts need."""
    return [*_official(), *(_package(*row) for row in PACKAGES)]


def _official() -> list[Finding]:
    root = paths.data_root("searchqa")
    subject = f"{NAME} data=official"
    try:
        source = OfficialQuestions(root)
    except SeedError:
        state = "has no question files" if root.exists() else "does not exist"
        return [Finding(subject, "missing", f"{root} {state}", f"{FETCH}  (or with --by-hand)")]
    return [Finding(subject, "ok", str(root)), *(_split(source, split) for split in source.splits), _passages()]


def _package(what: str, module: str, extra: str) -> Finding:
    subject = f"{NAME} {what}"
    if importlib.util.find_spec(module) is None:
        return Finding(subject, "missing", f"{module} is not installed", f"pip install 'seed-suite[{extra}]'")
    return Finding(subject, "ok", f"{module} is installed")


def _split(source: OfficialQuestions, split: str) -> Finding:
    subject = f"{NAME} data=official split={split}"
    try:
        count, odd = len(source.tasks(split)), source.differences(split)
    except SeedError as error:
        return Finding(subject, "wrong", str(error), f"{FETCH} --force")
    if odd:
        return Finding(subject, "wrong", f"{count} questions; of the release: {', '.join(odd)}", f"{FETCH} --force")
    return Finding(subject, "ok", f"{count} questions, as many as were released")


def _passages() -> Finding:
    folder = paths.data_root("searchqa") / "corpus"
    found = sorted(folder.glob("*.jsonl*"))
    subject = f"{NAME} data=official retriever=bm25"
    if not found:
        remedy = f"{FETCH} --only corpus, or play with retriever=http:URL"
        return Finding(subject, "missing", f"there are no passages in {folder}", remedy)
    return Finding(subject, "ok", f"{found[0]}, {found[0].stat().st_size / 1e9:.2f} GB")
