"""Get official data from its official place: download, verify, unpack, in a way that can be repeated."""

import errno
import json
import os
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from seed_envs.errors import ConfigError, DataError, UnknownName

ALFWORLD_URL = "https://github.com/alfworld/alfworld/releases/download"
"""The official releases. ``--base-url`` or ``SEED_FETCH_BASE`` name a mirror with the same paths below it."""
RETRIES = 5
"""Attempts in a row that may bring nothing new before a download is given up."""

Report = Callable[[str, int, int | None, str], None]
"""Told (what, done so far, total or None, unit): ``bytes`` while downloading, ``files`` while unpacking."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One official zip and the one kind of file that is wanted from it."""

    part: str
    """What users call it."""
    path: str
    """Where it is below the base URL."""
    member: str
    """The file name taken from every trial folder."""

    @property
    def name(self) -> str:
        """The file name of the archive."""
        return self.path.rsplit("/", 1)[-1]


ALFWORLD = (
    Archive("game-files", "0.4.2/json_2.1.3_tw-pddl.zip", "game.tw-pddl"),
    Archive("annotations", "0.2.2/json_2.1.1_json.zip", "traj_data.json"),
)
"""Source: scripts/alfworld-download. Text play needs the first alone; people's goal sentences are in the second."""
ALFWORLD_SPLITS = ("train", "valid_seen", "valid_unseen")
FOLDER, WORK, MARKER = "json_2.1.1", ".fetch", "fetched.json"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch left in its folder."""

    dest: Path
    counts: Mapping[str, Mapping[str, int]]
    """Files by part and split."""
    new: tuple[str, ...]
    """The parts this call brought; none when all was there already."""


class _Again(Exception):
    """The attempt failed in a way that a further one may mend."""


def fetch_alfworld(
    dest: Path,
    *,
    base_url: str = ALFWORLD_URL,
    parts: Sequence[str] = (),
    force: bool = False,
    report: Report = lambda what, done, total, unit: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Fetched:
    """Bring the official ALFWorld games to ``dest``/json_2.1.1; a second call does nothing.

    Zips that lie in ``dest`` already are used and kept; others are downloaded to ``dest``/.fetch,
    where an interrupted download waits to be resumed, and removed when all is in place.

    Args:
        dest: the data root; made when absent.
        base_url: where the release folders are.
        parts: ``game-files`` and ``annotations``, or some of them; all by default.
        force: fetch again what is there.
        report: told about progress.
        sleep: waits between attempts.

    Raises:
        UnknownName: for a part that does not exist.
        DataError: when the data cannot be had or is not what it should be, or the disk is full.
    """
    archives = _wanted(parts)
    with _disk_errors(dest):
        dest.mkdir(parents=True, exist_ok=True)
        done = {} if force else _finished(dest)
        missing = [archive for archive in archives if archive.part not in done]
        for archive in missing:
            _bring(archive, dest, base_url.rstrip("/"), report, sleep)
            done[archive.part] = _count(dest, archive)
            _write_marker(dest, done)
        shutil.rmtree(dest / WORK, ignore_errors=True)
    return Fetched(dest, {a.part: done[a.part] for a in archives}, tuple(a.part for a in missing))


def by_hand(dest: Path, *, base_url: str = ALFWORLD_URL, parts: Sequence[str] = ()) -> list[str]:
    """Return the steps for a machine where this program cannot download."""
    urls = [f"   {base_url.rstrip('/')}/{archive.path}" for archive in _wanted(parts)]
    only = "".join(f" --only {part}" for part in parts)
    return [
        "1. Download, with a browser or on another machine:",
        *urls,
        "2. Put the files, as they are, into",
        f"   {dest}",
        "3. Unpack and check them with",
        f"   python -m seed_envs fetch alfworld --dest {dest}{only}",
    ]


def download(
    url: str,
    target: Path,
    *,
    report: Report = lambda what, done, total, unit: None,
    retries: int = RETRIES,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Download ``url`` to ``target``, going on from ``target``.part where an earlier call stopped.

    Dropped connections, 5xx answers and short bodies are tried again, each wait twice the last,
    until ``retries`` attempts in a row brought nothing new.

    Raises:
        ConfigError: when ``url`` is no http(s) address.
        DataError: when the server refuses or the attempts are used up.
        OSError: when the disk is full.
    """
    part = target.with_name(target.name + ".part")
    furthest = failures = 0
    with httpx.Client(follow_redirects=True, timeout=30, headers={"Accept-Encoding": "identity"}) as client:
        while True:
            try:
                _attempt(client, url, part, report)
                break
            except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
                raise ConfigError(f"cannot download {url}: {error}; expected an http or https address") from error
            except (_Again, httpx.HTTPError) as error:
                reason = str(error) or type(error).__name__
            size = _size(part)
            failures = 0 if size > furthest else failures + 1
            furthest = max(furthest, size)
            if failures > retries:
                raise DataError(
                    f"cannot download {url}: {reason}; what has arrived is kept, so the same command "
                    "goes on from there, and --by-hand shows the way without it"
                )
            wait = min(2.0**failures, 30.0)
            report(f"{target.name}: {reason}; again in {wait:g} s", size, None, "bytes")
            sleep(wait)
    part.replace(target)
    _tag_file(part).unlink(missing_ok=True)


