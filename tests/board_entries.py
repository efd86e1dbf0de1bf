"""Measured rows on disk, made by hand: entries with their action logs, no run and no environment behind them."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness.board.actions import Header, Logged, rows_of, write_log
from harness.board.derived import aggregate, flags
from harness.board.entry import (
    MEASURED,
    ActionLog,
    CurvePoint,
    Entry,
    Environment,
    Method,
    Policy,
    Protocol,
    Provenance,
    Run,
    SplitData,
    Stage1,
    Training,
    write_entry,
)  # fmt: skip
from harness.board.measures import Summary
from harness.summary import summarise_rows
from seed_agent.trajectory import EnvRecord

HASH = "0123456789abcdef" * 4
KEY = "env/success"
KINDS = ("clean", "pick")
Wins = Sequence[bool]
"""Whether each task was solved."""


def logged(split: str, number: int, won: bool, **changes: Any) -> Logged:
    return Logged(
        **{
            "split": split, "task_id": f"task-{number:03d}", "task_sha256": HASH, "category": KINDS[number % 2],
            "attempt": 0, "seed": number, "actions": ("look",), "observations": (HASH, HASH), "rewards": (float(won),),
            "format_ok": "1", "admissible": "1", "effective": "1", "stops": "x", "success": won, "score": float(won),
            "outcome": "success" if won else "failure", "record_sha256": HASH, **changes,
        }
    )  # fmt: skip


def write_row(board: Path, name: str, runs: Sequence[Wins], **changes: Any) -> Entry:
    """Write the row ``name`` with a run, and its action log, per item of ``runs``.

    ``changes`` are fields of the environment (``id``, ``version``, ``max_turns``, ``data``, ``kwargs``), of the split
    (``manifest``, ``manifest_sha256``, ``ceiling``), ``split``, ``protocol``, ``trained`` and of the entry itself.
    """
    split = changes.pop("split", "valid_seen")
    folder = board / MEASURED
    folder.mkdir(parents=True, exist_ok=True)
    env = {"id": "toy/Room-v0", "version": "1", "kwargs": {}, "data": "official", "max_turns": 8}
    env |= {key: changes.pop(key) for key in tuple(env) if key in changes}
    data = {"manifest": f"room/{split}", "manifest_sha256": HASH, "data_sha256": None, "ceiling": None}
    data |= {key: changes.pop(key) for key in tuple(data) if key in changes}
    protocol = changes.pop("protocol", Protocol(name="full", attempts=1, seed=0))
    trained = changes.pop("trained", len(runs) > 1)
    made = [_run(folder, f"{name}-{i}", wins, split, env, data, i if trained else None) for i, wins in enumerate(runs)]
    tasks = SplitData(**data, n_tasks=len(runs[0]), tasks_sha256=made[0].summary.splits[split].tasks_sha256)
    environment, training = Environment(**env, splits={split: tasks}), _training() if trained else None
    method = Method(name="seed", label=name, trained=trained)
    entry = Entry(
        **{
            "id": name, "submitted": "2026-01-02T03:04:05+00:00", "environment": environment, "protocol": protocol,
            "method": method, "training": training, "runs": tuple(made),
            "aggregate": aggregate([run.summary for run in made]),
            "flags": flags(environment, protocol, method, training, made), **changes,
        }
    )  # fmt: skip
    write_entry(folder, entry)
    return entry


def _run(folder: Path, name: str, wins: Wins, split: str, env: Any, data: Any, seed: int | None) -> Run:
    record = EnvRecord(
        id=env["id"], version=env["version"], kwargs={"split": split}, max_turns=env["max_turns"],
        manifest=data["manifest"], manifest_sha256=data["manifest_sha256"],
    )  # fmt: skip
    header = Header(policy="toy", splits={split: record})
    episodes = [logged(split, number, won) for number, won in enumerate(wins)]
    path = folder / f"{name}.jsonl.gz"
    write_log(path, header, episodes)
    summary = summarise_rows(rows_of(header, episodes).values(), planned=len(wins))
    log = path.read_bytes()
    return Run(
        training_seed=seed,
        digest=HASH,
        policy=Policy(name="toy", kind="scripted"),
        provenance=Provenance(
            command="python -m harness.eval --policy toy", commits=("c" * 40,), dirty=False, starts=1,
            started="2026-01-02T03:04:05+00:00", finished="2026-01-02T03:04:06+00:00",
            python="3.11", platform="Linux", packages={"numpy": "2"},
        ),
        summary=Summary.model_validate(summary),
        log=ActionLog(file=path.name, sha256=sha256(log).hexdigest(), bytes=len(log), episodes=len(wins)),
        curve=() if seed is None else tuple(CurvePoint(iteration=i, values={KEY: i / 10}) for i in range(1, 6)),
    )  # fmt: skip


def _training() -> Training:
    stage1 = Stage1(tasks=1, rollouts=1, episodes=1, temperature=0.4, annotator="rules", epochs=1)
    return Training(
        digest=HASH, preset="toy", model="hf:tiny", env="toy/Room-v0", iterations=5, planned=5, tasks=2, group=4,
        episodes=40, fraction=1.0, fraction_mode="budget", stage1=stage1, settings={},
    )  # fmt: skip
