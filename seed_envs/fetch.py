"""Get official data from its official place: download, verify, unpack, in a way that can be repeated."""

import errno
import json
import re
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seed_envs.download import Report, download, need_space, silent
from seed_envs.errors import DataError
from seed_envs.fetch_source import Archive, Counts, Row, Source
from seed_envs.searchqa.fetching import SEARCHQA

WORK, MARKER = ".fetch", "fetched.json"


def _alfworld_complete(dest: Path, archive: Archive) -> bool:
    from seed_envs.alfworld.official import released

    member = archive.files.rpartition("/")[2]
    ids = [task.id for split in ALFWORLD.groups for task in released(split)]
    return bool(ids) and all((dest / ALFWORLD.folder / task_id / member).is_file() for task_id in ids)


def _alfworld_compare(dest: Path) -> list[Row]:
    from seed_envs.alfworld.official import OfficialSource, released

    games, rows = OfficialSource(dest), []
    for split in ALFWORLD.groups:
        found, difference = 0, "missing"
        if split in games.splits:
            odd = games.against_release(split).items()
            found, difference = len(games.tasks(split)), ", ".join(f"{len(ids)} {what}" for what, ids in odd if ids)
        rows.append((split, found, len(released(split)), difference))
    return rows


def _boxoban_complete(dest: Path, archive: Archive) -> bool:
    from seed_envs.sokoban.boxoban import FOLDERS, RELEASED

    files = {FOLDERS[split]: -(-levels // 1000) for split, levels in RELEASED.items()}
    return BOXOBAN.count(dest, archive) == files


def _boxoban_compare(dest: Path) -> list[Row]:
    from seed_envs.sokoban.boxoban import RELEASED, BoxobanLevels

    levels, rows = BoxobanLevels(dest), []
    for split, wanted in RELEASED.items():
        found = len(levels.tasks(split)) if split in levels.splits else 0
        kind = "missing" if found < wanted else "more"
        rows.append((split, found, wanted, "" if found == wanted else f"{abs(wanted - found)} {kind}"))
    return rows


def _webshop_complete(dest: Path, archive: Archive) -> bool:
    path = dest / archive.path
    return path.is_file() and begins_well(path, archive) and ends_well(path)


def _webshop_compare(dest: Path) -> list[Row]:
    from seed_envs.webshop.official import RELEASED, count_goals

    rows = []
    for profile, wanted in RELEASED.items():
        found = count_goals(dest, profile)
        difference = f"{abs(wanted - found)} {'missing' if found < wanted else 'more'}"
        rows.append((profile, found, wanted, "" if found == wanted else difference))
    return rows


def _drive(part: str, name: str, key: str) -> Archive:
    address = f"https://drive.usercontent.google.com/download?id={key}&export=download&confirm=t"
    return Archive(part, name, name, begins=b"[{", address=address)


ALFWORLD = Source(
    name="alfworld",
    url="https://github.com/alfworld/alfworld/releases/download",
    folder="json_2.1.1",
    groups=("train", "valid_seen", "valid_unseen"),
    archives=(
        Archive("game-files", "0.4.2/json_2.1.3_tw-pddl.zip", "*/*/game.tw-pddl"),
        Archive("annotations", "0.2.2/json_2.1.1_json.zip", "*/*/traj_data.json"),
    ),
    complete=_alfworld_complete,
    compare=_alfworld_compare,
    variable="ALFWORLD_DATA",
)
"""Source: scripts/alfworld-download. Text play needs the first alone; people's goal sentences are in the second."""
BOXOBAN = Source(
    name="sokoban",
    url="https://github.com/google-deepmind/boxoban-levels",
    folder="boxoban",
    groups=("hard", "medium/train", "medium/valid", "unfiltered/train", "unfiltered/valid", "unfiltered/test"),
    archives=(Archive("levels", "archive/refs/heads/master.zip", "*.txt", "boxoban-levels-master.zip"),),
    complete=_boxoban_complete,
    compare=_boxoban_compare,
)
"""Source: the repository itself, which GitHub packs while sending: no size, no resuming."""
WEBSHOP = Source(
    name="webshop",
    url="https://drive.usercontent.google.com",
    folder="",
    groups=(".",),
    archives=(
        _drive("small-products", "items_shuffle_1000.json", "1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib"),
        _drive("small-attributes", "items_ins_v2_1000.json", "1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu"),
        _drive("human", "items_human_ins.json", "14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O"),
        _drive("full-products", "items_shuffle.json", "1A2whVgOO0euk5O13n2iYDM0bQRkkRduB"),
        _drive("full-attributes", "items_ins_v2.json", "1s2j6NgHljiZzQNL3veZaAiyW_qDEgBNi"),
    ),
    complete=_webshop_complete,
    compare=_webshop_compare,
)
"""Source: setup.sh of princeton-nlp/WebShop. No hashes are known, and Google Drive often refuses for a day."""
SOURCES: Mapping[str, Source] = {source.name: source for source in (ALFWORLD, BOXOBAN, SEARCHQA, WEBSHOP)}


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch left in its folder."""

    dest: Path
    counts: Mapping[str, Counts]
    """Files by part and group."""
    new: tuple[str, ...]
    """The parts this call brought; none when all was there already."""


def fetch(
    source: Source,
    dest: Path,
    *,
    base_url: str = "",
    parts: Sequence[str] = (),
    force: bool = False,
    report: Report = silent,
    sleep: Callable[[float], None] = time.sleep,
) -> Fetched:
    """Bring official data to ``dest``; a second call does nothing.

    Zips that lie in ``dest`` already are used and kept; others are downloaded to ``dest``/.fetch,
    where an interrupted download waits to be resumed, and removed when all is in place.

    Args:
        source: what to bring.
        dest: the data root; made when absent.
        base_url: where the archives are; the official place by default.
        parts: names of archives; all by default.
        force: fetch again what is there.
        report: told about progress.
        sleep: waits between attempts.

    Raises:
        UnknownName: for a part that does not exist.
        DataError: when the data cannot be had or is not what it should be, or the disk is full.
    """
    archives = source.wanted(parts)
    with _disk_errors(dest):
        dest.mkdir(parents=True, exist_ok=True)
        done = {} if force else _finished(source, dest)
        missing = [archive for archive in archives if archive.part not in done]
        for archive in missing:
            _bring(source, archive, dest, source.address(archive, base_url), report, sleep)
            done[archive.part] = source.count(dest, archive)
            _write_marker(dest, done)
        shutil.rmtree(dest / WORK, ignore_errors=True)
    return Fetched(dest, {a.part: done[a.part] for a in archives}, tuple(a.part for a in missing))


def by_hand(source: Source, dest: Path, *, base_url: str = "", parts: Sequence[str] = ()) -> list[str]:
    """Return the steps for a machine where this program cannot download."""
    only = "".join(f" --only {part}" for part in parts)
    return [
        "1. Download, with a browser or on another machine:",
        *(f"   {source.address(a, base_url)}{f'  as {a.path}' if a.begins else ''}" for a in source.wanted(parts)),
        "2. Put the files, as they are, into",
        f"   {dest}",
        "3. Unpack and check them with",
        f"   python -m seed_envs fetch {source.name} --dest {dest}{only}",
    ]


def unpack(source: Source, archive: Archive, path: Path, dest: Path, *, report: Report = silent) -> int:
    """Unpack the wanted members of a zip into the folder of ``source`` below ``dest`` and return how many.

    Everything is unpacked aside first, checksums compared, and then renamed file by file, so a
    damaged archive puts nothing in place and no half-written file is ever seen.

    Raises:
        DataError: when the zip is damaged, names unsafe paths or holds no file of a known group.
    """
    aside = dest / WORK
    aside.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=aside) as folder:
        try:
            with zipfile.ZipFile(path) as file:
                members = list(_members(file, source, archive))
                need_space(aside, sum(info.file_size for info, _ in members))
                for done, (info, inner) in enumerate(members, 1):
                    out = Path(folder, inner)
                    out.parent.mkdir(parents=True, exist_ok=True)
                    with file.open(info) as member, out.open("wb") as target:
                        shutil.copyfileobj(member, target)
                    report(f"unpacking {path.name}", done, len(members), "files")
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise DataError(f"{path} is no intact zip file: {error}; delete it and fetch again") from error
        if not members:
            expected = f"{archive.files} in {', '.join(source.groups)}"
            raise DataError(f"{path} holds no {expected}; expected the official archive")
        for _, inner in members:
            out = dest / source.folder / inner
            out.parent.mkdir(parents=True, exist_ok=True)
            Path(folder, inner).replace(out)
    return len(members)


def _keep(source: Source, archive: Archive, path: Path, dest: Path, *, report: Report = silent) -> int:
    """Put a file that is no zip in its place.

    Raises:
        DataError: when it is another kind of file: what refuses a download is often a page, not an error.
    """
    if not begins_well(path, archive):
        with path.open("rb") as file:
            raise DataError(f"it begins with {file.read(20)!r}; the place may refuse for now, see --by-hand")
    out = dest / source.folder / archive.path
    out.parent.mkdir(parents=True, exist_ok=True)
    path.replace(out)
    report(f"keeping {out.name}", 1, 1, "files")
    return 1


def begins_well(path: Path, archive: Archive) -> bool:
    """Whether a file begins as one of its kind, blanks aside."""
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1] in [bytes([byte]) for byte in archive.begins]


def ends_well(path: Path) -> bool:
    """Whether a JSON file ends with a closing bracket, blanks aside."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 64, 0))
        return file.read().rstrip()[-1:] in (b"]", b"}")


def _members(file: zipfile.ZipFile, source: Source, archive: Archive) -> Iterator[tuple[zipfile.ZipInfo, str]]:
    """Yield the wanted members with their paths from the group on."""
    groups, files = "|".join(map(re.escape, source.groups)), re.escape(archive.files).replace(r"\*", "[^/]*")
    wanted = re.compile(f"(?:.*/)?((?:{groups})/{files})", re.DOTALL)
    for info in file.infolist():
        found = wanted.fullmatch(info.filename)
        if found is None:
            continue
        if any(name in ("", ".", "..") or set(name) & set("\\:\0") for name in found[1].split("/")):
            raise DataError(f"{file.filename} names an unsafe path {info.filename!r}; expected the official archive")
        yield info, found[1]


def _bring(
    source: Source, archive: Archive, dest: Path, address: str, report: Report, sleep: Callable[[float], None]
) -> None:
    """Put the files of one archive in place; a download that turns out damaged is repeated once."""
    for name in () if archive.begins else archive.names:
        if (dest / name).is_file():
            unpack(source, archive, dest / name, dest, report=report)
            return
    target = dest / WORK / archive.names[0]
    target.parent.mkdir(exist_ok=True)
    for last in (False, True):
        if not target.is_file():
            download(address, target, report=report, sleep=sleep)
        try:
            (_keep if archive.begins else unpack)(source, archive, target, dest, report=report)
            return
        except DataError as error:
            target.unlink()
            if last:
                raise DataError(f"{address} is not what it should be: {error}") from error


def _finished(source: Source, dest: Path) -> dict[str, Counts]:
    """Return the parts that are there: what an earlier call finished, or all that was released."""
    marker = _read_marker(dest)
    counts = {archive: source.count(dest, archive) for archive in source.archives}
    return {a.part: n for a, n in counts.items() if marker.get(a.part) == n or source.complete(dest, a)}


def _read_marker(dest: Path) -> dict[str, object]:
    try:
        marker = json.loads((dest / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def _write_marker(dest: Path, done: Mapping[str, Counts]) -> None:
    temporary = dest / WORK / MARKER
    temporary.parent.mkdir(exist_ok=True)
    marker = {**_read_marker(dest), **done}  # the folder may hold another benchmark's parts too
    temporary.write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")
    temporary.replace(dest / MARKER)


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