def _attempt(client: httpx.Client, url: str, part: Path, report: Report) -> None:
    """Get what is missing of ``url`` in one request; returns only when ``part`` is complete."""
    have, tag_file = _size(part), _tag_file(part)
    headers = {"Range": f"bytes={have}-"} if have else {}
    if have and tag_file.is_file():
        headers["If-Range"] = tag_file.read_text(encoding="utf-8")  # never join halves of two files
    with client.stream("GET", url, headers=headers) as response:
        start, total = _range_of(response, have, part)
        if have and start == total:
            return
        _need_space(part.parent, (total or 0) - start)
        if not start:
            _keep_tag(response, tag_file)
        done = start
        with part.open("ab" if start else "wb") as file:
            for block in response.iter_raw():
                file.write(block)
                done += len(block)
                report(part.stem, done, total, "bytes")
    if total is not None and done != total:
        raise _Again(f"{done} of {total} bytes arrived")


def _range_of(response: httpx.Response, have: int, part: Path) -> tuple[int, int | None]:
    """Return where the body starts and how long the whole file is, if the server says.

    Raises:
        _Again: when another request may be answered better.
        DataError: when no other answer is to be expected.
    """
    status = response.status_code
    if status == 200:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdigit() else None
    if status in (206, 416):
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        whole = int(total) if total.isdigit() else None
        if status == 206 and span.partition("-")[0] == str(have):
            return have, whole
        if status == 416 and whole == have:
            return have, have
        part.unlink(missing_ok=True)
        raise _Again("the server cannot go on from where the last download stopped")
    if status in (408, 429) or status >= 500:
        raise _Again(f"the server answered {status} {response.reason_phrase}")
    raise DataError(
        f"cannot download {response.request.url}: the server answered {status} {response.reason_phrase}; "
        "if the file has moved, name its new place with --base-url, or see --by-hand"
    )


def unpack(archive: Archive, path: Path, dest: Path, *, report: Report = lambda what, done, total, unit: None) -> int:
    """Unpack the wanted members of a zip into ``dest``/json_2.1.1 and return how many.

    Everything is unpacked aside first, checksums compared, and then renamed file by file, so a
    damaged archive puts nothing in place and no half-written file is ever seen.

    Raises:
        DataError: when the zip is damaged, names unsafe paths or holds no game of a known split.
    """
    aside = dest / WORK
    aside.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=aside) as folder:
        try:
            with zipfile.ZipFile(path) as file:
                members = list(_members(file, archive))
                _need_space(aside, sum(info.file_size for info, _ in members))
                for done, (info, inner) in enumerate(members, 1):
                    out = Path(folder, inner)
                    out.parent.mkdir(parents=True, exist_ok=True)
                    with file.open(info) as source, out.open("wb") as target:
                        shutil.copyfileobj(source, target)
                    report(f"unpacking {archive.name}", done, len(members), "files")
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise DataError(f"{path} is no intact zip file: {error}; delete it and fetch again") from error
        if not members:
            raise DataError(
                f"{path} holds no SPLIT/TASK/TRIAL/{archive.member} of {', '.join(ALFWORLD_SPLITS)}; "
                "expected the official archive"
            )
        for _, inner in members:
            out = dest / FOLDER / inner
            out.parent.mkdir(parents=True, exist_ok=True)
            Path(folder, inner).replace(out)
    return len(members)


