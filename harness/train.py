"""Train agents: SEED and the methods it is compared with, resumably.

python -m harness.train --stage base --env alfworld --out runs/base
python -m harness.train --stage sft --preset alfworld/micro/seed model=runs/base --out runs/sft
python -m harness.train --preset alfworld/micro/seed model=runs/sft/final --out runs/seed

A preset is ENV/MODEL/METHOD, such as alfworld/qwen2.5-3b/seed; key=value changes any of its
settings, sft.key=value those of stage 1. Repeating a command goes on where it stopped. Stage 2
ends, also when it is interrupted, with its curves in OUT/report.html (python -m harness.report OUT
makes them anew). Exit codes: 0 ok; 1 finished, but episodes of the last evaluation broke; 2 nothing
can be trained as asked, or training had to stop; 130 interrupted.
"""

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.interrupts import leave_at_once, terminable

if __name__ == "__main__":
    leave_at_once()

from harness.config import slug
from harness.provenance import collect
from harness.report import write_training_report
from harness.runs import REPORT
from harness.training_progress import SINKS, SafeSink, TrainingMeter
from seed_agent.backends.hf_load import load_for_training
from seed_agent.train.folder import STAGE1, begun, check_base, check_own
from seed_agent.train.model import elsewhere, lacking, load_policy, missing
from seed_agent.train.plan import Plan, check_stage1, make_plan
from seed_agent.train.presets import ENVS, FOR_ENV, Preset, get_preset
from seed_agent.train.settings import Settings, build, override
from seed_envs.cli import catalogue
from seed_envs.cli.common import FAILED, INTERRUPTED, OK, Parser, guarded, note, one_line, say, say_json
from seed_envs.cli.foreign import results_only
from seed_envs.errors import ConfigError, SeedError, UnknownName
from seed_envs.presets import preset_for
from seed_envs.registry import load_plugins

if TYPE_CHECKING:
    from seed_agent.train.run import TrainingRun

