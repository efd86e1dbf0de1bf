"""What can be checked of a measured row without playing: its numbers, hashes, seeds and tasks against its logs."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.board import derived
from harness.board.actions import Header, read_log, rows_of
from harness.board.entry import LOG, ActionLog, Entry, Method, Run
from harness.board.replay import seeds
from harness.config import slug
from harness.runs import arguments, flat
from harness.summary import Key, Row, summarise_rows, to_bytes
from seed_agent.methods import METHODS
from seed_agent.trajectory import EnvRecord
from seed_envs.errors import DataError
from seed_envs.paths import manifest_path
from seed_envs.tasks import read_manifest


def problems(entry: Entry, folder: Path) -> Iterator[str]:
    """Yield what is wrong with a row that lies in ``folder``, one line each; nothing when it is sound."""
    yield from _computed(entry)
    yield from _method(entry)
    yield from _ceilings(entry)
    yield from _manifests(entry)
    for run in entry.runs:
        yield from _run(entry, run, folder / run.log.file)
    for name, values in (
        ("configuration", [run.digest for run in entry.runs]),
        ("training seed", [run.training_seed for run in entry.runs]),
        ("records", [run.summary.records_sha256 for run in entry.runs if entry.training is not None]),
    ):
        if len(set(values)) < len(values):
            yield f"two runs have the same {name}; expected different training seeds"


def _computed(entry: Entry) -> Iterator[str]:
    """Compare what is computed from the row with what it says."""
    found = derived.flags(entry.environment, entry.protocol, entry.method, entry.training, entry.runs)
    if found != entry.flags:
        yield f"flags are {', '.join(entry.flags) or 'none'}; computed from the row: {', '.join(found) or 'none'}"
    again = derived.aggregate([run.summary for run in entry.runs])
    for split, part in entry.aggregate.items():
        yield from _differences(
            f"aggregate.{split}", part.model_dump(mode="json"), again[split].model_dump(mode="json")
        )
    if entry.training is not None:
        budget = derived.budget(entry.training)
        yield from _differences("training", {key: getattr(entry.training, key) for key in budget}, budget)
    if not entry.id.endswith(end := derived.suffix([run.digest for run in entry.runs])):
        yield f"the id {entry.id} does not end in {end}, which the configurations of its runs give"
    for run in entry.runs:
        if not run.log.file.startswith(f"{entry.id}."):
            yield f"the log {run.log.file} is not named after the row; expected {entry.id}{LOG}"


def _method(entry: Entry) -> Iterator[str]:
    """Compare the method with what training or the policy says, and with the table of methods where it is listed."""
    said, training, policy = entry.method, entry.training, entry.runs[0].policy
    known: Method | None
    if training is not None:
        name = training.settings.get("method") if training.planned else derived.STAGE1.name
        if said.name != name:
            yield f"method.name is {said.name}; what the row says of training gives {name}"
        known = derived.method_of(said.name, trained=True) if training.planned else derived.STAGE1
    elif policy.language is None:
        known = Method(name=slug(policy.name), label=policy.name, trained=False)
    else:
        known = derived.method_of(said.name, trained=False)
    if known is not None:
        shared = sorted((said.fields.keys() & known.fields.keys()) - {"cites"})  # a later version may have more
        own, table = (
            {"name": m.name, "label": m.label, "fields": {k: m.fields[k] for k in shared}} for m in (said, known)
        )
        yield from _differences("method", own, table)
        if odd := sorted(said.fields.keys() - known.fields.keys()):
            yield f"method.fields has {', '.join(odd)}, which no method has"
    elif said.label in {METHODS.get(name).label or name for name in METHODS}:
        yield f"method.label is {said.label}, which is another method than {said.name}"


def _ceilings(entry: Entry) -> Iterator[str]:
    """Compare ceilings with the tasks and the results; ``verify`` computes them again."""
    for split, data in entry.environment.splits.items():
        if data.ceiling is None:
            continue
        if data.ceiling.n != data.n_tasks:
            yield f"the ceiling of {split} is of {data.ceiling.n} tasks; the row is of {data.n_tasks}"
        for run in entry.runs:
            found = run.summary.splits[split]
            for name, best, reached in (
                ("pooled", data.ceiling, found.pooled),
                ("macro", data.ceiling.macro, found.macro),
            ):
                for metric in ("success", "score"):
                    most, got = getattr(best, metric), getattr(reached, metric)
                    if got > most + 1e-9:
                        yield f"{name} {metric} of {split} is {got:g}, above its ceiling of {most:g}"


def _differences(where: str, stated: Mapping[str, Any], computed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that differ, with their places."""
    old, new = flat(stated), flat(computed)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield f"{where}.{key} is {_short(old.get(key))}; computed again: {_short(new.get(key))}"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _manifests(entry: Entry) -> Iterator[str]:
    """Compare the manifests with those that the suite lists, where it does."""
    env = entry.environment
    for data in env.splits.values():
        known = _listed(data.manifest)
        if known is None and env.data == "embedded" and env.id.startswith("seed_envs/"):
            yield f"{data.manifest} is no manifest of this suite's embedded data"
        if known is not None and known != data.manifest_sha256:
            yield f"{data.manifest} has the hash {known} in this suite; the row says {data.manifest_sha256}"


