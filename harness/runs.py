"""Run folders: the records of a run, what stands beside them, and whose they are."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.config import RunPlan, SplitPlan
from harness.provenance import now
from harness.records import ELSEWHERE, Loaded, Records, WriteFailed, load
from harness.summary import Row, merge, summarise_rows, to_bytes
from seed_agent.images import encode_png, pixels_hash, record
from seed_agent.rollout import Request
from seed_agent.trajectory import Episode, Image, records_sha256
from seed_envs.errors import UPDATE, ConfigError, DataError, SeedError
from seed_envs.files import write_atomically
from seed_envs.seeding import canonical, sha256_text
from seed_envs.tasks import compare_manifests, read_manifest, write_manifest

RUN_VERSION = 1
RUN, RECORDS, SUMMARY, TASKS, IMAGES = "run.json", "trajectories.jsonl", "summary.json", "tasks.tsv", "images"
REPORT = "report.html"
ANOTHER = "name the folder of another run"
HASHES = ("manifest_sha256", "tasks_sha256")
OURS = (RUN, RECORDS, SUMMARY, REPORT, TASKS, IMAGES)


def read_run(folder: Path, instead: str = ELSEWHERE) -> dict[str, Any] | None:
    """Return the ``run.json`` of a folder; None when the folder is new, empty or only just begun.

    ``instead`` is what errors say to do: who only reads passes ``ANOTHER``.

    Raises:
        ConfigError: when the folder holds something else than a run.
        DataError: when ``run.json`` cannot be read or is of a newer version.
    """
    for name in (RUN, RECORDS, SUMMARY, REPORT, TASKS):
        if (folder / name).is_dir():
            raise ConfigError(f"{folder / name} is a directory; remove it or {instead}")
    for parent in list(folder.absolute().parents)[:2]:
        if (parent / RUN).exists():
            raise ConfigError(f"{folder} lies inside the run {parent}; {instead}")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; a run needs a folder: {instead}")
    path = folder / RUN
    if not path.exists():
        others = sorted(p.name for p in folder.iterdir() if not _begun(p)) if folder.exists() else []
        if others:
            raise ConfigError(f"{folder} is no run of this program (it holds {others[0]} and no {RUN}); {instead}")
        return None
    return _read_state(path, instead)


def once(folders: Sequence[Path]) -> None:
    """Refuse a run that is named twice, by whatever path.

    Raises:
        ConfigError: naming it.
    """
    seen: dict[Path, Path] = {}
    for folder in folders:
        first = seen.setdefault(folder.resolve(), folder)
        if first is not folder:
            other = "" if first == folder else f" (also as {first})"
            raise ConfigError(f"{folder} is named twice{other}; name every run once")


def _read_state(path: Path, instead: str) -> dict[str, Any]:
    try:
        state = json.loads(path.read_bytes())
        version = state["schema_version"]
        if version > RUN_VERSION:
            raise DataError(f"{path} has schema version {version}; this version reads up to {RUN_VERSION}: {UPDATE}")
        types = [type(state[key]) for key in ("status", "digest", "config", "provenance")]
        if types != [str, str, dict, list] or not all(isinstance(start, dict) for start in state["provenance"]):
            raise _damaged(path, "not as it was written", instead)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, type(error).__name__, instead) from None
    return dict(state)


def _damaged(path: Path, how: str, instead: str = ELSEWHERE) -> DataError:
    return DataError(f"{path} cannot be read ({how}); remove the folder by hand or {instead}")


def _begun(path: Path) -> bool:
    """Whether ``path`` is what a run leaves that was killed before its run.json was there."""
    temporary = path.name.startswith(tuple(f".{name}." for name in OURS))
    return temporary or path.name == TASKS or (path.name == RECORDS and path.stat().st_size == 0)


def check(plan: RunPlan, *, fresh: bool = False) -> dict[str, Any] | None:
    """Return the ``run.json`` that ``plan`` goes on with; None when it starts (again).

    Raises:
        ConfigError: when the folder belongs to something else.
        DataError: when it is damaged.
    """
    state = read_run(plan.folder)
    if state is None or fresh:
        return None
    _check_state(plan.folder / RUN, state)
    if state["digest"] != plan.digest:
        raise ConfigError(
            f"{plan.folder} holds another run: {'; '.join(_differences(state['config'], plan))}; "
            f"{ELSEWHERE}, or start over with --fresh"
        )
    return state


def _check_state(path: Path, state: Mapping[str, Any]) -> None:
    """Refuse a ``run.json`` that was edited: its configuration has the digest, and a start is noted."""
    try:
        sound = bool(state["provenance"]) and sha256_text(canonical(state["config"])) == state["digest"]
        for split in state["config"]["splits"].values():
            [split[key] for key in ("manifest", "data_sha256", *HASHES)]
        _to_bytes(state)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, type(error).__name__) from None
    if not sound:
        raise _damaged(path, "its configuration is not the one that was written")


def kept(plan: RunPlan, state: Mapping[str, Any] | None) -> Loaded:
    """Return the records that ``plan`` goes on with, ``state`` being what ``check`` returned.

    Raises:
        DataError: when a line is no record of the run, or the records were changed after it was finished.
    """
    if state is None:
        return Loaded()
    found = load(plan.folder / RECORDS, plan)
    if state["status"] == "finished" and found.rows.keys() == plan.episodes.keys():
        before, after = _summarised(plan.folder / SUMMARY), records_sha256(row.sha256 for row in found.rows.values())
        if before not in (None, after):
            raise DataError(
                f"the records in {plan.folder} changed since the run was finished: {SUMMARY} is of others; "
                f"start over with --fresh or {ELSEWHERE}"
            )
    return found


def _summarised(path: Path) -> Any:
    """Return the hash of the records that a summary is of; None where there is none to read."""
    try:
        return json.loads(path.read_bytes())["records_sha256"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _to_bytes(state: Mapping[str, Any]) -> bytes:
    """Return the content of ``run.json``; what UTF-8 cannot hold (of a path, say) becomes ``?``."""
    return (json.dumps(state, indent=2, ensure_ascii=False) + "\n").encode(errors="replace")


def _differences(there: Mapping[str, Any], plan: RunPlan) -> list[str]:
    """Say which settings differ, with both values, and which tasks."""
    shared = [split for split in plan.splits if split.name in there["splits"]]
    old, new = (_settings(config, [split.name for split in shared]) for config in (there, plan.config))
    lines = [
        f"{key} is {_short(old.get(key))} there and {_short(new.get(key))} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    listed = read_manifest(plan.folder / TASKS) if (plan.folder / TASKS).exists() else {}
    for split in shared:
        before, after = there["splits"][split.name], plan.config["splits"][split.name]
        if [before[key] for key in HASHES] != [after[key] for key in HASHES]:
            changes = compare_manifests({t.id: t for t in split.tasks}, {t.id: t for t in listed.get(split.name, ())})
            named = [f"{len(ids)} {word} ({_some(ids)})" for word, ids in changes.items() if ids]
            lines.append(f"tasks of {split.name} now: {', '.join(named) or 'others changed than those played'}")
    return lines or ["its digest differs"]


def _settings(config: Mapping[str, Any], shared: Sequence[str]) -> dict[str, Any]:
    """Return a configuration as flat keys and values, without its tasks."""
    splits = config["splits"]
    names = {f"{name}.{key}": splits[name][key] for name in shared for key in ("manifest", "data_sha256")}
    return flat({**config, "splits": sorted(splits)}) | names


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with dotted keys."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return found


def arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment's arguments without split and kind of data: manifests say those, whoever left a default."""
    return {key: value for key, value in kwargs.items() if key not in ("split", "data")}


