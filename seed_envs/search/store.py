"""The folder of a BM25 index: built in a partial folder that can be taken up again, then renamed."""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np

from seed_envs.download import Report
from seed_envs.errors import DataError
from seed_envs.files import write_atomically
from seed_envs.search import formula, inversion, seal
from seed_envs.search.analysis import ANALYZER
from seed_envs.search.postings import DTYPES, Array, Postings, encode

FORMAT, MANIFEST, STATE = 2, "manifest.json", "state.json"

AGAIN = "build the search index again"
"""What to do about a damaged index where the command is not known."""

EVERY = 1_000
"""Documents between reports."""


@dataclass(frozen=True)
class Manifest:
    """What an index was made from, and how."""

    documents: int
    counted: int
    """Documents that have terms."""
    tokens: int
    terms: int
    postings: int
    corpus_sha256: str
    """Over every document's length (8 bytes) and UTF-8."""
    files: dict[str, dict[str, Any]]
    """Array to its ``dtype``, ``shape`` and seal (``seal.of``)."""
    meta: dict[str, Any] = field(default_factory=dict)
    """What the caller added."""
    kind: str = "bm25"
    format: int = FORMAT
    analyzer: str = ANALYZER
    parameters: dict[str, float] = field(default_factory=lambda: {"k1": formula.K1, "b": formula.B})
    versions: dict[str, str] = field(default_factory=dict)


# --- building ---------------------------------------------------------------------------------------------------------


def build(
    documents: Iterable[str], folder: Path, *, ids: Iterable[str] | None, meta: Mapping[str, Any], report: Report
) -> Manifest:
    """Index ``documents``; see ``bm25.build_index``."""
    folder = Path(folder).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    with locked(partial):
        hasher = hashlib.sha256()
        parts = _runs(documents, partial, hasher, report)
        done = partial / "index"
        shutil.rmtree(done, ignore_errors=True)
        done.mkdir()
        totals = _merge(parts, done, report)
        if ids is not None:
            with (done / "ranks.bin").open("ab") as file:
                file.write(inversion.ranks(ids, totals.documents).tobytes())
        manifest = Manifest(
            *totals, hasher.hexdigest(), _describe(done), dict(meta), versions=versions("regex", "snowballstemmer")
        )
        write_atomically(done / MANIFEST, seal.manifest(asdict(manifest)))
        put_in_place(done, folder)
        discard(partial)
    return manifest


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python, numpy, this package and others, for a manifest."""
    found = {"python": platform.python_version()}
    for package in ("numpy", "seed-suite", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def put_in_place(done: Path, folder: Path) -> None:
    """Rename a finished folder to its place; one that is there goes only when the new one is complete."""
    for path in sorted(done.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    done.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def locked(partial: Path) -> Iterator[None]:
    """Make the partial folder and hold its lock; another build of the same index waits.

    Raises:
        OSError: when it cannot be made.
    """
    partial.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            partial.mkdir(exist_ok=True)
        except FileExistsError:
            if os.path.lexists(partial):  # a file or a dangling link, no folder that is removed just now
                raise
            continue
        try:
            lock = (partial / "lock").open("w")
        except FileNotFoundError:  # a build that ends has removed the folder just now
            continue
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _same(lock, partial / "lock"):
                yield
                return


def discard(partial: Path) -> None:
    """Remove the partial folder of a finished build, whose lock is held; who waits for it goes on with a new one."""
    empty(partial)
    (partial / "lock").unlink()
    with contextlib.suppress(OSError):  # the next build has made its lock there already
        partial.rmdir()


def empty(partial: Path) -> None:
    """Remove all that is in a partial folder but its lock."""
    for path in sorted(partial.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def _same(file: IO[str], path: Path) -> bool:
    """Whether ``path`` is still the open file: the build waited for removes it when it ends."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _runs(documents: Iterable[str], partial: Path, hasher: Any, report: Report) -> list[inversion.Run]:
    """Write the runs that are not there yet, and return all of them, mapped from their files."""
    state = _state(partial)
    texts = _watched(documents, hasher, report)
    number = 0
    for number, _ in enumerate(texts, 1) if state["documents"] else ():
        if number == state["documents"]:
            break
    if number != state["documents"] or (number and hasher.hexdigest() != state["sha256"]):
        raise DataError(
            f"the interrupted build in {partial} had other documents; give the same ones, or remove it to start anew"
        )
    for run in inversion.runs(texts, number):
        index = len(state["runs"])
        for name in _RUN_DTYPES:
            getattr(run, name).tofile(partial / f"run-{index}-{name}.bin")
        state["runs"].append(run.first)
        state["documents"] = run.first + len(run.lengths)
        state["sha256"] = hasher.hexdigest()
        write_atomically(partial / STATE, json.dumps(state).encode())
    return [_mapped_run(partial, index, first) for index, first in enumerate(state["runs"])]


def _watched(documents: Iterable[str], hasher: Any, report: Report) -> Iterator[str]:
    number = 0
    for number, text in enumerate(documents, 1):
        data = encode(text)
        hasher.update(struct.pack("<Q", len(data)) + data)
        if number % EVERY == 0:
            report("reading", number, None, "documents")
        yield text
    report("reading", number, number, "documents")


