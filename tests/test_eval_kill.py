"""Kill the command at any moment, repeat it: the result is that of a run nobody touched."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import eval_plugin  # noqa: F401  (registers the environment and policies)

from harness import eval, runs

KILLS = 20
ARGS = ("--env", "evaltoy/Spell-v0", "--policy", "spell:wavers", "--set", "size=80")


def test_twenty_kills_change_nothing(cli_env, tmp_path, capsys):
    assert eval.main([*ARGS, "--out", str(tmp_path / "whole")]) == 0
    expected = (tmp_path / "whole" / runs.SUMMARY).read_bytes()

    rng = random.Random(20)
    folder = tmp_path / "killed"
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), cli_env().get("PYTHONPATH")]))
    env = cli_env(PYTHONPATH=path, SPELL_SLEEP="0.015")

    def start(workers=0, **extra):
        # What does not decide the result may differ from one start to the next.
        ways = ["--batch", str(rng.choice([1, 2, 5])), "--workers", str(workers)]
        command = [sys.executable, "-m", "harness.eval", *ARGS, "--plugin", "eval_plugin", *ways, "--out", str(folder)]
        return subprocess.Popen(
            command, env={**env, **extra}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    grown = 0
    for kill in range(KILLS):
        before = size(folder)
        child = start(workers=2 if kill in (5, 11) else 0)
        if kill % 4 == 0:  # while it starts: imports, the lock, the first files
            time.sleep(rng.uniform(0.05, 0.9))
        else:  # while it writes records
            wait_for(child, lambda before=before: size(folder) > before)
            time.sleep(rng.uniform(0, 0.1))
        assert child.poll() is None, child.communicate()[0]
        child.kill()
        child.communicate()
        grown += size(folder) > before
        if (folder / runs.RUN).exists():
            assert json.loads((folder / runs.RUN).read_bytes())["status"] == "started"
        assert not (folder / runs.SUMMARY).exists()
    assert grown >= KILLS // 2

    last = start(SPELL_SLEEP="0")
    output = last.communicate(timeout=60)[0].decode()
    assert last.returncode == 0, output
    assert (folder / runs.SUMMARY).read_bytes() == expected
    assert json.loads(expected)["records_sha256"] in output
    state = json.loads((folder / runs.RUN).read_bytes())
    assert state["status"] == "finished" and grown < len(state["provenance"]) <= KILLS + 1
    assert len((folder / runs.RECORDS).read_bytes().splitlines()) == 160
    left = {path.name for path in folder.iterdir()}
    assert left == {runs.RUN, runs.RECORDS, runs.SUMMARY, runs.REPORT, runs.TASKS}


def size(folder: Path) -> int:
    path = folder / runs.RECORDS
    return path.stat().st_size if path.exists() else 0


def wait_for(child, condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None, child.communicate()[0]
        assert time.monotonic() < end, "nothing was recorded"
        time.sleep(0.002)
