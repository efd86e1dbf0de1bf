"""Where a result came from: whether the code of a checkout is that of its commit."""

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.provenance import _git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(root: Path, *args: str) -> None:
    named = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(root), *named, *args], check=True, capture_output=True, stdin=subprocess.DEVNULL)


def test_rows_of_a_leaderboard_are_no_change_of_the_code(tmp_path: Path) -> None:
    """Who adds a row, renders the pages and evaluates again has still the code of the commit."""
    git(tmp_path, "init", "--quiet")
    for name in ("code.py", "leaderboards/README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    commit, dirty = _git(tmp_path)
    assert commit is not None and len(commit) == 40 and dirty is False
    (tmp_path / "leaderboards/README.md").write_text("2\n")
    (tmp_path / "leaderboards/row.json").write_text("{}\n")
    assert _git(tmp_path) == (commit, False)
    (tmp_path / "new.py").write_text("1\n")
    assert _git(tmp_path) == (commit, True)
    (tmp_path / "new.py").unlink()
    (tmp_path / "code.py").write_text("2\n")
    assert _git(tmp_path) == (commit, True)
