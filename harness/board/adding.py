"""Making measured rows of finished runs: several runs that differ by their training seed alone are one row."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.board import checks, derived, entry, fields, measures
from harness.board.actions import write_log
from harness.board.entry import MEASURED, Ceiling, Entry, read_entry, rows
from harness.board.finished import Finished, read_finished
from harness.board.lineage import training
from harness.config import slug
from harness.provenance import now
from harness.runs import arguments
from seed_agent.trajectory import why
from seed_envs.errors import ConfigError, DataError, SeedError
from seed_envs.prompting import builtin_template
from seed_envs.seeding import canonical

_MODEL_KEYS = ("dtype", "chat_template_sha256", "weights_sha256")


@dataclass(frozen=True)
class Wishes:
    """What a submitter says beside the runs."""

    submitter: str = ""
    note: str = ""
    with_errors: bool = False
    """Whether runs with episodes that broke are taken."""
    replace: bool = False
    """Whether rows of the same runs are replaced."""


def add(folders: Sequence[Path], board: Path, wishes: Wishes | None = None) -> list[Path]:
    """Write the rows of the runs in ``folders`` into the leaderboard ``board`` and return their files.

    Raises:
        SeedError: when a run cannot be taken, a row is there already, or nothing can be written there; nothing is
            moved or removed then.
        OSError: when a file cannot be written.
    """
    wishes = wishes or Wishes()
    _check_texts(wishes)
    runs = [_accepted(read_finished(folder), wishes) for folder in folders]
    groups: dict[str, list[Finished]] = {}
    for run in runs:
        groups.setdefault(_identity(run), []).append(run)
    measured = board / MEASURED
    with _aside(measured) as aside:
        made = [_row(sorted(group, key=_seed), aside, wishes) for group in groups.values()]
        for one in made:
            if odd := next(checks.problems(one, aside), None):
                raise DataError(f"the row {one.id} would not be sound: {odd}")
        old = [file for path in _replaced(made, measured, wishes) for file in _files(path)]
        for one in made:
            entry.write_entry(aside, one)
        logs = [run.log.file for one in made for run in one.runs]
        rows_made = [f"{one.id}.json" for one in made]
        for name in (*logs, *rows_made):  # a row after its logs, and what it replaces last
            (aside / name).replace(measured / name)
        for path in old:
            if path.name not in (*logs, *rows_made):
                path.unlink(missing_ok=True)
        return [measured / name for name in rows_made]


@contextmanager
def _aside(measured: Path) -> Iterator[Path]:
    """Make a folder in ``measured`` for what is not listed yet, and remove it at the end."""
    try:
        measured.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(dir=measured, prefix=".new-")
    except OSError as error:
        raise ConfigError(
            f"cannot write into {measured}: {error.strerror}; expected a folder that can be written: leaderboards"
        ) from None
    with temporary as name:
        yield Path(name)


def _check_texts(wishes: Wishes) -> None:
    """Refuse what a submitter typed and a row cannot hold.

    Raises:
        ConfigError: saying what is wrong with it.
    """
    for flag, kind, text in (("--by", fields.Name, wishes.submitter), ("--note", fields.Note, wishes.note)):
        try:
            TypeAdapter(kind).validate_python(text)
        except ValidationError as error:
            raise ConfigError(f"{flag} cannot be used: {why(error)}") from None


def _accepted(run: Finished, wishes: Wishes) -> Finished:
    """Refuse a run that no reader could check.

    Raises:
        SeedError: saying what is missing.
    """
    for start in run.starts:
        for name in ("git_commit", "packages", "python", "command"):
            if not start.get(name):
                raise DataError(
                    f"{run.folder} has no provenance: {name} is not recorded; a row needs a run of a checkout of the "
                    "repository, or of an installation from git"
                )
    if (unknown := run.starts[-1].get("training", {})) and "unknown" in unknown:
        raise DataError(f"{run.folder} has no provenance of its training: {unknown['unknown']}; then evaluate it again")
    errors = run.summary.get("errors")
    if errors and not wishes.with_errors:
        raise ConfigError(
            f"{errors} episodes of {run.folder} broke; repeat its command to play them again, "
            "or say --with-errors (they count as failures)"
        )
    return run


def _training(run: Finished) -> Mapping[str, Any] | None:
    found = run.starts[-1].get("training")
    return found if isinstance(found, dict) else None


def _seed(run: Finished) -> int:
    found = _training(run)
    return int(found["seed"]) if found else 0


def _identity(run: Finished) -> str:
    """Return what runs of one row have in common: all but the seed of training and the weights."""
    found = _training(run)
    if found is None:
        return str(run.state["digest"])
    config = {key: value for key, value in run.config.items() if key not in ("policy", "model")}
    model = {k: v for k, v in run.config.get("model", {}).items() if k not in ("model", "weights_sha256")}
    return canonical([config, model, training(found)["digest"]])


def _row(runs: Sequence[Finished], folder: Path, wishes: Wishes) -> Entry:
    """Return the row of some runs, and write its logs into ``folder``.

    Raises:
        DataError: when what the runs recorded cannot be a row.
    """
    first, name = runs[0], _name(runs)
    found = _training(first)
    try:
        learnt = None if found is None else entry.Training.model_validate(training(found))
        method, protocol, environment = _method(first), _protocol(first), _environment(first)
        made = [_run(run, _log(run, folder, name, i, len(runs))) for i, run in enumerate(runs)]
        return Entry(
            id=name,
            submitted=now(),
            submitter=wishes.submitter,
            note=wishes.note,
            environment=environment,
            protocol=protocol,
            method=method,
            training=learnt,
            runs=tuple(made),
            aggregate=derived.aggregate([run.summary for run in made]),
            flags=derived.flags(environment, protocol, method, learnt, made),
        )
    except ValidationError as error:
        raise DataError(f"{first.folder} recorded what cannot be a row: {why(error)}") from None
    except KeyError as error:
        raise DataError(
            f"{first.folder} recorded no {error.args[0]}; it is of an older version: run it again"
        ) from None


def _name(runs: Sequence[Finished]) -> str:
    """Return the id of a row: environment, method, model, data, and a hash of its runs' configurations."""
    first = runs[0]
    config, found = first.config, _training(first)
    model = Path(found["base"]).name if found else first.config["policy"].rpartition("/")[2]
    method = _method(first).name
    parts = [config["env"]["id"].rpartition("/")[2], *([] if method in slug(model) else [method]), model]
    return slug(f"{'-'.join(parts)}-{config['env']['kwargs'].get('data', 'embedded')}")[:80] + derived.suffix(
        [run.state["digest"] for run in runs]
    )


