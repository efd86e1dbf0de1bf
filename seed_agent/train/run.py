"""A training run on disk: settings, metrics, evaluations, checkpoints; repeated, it goes on."""

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seed_agent.backends.hf import HFPolicy
from seed_agent.policy import Policy
from seed_agent.rollout import Request
from seed_agent.skills.bank import SkillBank
from seed_agent.train import checkpoint
from seed_agent.train.folder import RUN, begun, check_own, lock
from seed_agent.train.loop import Diverged, Trainer
from seed_agent.train.patience import Stop, patient
from seed_agent.train.rollouts import ImageStore, Stage, language_of
from seed_agent.train.samples import Sample
from seed_agent.train.settings import Settings
from seed_envs.errors import ConfigError, SeedError
from seed_envs.files import write_atomically
from seed_envs.seeding import canonical

METRICS, EVALS, CHECKPOINTS, FINAL = "metrics.jsonl", "evaluations", "checkpoints", "final"
SKILLS = "skills.jsonl"
MILESTONES = "milestones"
DIVERGED = "diverged.json"
OURS = (RUN, METRICS, SKILLS, EVALS, CHECKPOINTS, MILESTONES, FINAL)
KEEP = 2
"""Checkpoints kept beside the final export."""

Report = Callable[[Mapping[str, Any]], None]
Say = Callable[[str], None]


