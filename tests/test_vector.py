"""GroupVectorEnv: groups, the active mask, worker processes and broken environments."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import toys
from gymnasium import spaces
from toys import registered  # noqa: F401 (a fixture)

from seed_envs.core import View
from seed_envs.errors import ConfigError, SeedError, UnknownName
from seed_envs.spaces import Utf8
from seed_envs.vector import EnvFailed, Failure, GroupVectorEnv

TASKS = ("train/07", "train/10")


class Painted(toys.Counter):
    """A counter with an image: as bright as the counter is high."""

    observation_space = spaces.Dict({"text": Utf8(1000), "image": spaces.Box(0, 255, (2, 3, 3), np.uint8)})

    def _observation(self, view: View) -> dict[str, Any]:
        return {"text": view.text, "image": np.full((2, 3, 3), 10 * (1 + self._count), np.uint8)}


class Breaks(toys.Counter):
    """A counter that raises, stops its process, or answers what no pipe can carry."""

    def _begin(self, task: Any, seed: int) -> View:
        if task.id == "train/05":
            raise RuntimeError("this task is torn")
        return super()._begin(task, seed)

    def _act(self, action: str) -> View:
        if action == "raise":
            raise RuntimeError("the world fell apart")
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "exit":
            os._exit(3)
        return super()._act(action)

    def lock(self) -> Any:
        return threading.Lock()

    def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def group() -> Iterator[GroupVectorEnv]:
    envs = GroupVectorEnv(toys.COUNTER, num_tasks=2, group_size=3)
    yield envs
    envs.close()


def begun(envs: GroupVectorEnv) -> GroupVectorEnv:
    envs.reset(seed=3, options={"task_ids": TASKS})
    return envs


def test_rows_of_a_group_share_task_and_seed(group: GroupVectorEnv) -> None:
    observations, infos = group.reset(seed=3, options={"task_ids": TASKS})
    assert infos["task_id"] == ("train/07",) * 3 + ("train/10",) * 3
    assert [len(set(observations["text"][i : i + 3])) for i in (0, 3)] == [1, 1]
    alone = toys.COUNTER()
    starts = [alone.reset(seed=3 + t, options={"task_id": task})[0]["text"] for t, task in enumerate(TASKS)]
    assert observations["text"][::3] == tuple(starts), "task t gets the seed 3 + t"


def test_a_seed_alone_makes_the_group_agree(group: GroupVectorEnv) -> None:
    _, infos = group.reset(seed=[5, 6])
    assert len(set(infos["task_id"][:3])) == len(set(infos["task_id"][3:])) == 1
    assert group.reset(seed=[5, 6])[1] == infos
    assert group.reset(seed=np.int64(5))[1]["task_id"] == infos["task_id"]


def test_members_go_their_own_ways(group: GroupVectorEnv) -> None:
    before = begun(group)._last[0][1]["extra"]["count"]
    _, rewards, terminated, truncated, infos = group.step(["add 1", "add 3", "take 1", "add 1", "nonsense", "add 3"])
    counts = [extra["count"] for extra in infos["extra"]]
    assert [c - before for c in counts[:3]] == [1, 3, -1]
    assert infos["admissible"] == (True, True, True, True, False, True)
    assert rewards.tolist() == [0.0] * 6
    assert not terminated.any()
    assert not truncated.any()


def test_a_row_that_ended_waits_and_repeats_itself(group: GroupVectorEnv) -> None:
    begun(group)
    (plan,) = group.call("oracle", rows=[1])
    for action in plan:
        actions = ["nonsense", action, *["nonsense"] * 4]
        observations, rewards, terminated, _, infos = group.step(actions)
    assert terminated.tolist() == [False, True, False, False, False, False]
    assert rewards.tolist() == [0, 1, 0, 0, 0, 0]
    assert group.active.tolist() == [True, False, True, True, True, True]
    later, rewards, terminated, _, after = group.step(["nonsense", None, *["nonsense"] * 4])
    assert later["text"][1] == observations["text"][1]
    assert after["turn"][1] == infos["turn"][1]
    assert after["success"][1] is True
    assert rewards[1] == 0
    assert not terminated[1]


def test_every_row_ends_by_the_turn_limit(group: GroupVectorEnv) -> None:
    begun(group)
    for _ in range(toys.TURNS):
        assert group.active.all()
        _, _, terminated, truncated, infos = group.step(["nonsense"] * 6)
    assert truncated.all()
    assert not terminated.any()
    assert not any(infos["success"])
    assert not group.active.any()
    assert group.step([None] * 6)[1].tolist() == [0.0] * 6


def test_the_place_of_none_is_checked(group: GroupVectorEnv) -> None:
    with pytest.raises(ConfigError, match="row 0 is over and takes None"):
        group.step(["look"] * 6)
    begun(group)
    with pytest.raises(ConfigError, match="row 2 is active and needs an action"):
        group.step(["add 1", "add 1", None, "add 1", "add 1", "add 1"])
    with pytest.raises(ConfigError, match="5 actions for 6 rows"):
        group.step(["add 1"] * 5)
    assert group.call("get_wrapper_attr", "_turn") == (0,) * 6, "a refused step plays nobody's turn"


def test_reset_mask_resets_those_rows_only(group: GroupVectorEnv) -> None:
    begun(group)
    group.step(["add 3"] * 6)
    mask = np.array([False, True, False, False, False, True])
    _, infos = group.reset(seed=8, options={"task_ids": TASKS[::-1], "reset_mask": mask})
    assert infos["turn"] == (1, 0, 1, 1, 1, 0)
    assert infos["task_id"] == ("train/07", "train/10", "train/07", "train/10", "train/10", "train/07")


def test_arguments_are_checked(group: GroupVectorEnv) -> None:
    with pytest.raises(UnknownName, match="did you mean task_ids"):
        group.reset(seed=1, options={"task_id": "train/07"})
    with pytest.raises(ConfigError, match="task_ids has 3 entries; expected one per task"):
        group.reset(options={"task_ids": ["a", "b", "c"]})
    with pytest.raises(ConfigError, match="seed has 1 entries"):
        group.reset(seed=[1])
    with pytest.raises(ConfigError, match=r"reset_mask has shape \(2,\)"):
        group.reset(seed=1, options={"reset_mask": [True, False]})
    with pytest.raises(ConfigError, match="share a task"):
        group.reset()
    with pytest.raises(EnvFailed, match="unknown task id 'train/99'"):
        group.reset(seed=1, options={"task_ids": ["train/99", "train/07"]})
    for counts in ({"num_tasks": 0}, {"num_tasks": 1, "group_size": 0}, {"num_tasks": 1, "workers": -1}):
        with pytest.raises(ConfigError, match="at least"):
            GroupVectorEnv(toys.COUNTER, **counts)


def test_one_member_groups_may_draw_their_tasks() -> None:
    envs = GroupVectorEnv(toys.COUNTER, num_tasks=8)
    assert len(set(envs.reset()[1]["task_id"])) > 1
    envs.close()


def test_call_reads_methods_and_attributes(group: GroupVectorEnv) -> None:
    begun(group)
    assert group.call("version") == ("1",) * 6
    assert group.call("oracle", rows=[0, 5]) == (group.call("oracle")[0], group.call("oracle")[5])
    with pytest.raises(EnvFailed, match="no_such_method"):
        group.call("no_such_method")
    assert group.prototype.unwrapped.tasks.name == "toy_counter/train"


def test_images_are_stacked_also_of_rows_never_reset() -> None:
    envs = GroupVectorEnv(Painted, num_tasks=3)
    observations, infos = envs.reset(seed=1, options={"reset_mask": [False, True, False]})
    assert observations["image"].shape == (3, 2, 3, 3)
    assert observations["image"].dtype == np.uint8
    assert [bool(image.any()) for image in observations["image"]] == [False, True, False]
    assert observations["text"][0] == ""
    assert observations in envs.observation_space
    assert infos["turn"] == (None, 0, None)
    observations, *_ = envs.step([None, "add 3", None])
    assert len(np.unique(observations["image"][1])) == 1
    assert observations in envs.observation_space
    envs.close()


def transcript(workers: int) -> list[Any]:
    envs = begun(GroupVectorEnv(toys.COUNTER, num_tasks=2, group_size=2, workers=workers))
    plans = list(map(list, envs.call("oracle")))
    plans[2] = ["nonsense"] * 3
    answers: list[Any] = []
    while envs.active.any():
        actions = [
            (plan.pop(0) if plan else "take 1") if a else None for plan, a in zip(plans, envs.active, strict=True)
        ]
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        answers.append((observations, rewards.tolist(), terminated.tolist(), truncated.tolist(), infos))
    envs.close()
    return answers


def test_workers_change_nothing() -> None:
    here = transcript(0)
    assert here[-1][4]["success"] == (True, True, False, True)
    assert transcript(2) == here


def test_there_are_never_more_workers_than_rows() -> None:
    envs = GroupVectorEnv(toys.COUNTER, num_tasks=2, group_size=2, workers=64)
    assert [list(worker.rows) for worker in envs._workers] == [[0], [1], [2], [3]]
    envs.close()


def test_run_answers_a_failure_for_a_row_that_raises_and_goes_on() -> None:
    envs = begun(GroupVectorEnv(Breaks, num_tasks=2))
    failure, answer = envs.run([(0, "step", ("raise",), {}), (1, "step", ("add 1",), {})])
    assert (failure.type, failure.message) == ("RuntimeError", "the world fell apart")
    assert "_act" in failure.details
    assert answer[4]["turn"] == 1
    envs.close()


def test_step_and_reset_raise_and_keep_what_the_other_rows_did() -> None:
    envs = begun(GroupVectorEnv(Breaks, num_tasks=2))
    with pytest.raises(EnvFailed, match="RuntimeError: the world fell apart"):
        envs.step(["raise", "add 1"])
    assert envs.active.tolist() == [False, True]
    assert envs.step([None, "add 1"])[4]["turn"] == (0, 2)
    with pytest.raises(EnvFailed, match="this task is torn"):
        envs.reset(seed=0, options={"task_ids": ("train/08", "train/05")})
    assert envs.active.tolist() == [True, False]
    assert envs.step(["add 1", None])[4]["task_id"][0] == "train/08"
    assert begun(envs).active.all(), "the next reset recovers"
    envs.close()


@pytest.mark.parametrize(("action", "how"), [("die", "killed by signal 9"), ("exit", "ended with status 3")])
def test_a_worker_that_dies_is_a_failure_and_the_next_reset_recovers(action: str, how: str) -> None:
    envs = GroupVectorEnv(Breaks, num_tasks=3, workers=2)
    envs.reset(seed=3, options={"task_ids": (*TASKS, "train/08")})
    dead, alive, also_dead = envs.run([(0, "step", (action,), {}), (1, "step", ("add 1",), {}), (2, "oracle", (), {})])
    assert isinstance(dead, Failure)
    assert dead.type == "WorkerDied"
    assert how in dead.message
    assert also_dead == dead, "row 2 lives in the same worker as row 0"
    assert alive[4]["turn"] == 1
    (lost,) = envs.run([(2, "step", ("add 1",), {})])
    assert lost.type == "ResetNeeded"
    _, infos = envs.reset(seed=3, options={"task_ids": (*TASKS, "train/08")})
    assert infos["task_id"] == (*TASKS, "train/08")
    envs.close()
    assert not multiprocessing.active_children()


def test_a_worker_killed_between_calls_is_noticed() -> None:
    envs = begun(GroupVectorEnv(Breaks, num_tasks=2, workers=2))
    pids = envs.call("pid")
    assert len({*pids, os.getpid()}) == 3
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(EnvFailed, match="the worker process was killed by signal 9"):
        envs.step(["add 1", "add 1"])
    assert envs.active.tolist() == [True, False]
    assert begun(envs).call("pid")[0] == pids[0]
    envs.close()


def test_what_no_pipe_can_carry_is_that_calls_failure() -> None:
    envs = begun(GroupVectorEnv(Breaks, num_tasks=2, workers=1))
    failure, plan = envs.run([(0, "lock", (), {}), (1, "oracle", (), {})])
    assert isinstance(failure, Failure)
    assert isinstance(plan, list)
    assert envs.step(["add 1", "add 1"])[4]["turn"] == (1, 1), "the worker is still there"
    envs.close()


def test_a_maker_no_worker_can_import_is_explained() -> None:
    envs = GroupVectorEnv(lambda: toys.COUNTER(), num_tasks=1, workers=1)
    with pytest.raises(ConfigError, match="workers need a maker they can import"):
        envs.reset(seed=1)
    envs.close()


def test_an_interrupted_call_leaves_no_stale_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = begun(GroupVectorEnv(Breaks, num_tasks=2, workers=2))

    def interrupted(count: int) -> list[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(envs._workers[1], "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        envs.step(["add 1", "add 1"])
    monkeypatch.undo()
    assert [type(plan) for plan in begun(envs).call("oracle")] == [list, list]
    envs.close()


def test_close_leaves_no_process_and_ends_the_batch() -> None:
    envs = begun(GroupVectorEnv(toys.COUNTER, num_tasks=2, workers=2))
    assert len(multiprocessing.active_children()) == 2
    envs.close()
    envs.close()
    assert not multiprocessing.active_children()
    with pytest.raises(gym.error.ClosedEnvironmentError):
        envs.step(["add 1", "add 1"])


@pytest.mark.parametrize("end", ["", "raise SystemExit(7)"])
def test_a_program_that_forgets_to_close_still_ends(end: str, tmp_path: Path, cli_env: Any) -> None:
    script = tmp_path / "forgets.py"
    script.write_text(
        f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n"
        "import toys\nfrom seed_envs import GroupVectorEnv\n"
        "if __name__ == '__main__':\n"
        "    envs = GroupVectorEnv(toys.COUNTER, num_tasks=1, workers=1)\n"
        f"    envs.reset(seed=1)\n    {end}\n"
    )
    done = subprocess.run([sys.executable, script], env=cli_env(), timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (7 if end else 0, "")


def test_makers_travel_and_name_what_they_cannot_make() -> None:
    assert pickle.loads(pickle.dumps(toys.COUNTER)) == toys.COUNTER
    assert toys.toy("toy/Counter-v0", {"split": "unseen"})().unwrapped.tasks.name == "toy_counter/unseen"
    with pytest.raises(UnknownName, match=r"did you mean .*toy/Counter-v0"):
        toys.toy("toy/Contour-v0")()
    with pytest.raises(ConfigError, match="toy/Counter-v0 does not take 'colour' as an argument"):
        toys.toy("toy/Counter-v0", {"colour": "red"})()
    with pytest.raises(SeedError, match="unknown split 'tset'"):
        toys.toy("toy/Counter-v0", {"split": "tset"})()