def _environment(run: Finished) -> entry.Environment:
    config = run.config
    with run.episodes() as (header, _, _):
        kind = checks.kind_of(list(header.splits.values()))
    ceilings = run.state.get("ceilings", {})
    splits = {
        name: entry.SplitData(
            manifest=split["manifest"],
            manifest_sha256=split["manifest_sha256"],
            data_sha256=split["data_sha256"],
            n_tasks=split["tasks"],
            tasks_sha256=split["tasks_sha256"],
            ceiling=Ceiling.of(ceilings.get(name)),
        )
        for name, split in config["splits"].items()
    }
    return entry.Environment(
        id=config["env"]["id"],
        version=config["env"]["version"],
        kwargs=arguments(config["env"]["kwargs"]),
        data=kind,
        max_turns=config["max_turns"],
        splits=splits,
    )


def _protocol(run: Finished) -> entry.Protocol:
    settings = {key: value for key, value in run.config.get("protocol", {}).items() if key != "name"}
    return entry.Protocol(
        name=run.protocol, attempts=run.config["attempts"], seed=run.config["seed"], settings=settings
    )


def _method(run: Finished) -> entry.Method:
    """Return the row of the table of methods; a policy that no method made is its own."""
    found = _training(run)
    if found is not None and found["stage"] == "sft":
        return derived.STAGE1
    name = found["settings"]["method"] if found else run.config.get("method")
    if name is None:
        return entry.Method(name=slug(run.config["policy"]), label=run.config["policy"], trained=False)
    trained = found is not None
    return derived.method_of(name, trained=trained) or entry.Method(name=name, label=name, trained=trained)


def _run(run: Finished, log: entry.ActionLog) -> entry.Run:
    found = _training(run)
    return entry.Run(
        training_seed=None if found is None else found["seed"],
        digest=run.state["digest"],
        policy=_policy(run),
        provenance=_provenance(run),
        summary=measures.Summary.model_validate(run.summary),
        log=log,
        curve=tuple(entry.CurvePoint.model_validate(point) for point in (found or {}).get("curve", [])),
    )


def _policy(run: Finished) -> entry.Policy:
    config, facts = run.config, dict(run.starts[-1].get("policy", {}))
    model, language = config.get("model", {}), config.get("language")
    versions = facts.pop("versions", {})
    known = {key: facts.pop(key, None) or model.get(key) for key in _MODEL_KEYS}
    kind = facts.pop("kind", None) or config["policy"].partition(":")[0]
    return entry.Policy(
        name=config["policy"],
        kind=kind,
        model=facts.pop("model", None) or model.get("model"),
        versions=versions,
        language=language,
        builtin_prompt=language is None or _is_builtin(language),
        facts=facts,
        **known,
    )


def _is_builtin(language: Mapping[str, Any]) -> bool:
    kind, _, style = str(language["template"]).partition(".")
    try:
        return bool(builtin_template(kind, style).sha256 == language["template_sha256"])
    except SeedError:
        return False


def _provenance(run: Finished) -> entry.Provenance:
    starts, last = run.starts, run.starts[-1]
    return entry.Provenance(
        command=last["command"],
        commits=tuple(dict.fromkeys(start["git_commit"] for start in starts)),
        dirty=any(start["git_dirty"] for start in starts),
        starts=len(starts),
        started=starts[0]["started"],
        finished=last["finished"],
        python=last["python"],
        platform=last["platform"],
        packages=last["packages"],
    )


def _log(run: Finished, folder: Path, name: str, i: int, of: int) -> entry.ActionLog:
    path = folder / f"{name}{f'.{i + 1}' if of > 1 else ''}{entry.LOG}"
    with run.episodes() as (header, _, episodes):
        count = write_log(path, header, episodes)
    return checks.describe_log(path, count)


def _replaced(made: Sequence[Entry], measured: Path, wishes: Wishes) -> list[Path]:
    """Return the rows of the same runs that are to make place.

    Raises:
        ConfigError: when there is one and it is not to be replaced.
    """
    digests = {run.digest: one.id for one in made for run in one.runs}
    found = []
    for path in rows(measured):
        known = read_entry(path)
        shared = [run for run in known.runs if run.digest in digests]
        if shared and not wishes.replace:
            raise ConfigError(
                f"{path} is of the same run already (policy {shared[0].policy.name}, digest {shared[0].digest[:12]}); "
                "say --replace to put the new one in its place"
            )
        found += [path] if shared else []
    return found


def _files(path: Path) -> list[Path]:
    """Return the files of a row: itself, and those of its logs that are named after it."""
    row = read_entry(path)
    logs = [run.log.file for run in row.runs if run.log.file.startswith(f"{row.id}.")]
    return [path, *(path.parent / name for name in logs)]
