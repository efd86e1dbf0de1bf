"""What the TextWorld backend says about the packages it needs, whether or not they are installed."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from seed_envs.alfworld import textworld
from seed_envs.errors import ConfigError, MissingDependency

MODULES = ("alfworld", "textworld", "fast_downward")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Pretend that the stack is installed; a test may change the versions or take one away."""
    versions = {"alfworld": "0.4.2", "textworld": "1.7.0", "fast_downward": ""}
    find = importlib.util.find_spec

    def find_spec(name: str, *rest: Any) -> Any:
        return versions.get(name) if name in MODULES else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    return versions


def test_tested_versions_are_accepted(installed: dict[str, str]) -> None:
    assert textworld.check_installed() == {"alfworld": "0.4.2", "textworld": "1.7.0"}
    installed.update(alfworld="0.4.10", textworld="1.7.3rc1")
    textworld.TextWorldBackend()


@pytest.mark.parametrize(
    ("package", "version", "wanted"),
    [
        ("alfworld", "0.3.5", "alfworld>=0.4.2,<0.5"),
        ("alfworld", "0.4.1", "alfworld>=0.4.2,<0.5"),
        ("alfworld", "0.5.0", "alfworld>=0.4.2,<0.5"),
        ("textworld", "1.6.2", "textworld>=1.7,<1.8"),
        ("textworld", "1.8", "textworld>=1.7,<1.8"),
    ],
)
def test_other_versions_are_named_with_the_wanted_ones(
    installed: dict[str, str], package: str, version: str, wanted: str
) -> None:
    installed[package] = version
    with pytest.raises(ConfigError) as error:
        textworld.TextWorldBackend()
    assert f"{package} {version} is installed" in str(error.value)
    assert wanted in str(error.value)


@pytest.mark.parametrize("absent", MODULES)
def test_a_missing_package_is_named_with_what_to_type(installed: dict[str, str], absent: str) -> None:
    del installed[absent]
    with pytest.raises(MissingDependency, match=r"pip install 'seed-suite\[alfworld\]'; backend='native'"):
        textworld.TextWorldBackend()


def test_asking_imports_nothing_heavy(cli_env: Callable[..., dict[str, str]]) -> None:
    program = (
        "import sys\n"
        "from seed_envs.alfworld.textworld import SeedError, TextWorldBackend\n"
        "try: TextWorldBackend()\n"
        "except SeedError: pass\n"
        f"sys.exit(any(name in sys.modules for name in {MODULES}))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], env=cli_env(), timeout=60).returncode == 0