STAGES = ("base", "sft", "rl")
_SFT = ("tasks", "rollouts", "temperature", "annotator", "epochs", "lr", "batch", "warmup")
"""What ``sft.key=value`` may set; all but the annotator are numbers."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    return guarded(lambda: _main(argv), show_traceback="--traceback" in argv)


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_intermixed_args(argv)  # settings may stand between flags
    with results_only():
        load_plugins(args.plugin)
    if args.stage == "base":
        return _base(args)
    with results_only():
        preset = _preset(args)
    folder = args.out or Path("runs") / slug(f"{args.stage}-{preset.settings.preset}-{preset.settings.digest[:8]}")
    if args.dry_run:
        return _show_plan(args, preset, folder)
    if args.stage == "sft":
        return _sft(args, preset, folder)
    return _rl(args, preset, folder, collect("harness.train", argv))


def preset_of(argv: Sequence[str]) -> Preset:
    """Return what a command line of this program stands for, its plug-ins being loaded.

    Raises:
        SeedError: when it cannot be run as asked.
    """
    return _preset(_parser().parse_intermixed_args(argv))


def _preset(args: argparse.Namespace) -> Preset:
    """Return what the command line asks for: a preset, changed by flags, changed by key=value."""
    if args.preset:
        preset = get_preset(args.preset)
    else:
        preset = Preset(Settings(), {}, {}, None)
    flags = {
        "method": args.method,
        "env": args.env,
        "seed": args.seed,
        "fraction": args.fraction,
        "fraction_mode": args.fraction_mode,
    }
    changes = {key: value for key, value in flags.items() if value is not None}
    if args.env is not None:
        changes["env"] = catalogue.resolve(args.env, catalogue.environment_ids(args.plugin))
        if changes["env"] != preset.settings.env:
            changes["language"] = preset_for(changes["env"]).name
    settings = build(preset.settings.model_dump() | changes)
    own = [text for text in args.settings if not text.startswith("sft.")]
    settings = override(settings, own)
    if args.data is not None:
        if settings.env_args.get("data", args.data) != args.data:
            raise ConfigError(f"--data {args.data} and env_args= name different data; leave one of the two out")
        settings = build(settings.model_dump() | {"env_args": {**settings.env_args, "data": args.data}})
    sft = preset.sft | dict(sft_setting(text) for text in args.settings if text.startswith("sft."))
    known = preset.parameters if settings.model == preset.settings.model else None
    return Preset(settings, preset.sources, sft, known)


def sft_setting(text: str) -> tuple[str, Any]:
    """Read ``sft.key=value``.

    Raises:
        UnknownName: for a key that stage 1 does not have.
        ConfigError: for a value that cannot be used.
    """
    key, equals, value = text.removeprefix("sft.").partition("=")
    if key not in _SFT:
        raise UnknownName("setting of stage 1", key, _SFT)
    if key == "annotator":
        return key, value
    most = 1 if key in ("lr", "warmup") else sys.float_info.max
    with contextlib.suppress(ValueError):
        number = float(value)
        if equals and 0 < number <= most:
            return key, number if key in ("temperature", "lr", "warmup") else int(value)
    upper = " and at most 1" if most == 1 else ""
    raise ConfigError(f"{text} cannot be used; expected a number above 0{upper}, for example sft.tasks=24")


def _base(args: argparse.Namespace) -> int:
    """Build a small base policy."""
    kind = args.env or (args.preset or "").split("/")[0]
    kind = preset_for(kind).kind if "-v" in kind else kind
    if kind not in ENVS:
        raise UnknownName("environment to build a base policy for (give --env)", kind, ENVS)
    if args.settings:
        raise ConfigError(f"--stage base takes no settings, got {args.settings[0]}; give --seed or --out")
    folder = args.out or Path("runs") / f"base-{kind}"
    if args.dry_run:
        check_base(folder)
        say(f"base policy for {kind}, pre-trained on embedded training tasks only; files: {folder}")
        _say_notices([lacking()])
        return OK
    with results_only():
        load_for_training()
        from seed_agent.train.base import build_base

        with terminable() as stop:
            card = build_base(kind, folder, seed=args.seed or 0, report=_all([_plainly, lambda metrics: stop()]))
    return _done(args, card, folder, f"evaluate it: python -m harness.eval --policy hf:{folder}")


def _sft(args: argparse.Namespace, preset: Preset, folder: Path) -> int:
    """Run stage 1."""
    arguments = stage1_of(preset)
    with results_only():
        check_stage1(preset.settings, **{key: arguments[key] for key in ("tasks", "temperature", "annotator")})
        policy = load_policy(preset.settings, start="base")
        from seed_agent.train.sft import run_sft

        try:
            with terminable() as stop:
                told = _all([_plainly, lambda metrics: stop()])
                result = run_sft(preset.settings, policy, folder, report=told, **arguments)
        except KeyboardInterrupt:
            note(f"interrupted: what is done is kept in {folder}; repeat the command to go on")
            return INTERRUPTED
    return _done(args, result, folder, f"next: python -m harness.train --stage rl ... model={folder}/final")


def stage1_of(preset: Preset) -> dict[str, Any]:
    """Return the arguments of stage 1, those of ``run_sft``."""
    return {"tasks": 180, "rollouts": 8, "temperature": 0.4, "annotator": preset.settings.annotator} | preset.sft


def _rl(args: argparse.Namespace, preset: Preset, folder: Path, provenance: Mapping[str, Any]) -> int:
    """Run stage 2."""
    settings = preset.settings
    with results_only():
        plan = make_plan(settings, parameters=preset.parameters)
        if plan.needs:
            raise ConfigError(plan.needs)
        policy = load_policy(settings)
        from seed_agent.train.run import TrainingRun  # needs torch, which --help and --dry-run do without

        with terminable() as stop:
            run = TrainingRun(folder, settings, policy, provenance=provenance)
            stop()
            result = _train(run, args.sink)
    if result is None:
        return INTERRUPTED
    broke = sum(value for key, value in result.items() if key.endswith("/errors"))
    flags = [*evaluation_flags(settings, f"{folder}/final"), *(t for name in args.plugin for t in ("--plugin", name))]
    code = _done(args, result, folder, f"evaluate it: {shlex.join(['python', '-m', 'harness.eval', *flags])}")
    return FAILED if broke else code


def _train(run: "TrainingRun", sinks: Sequence[str]) -> dict[str, Any] | None:
    """Train what is left, write the curves and return the last evaluation; None when it was interrupted."""
    settings, folder = run.settings, run.folder
    total = settings.planned
    try:
        if run.done:
            note(f"{folder}: {run.done} of {total} iterations are there already")
        opened = [SafeSink(name, folder, settings.model_dump(mode="json")) for name in sinks]
        try:
            with TrainingMeter(settings.method, total, done=run.done) as meter:
                return run.train(_all([meter.add, *(sink.add for sink in opened)]), say=note)
        finally:
            _draw(folder)
    except KeyboardInterrupt:
        note(f"interrupted: {run.saved} of {total} iterations kept in {folder}; repeat the command to go on")
        return None
    finally:
        run.close()


def _draw(folder: Path) -> None:
    """Write the curves; that they cannot be written takes nothing from the run."""
    try:
        write_training_report(folder)
    except SeedError as error:
        note(f"warning: no {REPORT} ({one_line(error)}); python -m harness.report {folder} makes it")


def evaluation_flags(settings: Settings, model: str) -> list[str]:
    """Return flags of ``harness.eval`` that play ``model`` as the evaluations of a run with ``settings`` do."""
    pixels = "" if settings.min_pixels is None else f"?min_pixels={settings.min_pixels}"
    flags = ["--env", settings.env, "--policy", f"{settings.rollout_backend}:{model}{pixels}"]
    flags += ["--preset", settings.language, "--temperature", f"{settings.eval_temperature:g}"]
    flags += ["--method", settings.method]
    optional = {
        "--top-p": None if settings.top_p == 1 else f"{settings.top_p:g}",
        "--max-turns": settings.max_turns,
        "--max-reply-tokens": settings.max_reply_tokens,
        "--data": settings.env_args.get("data"),
    }
    flags += [text for flag, value in optional.items() if value is not None for text in (flag, str(value))]
    flags += [] if settings.think else ["--no-think"]
    others = {key: value for key, value in settings.env_args.items() if key not in ("data", "split")}
    return flags + [text for key, value in others.items() for text in ("--set", f"{key}={_shown(value)}")]


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _all(receivers: Sequence[Callable[[Mapping[str, Any]], None]]) -> Callable[[Mapping[str, Any]], None]:
    def report(metrics: Mapping[str, Any]) -> None:
        for receive in receivers:
            receive(metrics)

    return report


def _plainly(metrics: Mapping[str, Any]) -> None:
    """Report the parts of stage 0 and 1: what they are and their numbers."""
    shown = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in metrics.items()]
    note(", ".join(shown))


def _done(args: argparse.Namespace, result: Mapping[str, Any], folder: Path, hint: str) -> int:
    if args.json:
        say_json({"folder": str(folder), "result": dict(result)})
        return OK
    for key, value in result.items():
        if isinstance(value, int | float | str):
            say(f"{key}  {value:.4g}" if isinstance(value, float) else f"{key}  {value}")
    say(f"{folder}")
    note(hint)
    return OK


def _show_plan(args: argparse.Namespace, preset: Preset, folder: Path) -> int:
    settings, stage1 = preset.settings, stage1_of(preset)
    with results_only():
        plan = make_plan(settings, parameters=preset.parameters)
        if args.stage == "rl":
            begun(folder, settings)
        else:
            check_own(folder, STAGE1)
            check_stage1(settings, **{key: stage1[key] for key in ("tasks", "temperature", "annotator")})
            plan = replace(plan, needs=missing(settings, start="base"))
        told = [lacking(settings.rollout_backend), elsewhere(settings.model) if settings.model else ""]
    files = _files(args.stage)
    if args.json:
        found = {"stage": args.stage, "settings": settings.model_dump(mode="json"), "sources": preset.sources}
        found |= {"digest": settings.digest, "plan": asdict(plan), "folder": str(folder), "files": files}
        say_json({**found, "notices": list(filter(None, told))})
        return OK
    say(f"{settings.method} on {settings.env}, {settings.model or 'no model yet'}, seed {settings.seed}")
    if args.stage == "sft":
        episodes = f"{stage1['tasks']} tasks x {stage1['rollouts']} episodes of at most {plan.turns} turns"
        say(f"  {episodes}, then a fit to their skills")
    else:
        _say_rl(settings, plan)
    say(f"{folder}: {', '.join(files)}")
    if plan.needs:
        say(f"first: {plan.needs}")
    _say_notices(told)
    return OK


def _say_notices(told: Sequence[str]) -> None:
    for notice in filter(None, told):
        say(f"note: {notice}")


def _say_rl(settings: Settings, plan: Plan) -> None:
    share = "" if settings.fraction == 1 else f" ({settings.fraction:g} of the {settings.fraction_mode})"
    each = f"{settings.tasks} tasks x {settings.group} episodes of at most {plan.turns} turns"
    say(f"  {plan.iterations} iterations{share} of {each}, from {plan.pool} tasks: {plan.episodes:,} episodes")
    say(f"  {plan.samples:,} samples at most, one per {settings.samples}; {plan.updates:,} updates")
    say(f"  {plan.eval_episodes:,} episodes of evaluation")
    say(f"  tokens, at most: {plan.generated:,} sampled, {plan.processed:,} through the model")
    memory = "unknown before the model is there" if plan.memory_gib is None else f"{plan.memory_gib:.1f} GiB"
    say(f"  memory: {memory} for weights, gradients and optimiser; batches of {settings.micro_tokens:,} tokens on top")


def _files(stage: str) -> list[str]:
    if stage == "sft":
        return ["trajectories.jsonl", "skills.jsonl", "pairs.jsonl", "metrics.jsonl", "final"]
    return ["train.json", "metrics.jsonl", REPORT, "evaluations", "checkpoints", "final"]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m harness.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("settings", nargs="*", metavar="key=value", help="settings in place of the preset's, e.g. lr=1e-5")
    add("--stage", choices=STAGES, default="rl", help="base: a tiny model; sft: stage 1; rl (default): stage 2")
    models = "; ".join(f"{env}/{{{','.join(found)}}}" for env, found in FOR_ENV.items())
    add("--preset", metavar="ENV/MODEL/METHOD", help=f"published settings: {models}, then a method")
    add("--method", metavar="NAME", help="in place of the preset's (python -m harness lists them)")
    add("--env", metavar="ID", help="in place of the preset's environment")
    add("--data", metavar="WHICH", help="embedded (default), official, or a folder")
    add("--fraction", type=float, metavar="F", help="train on a share, above 0 and at most 1")
    add("--fraction-mode", metavar="MODE", help="budget (default): the first share of the iterations; subset: of tasks")
    add("--seed", type=int, metavar="S", help="decides every draw of the run")
    add("--sink", action="append", default=[], choices=sorted(SINKS), help="send the metrics there too")
    add("--plugin", action="append", default=[], metavar="MODULE", help="module[:function] that adds things")
    add("--out", type=Path, metavar="DIR", help="the run's folder")
    add("--json", action="store_true", help="the result as JSON")
    add("--dry-run", action="store_true", help="check everything, show the plan, write nothing, load no weights")
    add("--traceback", action="store_true", help="show where an error came from")
    return parser


if __name__ == "__main__":
    sys.exit(main())