def _members(file: zipfile.ZipFile, archive: Archive) -> Iterator[tuple[zipfile.ZipInfo, str]]:
    """Yield the wanted members with their paths SPLIT/TASK/TRIAL/FILE; the folders above vary by release."""
    for info in file.infolist():
        inner = info.filename.split("/")[-4:]
        if len(inner) < 4 or inner[0] not in ALFWORLD_SPLITS or inner[3] != archive.member:
            continue
        if any(name in ("", ".", "..") or set(name) & set("\\:\0") for name in inner):
            raise DataError(f"{file.filename} names an unsafe path {info.filename!r}; expected the official archive")
        yield info, "/".join(inner)


def _bring(archive: Archive, dest: Path, base: str, report: Report, sleep: Callable[[float], None]) -> None:
    """Put the files of one archive in place; a download that turns out damaged is repeated once."""
    given = dest / archive.name
    if given.is_file():
        unpack(archive, given, dest, report=report)
        return
    target = dest / WORK / archive.name
    target.parent.mkdir(exist_ok=True)
    for last in (False, True):
        if not target.is_file():
            download(f"{base}/{archive.path}", target, report=report, sleep=sleep)
        try:
            unpack(archive, target, dest, report=report)
            return
        except DataError as error:
            target.unlink()
            if last:
                raise DataError(f"{base}/{archive.path} is not what it should be: {error}") from error


def _wanted(parts: Sequence[str]) -> list[Archive]:
    known = {archive.part: archive for archive in ALFWORLD}
    for part in parts:
        if part not in known:
            raise UnknownName("part of the data", part, known)
    return [archive for archive in ALFWORLD if not parts or archive.part in parts]


def _count(dest: Path, archive: Archive) -> dict[str, int]:
    folders = {split: dest / FOLDER / split for split in ALFWORLD_SPLITS}
    return {split: sum(1 for _ in folder.glob(f"*/*/{archive.member}")) for split, folder in folders.items()}


def _finished(dest: Path) -> dict[str, dict[str, int]]:
    """Return the parts that are there: what an earlier call finished, or all that the release has."""
    try:
        marker: dict[str, Any] = json.loads((dest / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        marker = {}
    counts = {archive: _count(dest, archive) for archive in ALFWORLD}
    return {a.part: n for a, n in counts.items() if marker.get(a.part) == n or _is_release(dest, a)}


def _is_release(dest: Path, archive: Archive) -> bool:
    """Whether every game of the committed manifest has its file, whoever brought it."""
    from seed_envs.alfworld.official import released

    ids = [task.id for split in ALFWORLD_SPLITS for task in released(split)]
    return bool(ids) and all((dest / FOLDER / task_id / archive.member).is_file() for task_id in ids)


def _write_marker(dest: Path, done: Mapping[str, Mapping[str, int]]) -> None:
    temporary = dest / WORK / MARKER
    temporary.parent.mkdir(exist_ok=True)
    temporary.write_text(json.dumps(done, indent=2) + "\n", encoding="utf-8")
    temporary.replace(dest / MARKER)


def _keep_tag(response: httpx.Response, tag_file: Path) -> None:
    etag = response.headers.get("ETag", "")
    tag = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")  # weak tags cannot resume
    tag_file.unlink(missing_ok=True)
    if tag:
        tag_file.write_text(tag, encoding="utf-8")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _tag_file(part: Path) -> Path:
    """Where the server's name for this version of the file is kept beside the partial download."""
    return part.with_name(part.name + ".tag")


def _need_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed:,} bytes are needed and {free:,} are free", os.fspath(folder))


@contextmanager
def _disk_errors(dest: Path) -> Iterator[None]:
    """Say what to do when the disk is full or the folder cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text = f"the disk of {dest} is full ({error.strerror}); make room or give another --dest, then repeat"
        else:
            text = f"cannot write {error.filename or dest}: {error.strerror}; give another folder with --dest"
        raise DataError(f"{text}; what has arrived is kept") from error
