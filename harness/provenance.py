"""Where a result came from: code, machine, packages, command and times."""

import json
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import seed_envs

PACKAGES = (
    "gymnasium", "numpy", "pillow", "pydantic", "rapidfuzz", "regex", "scipy", "snowballstemmer", "spacy",
    "alfworld", "textworld",
)  # fmt: skip
"""Packages that can touch a result; those not installed are left out."""
RESULTS = ":(exclude)leaderboards"
"""What of a checkout touches no result: a row that was just added is no change of the code."""


def now() -> str:
    """Return the time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def collect(module: str, argv: Sequence[str]) -> dict[str, Any]:
    """Return the provenance of a command that starts now; ``finished`` is None until it ends."""
    commit, dirty = _git(Path(__file__).resolve().parent.parent)
    return {
        "started": now(),
        "finished": None,
        "command": shlex.join(["python", "-m", module, *argv]),
        "git_commit": commit,
        "git_dirty": dirty,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "pid": os.getpid(),
        "packages": _versions(),
    }


def _versions() -> dict[str, str]:
    found = {"seed-suite": seed_envs.__version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git(root: Path) -> tuple[str | None, bool | None]:
    """Return commit and whether files differ from it; None where neither a checkout nor the installer tells."""
    if not (root / ".git").exists():
        return _installed_commit()
    commit = _git_output(root, "rev-parse", "--verify", "--quiet", "HEAD")
    changes = _git_output(root, "status", "--porcelain", "--", ".", RESULTS)
    return commit or None, None if changes is None else bool(changes)


def _installed_commit() -> tuple[str | None, bool | None]:
    """Return the commit that ``pip install git+URL`` installed, whose files are those of the commit."""
    try:
        text = metadata.distribution("seed-suite").read_text("direct_url.json")
        commit = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return None, None
    return commit, None if commit is None else False


def _git_output(root: Path, *args: str) -> str | None:
    command = ["git", "-C", str(root), "--no-optional-locks", *args]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
