"""Programs beside the commands: each says what it takes, and none does its work when asked for that."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import seed_envs

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
_HEAVY = ("torch", "transformers", "accelerate")


def test_every_program_of_the_environments_reads_its_arguments() -> None:
    root = Path(next(iter(seed_envs.__path__)))
    found = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    guard = '\nif __name__ == "__main__":'
    programs = {str(path.relative_to(root)): text for path, text in found.items() if guard in text}
    assert {"sokoban/manifest.py", "searchqa/manifest.py", "webshop/manifests.py"} < programs.keys()
    deaf = [name for name, text in programs.items() if "parse_args(" not in text and "guarded(" not in text]
    assert deaf == ["alfworld/textworld_child.py"]  # which a backend starts, and nobody else


def test_an_argument_that_is_none_is_refused_before_anything_is_written(run_cli: Callable[..., tuple]) -> None:  # type: ignore[type-arg]
    code, out, err = run_cli("seed_envs.sokoban.manifest", "--zork")
    assert code == 2 and not out and "unrecognized arguments: --zork" in err


def _without_torch(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    absent = f"import runpy, sys; sys.modules.update(dict.fromkeys({_HEAVY})); del sys.argv[0]"
    program = f"{absent}; sys.path.insert(0, {str(BENCHMARKS)!r}); runpy.run_path(sys.argv[0], run_name='__main__')"
    child = [sys.executable, "-c", program, str(BENCHMARKS / f"{name}.py"), *arguments]
    return subprocess.run(child, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}, check=False)


@pytest.mark.parametrize("name", ["learning", "rollout_overhead", "trl_speed"])
def test_benchmarks_show_their_options_without_torch(name: str) -> None:
    done = _without_torch(name, "--help")
    assert done.returncode == 0 and "--threads THREADS" in done.stdout and not done.stderr


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--methods=grpo,sede", "unknown method 'sede'; did you mean"),
        ("iterations=few", "iterations=few cannot be used; expected key=JSON, for example iterations=12"),
        ("iterations=3", "needs the extra 'train' (no torch here): pip install 'seed-suite[train]'"),
    ],
)
def test_learning_refuses_what_it_can_before_it_asks_for_torch(argument: str, said: str, tmp_path: Path) -> None:
    done = _without_torch("learning", "--out", str(tmp_path / "out"), argument)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()
    assert said in done.stderr
