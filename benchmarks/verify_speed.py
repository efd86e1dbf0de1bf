"""Count the episodes that `python -m harness.verify` plays again per minute, environment by environment.

    python benchmarks/verify_speed.py [--limit 40] [--policy scripted:random] [ENV ...]

Plays some embedded tasks of every split, makes a row of the run and verifies the row, numbers and
hashes included, in one process. Minutes are of processor time; the first verification of an
environment also opens its data.
"""

import argparse
import contextlib
import io
import tempfile
import time
from pathlib import Path

from harness import eval
from harness.board.adding import add
from harness.board.replay import Where
from harness.board.verifying import verify
from harness.config import suite_ids


def measure(env: str, policy: str, limit: str, folder: Path) -> str:
    """Return a line about one environment."""
    run = folder / env.rpartition("/")[2]
    with contextlib.redirect_stdout(io.StringIO()):
        code = eval.main(["--env", env, "--policy", policy, "--limit", limit, "--out", str(run)])
    if code:
        raise SystemExit(f"{env} could not be played: exit code {code}")
    [row] = add([run], folder / "board")
    spent = []
    for _ in range(2):
        begun = time.process_time()
        verdict = verify(row, Where())
        spent.append(time.process_time() - begun)
        if not verdict.sound:
            raise SystemExit(f"{row} is not sound: {verdict.problems[0]}")
    done, size = verdict.replayed, sum(path.stat().st_size for path in row.parent.glob(f"{row.stem}*.gz"))
    rates = [60 * done.episodes / seconds for seconds in spent]
    return (
        f"{env}: {done.episodes} episodes, {done.turns} turns: {rates[0]:,.0f} episodes/min, "
        f"{rates[1]:,.0f} when repeated; {size / done.episodes:,.0f} bytes of log an episode"
    )


def main() -> None:
    """Print a line per environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("env", nargs="*")
    parser.add_argument("--policy", default="scripted:random")
    parser.add_argument("--limit", default="40", help="tasks of each split")
    options = parser.parse_args()
    for env in options.env or [name for name in suite_ids() if name.startswith("seed_envs/")]:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(env, options.policy, options.limit, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
