"""A training run on disk: settings, metrics, evaluations, checkpoints; repeated, it goes on."""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seed_agent.backends.hf import HFPolicy
from seed_agent.rollout import Request
from seed_agent.skills.bank import SkillBank
from seed_agent.train import checkpoint
from seed_agent.train.loop import Trainer
from seed_agent.train.rollouts import ImageStore, Stage, language_of
from seed_agent.train.settings import Settings
from seed_envs.errors import ConfigError, DataError
from seed_envs.files import write_atomically
from seed_envs.seeding import canonical

RUN, METRICS, EVALS, CHECKPOINTS, FINAL = "train.json", "metrics.jsonl", "evaluations", "checkpoints", "final"
KEEP = 2
"""Checkpoints kept beside the final export."""

Report = Callable[[Mapping[str, Any]], None]


class TrainingRun:
    """Runs stage 2 in a folder. One process at a time may write it."""

    def __init__(self, folder: Path, settings: Settings, policy: HFPolicy, *, provenance: Mapping[str, Any]) -> None:
        """Take up the run in ``folder``, or begin one.

        Raises:
            ConfigError: when the folder holds a run of other settings or another process writes it.
            DataError: when what is there is torn.
        """
        self.folder, self.settings, self.policy = folder, settings, policy
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        self._check()
        self.trainer = Trainer(settings, policy)
        self.done = 0
        self._resume()
        content = {"settings": settings.model_dump(mode="json"), "digest": settings.digest, "provenance": provenance}
        write_atomically(folder / RUN, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())

    def _locked(self) -> int:
        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise ConfigError(f"another process is training in {self.folder}; choose another --out") from None
        return handle

    def _check(self) -> None:
        path = self.folder / RUN
        if not path.exists():
            return
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            before, digest = known["settings"], known["digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} cannot be read ({error!r}); choose another --out") from None
        if digest != self.settings.digest:
            now = self.settings.model_dump(mode="json")
            odd = [f"{k}: {before.get(k)!r} there, {now[k]!r} now" for k in sorted(now) if before.get(k) != now[k]]
            raise ConfigError(f"{self.folder} holds a run of other settings ({'; '.join(odd)}); choose another --out")

    def _resume(self) -> None:
        found = checkpoint.latest(self.folder / CHECKPOINTS)
        metrics = self.folder / METRICS
        if found is not None:
            state = checkpoint.restore(found, self.policy.model, self.trainer.optimizer)
            self.done, self.trainer.updates = state["iteration"], state["updates"]
            if state.get("bank"):
                self.trainer.skills.bank = SkillBank.from_json(state["bank"])
        lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
        kept = [line for line in lines if (row := _row(line)) is not None and row["iteration"] <= self.done]
        if lines != kept or not metrics.exists():
            write_atomically(metrics, "".join(line + "\n" for line in kept).encode())

    def train(self, report: Report = lambda metrics: None) -> dict[str, Any]:
        """Run what is left and return the last evaluation.

        Raises:
            SeedError: when the run diverges or a file cannot be written; what is there is whole.
        """
        settings, last = self.settings, {}
        if self.done == 0:
            last = self._evaluate(0)
        for number in range(self.done, settings.planned):
            metrics = self.trainer.iteration(number)
            self.done = number + 1
            ended = self.done == settings.planned
            if ended or (settings.eval_every and self.done % settings.eval_every == 0):
                last = self._evaluate(self.done)
                metrics |= last
            self._log(metrics)
            report(metrics)
            if ended or self.done % settings.save_every == 0:
                self._save()
        final = self.folder / FINAL
        if not (final / checkpoint.DONE).exists():
            checkpoint.save(final, self.policy.model, self.policy.tokenizer, self._state())
        return last

    def _state(self) -> dict[str, Any]:
        bank = self.trainer.skills.bank
        return {
            "iteration": self.done,
            "updates": self.trainer.updates,
            "digest": self.settings.digest,
            "bank": bank.to_json() if bank is not None else None,
        }

    def _save(self) -> None:
        folder = self.folder / CHECKPOINTS / f"iteration_{self.done:06d}"
        checkpoint.save(
            folder, self.policy.model, self.policy.tokenizer, self._state(), optimizer=self.trainer.optimizer
        )
        checkpoint.prune(folder.parent, KEEP)

    def _log(self, metrics: Mapping[str, Any]) -> None:
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(canonical(dict(metrics)) + "\n")
            file.flush()

    def _evaluate(self, iteration: int) -> dict[str, Any]:
        """Play the evaluation splits, keep the episodes and return success per split."""
        result: dict[str, Any] = {}
        for split in self.settings.eval_splits:
            episodes = evaluate(self.settings, self.policy, self.trainer, split)
            path = self.folder / EVALS / f"iteration_{iteration:06d}-{split}.jsonl"
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, "".join(e.to_line() + "\n" for e in episodes).encode())
            wins = sum(e.success for e in episodes)
            groups: dict[str, list[bool]] = {}
            for episode in episodes:
                groups.setdefault(episode.category, []).append(episode.success)
            result |= {
                f"eval/{split}/success": wins / len(episodes),
                f"eval/{split}/macro": sum(sum(g) / len(g) for g in groups.values()) / len(groups),
                f"eval/{split}/n": len(episodes),
                f"eval/{split}/turns": sum(len(e.turns) for e in episodes) / len(episodes),
            }
        return result

    def close(self) -> None:
        """Release the folder and the environments."""
        self.trainer.close()
        with contextlib.suppress(OSError):
            os.close(self._lock)


def evaluate(settings: Settings, policy: HFPolicy, trainer: Trainer, split: str) -> Sequence[Any]:
    """Play tasks of ``split`` once each, with seeds that are the same at every evaluation of a run."""
    language = language_of(settings, trainer.method, temperature=settings.eval_temperature)
    stage = Stage(settings, split, settings.batch)
    try:
        tasks = stage.tasks
        if settings.eval_limit is not None:
            tasks = tasks.limit(settings.eval_limit, seed=settings.seed)
        shown = trainer.skills.library if trainer.method.test_skill else None
        requests = [Request(task, 0, settings.seed) for task in tasks]
        played, _ = stage.play(requests, policy, language, images=ImageStore(), skill_for=shown)
        return [one.episode for one in played]
    finally:
        stage.close()


def _row(line: str) -> dict[str, Any] | None:
    """Return a line of metrics, None for a torn one."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("iteration"), int) else None
