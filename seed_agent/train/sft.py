"""Stage 1: play training tasks, have hindsight skills written, fit the model to write them itself.

A run is a folder. Killed anywhere and repeated, it goes on: with the episodes that are missing,
with the skills that are missing, with the epoch after the last whole one.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seed_agent.backends.hf import HFPolicy
from seed_agent.chat import ChatPlayer
from seed_agent.images import encode_png, record
from seed_agent.methods import METHODS
from seed_agent.policy import Pixels
from seed_agent.rollout import Request, play
from seed_agent.skills.analyzer import EpisodeTooLong, check_train, png_loader, sft_pair
from seed_agent.skills.annotators import Annotator, Options, make_annotator
from seed_agent.skills.skill import ParseFailure, Skill, tally
from seed_agent.train import checkpoint
from seed_agent.train.fit import Companions, FitPlan, encode, fit
from seed_agent.train.folder import STAGE1 as RUN
from seed_agent.train.folder import check_own, locked
from seed_agent.train.limits import check_memory, explained
from seed_agent.train.rollouts import Stage, language_of
from seed_agent.train.settings import Settings
from seed_agent.trajectory import Episode, Image, read_line
from seed_envs.errors import ConfigError, DataError, SeedError
from seed_envs.files import write_atomically
from seed_envs.seeding import Draws, canonical

TRAJECTORIES, SKILLS, PAIRS, METRICS = (
    "trajectories.jsonl",
    "skills.jsonl",
    "pairs.jsonl",
    "metrics.jsonl",
)
IMAGES, CHECKPOINTS, FINAL = "images", "checkpoints", "final"

Key = tuple[str, int]
"""Task id and attempt."""
Report = Callable[[Mapping[str, Any]], None]


class NothingToLearn(SeedError):
    """No episode got a usable skill."""


@dataclass(frozen=True)
class SftPlan:
    """Stage 1's own choices beside those of the run's settings. The defaults are SEED's for text.

    Source: SEED at 2cf2fad and its paper: 180 tasks x 8 rollouts at temperature 0.4 (vision 1.0),
    filter by format alone, 10 % validation with shuffle seed 2026; the fit: see ``FitPlan``.
    """

    tasks: int = 180
    rollouts: int = 8
    temperature: float = 0.4
    annotator: str = "rules"
    validation: float = 0.1
    shuffle_seed: int = 2026
    fit: FitPlan = field(default_factory=FitPlan)


@dataclass(frozen=True, slots=True)
class _Pair:
    """An episode and the skill it is to be answered with."""

    episode: Episode
    skill: Skill


def run_sft(
    settings: Settings,
    policy: HFPolicy,
    out: Path,
    *,
    tasks: int = 180,
    rollouts: int = 8,
    temperature: float = 0.4,
    annotator: str = "rules",
    epochs: int = 3,
    lr: float = 5e-6,
    batch: int = 8,
    warmup: float = 0.1,
    report: Report = lambda metrics: None,
) -> dict[str, Any]:
    """Run or take up stage 1 in ``out``; ``out/final`` is a model folder for ``hf:``.

    Args:
        settings: Environment, language, seed, limits; the same as stage 2's.
        policy: The base policy, changed in place.
        out: The run's folder.
        tasks: Training tasks, drawn stratified by category.
        rollouts: Episodes per task.
        temperature: Of play; the skills themselves are written greedily.
        annotator: As ``make_annotator`` takes it: ``rules``, ``model:hf:PATH``, ``openai:MODEL@URL``.
        epochs: Over the pairs.
        lr: At its height.
        batch: Pairs per optimiser step.
        warmup: Share of steps.
        report: Told ``{"part": "collect" | "annotate" | "fit", ...}`` as things happen.

    Returns:
        Counts of the parts and the last losses.

    Raises:
        ConfigError: when ``out`` holds another run or anything else, another process runs in it, or the environment
            has too few tasks.
        Contaminated: when anything but training tasks is found.
        NothingToLearn: when no episode got a usable skill.
        OutOfMemory: when memory is too small.
    """
    fitting = FitPlan(epochs, lr, batch, warmup, micro_tokens=settings.micro_tokens, seed=settings.seed)
    plan = SftPlan(tasks, rollouts, temperature, annotator, fit=fitting)
    check_own(out, RUN)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        return _run(settings, policy, out, plan, report)


def _run(settings: Settings, policy: HFPolicy, out: Path, plan: SftPlan, report: Report) -> dict[str, Any]:
    _claim(out, settings, plan)
    episodes = collect(settings, policy, out, plan, report)
    with explained(settings):
        results = annotate(settings, out, plan, episodes, report)
        counts = {"episodes": len(episodes), "successes": sum(e.success for e in episodes), **_prefixed(tally(results))}
        learnt, held_out = write_pairs(settings, policy, out, plan, episodes, results, report)
        history = _fit(settings, policy, out, plan, (learnt, held_out), report)
    return {**counts, "pairs": len(learnt), "validation_pairs": len(held_out), **history[-1]}


def _prefixed(counts: Mapping[str, int]) -> dict[str, int]:
    return {f"skill/{key}": value for key, value in counts.items()}


def _claim(out: Path, settings: Settings, plan: SftPlan) -> None:
    """Write what the run is, or compare with what is written."""
    own = settings.model_dump(mode="json", exclude={"milestones"})  # which are of stage 2 alone
    wanted = json.loads(canonical({"settings": own, "plan": asdict(plan)}))
    path = out / RUN
    if path.exists():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            odd = [k for part in wanted for k in sorted(wanted[part]) if known[part].get(k) != wanted[part][k]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path} cannot be read ({error!r}); choose another --out") from None
        if odd:
            raise ConfigError(f"{out} holds a run of stage 1 with other {', '.join(odd)}; choose another --out")
    write_atomically(path, (json.dumps(wanted, indent=2, ensure_ascii=False) + "\n").encode())


# --- 1. episodes ------------------------------------------------------------------------------------------------------


def collect(settings: Settings, policy: HFPolicy, out: Path, plan: SftPlan, report: Report) -> list[Episode]:
    """Play what is missing of the plan and return all episodes, task by task.

    Raises:
        Contaminated: when an episode is not of the training split.
        ConfigError: when there are fewer tasks than asked for.
    """
    rows = max(1, min(settings.batch, plan.tasks * plan.rollouts))
    stage = Stage(settings, "train", rows)
    try:
        drawn = stage.tasks.sample(plan.tasks, seed=settings.seed)
        requests = [Request(task, attempt, settings.seed) for task in drawn for attempt in range(plan.rollouts)]
        done = {(e.task_id, e.attempt): e for e in map(_trusted, _lines(out / TRAJECTORIES, read_line))}
        missing = [request for request in requests if (request.task.id, request.attempt) not in done]
        language = language_of(settings, METHODS.get("vanilla"), temperature=plan.temperature)
        player = ChatPlayer(policy, language)
        save = _png_saver(out / IMAGES)
        with (out / TRAJECTORIES).open("a", encoding="utf-8") as file:
            for episode in play(missing, player, stage.envs, stage.record, save_image=save):
                check_memory(episode, settings)
                file.write(_trusted(episode).to_line() + "\n")
                file.flush()
                done[episode.task_id, episode.attempt] = episode
                report({"part": "collect", "done": len(done), "of": len(requests), "success": episode.success})
    finally:
        stage.close()
    return [done[request.task.id, request.attempt] for request in requests]


def _trusted(episode: Episode) -> Episode:
    check_train(episode)
    return episode


def _png_saver(folder: Path) -> Callable[[Any], Image]:
    """Return what keeps the images of play where ``png_loader`` finds them."""

    def save(pixels: Pixels) -> Image:
        content = encode_png(pixels)
        image = record(content, pixels)
        path = folder / f"{image.file_sha256}.png"
        if not path.exists():
            folder.mkdir(exist_ok=True)
            write_atomically(path, content)
        return image

    return save


def _lines(path: Path, read: Callable[[str], Any]) -> Iterator[Any]:
    """Yield the records of a file; a last line that a kill tore is cut off, any other one is an error."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole, _, torn = text.rpartition("\n")
    if torn:
        write_atomically(path, f"{whole}\n".encode() if whole else b"")
    for number, line in enumerate(whole.split("\n") if whole else [], 1):
        try:
            yield read(line)
        except (SeedError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}:{number} cannot be read ({error}); remove the line, it is made again") from None


