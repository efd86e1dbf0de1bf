"""``summary.json``: the numbers of a run, from its episode records alone."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import stats
from harness.columns import Columns, Part, recorded_twice
from seed_agent.trajectory import OUTCOMES, Episode, Outcome, read_line
from seed_envs.errors import DataError
from seed_envs.seeding import canonical
from seed_envs.tasks import Task, TaskSet

SUMMARY_VERSION = 1
Key = tuple[str, str, int]
"""Split, task id, attempt."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the numbers need to know of an episode; small, so that a million fit in memory."""

    key: Key
    category: str
    outcome: Outcome
    success: bool
    score: float
    turns: int
    ill_formed: int
    admissible_known: int
    inadmissible: int
    effective_known: int
    ineffective: int
    cut_replies: int
    history_dropped: int
    error: str
    """Type and message, empty where nothing went wrong."""
    sha256: str
    task_sha256: str
    played: str
    """Canonical JSON of policy, environment and manifest, one string shared by the rows of a split."""

    @property
    def failed_to_finish(self) -> bool:
        """Whether the environment or the policy broke; the episode counts as a failure."""
        return bool(self.error)

    @classmethod
    def of(cls, episode: Episode) -> "Row":
        """Reduce an episode. One that broke has no success and no score, whatever it had reached."""
        turns, broke = episode.turns, episode.failed_to_finish
        error = episode.error
        env = episode.env.model_dump(mode="json")
        return cls(
            key=episode.key,
            category=episode.category,
            outcome=episode.outcome,
            success=episode.success and not broke,
            score=0.0 if broke else episode.score,
            turns=len(turns),
            ill_formed=sum(not turn.format_ok for turn in turns),
            admissible_known=sum(turn.admissible is not None for turn in turns),
            inadmissible=sum(turn.admissible is False for turn in turns),
            effective_known=sum(turn.effective is not None for turn in turns),
            ineffective=sum(turn.effective is False for turn in turns),
            cut_replies=sum(turn.stop_reason == "length" for turn in turns),
            history_dropped=sum(turn.history_dropped for turn in turns),
            error="" if not broke else f"{error.type}: {error.message}" if error else episode.outcome,
            sha256=episode.sha256,
            task_sha256=episode.task_sha256,
            played=sys.intern(canonical({"policy": episode.policy, "env": env})),
        )


def merge(rows: dict[Key, Row], row: Row) -> None:
    """Add ``row``; a later attempt at an episode that broke takes its place.

    Raises:
        DataError: when the episode was finished already.
    """
    before = rows.get(row.key)
    if before is not None and not before.failed_to_finish:
        raise recorded_twice(*row.key)
    rows[row.key] = row


def read_records(path: Path, *, growing: bool = False) -> Iterator[Episode]:
    """Read a ``trajectories.jsonl``, line by line; ``summarise`` lets the last attempt count.

    ``growing`` leaves out a last line without its end: it is being written, or a kill tore it.

    Raises:
        DataError: naming the line that is no record.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if growing and not line.endswith(b"\n"):
                return
            try:
                yield read_line(line.decode())
            except (DataError, UnicodeDecodeError) as error:
                raise DataError(f"{path}:{number}: {error}") from None


def summarise(episodes: Iterable[Episode], *, planned: int | None = None, protocol: str = "full") -> dict[str, Any]:
    """Return the summary of ``episodes``, in any order; see docs/results.md for every number.

    ``planned`` is how many episodes the run was to have. Without it a run counts as complete when
    every task of a split has the same number of attempts. ``protocol`` is by which name they were chosen.

    Raises:
        DataError: when an episode is there twice, or they are of several policies or environments.
    """
    return summarise_rows(map(Row.of, episodes), planned=planned, protocol=protocol)


def summarise_rows(rows: Iterable[Row], *, planned: int | None = None, protocol: str = "full") -> dict[str, Any]:
    """Return the summary of reduced episodes, as ``summarise``; none of them is kept as it is."""
    columns = Columns()
    for row in rows:
        columns.add(row)
    whole = columns.settled()
    digest = whole.records_sha256()  # first, while nothing else is there: it sorts a copy of all hashes
    policy, env = _played(whole)
    summary = {name: _split(name, part) for name, part in whole.by("split")}
    n = len(whole)
    expected = sum(s["n_tasks"] * s["attempts"] for s in summary.values()) if planned is None else planned
    return {
        "schema_version": SUMMARY_VERSION,
        "env": env,
        "policy": policy,
        "protocol": protocol,
        "records_sha256": digest,
        "n": n,
        "planned": expected,
        "complete": n == expected and n > 0,
        "errors": n - whole.count("error").get("", 0),
        "splits": summary,
    }


def to_bytes(summary: Mapping[str, Any]) -> bytes:
    """Return the content of ``summary.json``: floats at 10 digits, so that no libm shows."""
    return (json.dumps(_rounded(summary), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 10)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _played(part: Part) -> tuple[str | None, dict[str, Any] | None]:
    """Return the policy and the environment that all episodes share."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for played in part.count("played"):
        record = json.loads(played)
        env = record["env"]
        common = {key: env[key] for key in ("id", "version", "max_turns", "data_sha256")}
        common["kwargs"] = {key: value for key, value in env["kwargs"].items() if key != "split"}
        found[canonical([record["policy"], common])] = (record["policy"], common)
    if len(found) > 1:
        raise DataError(f"the records are of {len(found)} policies or environments; a summary is of one")
    return next(iter(found.values()), (None, None))


