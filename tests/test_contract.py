"""Every registered environment keeps the contract, and every check can fail."""

import doctest
import functools
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import ANY

import gymnasium as gym
import pytest
import toys
from toys import registered  # noqa: F401 (a fixture)

import seed_envs
from seed_envs.check import CHECKS, NotApplicable, Subject, check_env
from seed_envs.check.checks import _INFO_TYPES
from seed_envs.check.subject import USELESS
from seed_envs.errors import ConfigError, SeedError, UnknownName
from seed_envs.vector import EnvMaker

IDS = [*sorted(i for i in gym.registry if i.startswith("seed_envs/")), "toy/Counter-v0", "toy/Parrot-v0"]


@functools.cache
def subject(env_id: str) -> Subject:
    """Return one subject per environment, so that what its checks share is played once."""
    return Subject(toys.toy(env_id))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("env_id", IDS)
def test_environment_keeps_the_contract(env_id: str, check: str) -> None:
    try:
        CHECKS[check](subject(env_id))
    except NotApplicable as why:
        pytest.skip(str(why))


@pytest.mark.alfworld
@pytest.mark.parametrize("check", ["info", "junk", "turn_limit", "oracle", "pickles", "interleaved"])
def test_textworld_keeps_the_contract(check: str) -> None:
    maker = EnvMaker("seed_envs/ALFWorld-v0", {"backend": "textworld", "split": "valid_seen"})
    check_env(maker, max_tasks=1, only=[check]).raise_if_failed()


@pytest.mark.parametrize(("broken", "check"), [(cls.__name__, check) for cls, check in toys.BROKEN.items()])
def test_check_catches_a_broken_environment(broken: str, check: str) -> None:
    (finding,) = check_env(toys.toy(f"broken/{broken}-v0"), only=[check]).findings
    assert finding.status == "failed"
    assert finding.message


def test_every_check_is_seen_to_fail() -> None:
    assert set(toys.BROKEN.values()) == set(CHECKS)


def test_info_check_knows_the_keys_of_info() -> None:
    assert _INFO_TYPES.keys() == seed_envs.Info.__annotations__.keys()


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("env_id", IDS)
def test_running_out_of_turns_is_no_success(env_id: str, limit: int) -> None:
    env = toys.toy(env_id, {"max_episode_steps": limit})()
    env.reset(seed=0)
    answers = [env.step(USELESS) for _ in range(limit)]
    assert [(terminated, truncated) for _, _, terminated, truncated, _ in answers] == [
        (False, turn == limit) for turn in range(1, limit + 1)
    ]
    assert not any(info["success"] for *_, info in answers)
    env.close()


@pytest.mark.parametrize("env_id", IDS)
def test_threads_do_not_mix(env_id: str) -> None:
    ids = [*subject(env_id).task_ids[:4]] * 2
    alone = [subject(env_id).play(task_id, junk=True) for task_id in ids]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda task_id: subject(env_id).play(task_id, junk=True), ids))
    assert together == alone


def test_the_page_about_the_contract_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parent.parent / "docs" / "contract.md"
    (source,) = re.findall(r"complete:\n\n```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "my_env.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert (failed, tried) == (0, 11)
    report = check_env(EnvMaker("my/Matches-v0", plugins=("my_env",)))
    assert {f.check: f.message for f in report.findings if f.status != "ok"} == {"splits": ANY}
    report.raise_if_failed()


def test_report_names_the_failure_and_raises() -> None:
    report = check_env(toys.toy("broken/MissingKey-v0"), only=["close", "info"])
    assert [f.status for f in report.findings] == ["ok", "failed"]
    assert not report.ok
    with pytest.raises(AssertionError, match=r"(?s)broken/MissingKey-v0.*info: .*\['reason'\]"):
        report.raise_if_failed()


def test_a_function_that_makes_the_environment_will_do() -> None:
    report = check_env(lambda: toys.Counter(split="unseen"), max_tasks=2)
    statuses = {f.check: f.status for f in report.findings}
    assert report.ok, report
    assert {c for c, s in statuses.items() if s != "ok"} == {"splits", "turn_limit", "worker", "portable_info"}
    assert str(report).count("\n") == len(CHECKS)


def test_bad_arguments_are_explained() -> None:
    with pytest.raises(UnknownName, match=r"did you mean .*oracle"):
        check_env(toys.COUNTER, only=["orakel"])
    with pytest.raises(UnknownName, match="unknown environment"):
        check_env("seed_envs/NoSuchThing-v0")
    with pytest.raises(ConfigError, match="at least 1"):
        check_env(toys.COUNTER, max_tasks=0)
    with pytest.raises(SeedError, match="does not take 'colour'"):
        check_env(toys.toy("toy/Counter-v0", {"colour": "red"}))


def test_without_an_oracle_its_checks_do_not_apply() -> None:
    class NoOracle(toys.Counter):
        oracle = seed_envs.AgentEnv.oracle

    report = check_env(NoOracle, only=["info", "oracle", "interleaved"])
    assert [f.status for f in report.findings] == ["ok", "not applicable", "ok"]