# --- 2. skills --------------------------------------------------------------------------------------------------------


def annotate(
    settings: Settings, out: Path, plan: SftPlan, episodes: Sequence[Episode], report: Report
) -> list[Skill | ParseFailure]:
    """Have the missing skills written and return one result per episode.

    A call that failed (a server that is down or slow) is owed: the next run asks again.
    """
    options = Options(
        images=png_loader(out / IMAGES),
        max_prompt_tokens=settings.analyzer_prompt_tokens,
        max_reply_tokens=settings.analyzer_reply_tokens,
        batch=settings.batch,
    )
    writer: Annotator = make_annotator(plan.annotator, options)
    done: dict[Key, Skill | ParseFailure] = dict(_lines(out / SKILLS, _read_result))
    missing = [e for e in episodes if _owed(done.get((e.task_id, e.attempt)))]
    with (out / SKILLS).open("a", encoding="utf-8") as file:
        for start in range(0, len(missing), settings.batch):
            part = missing[start : start + settings.batch]
            for episode, result in zip(part, writer.annotate(part), strict=True):
                file.write(_write_result(episode, result) + "\n")
                done[episode.task_id, episode.attempt] = result
            file.flush()
            report({"part": "annotate", "done": len(episodes) - len(missing) + start + len(part), "of": len(episodes)})
    return [done[e.task_id, e.attempt] for e in episodes]