_RUN_DTYPES: dict[str, Any] = {
    "terms": np.uint8,
    "term_starts": np.uint64,
    "starts": np.uint64,
    "docs": np.uint32,
    "freqs": np.uint32,
    "lengths": np.uint32,
}


def _state(partial: Path) -> dict[str, Any]:
    """Return how far an interrupted build came; what another version left is removed."""
    key = f"{FORMAT} {ANALYZER}"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # a torn one tells nothing
        state: dict[str, Any] = json.loads((partial / STATE).read_text(encoding="utf-8"))
        if state["key"] == key and state.keys() == {"key", "documents", "sha256", "runs"}:
            return state
    for path in sorted(partial.glob("run-*.bin")):
        path.unlink()
    return {"key": key, "documents": 0, "sha256": "", "runs": []}


def _mapped_run(partial: Path, index: int, first: int) -> inversion.Run:
    files = {name: _map(partial / f"run-{index}-{name}.bin", dtype) for name, dtype in _RUN_DTYPES.items()}
    return inversion.Run(first, **files)


def _merge(parts: list[inversion.Run], done: Path, report: Report) -> inversion.Totals:
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context((done / f"{name}.bin").open("wb")) for name in DTYPES}
        return inversion.merge(
            parts,
            lambda name, array: array.tofile(files[name]),
            lambda finished, total: report("merging", finished, total, "postings"),
        )


def _describe(done: Path) -> dict[str, dict[str, Any]]:
    wide = (done / "pairs.bin").stat().st_size // 8 > inversion.NARROW
    files = {}
    for name, dtype in DTYPES.items():
        dtype = np.uint32 if wide and name in ("codes", "tops") else dtype
        path = done / f"{name}.bin"
        length = path.stat().st_size // np.dtype(dtype).itemsize
        shape = [length // 2, 2] if name == "pairs" else [length]
        files[name] = {"dtype": np.dtype(dtype).name, "shape": shape, **seal.of(path)}
    return files


# --- opening ----------------------------------------------------------------------------------------------------------


def load(
    folder: Path, expect: Mapping[str, Any], same: Manifest | None = None, again: str = AGAIN
) -> tuple[Manifest, Postings]:
    """Map the index of ``folder``; see ``BM25Index.open``.

    Args:
        folder: where it is.
        expect: entries that its ``meta`` must have.
        same: the manifest it must have, files and all, where it was open before.
        again: what to do about an index that cannot be used, for messages.
    """
    manifest = _manifest(folder, again)
    for key, value in expect.items():
        if manifest.meta.get(key) != value:
            raise DataError(
                f"the search index in {folder} was made from something else: its {key} is "
                f"{manifest.meta.get(key)!r}, expected {value!r}; {again}"
            )
    if same is not None and same != manifest:
        raise DataError(f"the search index in {folder} was replaced while it was in use; start again")
    arrays = {name: _array(folder, name, entry, again) for name, entry in manifest.files.items()}
    if same is None:
        _check(folder, manifest, again)
    return manifest, Postings(manifest.documents, manifest.counted, manifest.tokens, **arrays)


def verify(folder: Path, again: str = AGAIN) -> Manifest:
    """Hash every file of an index.

    Args:
        folder: where it is.
        again: what to do when it is damaged, for the message.

    Raises:
        DataError: when one is not what it was when it was written.
    """
    manifest = _manifest(folder, again)
    _check(folder, manifest, again, whole=True)
    return manifest


def _check(folder: Path, manifest: Manifest, again: str, *, whole: bool = False) -> None:
    seal.check({folder / f"{name}.bin": entry for name, entry in manifest.files.items()}, again, whole=whole)


def _manifest(folder: Path, again: str) -> Manifest:
    path = folder / MANIFEST
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no search index in {folder} (no {MANIFEST}); {again}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); {again}") from error
    expected = {"kind": "bm25", "format": FORMAT, "analyzer": ANALYZER}
    expected["parameters"] = {"k1": formula.K1, "b": formula.B}
    for key, value in expected.items():
        found = values.get(key) if isinstance(values, dict) else None
        if found != value:
            raise DataError(f"the search index in {folder} has {key} {found!r}, expected {value!r}; {again}")
    values = seal.opened(values, path, again)
    try:
        return Manifest(**values)
    except TypeError as error:
        raise DataError(f"{path} lacks entries or has unknown ones; {again}") from error


def _array(folder: Path, name: str, entry: Mapping[str, Any], again: str) -> Array:
    path, dtype = folder / f"{name}.bin", np.dtype(entry["dtype"])
    size = int(np.prod(entry["shape"])) * dtype.itemsize
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"the search index in {folder} is incomplete: {name}.bin is missing; {again}") from None
    if found != size:
        raise DataError(
            f"the search index in {folder} is damaged: {name}.bin has {found} bytes, expected {size}; {again}"
        )
    return _map(path, dtype).reshape(entry["shape"])


def _map(path: Path, dtype: Any) -> Array:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r").view(np.ndarray)
