"""Write the records of a run of a million episodes, summarise them in one pass, print memory and seconds.

    python benchmarks/summary_scale.py [--episodes 1000000] [--tasks 50000] [--turns 1] [--keep FILE]

The records are made of one episode whose task, attempt and outcome change, as large a file as short episodes make
(1 GB). Peak memory is that of a process of its own which does nothing but summarise, so it counts the interpreter and
the libraries too. A file named by --keep that is there already is used as it is.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from seed_agent.trajectory import EnvRecord, Episode, Seen, Turn
from seed_envs.seeding import sha256_text

CHILD = """
import json, resource, sys, time
from pathlib import Path
from harness.summary import read_records, summarise, to_bytes
begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
found = summarise(read_records(Path(sys.argv[1])))
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"n": found["n"], "complete": found["complete"], "before": begun, "peak": peak, "seconds": seconds}))
"""


def template(turns: int) -> str:
    """Return the line of an episode with marks where episodes differ."""
    env = EnvRecord(id="toy/Scale-v0", version="1", kwargs={"split": "seen"}, max_turns=9, manifest="m",
                    manifest_sha256="0" * 64)  # fmt: skip
    turn = Turn(observation=Seen.of("You see a door."), reply="<action>open door</action>", action="open door",
                format_ok=True, admissible=True, effective=True)  # fmt: skip
    return Episode(
        task_id="@TASK@", task_sha256="@SHA@", split="seen", category="@CATEGORY@", instruction="open it",
        attempt=7777777, seed=1, policy="scripted:scale", env=env, turns=(turn,) * turns, final=Seen.of("It is open."),
        outcome="success", success=True, score=1.0,
    ).to_line()  # fmt: skip


def write(path: Path, episodes: int, tasks: int, turns: int) -> None:
    """Write the records: every task in turn, then every task again."""
    line = template(turns)
    lost = line.replace('"outcome":"success"', '"outcome":"failure"').replace('"success":true', '"success":false')
    lost = lost.replace('"score":1.0', '"score":0.0')
    hashes = [sha256_text(str(task)) for task in range(tasks)]
    with path.open("w", encoding="utf-8") as file:
        for number in range(episodes):
            attempt, task = divmod(number, tasks)
            text = lost if (number * 7919) % 10 < 4 else line
            text = text.replace("@TASK@", f"task/{task:07d}").replace("@SHA@", hashes[task])
            file.write(text.replace("@CATEGORY@", f"kind {task % 6}").replace("7777777", str(attempt)) + "\n")


def measure(path: Path) -> dict[str, float]:
    """Return what a process of its own needed: resident memory in MB, before and at its peak, and CPU seconds."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return {**found, "before": found["before"] / 1024, "peak": found["peak"] / 1024}


def main() -> None:
    """Write, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=50_000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or Path(folder) / "trajectories.jsonl"
        if not path.exists():
            start = time.process_time()
            write(path, args.episodes, args.tasks, args.turns)
            print(f"wrote {args.episodes:,} episodes, {path.stat().st_size / 1e6:,.0f} MB, "
                  f"{time.process_time() - start:.0f} s")  # fmt: skip
        found = measure(path)
    print(f"summarised {found['n']:,} episodes, complete: {found['complete']}")
    print(
        f"peak {found['peak']:.0f} MB ({found['before']:.0f} MB before the first record), {found['seconds']:.0f} s CPU"
    )


if __name__ == "__main__":
    main()