def _owed(result: Skill | ParseFailure | None) -> bool:
    return result is None or (isinstance(result, ParseFailure) and result.kind == "call_failed")


def _write_result(episode: Episode, result: Skill | ParseFailure) -> str:
    usable = isinstance(result, Skill)
    return canonical({"task_id": episode.task_id, "attempt": episode.attempt, "parse_ok": usable, **asdict(result)})


def _read_result(line: str) -> tuple[Key, Skill | ParseFailure]:
    record = json.loads(line)
    key, usable = (record["task_id"], record["attempt"]), record.pop("parse_ok")
    if usable:
        return key, Skill(**{**record, "steps": tuple((step, text) for step, text in record["steps"])})
    return key, ParseFailure(record["kind"], record["reason"])


# --- 3. the fit -------------------------------------------------------------------------------------------------------


def write_pairs(
    settings: Settings,
    policy: HFPolicy,
    out: Path,
    plan: SftPlan,
    episodes: Sequence[Episode],
    results: Sequence[Skill | ParseFailure],
    report: Report,
) -> tuple[list[Any], list[Any]]:
    """Write ``pairs.jsonl`` and return the rows to learn and those held out.

    Only the form decides what is kept: successes and failures both.

    Raises:
        NothingToLearn: when nothing is kept.
    """
    loader, limit = png_loader(out / IMAGES), settings.analyzer_prompt_tokens
    rows, records = [], []
    for episode, skill in zip(episodes, results, strict=True):
        if isinstance(skill, ParseFailure):
            continue
        try:
            chat, response = sft_pair(
                episode, skill, images=loader, fits=lambda chat: len(policy.prompt(chat).ids or ()) <= limit
            )
        except EpisodeTooLong:
            continue
        rows.append(encode(policy, chat, response))
        records.append(
            {
                "prompt": chat[-1].text,
                "response": response,
                "skill_id": skill.id,
                "task_id": episode.task_id,
                "task_type": episode.category,
                "source_success": episode.success,
                "source_num_steps": len(episode.turns),
            }
        )
    owed = sum(_owed(result) for result in results)
    if not rows:
        reasons = "; ".join(sorted({r.reason for r in results if isinstance(r, ParseFailure)})[:2])
        again = "repeat the command to ask again, or " if owed else ""
        raise NothingToLearn(
            f"no episode got a usable skill ({reasons or 'none fits'}); {again}choose another annotator"
        )
    if owed:
        told = "repeat the command to ask again; the fit begins anew where that gives other pairs"
        report({"part": "annotate", "failed calls": owed, "note": told})
    order = Draws("sft split", plan.shuffle_seed).shuffled(range(len(rows)))
    held_out = set(order[: int(plan.validation * len(rows))])
    lines = [canonical({**r, "part": "validation" if i in held_out else "train"}) + "\n" for i, r in enumerate(records)]
    _keep_pairs(out, "".join(lines).encode(), report)
    return [row for i, row in enumerate(rows) if i not in held_out], [rows[i] for i in sorted(held_out)]


def _keep_pairs(out: Path, pairs: bytes, report: Report) -> None:
    """Write the pairs; a fit of other ones is removed before, so that a kill in between leaves nothing that differs."""
    path, fitted = out / PAIRS, [out / name for name in (FINAL, CHECKPOINTS) if (out / name).exists()]
    if fitted and (not path.exists() or path.read_bytes() != pairs):
        report({"part": "fit", "note": "the pairs are not those fitted before: that fit is removed, another begins"})
        (out / METRICS).unlink(missing_ok=True)
        for folder in fitted:
            shutil.rmtree(folder)
    write_atomically(path, pairs)


def _fit(
    settings: Settings, policy: HFPolicy, out: Path, plan: SftPlan, rows: tuple[list[Any], list[Any]], report: Report
) -> list[dict[str, Any]]:
    if settings.gradient_checkpointing:
        policy.model.gradient_checkpointing_enable()
    history = fit(
        policy,
        rows[0],
        plan.fit,
        validation=rows[1],
        folder=out / CHECKPOINTS,
        report=lambda metrics: report({"part": "fit", **metrics}),
    )
    write_atomically(out / METRICS, "".join(canonical(line) + "\n" for line in history).encode())
    final = out / FINAL
    if not (final / checkpoint.DONE).exists():
        checkpoint.save(final, policy.model, Companions(policy), {"stage": "sft", "history": history})
    return history
