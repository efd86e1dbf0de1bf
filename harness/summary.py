"""``summary.json``: the numbers of a run, from its episode records alone."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import stats
from seed_agent.trajectory import OUTCOMES, Episode, Outcome, read_line, records_sha256
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
        split, task_id, attempt = row.key
        raise DataError(
            f"the episode ({split}, {task_id}, attempt {attempt}) is recorded twice; remove one of its lines"
        )
    rows[row.key] = row


def read_records(path: Path) -> Iterator[Episode]:
    """Read a ``trajectories.jsonl``, line by line; ``summarise`` lets the last attempt count.

    Raises:
        DataError: naming the line that is no record.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield read_line(line)
            except DataError as error:
                raise DataError(f"{path}:{number}: {error}") from None


def summarise(episodes: Iterable[Episode], *, planned: int | None = None) -> dict[str, Any]:
    """Return the summary of ``episodes``, in any order; see docs/results.md for every number.

    ``planned`` is how many episodes the run was to have. Without it a run counts as complete when
    every task of a split has the same number of attempts.

    Raises:
        DataError: when an episode is there twice, or they are of several policies or environments.
    """
    rows: dict[Key, Row] = {}
    for episode in episodes:
        merge(rows, Row.of(episode))
    return summarise_rows(rows.values(), planned=planned)


def summarise_rows(rows: Iterable[Row], *, planned: int | None = None) -> dict[str, Any]:
    """Return the summary of reduced episodes with distinct keys; as ``summarise``."""
    ordered = sorted(rows, key=lambda row: row.key)
    splits: dict[str, list[Row]] = {}
    for row in ordered:
        splits.setdefault(row.key[0], []).append(row)
    policy, env = _played(ordered)
    summary = {name: _split(members) for name, members in splits.items()}
    n = len(ordered)
    expected = sum(s["n_tasks"] * s["attempts"] for s in summary.values()) if planned is None else planned
    return {
        "schema_version": SUMMARY_VERSION,
        "env": env,
        "policy": policy,
        "records_sha256": records_sha256(row.sha256 for row in ordered),
        "n": n,
        "planned": expected,
        "complete": n == expected and n > 0,
        "errors": sum(row.failed_to_finish for row in ordered),
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


def _played(rows: Sequence[Row]) -> tuple[str | None, dict[str, Any] | None]:
    """Return the policy and the environment that all rows share."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for played in dict.fromkeys(row.played for row in rows):
        record = json.loads(played)
        env = record["env"]
        common = {key: env[key] for key in ("id", "version", "max_turns", "data_sha256")}
        common["kwargs"] = {key: value for key, value in env["kwargs"].items() if key != "split"}
        found[canonical([record["policy"], common])] = (record["policy"], common)
    if len(found) > 1:
        raise DataError(f"the records are of {len(found)} policies or environments; a summary is of one")
    return next(iter(found.values()), (None, None))


def _split(rows: Sequence[Row]) -> dict[str, Any]:
    played = {row.played for row in rows}
    if len(played) > 1:
        raise DataError(f"the records of {rows[0].key[0]} are of {len(played)} manifests or settings; expected one")
    groups = _groups(rows)
    attempts = max(n for _, n in groups)
    categories = {
        name: _category([row for row in rows if row.category == name]) for name in sorted({r.category for r in rows})
    }
    rates = [category["success"]["rate"] for category in categories.values()]
    scores = [category["score"] for category in categories.values()]
    several = range(1, attempts + 1) if attempts > 1 else ()
    counts = Counter(row.outcome for row in rows)
    success, score = _success(rows), stats.mean(row.score for row in rows)
    return {
        "manifest_sha256": json.loads(rows[0].played)["env"]["manifest_sha256"],
        "tasks_sha256": _tasks_sha256(rows),
        "n_tasks": len(groups),
        "attempts": attempts,
        "n": len(rows),
        "success": success,
        "score": score,
        "pooled": {"success": success["rate"], "score": score},
        "macro": {"success": stats.mean(rates), "score": stats.mean(scores), "categories": len(categories)},
        "categories": categories,
        "turns": {
            "mean": stats.mean(row.turns for row in rows),
            "mean_of_successes": stats.mean(row.turns for row in rows if row.success),
            "total": sum(row.turns for row in rows),
            "history_dropped": sum(row.history_dropped for row in rows),
        },
        "turn_rates": _turn_rates(rows),
        "truncated": {"count": counts["step_limit"], "rate": stats.share(counts["step_limit"], len(rows))},
        "outcomes": {outcome: counts[outcome] for outcome in OUTCOMES},
        "errors": _errors(rows),
        "design_effect": stats.design_effect(groups),
        "pass_at": {str(k): stats.pass_at(k, groups) for k in several} or None,
        "pass_hat": {str(k): stats.pass_hat(k, groups) for k in several} or None,
    }


def _groups(rows: Sequence[Row]) -> list[stats.Group]:
    tasks: dict[str, list[bool]] = {}
    for row in rows:
        tasks.setdefault(row.key[1], []).append(row.success)
    return [(sum(wins), len(wins)) for wins in tasks.values()]


def _success(rows: Sequence[Row]) -> dict[str, Any]:
    count = sum(row.success for row in rows)
    interval = stats.clustered_wilson(_groups(rows))
    return {"count": count, "n": len(rows), "rate": stats.share(count, len(rows)), "ci95": interval}


def _category(rows: Sequence[Row]) -> dict[str, Any]:
    return {"n": len(rows), "success": _success(rows), "score": stats.mean(row.score for row in rows)}


def _turn_rates(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return shares of turns; of those where the environment said so, for the last two flags."""
    turns = sum(row.turns for row in rows)
    return {
        "ill_formed": stats.share(sum(row.ill_formed for row in rows), turns),
        "inadmissible": stats.share(sum(r.inadmissible for r in rows), sum(r.admissible_known for r in rows)),
        "ineffective": stats.share(sum(r.ineffective for r in rows), sum(r.effective_known for r in rows)),
        "truncated_reply": stats.share(sum(row.cut_replies for row in rows), turns),
    }


def _errors(rows: Sequence[Row]) -> dict[str, Any]:
    kinds = Counter(row.error.partition(":")[0] for row in rows if row.failed_to_finish)
    count = sum(kinds.values())
    return {"count": count, "rate": stats.share(count, len(rows)), "types": dict(sorted(kinds.items()))}


def _tasks_sha256(rows: Sequence[Row]) -> str:
    """Return the manifest hash of the tasks that were played: runs compare only where it is equal."""
    return TaskSet(
        {row.key[1]: Task(row.key[1], row.key[0], row.category, row.task_sha256) for row in rows}.values()
    ).sha256
