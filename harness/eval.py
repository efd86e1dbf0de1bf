"""Play environments with policies and score them, reproducibly and resumably.

python -m harness.eval
python -m harness.eval --env seed_envs/ALFWorld-v0 --data official --split seen,unseen --policy scripted:oracle
python -m harness.eval --policy scripted:noisy-oracle:0.2 --limit 0.1 --attempts 4 --workers 2 --out runs/noisy

The result goes to stdout, progress and messages to stderr. Repeating a command goes on where it
stopped. Exit codes: 0 ok; 1 finished, but episodes broke (they count as failures); 2 nothing can
be played as asked; 130 interrupted.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.interrupts import leave_at_once, terminable

if __name__ == "__main__":
    leave_at_once()

from harness.board.listing import check_listable, list_runs, trained
from harness.config import FLAGS, POLICIES, Options, RunPlan, make_plans
from harness.players import Speech
from harness.progress import Meter
from harness.protocol import FULL, PAPER, PROTOCOLS, TEMPERATURE
from harness.provenance import collect
from harness.report import write_report
from harness.runs import OURS, REPORT, Run, check, kept
from harness.table import show
from seed_agent.rollout import play
from seed_envs.cli.catalogue import read_value
from seed_envs.cli.common import FAILED, INTERRUPTED, OK, Parser, guarded, names, note, say, say_json
from seed_envs.cli.foreign import results_only
from seed_envs.errors import ConfigError
from seed_envs.presets import PRESETS
from seed_envs.vector import GroupVectorEnv


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    with terminable():
        return guarded(lambda: _main(argv), show_traceback="--traceback" in argv)


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    options = _options(args)
    with results_only():
        plans = make_plans(options)
    states = [check(plan, fresh=args.fresh) for plan in plans]
    heat = options.speech.temperature
    if options.protocol == PAPER and heat not in (None, TEMPERATURE):
        note(f"note: the protocol paper samples at {TEMPERATURE:g}, this run at {heat:g} as --temperature says")
    for notice in dict.fromkeys(notice for plan in plans for notice in plan.stated["notices"]):
        note(f"note: {notice}")
    if args.dry_run:
        counts = [_finished(plan, state) for plan, state in zip(plans, states, strict=True)]
        _show_plans(plans, counts, as_json=args.json)
        return OK
    if args.leaderboard is not None:
        check_listable(args.leaderboard, collect("harness.eval", argv))
    _check_servers(plans, states)
    code, results = OK, []
    for plan in plans:
        with results_only():
            summary = _evaluate(plan, options, argv, fresh=args.fresh)
        if summary is None:
            return INTERRUPTED
        code = FAILED if summary["errors"] else code
        results.append({"folder": str(plan.folder), "digest": plan.digest, "summary": summary, **plan.stated})
        if not args.json:
            show(summary, plan.folder, plan.stated["ceilings"])
            say()
    if args.json:
        say_json({"runs": results})
    played = [Path(found["folder"]) for found in results if found["summary"]["errors"] < found["summary"]["n"]]
    if not played:
        note("every episode broke: there is no result that could be listed")
        return code
    return max(code, list_runs(played, args.leaderboard, broke=code == FAILED))


def _finished(plan: RunPlan, state: Mapping[str, Any] | None) -> int:
    return sum(not row.failed_to_finish for row in kept(plan, state).rows.values())


def _check_servers(plans: Sequence[RunPlan], states: Sequence[Mapping[str, Any] | None]) -> None:
    """Refuse to begin, or to start over, where a server that has to answer does not.

    Raises:
        ConfigError: naming it.
    """
    pairs = zip(plans, states, strict=True)
    checks = [plan.seat.check for plan, state in pairs if plan.seat.check and _finished(plan, state) < plan.total]
    for check_server in dict.fromkeys(checks):
        check_server()


def _evaluate(plan: RunPlan, options: Options, argv: Sequence[str], *, fresh: bool) -> dict[str, Any] | None:
    """Play what a run owes and return its summary; None when it was interrupted."""
    facts = dict(plan.seat.facts)
    provenance = {**collect("harness.eval", argv), "policy": facts, **trained(facts)}
    run = Run(plan, options=_recorded(options), provenance=provenance, fresh=fresh)
    try:
        _play(run, options)
        summary = run.finish()
        if not (plan.folder / REPORT).exists():
            write_report(plan.folder)
    except KeyboardInterrupt:
        run.stop("interrupted")
        how = "repeat the command without --fresh" if fresh else "repeat the command"
        note(f"interrupted: {run.finished} of {plan.total} episodes kept in {plan.folder}; {how} to go on")
        return None
    except BaseException:
        run.stop("failed")
        raise
    finally:
        run.close()
    _note_errors(run)
    return summary


def _play(run: Run, options: Options) -> None:
    plan = run.plan
    successes = sum(row.success for row in run.rows.values())
    if run.finished:
        note(f"{plan.folder}: {run.finished} of {plan.total} episodes are there already")
    player = plan.seat.make()
    owed = [(split, run.owed(split)) for split in plan.splits]
    done = plan.total - sum(len(requests) for _, requests in owed)
    with Meter(f"{plan.env_id} {plan.policy}", plan.total, done=done, successes=successes) as meter:
        for split, requests in owed:
            if not requests:
                continue
            rows = min(options.in_flight, len(requests))
            envs = GroupVectorEnv(split.maker, num_tasks=rows, workers=options.workers)
            try:
                for episode in play(requests, player, envs, split.env, save_image=run.save_image):
                    meter.add(run.add(episode).success)
            finally:
                envs.close()


def _note_errors(run: Run) -> None:
    """Say what broke, one line a kind, so that nobody has to search the records for it."""
    first: dict[str, str] = {}
    for row in sorted(run.rows.values(), key=lambda row: row.key):
        if row.error:
            first.setdefault(row.error, f"{row.key[1]} attempt {row.key[2]}")
    for error, where in list(first.items())[:3]:
        note(f"error: {' '.join(error.split())} (first in {where})")
    if first:
        note("repeat the command to play the episodes that broke again")


def _show_plans(plans: Sequence[RunPlan], counts: Sequence[int], *, as_json: bool) -> None:
    found = [
        {
            "env": plan.env_id,
            "policy": plan.policy,
            "splits": {split.name: len(split.tasks) for split in plan.splits},
            "protocol": dict(plan.protocol),
            "attempts": plan.attempts,
            "episodes": plan.total,
            "kept": count,
            "max_turns": plan.config["max_turns"],
            "digest": plan.digest,
            "folder": str(plan.folder),
            "files": list(OURS),
            "config": plan.config,
        }
        for plan, count in zip(plans, counts, strict=True)
    ]
    if as_json:
        say_json({"runs": found})
        return
    for run in found:
        splits = ", ".join(f"{name} {count} tasks" for name, count in dict(run["splits"]).items())
        say(f"{run['env']}  {run['policy']}")
        times = f"{run['attempts']} x" if run["protocol"]["name"] == FULL else f"protocol {run['protocol']['name']}"
        say(f"  {splits}, {times}: {run['episodes']} episodes of at most {run['max_turns']} turns")
        say(f"  {run['folder']}: {run['kept']} episodes kept, {int(run['episodes']) - int(run['kept'])} to play")
    say(f"each folder: {', '.join(OURS)}")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m harness.eval", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--env", action="append", default=[], metavar="ID", help="environments, comma list or repeated; default all")
    add("--data", default="embedded", metavar="WHICH", help="embedded (default), official, or a folder")
    add("--split", action="append", default=[], metavar="NAMES", help="comma list; default all but train")
    add(
        "--policy",
        action="append",
        metavar="SPEC",
        help=f"scripted:..., hf:PATH, vllm:PATH or openai:MODEL@URL; repeatable; default {', '.join(POLICIES)}",
    )
    add("--backend", metavar="NAME", help="another engine, where the environment has one")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another argument of the environment")
    add("--max-turns", type=_positive, metavar="N", help="turns before an episode is cut off")
    add(
        "--protocol",
        choices=PROTOCOLS,
        default=FULL,
        help="full (default): every task of the split; paper: the published 128 draws, at temperature 0.4",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--limit", metavar="N|FRACTION", help="N tasks (or a share such as 0.1) of each split")
    which.add_argument("--ids", type=Path, metavar="FILE", help="only these tasks, one id a line")
    add("--attempts", type=_positive, default=1, metavar="K", help="episodes per task")
    add("--seed", type=_natural, default=0, metavar="S", help="decides every draw of the run, --limit's too")
    add("--workers", type=_natural, default=0, metavar="W", help="processes for environments; 0 (default): none")
    add("--batch", type=_positive, metavar="B", help="episodes played side by side")
    speech = parser.add_argument_group("language models")
    speech.add_argument(
        "--method",
        default="vanilla",
        metavar="NAME",
        help="vanilla (default), react, or a method that acts with a skill",
    )
    speech.add_argument("--preset", metavar="NAME", help=f"{', '.join(PRESETS)}; sets --max-turns too")
    speech.add_argument(
        "--prompt-file", type=Path, metavar="FILE", help="a Jinja template in place of the built-in one"
    )
    speech.add_argument("--temperature", type=float, metavar="T", help="default 0.4; 0 is greedy")
    speech.add_argument("--top-p", type=float, metavar="P", help="default 1")
    speech.add_argument("--max-reply-tokens", type=_positive, metavar="N", help="default: the preset's, 512")
    speech.add_argument("--no-think", action="store_true", help="replies need no think block")
    add("--plugin", action="append", default=[], metavar="MODULE", help="module[:function] that adds things")
    add("--out", type=Path, metavar="DIR", help="the run's folder; with several runs, a folder for theirs")
    add("--leaderboard", type=Path, metavar="DIR", help="add the result as a row to this leaderboard")
    add("--fresh", action="store_true", help="start over: remove the run that is in the folder")
    add("--json", action="store_true", help="the summaries as JSON")
    add("--dry-run", action="store_true", help="check everything, show the plan, write nothing")
    add("--traceback", action="store_true", help="show where an error came from")
    return parser


def _options(args: argparse.Namespace) -> Options:
    return Options(
        envs=names(args.env, "--env"),
        data=args.data,
        splits=names(args.split, "--split"),
        policies=tuple(args.policy or POLICIES),
        backend=args.backend,
        settings=dict(_setting(text) for text in args.set),
        max_turns=args.max_turns,
        protocol=args.protocol,
        limit=args.limit,
        ids=args.ids,
        attempts=args.attempts,
        seed=args.seed,
        workers=args.workers,
        batch=args.batch,
        plugins=tuple(args.plugin),
        out=args.out,
        speech=Speech(
            method=args.method,
            preset=args.preset,
            prompt_file=args.prompt_file,
            temperature=args.temperature,
            top_p=args.top_p,
            max_reply_tokens=args.max_reply_tokens,
            think=not args.no_think,
        ),
    )


def _recorded(options: Options) -> dict[str, Any]:
    """Return the options as they were given, for run.json; none of them needs to be guessed later."""
    return {
        "data": options.data,
        "limit": options.limit,
        "ids": None if options.ids is None else str(options.ids),
        "workers": options.workers,
        "batch": options.in_flight,
        "plugins": list(options.plugins),
    }


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise ConfigError(f"--set {text!r} is no setting; expected KEY=VALUE, for example goal_style=human")
    if key in FLAGS:
        raise ConfigError(f"--set {key} has a flag of its own: {FLAGS[key]}")
    return key, read_value(value)


def _natural(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _positive(text: str) -> int:
    if _natural(text) == 0:
        raise argparse.ArgumentTypeError("0 is too few; expected 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