class TrainingRun:
    """Runs stage 2 in a folder. One process at a time may write it."""

    def __init__(self, folder: Path, settings: Settings, policy: HFPolicy, *, provenance: Mapping[str, Any]) -> None:
        """Take up the run in ``folder``, or begin one.

        Raises:
            ConfigError: when the folder holds a run of other settings or one that is past a milestone it did not
                keep, or another process writes it.
            DataError: when what is there is torn.
        """
        self.folder, self.settings, self.policy = folder, settings, policy
        check_own(folder, RUN)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make {folder}: {error.strerror}; choose another --out") from None
        self._lock = lock(folder)
        try:
            self._begin(provenance)
        except BaseException:
            os.close(self._lock)
            raise

    def _begin(self, provenance: Mapping[str, Any]) -> None:
        settings = self.settings
        facts = dict(self.policy.facts())
        first = begun(self.folder, settings)
        if first is not None and first.weights != facts["weights_sha256"]:
            raise ConfigError(
                f"{self.folder} holds a run that began with other weights than those in {settings.model}; "
                "bring them back or choose another --out"
            )
        self.trainer = Trainer(settings, self.policy)
        self._resume()
        self._check_milestones()
        content = {
            "settings": settings.model_dump(mode="json"),
            "digest": settings.digest,
            "model": facts,
            "player": self.trainer.copy.facts() if self.trainer.copy is not None else None,
            "language": self.trainer.language.facts(),
            "random": _streams(settings),
            "provenance": [*(first.provenance if first is not None else ()), dict(provenance)],
        }
        write_atomically(self.folder / RUN, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())

    def _resume(self) -> None:
        found = checkpoint.latest(self.folder / CHECKPOINTS)
        self.saved = 0
        if found is not None:
            state = checkpoint.restore(found, self.policy.model, self.trainer.optimizer, digest=self.settings.digest)
            self.saved = state["iteration"]
            self.trainer.updates = state["updates"]
            if state.get("bank"):
                self.trainer.skills.bank = SkillBank.from_json(state["bank"])
        self._kept = self._state(self.saved)
        self.rows = {row["iteration"]: row for row in self._kept_rows(METRICS)}
        self._write_rows()
        self._new_skills: list[dict[str, Any]] = []
        if (self.folder / SKILLS).exists():
            write_atomically(self.folder / SKILLS, _lines(self._kept_rows(SKILLS)))

    def _kept_rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a file that belong to iterations whose weights are here."""
        path = self.folder / name
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        return [row for line in lines if (row := _row(line)) is not None and row["iteration"] <= self.done]

    @property
    def done(self) -> int:
        """Iterations whose updates are whole; their evaluation may be still to come."""
        return int(self._kept["iteration"])

    def train(self, report: Report = lambda metrics: None, say: Say = lambda line: None) -> dict[str, Any]:
        """Run what is left and return the last evaluation.

        An interrupt in the middle of an update waits until the iteration is whole and can be kept; a second does not.

        Args:
            report: Receives the metrics of every iteration.
            say: Receives a line that says that an interrupt waits, or that no skill of an iteration was usable.

        Raises:
            SeedError: when the run diverges or a file cannot be written; what is there is whole.
            KeyboardInterrupt: when it was interrupted; ``saved`` iterations are kept.
        """
        try:
            with patient(self._updating, lambda: say(self._waits())) as stop:
                self._train(_telling(self.trainer, report, say), stop)
        except (KeyboardInterrupt, SeedError, OSError) as error:
            with contextlib.suppress(SeedError, OSError):
                self._rescue()
            if isinstance(error, Diverged):
                where = self._dump(error)
                raise SeedError(f"{error}; the batch is in {where}, {self._whole()}") from error
            if isinstance(error, OSError):
                raise SeedError(f"{error.strerror or error} in {self.folder}; {self._whole()}") from error
            if isinstance(error, SeedError):
                raise SeedError(f"{error}; {self._whole()}") from error
            raise
        evaluated = [row for row in self.rows.values() if any(key.startswith("eval/") for key in row)]
        return {key: value for key, value in evaluated[-1].items() if key.startswith("eval/")} if evaluated else {}

    def _train(self, report: Report, stop: Stop) -> None:
        if self._owes_evaluation():
            self.rows.setdefault(self.done, {"iteration": self.done})
            self._log(report)
        for number in range(self.done, self.settings.planned):
            self._keep(self.trainer.iteration(number))
            stop()
            self._log(report)
            if self._to_be_saved():
                self._save()
        final = self.folder / FINAL
        if not (final / checkpoint.DONE).exists():
            checkpoint.save(final, self.policy.model, self.policy.tokenizer, self._kept, images=self._images())

    def _to_be_saved(self) -> bool:
        settings, done = self.settings, self.done
        return done == settings.planned or done % settings.save_every == 0 or done in settings.milestones

    def _owes_evaluation(self) -> bool:
        """Whether the iteration at hand is to be evaluated and was not: the first, or one that was interrupted."""
        every, planned = self.settings.eval_every, self.settings.planned
        due = self.done in (0, planned) or bool(every and self.done % every == 0)
        known = any(key.startswith("eval/") for key in self.rows.get(self.done, ()))
        return due and bool(self.settings.eval_splits) and not known

    def _updating(self) -> bool:
        """Whether an update has touched the weights since the last whole iteration."""
        return bool(self.trainer.updates != self._kept["updates"])

    def _waits(self) -> str:
        now, first = self.done + 1, self.saved + 1
        lost = f"iteration {now}" if first == now else f"iterations {first} to {now}"
        return f"interrupted: iteration {now} is finished first; interrupt again to stop at once and lose {lost}"

    def _rescue(self) -> None:
        """Keep what was done since the last checkpoint, if no update has touched the weights since."""
        if self.done > self.saved and not self._updating():
            self._append_skills()
            self._write_rows()
            self._save()

    def _whole(self) -> str:
        return f"the checkpoint of iteration {self.saved} is whole" if self.saved else "there is no checkpoint yet"

    def _dump(self, error: Diverged) -> Path:
        """Write the samples that led to a number that is none."""
        path = self.folder / DIVERGED
        rows = [_readable(sample, self.policy.tokenizer) for sample in error.batch]
        write_atomically(path, (json.dumps(rows, indent=1, ensure_ascii=False) + "\n").encode())
        return path

    def _images(self) -> Any:
        vision = self.policy.network.vision
        return vision.processor if vision is not None else None

    def _state(self, iteration: int) -> dict[str, Any]:
        bank = self.trainer.skills.bank
        return {
            "stage": "rl",
            "method": self.settings.method,
            "iteration": iteration,
            "updates": self.trainer.updates,
            "digest": self.settings.digest,
            "bank": bank.to_json() if bank is not None else None,
        }

    def _save(self) -> None:
        if self.done in self.settings.milestones:
            self._save_milestone()  # first: a checkpoint of this iteration means that it is there
        folder = self.folder / CHECKPOINTS / f"iteration_{self._kept['iteration']:06d}"
        model, tokenizer, optimizer = self.policy.model, self.policy.tokenizer, self.trainer.optimizer
        checkpoint.save(folder, model, tokenizer, self._kept, optimizer=optimizer, images=self._images())
        checkpoint.prune(folder.parent, KEEP)
        self.saved = self.done

    def _save_milestone(self) -> None:
        folder = milestone(self.folder, self.done)
        checkpoint.save(folder, self.policy.model, self.policy.tokenizer, self._kept, images=self._images())

    def _check_milestones(self) -> None:
        """Refuse to go on where the weights of an iteration were to be kept, and are gone."""
        for number in sorted(self.settings.milestones):
            if number > self.done or (milestone(self.folder, number) / checkpoint.DONE).exists():
                continue
            if number < self.done:
                raise ConfigError(
                    f"{self.folder} is past iteration {number} and did not keep it; leave it out of milestones, "
                    "or train anew in another --out"
                )
            self._save_milestone()

    def _keep(self, metrics: Mapping[str, Any]) -> None:
        """Take up an iteration whose updates are whole; from here on it counts as done."""
        row = dict(metrics)
        self.rows[row["iteration"]] = row
        self._new_skills = [{"iteration": row["iteration"], **skill} for skill in self.trainer.skills.written]
        self._kept = self._state(row["iteration"])  # last: it is what an interrupt looks at

    def _log(self, report: Report) -> None:
        """Evaluate the iteration at hand where that is due, and record it."""
        self._append_skills()
        row = self.rows[self.done]
        if self._owes_evaluation():
            row |= self._evaluate(self.done)
        if self.done in self._written:
            self._write_rows()
        else:
            with (self.folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(canonical(row) + "\n")
            self._written.add(self.done)
        report(row)

    def _append_skills(self) -> None:
        """Keep the skills that were written in the iteration at hand."""
        new, self._new_skills = self._new_skills, []
        if new:
            with (self.folder / SKILLS).open("ab") as file:
                file.write(_lines(new))

    def _write_rows(self) -> None:
        """Write the metrics of every iteration that is done."""
        rows = [row for row in self.rows.values() if row["iteration"] <= self.done]
        write_atomically(self.folder / METRICS, _lines(rows))
        self._written = {row["iteration"] for row in rows}

    def _evaluate(self, iteration: int) -> dict[str, Any]:
        """Play the evaluation splits, keep the episodes and return success per split."""
        result: dict[str, Any] = {}
        for split in self.settings.eval_splits:
            episodes = evaluate(self.settings, self.trainer.actor, self.trainer, split)
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
                f"eval/{split}/errors": sum(e.failed_to_finish for e in episodes),
                f"eval/{split}/turns": sum(len(e.turns) for e in episodes) / len(episodes),
            }
        return result

    def close(self) -> None:
        """Release the folder and the environments; closing twice does nothing more."""
        if self._lock >= 0:
            self.trainer.close()
            os.close(self._lock)
            self._lock = -1


def _telling(trainer: Trainer, report: Report, say: Say) -> Report:
    """Return what reports metrics and says, the first time, that an iteration had no usable skill."""
    said: list[str] = []

    def tell(metrics: Mapping[str, Any]) -> None:
        report(metrics)
        if trainer.skills.trouble and not said:
            said.append(
                f"warning: no skill of iteration {metrics['iteration']} was usable, the first by "
                f"{trainer.skills.trouble}; nothing is learned from skills while that is so (skill/parse_rate)"
            )
            say(said[0])

    return tell


def _lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(canonical(row) + "\n" for row in rows).encode()


def milestone(folder: Path, iteration: int) -> Path:
    """Return where the run in ``folder`` keeps the weights of an iteration for good."""
    return folder / MILESTONES / f"iteration_{iteration:06d}"


def evaluate(settings: Settings, policy: Policy, trainer: Trainer, split: str) -> Sequence[Any]:
    """Play tasks of ``split`` once each, with seeds that are the same at every evaluation of a run."""
    language = language_of(settings, trainer.method, temperature=settings.eval_temperature)
    stage = Stage(settings, split, settings.batch)
    try:
        tasks = stage.tasks
        if settings.eval_limit is not None:
            tasks = tasks.limit(settings.eval_limit, seed=0)  # the same for all seeds of training
        shown = trainer.skills.library if trainer.method.test_skill else None
        requests = [Request(task, 0, settings.seed) for task in tasks]
        with trainer.precision():
            played, _ = stage.play(requests, policy, language, images=ImageStore(keep=False), skill_for=shown)
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


def _streams(settings: Settings) -> dict[str, str]:
    """Return every source of randomness of a run and what it is derived from; there is no other."""
    seed = settings.seed
    return {
        "task order": f"task order, {seed}, round",
        "mini-batches": f"mini-batches, {seed}, iteration",
        "episodes": f"episode, {seed}, task, attempt",
        "replies": "reply, the episode's seed, turn",
        "evaluation": f"episode, {seed}, task, attempt 0; tasks by seed {seed}",
        "subset": f"tasks by seed {seed}",
    }


def _readable(sample: Sample, tokenizer: Any) -> dict[str, Any]:
    """Return a sample as JSON, numbers that are none as text."""
    prompt, reply = sample.row.ids[: sample.row.prompt], sample.row.ids[sample.row.prompt :]  # an episode's: the rest
    numbers = {key: [_number(x) for x in values.tolist()] for key, values in sample.scores.items()}
    return {
        "task_id": sample.group,
        "episode": sample.episode,
        "turn": sample.turn,
        "score": sample.score,
        "advantage": _number(sample.advantage),
        "prompt": tokenizer.decode(prompt),
        "reply": tokenizer.decode(reply),
        "reply_ids": list(sample.reply_ids),
        "sampled_logp": [_number(x) for x in sample.sampled_logp],
        **numbers,
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