def _short(value: object) -> str:
    text = canonical(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _some(ids: list[str]) -> str:
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


class Run:
    """A run being written: its rows so far, and the episodes it still owes."""

    def __init__(
        self, plan: RunPlan, *, options: Mapping[str, Any], provenance: Mapping[str, Any], fresh: bool = False
    ) -> None:
        """Lock the folder of ``plan``, making it or taking up what it holds.

        Raises:
            SeedError: when the folder cannot be used; nothing in it has changed then.
        """
        self.plan, self.folder = plan, plan.folder
        read_run(self.folder)  # refuse before anything is made
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make {self.folder}: {error.strerror}; {ELSEWHERE}") from None
        self._records = Records(self.folder / RECORDS)
        try:
            self._begin(dict(options), dict(provenance), fresh)
        except BaseException:
            self._records.close()
            raise

    def _begin(self, options: dict[str, Any], provenance: dict[str, Any], fresh: bool) -> None:
        state = check(self.plan, fresh=fresh)
        found = kept(self.plan, state)
        if fresh:
            self._erase()
        self._sweep()
        self._records.cut(found.size)
        self.rows, self._broke = found.rows, found.broke
        self._owed = {key for key in self.plan.episodes if key not in self.rows or self.rows[key].failed_to_finish}
        self._images: dict[str, Image] = {}
        self._state = state or {
            "schema_version": RUN_VERSION,
            "status": "started",
            "digest": self.plan.digest,
            "config": self.plan.config,
            "provenance": [],
        }
        if state is None:
            self._write_tasks()
        if self._owed:
            self._drop_results()  # no score stands beside records that grow
            self._state |= {"status": "started", "options": options, **self.plan.stated}
            self._state["provenance"].append(provenance)
            self._write_state()

    @property
    def finished(self) -> int:
        """How many episodes need not be played again."""
        return sum(not row.failed_to_finish for row in self.rows.values())

    def owed(self, split: SplitPlan) -> list[Request]:
        """Return the episodes of ``split`` that were never played, or broke before this start."""
        return [
            request for key, (of, request) in self.plan.episodes.items() if of.name == split.name and key in self._owed
        ]

    def add(self, episode: Episode) -> Row:
        """Record an episode at once.

        Raises:
            WriteFailed: when it cannot be written.
        """
        if broke := self._broke[episode.key]:
            episode = episode.model_copy(update={"timing": {**episode.timing, "retries": float(broke)}})
        row = Row.of(episode)
        self._records.append(episode.to_line())
        merge(self.rows, row)
        return row

    def save_image(self, pixels: np.ndarray[Any, Any]) -> Image:
        """Keep an RGB image of shape (height, width, 3), uint8, as PNG named by its sha256.

        Raises:
            WriteFailed: when it cannot be written.
        """
        raw = np.ascontiguousarray(pixels, dtype=np.uint8)
        pixels_sha256 = pixels_hash(raw)
        if pixels_sha256 not in self._images:
            content = encode_png(raw)
            image = record(content, raw)
            name = f"{IMAGES}/{image.file_sha256}.png"
            if not (self.folder / name).exists():
                self._write(name, content)
            self._images[pixels_sha256] = image
        return self._images[pixels_sha256]

    def finish(self) -> dict[str, Any]:
        """Write ``summary.json``, mark the run finished and return the summary.

        Raises:
            SeedError: when episodes are missing or a file cannot be written.
        """
        if self.rows.keys() != self.plan.episodes.keys():
            raise DataError(
                f"{len(self.rows)} of {self.plan.total} episodes of {self.folder} were played; repeat the command"
            )
        summary = summarise_rows(self.rows.values(), planned=self.plan.total, protocol=self.plan.protocol["name"])
        content = to_bytes(summary)
        path = self.folder / SUMMARY
        if self._state["status"] != "finished" or not path.exists() or path.read_bytes() != content:
            self._records.sync()
            self._write(SUMMARY, content)
            self._end("finished")
        return dict(json.loads(content))

    def stop(self, status: str) -> None:
        """Mark the run ``interrupted`` or ``failed``; that it cannot be marked is no second error."""
        if not self._owed:
            return  # it had been finished before
        with contextlib.suppress(SeedError):
            self._records.sync()
            self._end(status)

    def close(self) -> None:
        """Release the folder."""
        self._records.close()

    def _end(self, status: str) -> None:
        self._state["status"] = status
        self._state["provenance"][-1]["finished"] = now()
        self._write_state()

    def _write_state(self) -> None:
        self._write(RUN, _to_bytes(self._state))

    def _write_tasks(self) -> None:
        new, path = self.folder / f".{TASKS}.new", self.folder / TASKS
        tasks = [task for split in self.plan.splits for task in split.tasks]
        try:
            write_manifest(new, tasks, title="the tasks of this run: id, split, category, sha256")
            new.replace(path)
        except OSError as error:
            raise WriteFailed(path, error) from None

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, content)
        except OSError as error:
            raise WriteFailed(path, error) from None

    def _erase(self) -> None:
        """Remove the files of the run that was here, and only those."""
        self._drop_results()
        images = self.folder / IMAGES
        for image in sorted(images.glob("*.png")):
            image.unlink()
        with contextlib.suppress(OSError):  # not there, or not only images in it
            images.rmdir()
        self._records.cut(0)
        (self.folder / TASKS).unlink(missing_ok=True)
        (self.folder / RUN).unlink(missing_ok=True)

    def _drop_results(self) -> None:
        for name in (SUMMARY, REPORT):
            (self.folder / name).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove temporary files of a start that was killed while it wrote them."""
        for name in (RUN, SUMMARY, REPORT, TASKS, f"{IMAGES}/*"):
            folder, _, pattern = f"{self.folder}/{name}".rpartition("/")
            for left in sorted(Path(folder).glob(f".{pattern}.*")):
                left.unlink(missing_ok=True)
