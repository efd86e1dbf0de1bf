"""A third-party package works as if it were part of the suite, without a change to the suite."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import toys
from toys import registered  # noqa: F401 (a fixture)

from seed_agent.methods import METHODS
from seed_agent.policy import POLICIES, make_player
from seed_envs.errors import UnknownName
from seed_envs.vector import GroupVectorEnv

PLUGIN = "toy_suite:register"


@pytest.fixture
def by_name(cli_env: Any) -> dict[str, str]:
    """Return an environment in which the package can be imported but is not installed."""
    return {"PYTHONPATH": f"{cli_env().get('PYTHONPATH', '')}:{toys.TOY_PLUGIN}"}


@pytest.fixture
def installed(tmp_path: Path, cli_env: Any) -> dict[str, str]:
    """Return an environment in which the package is installed: its modules and its metadata."""
    site = tmp_path / "site"
    shutil.copytree(toys.TOY_PLUGIN / "toy_suite", site / "toy_suite", ignore=shutil.ignore_patterns("__pycache__"))
    info = site / "toy_suite-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-suite\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points())
    return {"PYTHONPATH": f"{cli_env().get('PYTHONPATH', '')}:{site}"}


def entry_points() -> str:
    """Return what an installer writes for the package's entry points."""
    project = tomllib.loads((toys.TOY_PLUGIN / "pyproject.toml").read_text())["project"]
    groups = project["entry-points"].items()
    return "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in groups)


def successes(summary: Any) -> dict[str, tuple[int, int]]:
    """Return successes and episodes per split."""
    found = {name: split["success"] for name, split in summary["splits"].items()}
    return {name: (success["count"], success["n"]) for name, success in found.items()}


def test_the_package_adds_a_policy_and_a_method() -> None:
    toys.register()
    toys.register()
    assert "toy" in POLICIES
    assert METHODS.get("toy-method").prompt == "react"
    assert make_player("toy:last").name == "toy:last"
    with pytest.raises(UnknownName, match="unknown toy policy 'lst'; did you mean last"):
        make_player("toy:lst")


def test_its_environments_play_in_groups() -> None:
    envs = GroupVectorEnv(toys.COUNTER, num_tasks=2, group_size=2)
    _, infos = envs.reset(seed=1, options={"task_ids": ["train/05", "train/12"]})
    assert infos["instruction"] == ("Reach 5.",) * 2 + ("Reach 12.",) * 2
    envs.close()


@pytest.mark.parametrize("how", ["by_name", "installed"])
def test_commands_know_the_environments(how: str, request: pytest.FixtureRequest, run_cli: Any) -> None:
    env = request.getfixturevalue(how)
    plugin = ["--plugin", PLUGIN] if how == "by_name" else []
    code, out, err = run_cli("seed_envs", "list", *plugin, env=env)
    assert (code, "toy/Counter-v0" in out, "seed_envs/ALFWorld-v0" in out) == (0, True, True), err
    code, out, err = run_cli("seed_envs", "check", "toy/Parrot-v0", "--json", *plugin, env=env)
    assert (code, json.loads(out)["ok"]) == (0, True), err


def test_without_the_plugin_its_names_are_unknown(by_name: dict[str, str], run_cli: Any) -> None:
    code, _, err = run_cli("harness.eval", "--env", "toy/Counter-v0", env=by_name)
    assert code == 2
    assert "toy/Counter-v0" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("how", ["by_name", "installed"])
def test_it_is_evaluated(how: str, tmp_path: Path, request: pytest.FixtureRequest, run_cli: Any) -> None:
    env = request.getfixturevalue(how)
    plugin = ["--plugin", PLUGIN] if how == "by_name" else []
    what = ["--env", "toy/Counter-v0", "--split", "train,unseen", "--workers", "1", "--json", "--out", tmp_path / "run"]
    players = ["--policy", "toy:first", "--policy", "scripted:oracle"]
    code, out, err = run_cli("harness.eval", *what, *players, *plugin, env=env)
    assert code == 0, err
    first, oracle = (run["summary"] for run in json.loads(out)["runs"])
    # "add 1" from a start of 0 to 2 reaches 5 to 12 in 12 turns, and 13 and 14 from some starts
    assert successes(oracle) == {"train": (8, 8), "unseen": (4, 4)}
    assert successes(first)["train"] == (8, 8)
    assert successes(first)["unseen"] < (4, 4)


def test_a_plain_gymnasium_environment_is_evaluated_too(by_name: dict[str, str], run_cli: Any) -> None:
    what = ["--env", "toy/Parrot-v0", "--policy", "scripted:oracle", "--plugin", PLUGIN, "--json"]
    code, out, err = run_cli("harness.eval", *what, env=by_name)
    assert code == 0, err
    assert successes(json.loads(out)["runs"][0]["summary"]) == {"train": (4, 4)}
