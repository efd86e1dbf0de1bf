"""Fixtures every test may use: shared data, isolation from the user's folders, command lines."""

import fcntl
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import seed_envs

try:
    from hypothesis import settings
except ImportError:  # the base environments of tox have no hypothesis
    pass
else:
    settings.register_profile("suite", deadline=None, derandomize=True)
    settings.load_profile("suite")

SOURCES = Path(next(iter(seed_envs.__path__))).parent
"""Where the packages under test are: the checkout, or site-packages under tox."""

CALLERS = {"COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"}
"""Variables of the caller's terminal that would change what a child prints."""

CliEnv = Callable[..., dict[str, str]]
RunCli = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep every test away from the user's data and caches; nothing is created up front."""
    home = tmp_path.with_name(f"{tmp_path.name}-home")
    monkeypatch.setenv("SEED_CACHE", str(home / "cache"))
    monkeypatch.setenv("SEED_DATA", str(home / "data"))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of shared test data, ``$SEED_SHARED``; skip where there is none."""
    value = os.environ.get("SEED_SHARED", "")
    if not value:
        pytest.skip("SEED_SHARED is not set; point it at the folder that holds data/ and golden/")
    root = Path(value).resolve()
    if not (root / "data" / "unpack.py").is_file():
        pytest.fail(f"SEED_SHARED={value} holds no data/unpack.py; expected the folder that holds data/ and golden/")
    return root


@pytest.fixture(scope="session")
def alfworld_root(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an official ALFWorld data root with both evaluation splits (24 MB)."""
    return _unpacked(shared, tmp_path_factory, "valid_seen,valid_unseen")


@pytest.fixture(scope="session")
def alfworld_train_root(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an official ALFWorld data root with the training split alone (300 MB)."""
    return _unpacked(shared, tmp_path_factory, "train")


def _unpacked(shared: Path, factory: pytest.TempPathFactory, splits: str) -> Path:
    """Unpack ALFWorld splits once per test session, also where several workers ask at once."""
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    base = factory.getbasetemp().parent if parallel else factory.getbasetemp()
    dest = base / f"official-{splits.replace(',', '-')}"
    done = dest / ".done"
    with dest.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            script = shared / "data" / "unpack.py"
            command = [sys.executable, str(script), str(dest), "--only", "alfworld", "--alfworld-splits", splits]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            done.touch()
    return dest / "alfworld"


@pytest.fixture
def cli_env(isolated: None) -> CliEnv:
    """Return a function that makes a clean environment for a child process.

    The child sees the packages under test and the test's isolated folders, no terminal, no
    colours and none of the caller's Python settings. ``cli_env(NAME="value")`` adds to it.
    """

    def make(**extra: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in CALLERS and not k.startswith(("PYTHON", "PYTEST"))}
        if str(SOURCES) != sysconfig.get_path("purelib"):
            kept["PYTHONPATH"] = str(SOURCES)
        return {**kept, "PYTHONIOENCODING": "utf-8", "TERM": "dumb", **extra}

    return make


@pytest.fixture
def run_cli(tmp_path: Path, cli_env: CliEnv) -> RunCli:
    """Return a function that runs ``python -m MODULE args`` in a folder of the test's own.

    ``run_cli("harness.eval", "--dry-run", cwd=..., env={...}, stdin="", timeout=120)`` returns
    (exit code, stdout, stderr); the environment is ``cli_env``'s.
    """

    def run(
        module: str,
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout: float = 120,
    ) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", module, *map(str, args)],
            cwd=cwd or tmp_path,
            env=cli_env(**(env or {})),
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
        )
        return done.returncode, done.stdout, done.stderr

    return run
