"""``python -m seed_envs doctor``: what works here, what is missing, what to type."""

from collections.abc import Sequence
from dataclasses import asdict

from seed_envs.cli import catalogue
from seed_envs.cli.common import FAILED, OK, Parser, add_plugins, note, say, say_json
from seed_envs.health import Finding, diagnose


def main(argv: Sequence[str]) -> int:
    """Print the findings; 1 when something the base install must have does not work."""
    parser = Parser(
        prog="python -m seed_envs doctor",
        description="What works here, what is missing and what to type. Exit code 0 when every environment "
        "plays its embedded data, even if optional things are missing; otherwise 1.",
    )
    parser.add_argument("id", nargs="*", metavar="ID", help="look at these environments only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_plugins(parser)
    args = parser.parse_intermixed_args(argv)
    ids = catalogue.environment_ids(args.plugin)
    if args.id:
        ids = sorted({catalogue.resolve(name, ids) for name in args.id})
    note("looking; official data that were never read before take a while")
    findings = diagnose(ids, tuple(args.plugin))
    if args.json:
        say_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    return FAILED if any(f.base and f.status != "ok" for f in findings) else OK


def _show(findings: Sequence[Finding]) -> None:
    for finding in findings:
        star = "" if finding.base or finding.status == "ok" else "*"
        say(f"{finding.status + star:10}{finding.subject}: {finding.message}")
        if finding.remedy:
            say(f"{'':10}type: {finding.remedy}")
    if any(f.status != "ok" and not f.base for f in findings):
        say()
        say("* optional: everything embedded works without it")