def _split(name: str, part: Part) -> dict[str, Any]:
    played = list(part.count("played"))
    if len(played) > 1:
        raise DataError(f"the records of {name} are of {len(played)} manifests or settings; expected one")
    groups = part.groups()
    attempts = max(n for _, n in groups)
    categories = {category: _category(members) for category, members in part.by("category")}
    rates = [category["success"]["rate"] for category in categories.values()]
    scores = [category["score"] for category in categories.values()]
    several = range(1, attempts + 1) if 1 < attempts == min(n for _, n in groups) else ()
    outcomes = part.count("outcome")
    success, score, late = _success(part), part.mean("score"), outcomes.get("step_limit", 0)
    return {
        "manifest_sha256": json.loads(played[0])["env"]["manifest_sha256"],
        "tasks_sha256": _tasks_sha256(part),
        "n_tasks": len(groups),
        "attempts": attempts,
        "n": len(part),
        "success": success,
        "score": score,
        "pooled": {"success": success["rate"], "score": score},
        "macro": {"success": stats.mean(rates), "score": stats.mean(scores), "categories": len(categories)},
        "categories": categories,
        "turns": {
            "mean": part.mean("turns"),
            "mean_of_successes": part.successes().mean("turns"),
            "total": part.total("turns"),
            "history_dropped": part.total("history_dropped"),
        },
        "turn_rates": _turn_rates(part),
        "truncated": {"count": late, "rate": stats.share(late, len(part))},
        "outcomes": {outcome: outcomes.get(outcome, 0) for outcome in OUTCOMES},
        "errors": _errors(part),
        "design_effect": stats.design_effect(groups),
        "pass_at": {str(k): stats.pass_at(k, groups) for k in several} or None,
        "pass_hat": {str(k): stats.pass_hat(k, groups) for k in several} or None,
    }


def _success(part: Part) -> dict[str, Any]:
    count = part.total("success")
    interval = stats.clustered_wilson(part.groups())
    return {"count": count, "n": len(part), "rate": stats.share(count, len(part)), "ci95": interval}


def _category(part: Part) -> dict[str, Any]:
    return {"n": len(part), "success": _success(part), "score": part.mean("score")}


def _turn_rates(part: Part) -> dict[str, float | None]:
    """Return shares of turns; of those where the environment said so, for the last two flags."""
    turns = part.total("turns")
    return {
        "ill_formed": stats.share(part.total("ill_formed"), turns),
        "inadmissible": stats.share(part.total("inadmissible"), part.total("admissible_known")),
        "ineffective": stats.share(part.total("ineffective"), part.total("effective_known")),
        "truncated_reply": stats.share(part.total("cut_replies"), turns),
    }


def _errors(part: Part) -> dict[str, Any]:
    kinds = {kind: count for kind, count in part.count("error").items() if kind}
    count = sum(kinds.values())
    return {"count": count, "rate": stats.share(count, len(part)), "types": dict(sorted(kinds.items()))}


def _tasks_sha256(part: Part) -> str:
    """Return the manifest hash of the tasks that were played: runs compare only where it is equal."""
    return TaskSet(Task(task.id, task.split, task.category, task.sha256) for task in part.played_tasks()).sha256
