"""Does training raise success? Base policy, stage 1 where the method asks for it, stage 2, before and after.

    python benchmarks/learning.py --env alfworld --methods grpo,sdar,seed --out runs/learning

Every method starts from the same base policy; success is measured on all tasks of the evaluation
split with the same seeds before and after, and compared by the exact McNemar test. Everything is
resumable: repeat the command.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.paired import mcnemar
from seed_agent.backends.hf_load import load_for_training
from seed_agent.methods import METHODS
from seed_agent.train.model import load_policy
from seed_agent.train.presets import get_preset
from seed_agent.train.settings import Settings, build
from seed_envs.cli.common import names
from seed_envs.errors import ConfigError, SeedError

if TYPE_CHECKING:
    from seed_agent.backends.hf import HFPolicy

HEALTH = (
    "env/success", "env/turns", "env/reply_tokens", "env/inadmissible", "env/ill_formed", "rl/entropy",
    "rl/tied", "skill/parse_rate", "opd/gate", "opd/active_ratio", "opd/loss", "rl/grad_norm",
)  # fmt: skip


SPLITS = {"alfworld": "valid_seen", "sokoban": "seen"}
CHANGES: dict[str, Any] = {"init": "given"}
"""In place of the values of the preset ENV/micro/METHOD."""


def main() -> int:
    """Run the benchmark; 2 for a mistake of the user's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", choices=sorted(SPLITS), default="alfworld")
    parser.add_argument("--methods", default="grpo,sdar,seed", help="comma-separated names of methods")
    parser.add_argument("--base", type=Path, help="a base policy; built in OUT/base where it is missing")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("changes", nargs="*", help="settings of stage 2 as key=JSON")
    options = parser.parse_args()
    try:
        _run(options)
    except SeedError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _run(options: argparse.Namespace) -> None:
    changes = {**CHANGES, "eval_splits": (SPLITS[options.env],), "seed": options.seed}
    changes |= dict(map(_change, options.changes))
    base = options.base or options.out / "base"
    chosen = {name: settings_of(options.env, name, changes, base) for name in names([options.methods], "--methods")}
    load_for_training()  # what needs torch comes after all that can be refused without
    import torch

    torch.set_num_threads(options.threads)
    if options.base is None:
        from seed_agent.train.base import build_base

        card = build_base(options.env, base, report=_say)
        print(f"base policy: {card['parameters']} parameters, seen {card['seen']}")
    for method, settings in chosen.items():
        one_method(options.env, method, settings, base, options.out)


def _change(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        raise ConfigError(f"{text} cannot be used; expected key=JSON, for example iterations=12") from None


def settings_of(env: str, method: str, changes: Mapping[str, Any], base: Path) -> Settings:
    """Return the settings of stage 2 from the base policy: those of the micro preset, changed."""
    return build({**get_preset(f"{env}/micro/{method}").settings.model_dump(), **changes, "model": str(base)})


def one_method(env: str, method: str, settings: Settings, base: Path, out: Path) -> None:
    """Train with one method and print its curve and what came of it."""
    from seed_agent.train.run import TrainingRun
    from seed_agent.train.sft import run_sft

    started, start = time.monotonic(), base
    if METHODS.get(method).init == "sft":
        stage1 = get_preset(f"{env}/micro/{method}").sft
        found = run_sft(settings.model_copy(update={"method": "seed"}), load(base, settings), out / "sft", **stage1)
        print(f"stage 1: {found}")
        start = out / "sft" / "final"
        settings = build({**settings.model_dump(), "model": str(start)})
    first = time.monotonic() - started
    run = TrainingRun(out / method, settings, load(start, settings), provenance={})
    try:
        run.train(_say)
    finally:
        run.close()
    print(f"\n{env} {method}, seed {settings.seed}: {time.monotonic() - started:.0f} s, {first:.0f} of them stage 1")
    curve(out / method / "metrics.jsonl")
    compare(out / method / "evaluations", SPLITS[env], settings.planned)


def load(folder: Path, settings: Settings) -> "HFPolicy":
    """Load a model as the run's settings say."""
    return load_policy(settings.model_copy(update={"model": str(folder)}))


def curve(path: Path) -> None:
    """Print the health figures of every iteration."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = [name for name in HEALTH if any(name in row for row in rows)]
    print("iteration " + " ".join(f"{name.split('/')[1][:12]:>12}" for name in names))
    for row in rows:
        print(f"{row['iteration']:9d} " + " ".join(f"{row.get(name, float('nan')):12.3f}" for name in names))
    spent = sorted({key for row in rows for key in row if key.startswith("time/") and key.endswith("_s")})
    parts = {key[5:-2]: sum(row.get(key, 0.0) for row in rows) for key in spent if key != "time/tokens_per_s"}
    print("seconds: " + ", ".join(f"{name} {value:.0f}" for name, value in parts.items()))


def compare(folder: Path, split: str, iterations: int) -> None:
    """Print success before and after and the exact McNemar test of their pairs."""
    before, after = (outcomes(folder / f"iteration_{i:06d}-{split}.jsonl") for i in (0, iterations))
    gained = sum(after[task] and not before[task] for task in before)
    lost = sum(before[task] and not after[task] for task in before)
    first, last = (100 * sum(x.values()) / len(x) for x in (before, after))
    print(f"{split}, {len(before)} tasks: {first:.1f} % before, {last:.1f} % after ({last - first:+.1f}); ", end="")
    print(f"{gained} gained, {lost} lost, exact McNemar p = {mcnemar(gained, lost):.2g}")


def outcomes(path: Path) -> dict[str, bool]:
    """Return success by task."""
    lines: Iterable[str] = path.read_text(encoding="utf-8").splitlines()
    return {record["task_id"]: record["success"] for record in map(json.loads, lines)}


def _say(metrics: Mapping[str, Any]) -> None:
    shown = {key: round(value, 4) if isinstance(value, float) else value for key, value in metrics.items()}
    keys = ("part", "iteration", "epoch", "loss", "seconds", *HEALTH)
    print(" ".join(f"{key}={shown[key]}" for key in keys if key in shown), flush=True)


if __name__ == "__main__":
    sys.exit(main())