def kind_of(records: Sequence[EnvRecord]) -> Literal["embedded", "official", "local"]:
    """Return the kind of data that environments read."""
    found = {record.kwargs.get("data", "embedded") for record in records}
    if "local" in found or any(record.local for record in records):
        return "local"
    return "embedded" if found == {"embedded"} else "official"


@cache
def _listed(manifest: str) -> str | None:
    """Return the hash of a committed manifest, None for one that the suite does not list."""
    name, _, split = manifest.partition("/")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
        return None
    path = manifest_path(name)
    if not path.is_file():
        return None
    splits = read_manifest(path)
    return splits[split].sha256 if split in splits else "of no such split"


def _run(entry: Entry, run: Run, path: Path) -> Iterator[str]:
    """Check a run against its action log."""
    try:
        content = describe_log(path, run.log.episodes)
    except DataError as error:
        yield str(error)
        return
    for name, stated, found in (
        ("bytes", run.log.bytes, content.bytes),
        ("sha256", run.log.sha256, content.sha256),
    ):
        if stated != found:
            yield f"{run.log.file} has the {name} {found}; the row says {stated}"
            return
    try:
        with read_log(path) as (header, episodes):
            yield from _header(entry, run, header)
            rows = rows_of(header, episodes)
        with read_log(path) as (header, episodes):
            odd = next(seeds(header, episodes, entry.protocol.seed), None)
        computed = recomputed(rows, run.summary.planned, entry.protocol.name)
    except DataError as error:
        yield f"{run.log.file}: {error}"
        return
    if odd is not None:
        yield f"{run.log.file}: {odd}"
    yield from _differences(run.log.file, run.summary.model_dump(mode="json"), computed)
    yield from _coverage(entry, run, rows)


def describe_log(path: Path, episodes: int) -> ActionLog:
    """Return what a row says about the log at ``path``.

    Raises:
        DataError: when it cannot be read.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return ActionLog(file=path.name, sha256=digest, bytes=path.stat().st_size, episodes=episodes)
    except OSError as error:
        raise DataError(f"cannot read the action log {path}: {error.strerror}; a row comes with its logs") from None


def recomputed(rows: Mapping[Key, Row], planned: int, protocol: str) -> dict[str, Any]:
    """Return the summary of ``rows`` as a file has it.

    Raises:
        DataError: when they are not of one policy and environment.
    """
    return dict(json.loads(to_bytes(summarise_rows(rows.values(), planned=planned, protocol=protocol))))


def _header(entry: Entry, run: Run, header: Header) -> Iterator[str]:
    """Compare a log's header with the row."""
    if header.policy != run.policy.name:
        yield f"{run.log.file} is of the policy {header.policy}; the row says {run.policy.name}"
    env = entry.environment
    if sorted(env.splits) != sorted(header.splits):
        yield f"{run.log.file} has the splits {sorted(header.splits)}; the row says {sorted(env.splits)}"
        return
    if (kind := kind_of(list(header.splits.values()))) != env.data:
        yield f"the row calls its data {env.data}; those of {run.log.file} are {kind}"
    shared = {"id": env.id, "version": env.version, "kwargs": env.kwargs, "max_turns": env.max_turns}
    for split, data in env.splits.items():
        own = data.model_dump(mode="json", include={"manifest", "manifest_sha256", "data_sha256"})
        logged = header.splits[split].model_dump(mode="json")
        logged["kwargs"] = arguments(logged["kwargs"])
        yield from _differences(f"environment.{split}", {**shared, **own}, logged)


def _coverage(entry: Entry, run: Run, rows: Mapping[Key, Row]) -> Iterator[str]:
    """Check that the row's tasks were played, each as often as the protocol says."""
    for split, data in entry.environment.splits.items():
        found = run.summary.splits[split]
        for name in ("manifest_sha256", "tasks_sha256", "n_tasks"):
            if getattr(found, name) != getattr(data, name):
                yield f"{name} of {split} is {getattr(data, name)}; its results are of {getattr(found, name)}"
    if not run.summary.complete or len(rows) != run.summary.planned:
        yield f"{run.log.file} has {len(rows)} of {run.summary.planned} episodes; expected all"
    if run.log.episodes != len(rows):
        yield f"{run.log.file} has {len(rows)} episodes; the row says {run.log.episodes}"
    attempts: dict[tuple[str, str], set[int]] = {}
    for split, task_id, attempt in rows:
        attempts.setdefault((split, task_id), set()).add(attempt)
    for (split, task_id), those in sorted(attempts.items()):
        expected = len(those) if entry.protocol.draws else entry.protocol.attempts
        if (len(those), min(those), max(those)) != (expected, 0, expected - 1):
            yield f"{run.log.file}: task {task_id} of {split} has the attempts {sorted(those)}; expected {expected}"
            return
