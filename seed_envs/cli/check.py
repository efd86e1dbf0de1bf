"""``python -m seed_envs check ID``: the conformance suite, for one's own environments too."""

from collections.abc import Sequence
from dataclasses import asdict

from seed_envs.check import CHECKS, check_env
from seed_envs.cli.common import FAILED, OK, Parser, add_environment, environment, note, say, say_json, table
from seed_envs.cli.foreign import results_only


def main(argv: Sequence[str]) -> int:
    """Print a row per check; 1 when one failed."""
    parser = Parser(
        prog="python -m seed_envs check",
        description="Whether an environment keeps the contract, check by check. Exit code 1 when it does not.",
    )
    add_environment(parser)
    parser.add_argument("--only", action="append", metavar="CHECK", help=f"a check: {', '.join(CHECKS)}")
    parser.add_argument("--tasks", type=Parser.count, default=8, metavar="N", help="tasks to try (default 8)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_intermixed_args(argv)
    with results_only():
        maker = environment(args)
        note(f"checking {maker.id}; worker processes are started on the way")
        report = check_env(maker, max_tasks=args.tasks, only=args.only)
    if args.json:
        say_json({"id": report.subject, "ok": report.ok, "findings": [asdict(finding) for finding in report.findings]})
    else:
        table(("check", "status", "message"), [(f.check, f.status, f.message) for f in report.findings], keep=(0, 1))
        say()
        say(f"{report.subject}: " + ("keeps the contract" if report.ok else f"{len(report.failures)} checks failed"))
    return OK if report.ok else FAILED
