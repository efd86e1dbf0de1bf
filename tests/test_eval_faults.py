"""What goes wrong while a run is played: nothing is lost, errors count, repeating goes on."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import eval_plugin  # noqa: F401  (registers the environment and policies)
import pytest

from harness import eval, runs
from harness.summary import read_records

ARGS = ("--env", "evaltoy/Spell-v0", "--set", "size=6")


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Run the command in this process with ``--out run``; returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*args, policy="spell:wavers", out="run"):
        code = eval.main([*ARGS, "--policy", policy, "--out", str(out), *map(str, args)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def start(cli_env, tmp_path, monkeypatch):
    """Start the command as a process of its own; ``extra`` are environment variables."""

    monkeypatch.chdir(tmp_path)

    def begin(*args, policy="spell:wavers", out="run", size="6", before=None, **extra):
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent), cli_env().get("PYTHONPATH")]))
        toy = ["--plugin", "eval_plugin", *ARGS[:2], *(["--set", f"size={size}"] if size else [])]
        command = [sys.executable, "-m", "harness.eval", *toy, "--policy", policy]
        return subprocess.Popen(
            [*command, "--out", str(out), *args],
            cwd=tmp_path,
            env=cli_env(PYTHONPATH=path, **extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before,
        )

    return begin


def result(folder="run"):
    return Path(folder, runs.SUMMARY).read_bytes()


def status(folder="run"):
    return json.loads(Path(folder, runs.RUN).read_bytes())["status"]


@pytest.mark.parametrize("place", ["reset", "step"])
def test_an_environment_that_raises_costs_one_episode(command, monkeypatch, place):
    assert command(out="clean")[0] == 0
    monkeypatch.setenv("SPELL_FAULT", f"{place}:unseen/003")
    code, out, err = command()
    assert code == 1
    summary = json.loads(result())
    assert summary["complete"] and summary["n"] == 12 and summary["errors"] == 1
    split = summary["splits"]["unseen"]
    assert split["n"] == 6 and split["outcomes"]["env_error"] == 1 and split["errors"]["types"] == {"RuntimeError": 1}
    assert split["success"]["n"] == 6
    assert "unseen: 1 of 6 episodes broke and count as failures (1 RuntimeError)" in out
    assert "error: RuntimeError: the alphabet is gone (first in unseen/003 attempt 0)\nrepeat the command" in err
    assert err.count("\n") == 3 and "\nto list it: python -m harness.leaderboard add run" in err
    assert status() == "finished"
    # Still broken: played again, counted once, still exit 1.
    code, _, err = command()
    assert code == 1 and json.loads(result()) == summary
    # Repaired: only that episode is played, and the result is as if nothing had happened.
    monkeypatch.delenv("SPELL_FAULT")
    code, out, _ = command()
    assert code == 0 and result() == result("clean") and "broke" not in out
    episodes = list(read_records(Path("run", runs.RECORDS)))
    assert len(episodes) == 14 and [e.timing.get("retries") for e in episodes[-3:]] == [None, 1.0, 2.0]


def test_a_policy_that_raises_costs_its_episodes(command):
    code, out, err = command(policy="spell:raises")
    summary = json.loads(result())
    assert code == 1 and summary["errors"] == 12
    assert summary["splits"]["seen"]["success"] == {"count": 0, "n": 6, "rate": 0.0, "ci95": [0.0, 0.3903342879]}
    assert "ValueError: no idea" in err and "6 of 6 episodes broke" in out and "Traceback" not in err
    assert err.endswith("every episode broke: there is no result that could be listed\n") and "leaderboard" not in err
    code, out, _ = command(policy="spell:fails=2", out="other")
    assert code == 1 and json.loads(result("other"))["splits"]["seen"]["outcomes"]["policy_error"] == 1


def test_ill_formed_replies_and_running_out_of_turns_are_no_success(command):
    assert command(policy="spell:mumbles", out="mumbles")[0] == 0
    split = json.loads(result("mumbles"))["splits"]["seen"]
    assert split["outcomes"]["invalid_format"] == 6 and split["turn_rates"]["ill_formed"] == 1.0
    assert command("--max-turns", "1", policy="scripted:oracle", out="short")[0] == 0
    split = json.loads(result("short"))["splits"]["seen"]
    assert split["outcomes"]["step_limit"] == 6 and split["success"]["count"] == 0 and split["score"] > 0
    assert split["turns"]["mean_of_successes"] is None


def test_a_killed_worker_costs_its_episodes_and_a_repeat_mends_it(command, start, tmp_path):
    assert command(out="clean")[0] == 0
    fault = {"SPELL_FAULT": "kill:seen/002", "SPELL_ONCE": str(tmp_path / "killed")}
    child = start("--workers", "2", "--batch", "3", **fault)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 1, err
    assert "was killed by signal 9" in err and "WorkerDied" in out and "Traceback" not in err
    assert json.loads(result())["n"] == 12 and json.loads(result())["errors"] >= 1
    code, _, err = command()
    assert code == 0 and result() == result("clean"), err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_played(command, start, number):
    assert command(out="clean")[0] == 0
    child = start("--batch", "2", SPELL_SLEEP="0.05")
    records = Path("run", runs.RECORDS)
    end = time.monotonic() + 30
    while not (records.exists() and records.stat().st_size):
        assert child.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130 and out == "", err
    kept = len(records.read_bytes().splitlines())
    assert 0 < kept < 12 and f"interrupted: {kept} of 12 episodes kept in run; repeat the command to go on" in err
    assert "Traceback" not in err and status() == "interrupted" and not Path("run", runs.SUMMARY).exists()
    code, _, err = command()
    assert code == 0 and f"{kept} of 12 episodes are there already" in err
    assert result() == result("clean") and status() == "finished"


def test_a_full_disk_is_one_line_and_nothing_is_lost(command, start):
    assert command("--attempts", "3", out="clean")[0] == 0
    limit = Path("clean", runs.RECORDS).stat().st_size // 2 + 7

    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    child = start("--attempts", "3", before=small)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 2 and out == "", err
    assert err.startswith("error: cannot write run/trajectories.jsonl: ") and err.count("\n") == 1
    assert "make room or choose another --out, then repeat the command" in err
    content = Path("run", runs.RECORDS).read_bytes()
    assert content.endswith(b"\n") and 0 < len(content) <= limit and status() == "failed"
    assert command("--attempts", "3")[0] == 0 and result() == result("clean")
    assert Path("run", runs.RECORDS).read_bytes().startswith(content)


def test_a_disk_full_from_the_start_is_one_line(command, start):
    def nothing():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

    child = start(before=nothing)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 2 and out == "" and err.startswith("error: cannot write run/"), err
    assert err.count("\n") == 1
    assert command()[0] == 0


def test_a_summary_that_cannot_be_written_is_no_success(command, monkeypatch):
    assert command(out="clean")[0] == 0
    real = runs.write_atomically

    def full(path, content):
        if path.name == runs.SUMMARY:
            raise OSError(28, "No space left on device")
        real(path, content)

    monkeypatch.setattr(runs, "write_atomically", full)
    code, out, err = command()
    assert code == 2 and out == "" and "cannot write run/summary.json: No space left on device" in err
    monkeypatch.undo()
    monkeypatch.chdir(Path("run").resolve().parent)


def test_an_out_that_cannot_be_made_is_one_line(command):
    Path("file").write_text("")
    for out in ("file/run", "/proc/no/run", "file"):
        code, printed, err = command(out=out)
        assert code == 2 and printed == "" and err.count("\n") == 1 and "choose another --out" in err, err
    assert Path("file").read_text() == ""


def test_two_writers_of_one_run(command, start):
    first = start(SPELL_SLEEP="0.1")
    end = time.monotonic() + 30
    while not Path("run", runs.RUN).exists():
        assert first.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    code, out, err = command()
    assert code == 2 and out == "" and "another process is writing run; wait for it" in err
    code, out, err = command("--fresh")
    assert code == 2 and "another process is writing" in err
    first.kill()
    first.communicate()
    assert command()[0] == 0


def test_one_broken_folder_stops_a_sweep_before_it_begins(command):
    assert command("--policy", "spell:first=1", out="sweep")[0] == 0
    code, out, err = command("--policy", "spell:first=1", "--seed", "1", out="sweep")
    assert code == 2 and out == "" and "seed is 0 there and 1 now" in err
    assert command("--policy", "spell:first=1", "--seed", "1", "--fresh", out="sweep")[0] == 0


def test_hash_seed_workers_and_batch_change_nothing(start):
    """Two environments, a policy that draws; everything that must not matter is varied."""
    found = {}
    for hash_seed, workers, batch in (("0", "0", "1"), ("1", "2", "7"), ("random", "0", "7")):
        name = f"{hash_seed}-{workers}-{batch}"
        args = ("--env", "seed_envs/ALFWorld-v0", "--limit", "4", "--workers", workers, "--batch", batch)
        child = start(*args, size="", policy="scripted:noisy-oracle:0.3", out=name, PYTHONHASHSEED=hash_seed)
        _, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        found[name] = {str(p.relative_to(name)): p.read_bytes() for p in sorted(Path(name).rglob(runs.SUMMARY))}
    first, *others = found.values()
    assert len(first) == 2 and all(other == first for other in others)


def test_no_old_summary_stands_beside_records_that_grow(command, monkeypatch):
    monkeypatch.setenv("SPELL_FAULT", "step:unseen/003")
    assert command()[0] == 1
    monkeypatch.delenv("SPELL_FAULT")

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(runs.Run, "add", interrupt)
        code, out, err = command()
    assert (code, out) == (130, "") and "interrupted: 11 of 12 episodes kept" in err
    assert status() == "interrupted" and not Path("run", runs.SUMMARY).exists()
    assert command()[0] == 0 and status() == "finished"
    # A run that is finished stays so, whatever interrupts a look at it.
    with monkeypatch.context() as patched:
        patched.setattr(runs.Run, "finish", interrupt)
        assert command()[0] == 130
    assert status() == "finished" and Path("run", runs.SUMMARY).exists()
    with monkeypatch.context() as patched:
        patched.setattr(runs.Run, "add", interrupt)
        assert "repeat the command without --fresh to go on" in command("--fresh")[2]


def test_a_path_that_is_no_utf8_is_played_and_recorded(start):
    out = os.fsdecode(b"run\xff")
    child = start(out=out)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert status(out) == "finished" and "run?" in Path(out, runs.RUN).read_text(encoding="utf-8")


PRINTER = """
import os
from eval_plugin import Spell

begin = Spell._begin

def loud(self, task, seed):
    print("printed by Python")
    os.system("echo printed by a child")
    return begin(self, task, seed)

Spell._begin = loud
print("printed on import")
"""


def test_what_plug_ins_print_does_not_mix_with_the_result(start):
    Path("printer.py").write_text(PRINTER)
    child = start("--plugin", "printer", "--json")
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0 and json.loads(out)["runs"][0]["summary"]["n"] == 12, err
    assert all(f"printed {how}" in err for how in ("on import", "by Python", "by a child"))


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_closed_streams_change_nothing(command, start, closed):
    assert command(out="clean")[0] == 0

    def close():
        for fd in closed:
            os.close(fd)

    child = start(before=close)
    out, err = child.communicate(timeout=60)
    listing = "to list it: python -m harness.leaderboard add run --to leaderboards\n"
    assert child.returncode == 0 and err == (listing if 2 not in closed else "") and bool(out) == (1 not in closed)
    assert result() == result("clean")


def test_a_full_stderr_changes_no_exit_code(start):
    def fill():
        os.dup2(os.open("/dev/full", os.O_WRONLY), 2)

    for args, code in (((), 0), ((), 0), (("--seed", "1"), 2)):
        child = start(*args, before=fill)
        child.communicate(timeout=60)
        assert child.returncode == code


def test_stdout_in_ascii_gets_json_in_ascii(start):
    child = start("--json", out="r\u00e9sultat", PYTHONIOENCODING="ascii")
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0 and out.isascii() and json.loads(out)["runs"][0]["folder"] == "r\u00e9sultat", err


def test_a_current_folder_that_is_gone_is_one_line(start):
    def leave():
        Path("gone").mkdir()
        os.chdir("gone")
        Path("../gone").rmdir()

    child = start(before=leave)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 2 and out == "" and err.count("\n") == 1 and "the current folder is gone" in err


def test_an_interrupt_during_imports_is_one_line(start):
    Path("gymnasium.py").write_text("import time; open('importing', 'w').close(); time.sleep(60)")
    child = start()
    end = time.monotonic() + 30
    while not Path("importing").exists():
        assert child.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (130, "", "interrupted\n")
