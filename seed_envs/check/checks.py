"""The checks of the conformance suite; each asserts one part of the contract."""

import contextlib
import inspect
import os
import pickle
import random
import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check

from seed_envs.check.subject import JUNK, SEED, USELESS, Env, NotApplicable, Step, Subject, begin, plain, plan_of
from seed_envs.vector import EnvMaker

_INFO_TYPES: dict[str, tuple[type, ...]] = {
    "task_id": (str,), "split": (str,), "category": (str,), "instruction": (str,), "turn": (int,),
    "success": (bool,), "score": (float,), "admissible": (bool, type(None)), "effective": (bool, type(None)),
    "admissible_actions": (list, type(None)), "reason": (str,), "extra": (dict,),
}  # fmt: skip


def _gymnasium(subject: Subject) -> None:
    """Gymnasium's own checker passes on the unwrapped environment, warnings being errors."""
    with subject.env() as env, warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium_check(env.unwrapped, skip_render_check=env.unwrapped.spec is None)


def _tasks(subject: Subject) -> None:
    """There are tasks, each of a sample can be begun, and identity() names the manifest."""
    with subject.env() as env:
        for task_id in subject.task_ids:
            task, info = env.unwrapped.tasks.get(task_id), begin(env, task_id)[4]  # type: ignore[attr-defined]
            assert (task.id, task.split, task.category) == (info["task_id"], info["split"], info["category"]), (
                f"info must name task {task_id!r}, split {task.split!r}, category {task.category!r}; got {info}"
            )
            assert re.fullmatch("[0-9a-f]{64}", task.sha256), f"task {task_id!r} needs a sha256 of its content"
        identity = env.get_wrapper_attr("identity")()
        missing = {"version", "manifest", "manifest_sha256"} - identity.keys()
        assert not missing, f"identity() must have {sorted(missing)}"
        assert identity["manifest_sha256"] == env.unwrapped.tasks.sha256, "manifest_sha256 must be tasks.sha256"  # type: ignore[attr-defined]


def _splits(subject: Subject) -> None:
    """Every split of ``split_names()`` can be made and has tasks of its own."""
    maker = subject.make
    with subject.env() as env:
        names = getattr(env.unwrapped, "split_names", None)
        chosen = "split" in inspect.signature(type(env.unwrapped)).parameters
    if names is None or not chosen or not isinstance(maker, EnvMaker):
        raise NotApplicable("no split_names(), or no environment id with an argument `split`")
    owner: dict[str, str] = {}
    for name in names(**{k: v for k, v in maker.kwargs.items() if k not in ("split", "max_episode_steps")}):
        with contextlib.closing(replace(maker, kwargs={**maker.kwargs, "split": name})()) as env:
            for task in env.unwrapped.tasks:  # type: ignore[attr-defined]
                assert task.split == name, f"task {task.id!r} of split {name!r} says it is of {task.split!r}"
                assert owner.setdefault(task.id, name) == name, f"task {task.id!r} is in {owner[task.id]} and {name}"


def _task_id(subject: Subject) -> None:
    """``options={"task_id": …}`` chooses the task; an unknown id or option is a ValueError."""
    with subject.env() as env:
        for task_id in subject.task_ids:
            first, again = begin(env, task_id), begin(env, task_id)
            assert first[4]["task_id"] == task_id, f"asked for {task_id!r}, got {first[4]['task_id']!r}"
            assert first == again, f"task {task_id!r} with one seed must begin the same way twice"
        for options in ({"task_id": "no such task"}, {"no_such_option": 1}):
            try:
                env.reset(options=options)
            except ValueError:
                continue
            raise AssertionError(f"reset(options={options}) must raise a ValueError that says what exists")


def _spaces(subject: Subject) -> None:
    """Every observation is in the space and every reward, flag and action has its plain type."""
    with subject.env() as env:
        space = env.observation_space
        assert isinstance(space, gym.spaces.Dict) and "text" in space.spaces, "observations are Dict(text[, image])"
        assert all(junk in env.action_space for junk in JUNK), "any text is an action; use seed_envs.spaces.Utf8"
        for task_id in subject.task_ids:
            observation, _ = env.reset(seed=1, options={"task_id": task_id})
            assert observation in space, f"the first observation of {task_id!r} is not in {space}"
            for action in ("", USELESS, "look"):
                observation, reward, terminated, truncated, _ = env.step(action)
                assert observation in space, f"after {action!r} in {task_id!r} the observation is not in {space}"
                assert type(reward) is float, f"a reward is a Python float; got {type(reward).__name__}"
                assert type(terminated) is type(truncated) is bool, "terminated and truncated are Python bool"
                if terminated or truncated:
                    break


def _info(subject: Subject) -> None:
    """Info has exactly the keys of ``Info`` with plain types, and counts every action."""
    keys: set[str] | None = None
    for task_id in subject.task_ids:
        for turn, (*_, terminated, _, info) in enumerate(subject.play(task_id, junk=True)[1]):
            where = f"info of {task_id!r} after turn {turn}"
            wrong = sorted(info.keys() ^ _INFO_TYPES.keys())
            assert not wrong, f"{where}: missing or unknown keys {wrong}"
            for key, types in _INFO_TYPES.items():
                expected = " or ".join(t.__name__ for t in types)
                assert type(info[key]) in types, f"{where}: {key} is {info[key]!r}, expected {expected}"
            assert info["turn"] == turn, f"{where}: turn is {info['turn']}; every action counts, junk too"
            assert 0 <= info["score"] <= 1, f"{where}: score {info['score']} is not in 0..1"
            assert (info["admissible"] is None) == (info["effective"] is None) == (turn == 0), (
                f"{where}: admissible and effective are None after reset and bool after an action"
            )
            assert terminated or not info["success"], f"{where}: a success ends the episode"
            keys = set(info["extra"]) if keys is None else keys
            assert keys == set(info["extra"]), f"{where}: extra has keys {sorted(info['extra'])}, before {sorted(keys)}"


def _deterministic(subject: Subject) -> None:
    """(task id, seed, actions) decide the episode, whatever was played before."""
    for task_id in subject.task_ids[:3]:
        actions, expected = subject.play(task_id, junk=True)
        with subject.env() as env:
            game = env.unwrapped
            for other in (*subject.task_ids[-2:], None):
                game.reset(options=None if other is None else {"task_id": other})
                game.step(actions[0])
                _compare([begin(game, task_id), *(plain(game.step(a)) for a in actions)], expected, task_id, actions)


def _compare(got: Sequence[Step], expected: Sequence[Step], task_id: str, actions: Sequence[str]) -> None:
    """Assert that two transcripts are equal, naming the first turn that differs."""
    for turn, (one, two) in enumerate(zip(got, expected, strict=True)):
        if one != two:
            names = ("observation", "reward", "terminated", "truncated", "info")
            name, a, b = next((n, a, b) for n, a, b in zip(names, one, two, strict=True) if a != b)
            after = f"action {actions[turn - 1]!r} (turn {turn})" if turn else "reset"
            raise AssertionError(f"task {task_id!r}, {name} after {after}: got {a!r}, expected {b!r}")


def _seeds(subject: Subject) -> None:
    """``reset(seed)`` and the unseeded resets after it repeat, and do not all play the same."""
    runs = []
    for _ in range(2):
        with subject.env() as env:
            runs.append([plain(env.reset(seed=5)), *(plain(env.reset()) for _ in range(8))])
            assert plain(env.reset(seed=5)) == runs[-1][0], "reset(seed=5) must begin the same way each time"
    assert runs[0] == runs[1], "reset(seed=5) and the unseeded resets after it must repeat in another instance"
    if len(subject.task_ids) > 1:
        differ = len({repr(answer) for answer in runs[0][1:]}) > 1
        assert differ, "eight unseeded resets began the same way: an unseeded reset must go on with the generator"


def _global_rng(subject: Subject) -> None:
    """Making, resetting and stepping leaves ``random`` and ``numpy.random`` alone."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        random.seed("a state no environment would seed by itself")
        np.random.seed(0x5EED)  # noqa: NPY002
        before = (random.getstate(), np.random.get_state())  # noqa: NPY002
        subject.play(subject.task_ids[0], junk=True)
        after = (random.getstate(), np.random.get_state())  # noqa: NPY002
        assert plain(after) == plain(before), "the environment touched a global generator; draw from self.np_random"
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def _interleaved(subject: Subject) -> None:
    """Two instances played turn by turn do not disturb each other, on two tasks or on one."""
    ids = subject.task_ids
    for other in dict.fromkeys((ids[-1], ids[0])):
        scripts = [(ids[0], *subject.play(ids[0])), (other, *subject.play(other, junk=True))]
        with subject.env() as one, subject.env() as two:
            games = (one.unwrapped, two.unwrapped)
            got = [[begin(game, task_id)] for game, (task_id, _, _) in zip(games, scripts, strict=True)]
            for turn in range(max(len(actions) for _, actions, _ in scripts)):
                for game, (_, actions, _), answers in zip(games, scripts, got, strict=True):
                    if turn < len(actions):
                        answers.append(plain(game.step(actions[turn])))
        for answers, (task_id, actions, expected) in zip(got, scripts, strict=True):
            _compare(answers, expected, task_id, actions)


def _junk(subject: Subject) -> None:
    """Junk never raises, succeeds or ends an episode, is marked as refused and changes nothing."""
    for task_id in subject.task_ids[:3]:
        with subject.env() as env:
            game = env.unwrapped
            offered = begin(game, task_id)[4]["admissible_actions"]
            halves = [action[: len(action) // 2] for action in (offered or [])[:3]]
            for junk in (*JUNK, *halves):
                _refused(game, task_id, junk, offered)


def _refused(game: Env, task_id: str, junk: str, offered: list[str] | None) -> None:
    answer = plain(game.step(junk))
    shown, flags = f"{junk[:40]!r} in task {task_id!r}", answer[4]
    assert not flags["success"], f"{shown} counted as a success"
    if flags["admissible"] and (offered is None or junk.strip() in offered):
        begin(game, task_id)  # it is an action here after all, so what it does is the task's business
        return
    assert flags["admissible"] is False, f"{shown} is not offered, so admissible must be False"
    assert flags["effective"] is False, f"{shown} was refused, so effective must be False"
    assert not answer[2], f"{shown} ended the episode; a refused action never does"
    assert flags["admissible_actions"] == offered, f"{shown} was refused, yet the admissible actions changed"
    again = plain(game.step(junk))
    assert again[0] == answer[0], f"{shown} was refused, yet its repetition shows another observation"


def _turn_limit(subject: Subject) -> None:
    """Nothing useful done ends truncated and unsuccessful at the turn limit, by the wrapper alone."""
    with subject.env() as env:
        limit = _limit(env)
        env.reset(seed=SEED, options={"task_id": subject.task_ids[0]})
        for turn in range(1, limit + 1):
            _, reward, terminated, truncated, info = env.step(USELESS)
            where = f"after {turn} of {limit} useless actions"
            assert not terminated, f"{where}: terminated is true; that is for the world's end, not for the turn limit"
            assert truncated == (turn == limit), f"{where}: truncated is {truncated}"
            assert not info["success"] and float(reward) <= 0, f"{where}: success {info['success']}, reward {reward}"
        game = env.unwrapped
        game.reset(seed=SEED, options={"task_id": subject.task_ids[0]})
        ended = [any(game.step(USELESS)[2:4]) for _ in range(limit + 3)]
        assert not any(ended), f"the environment ended itself at turn {ended.index(True) + 1}; leave it to TimeLimit"


def _limit(env: Env) -> int:
    if env.spec is None:
        raise NotApplicable("not made by gymnasium.make, so there is no turn limit")
    assert env.spec.max_episode_steps, "register the environment with max_episode_steps=N: without it no episode ends"
    return env.spec.max_episode_steps


def _admissible(subject: Subject) -> None:
    """Every action on the list is accepted; the list is sorted and without repeats."""
    for task_id in subject.task_ids[:3]:
        actions, answers = subject.play(task_id, turns=60)
        if answers[0][4]["admissible_actions"] is None:
            raise NotApplicable("the environment has no list of admissible actions")
        for turn, action in enumerate(actions):
            offered = answers[turn][4]["admissible_actions"]
            where = f"turn {turn + 1} of task {task_id!r}"
            assert all(type(item) is str for item in offered), f"{where}: admissible actions are str; got {offered!r}"
            assert offered == sorted(set(offered)), f"{where}: the list must be sorted, without repeats: {offered}"
            assert action in offered, f"{where}: {action!r} is played but not offered: {offered}"
            assert answers[turn + 1][4]["admissible"], f"{where}: {action!r} is offered and was refused"


def _oracle(subject: Subject) -> None:
    """``oracle()`` reaches the goal within the turn limit, changes nothing and is not in info."""
    with subject.env() as env:
        for task_id in subject.task_ids:
            _, info = env.reset(seed=SEED, options={"task_id": task_id})
            plan = plan_of(env)
            assert plan and plan == plan_of(env), f"oracle() must give one plan for {task_id!r}; got {plan}"
            assert not _shows(plan, [info["extra"], info["reason"]]), f"info of {task_id!r} gives the plan away: {info}"
            for turn, action in enumerate(plan, 1):
                _, _, terminated, truncated, info = env.step(action)
                over = terminated or truncated
                how = "ended" if over else "goes on"
                assert over == (turn == len(plan)), (
                    f"the episode {how} at turn {turn} of the plan for {task_id!r}: {plan}"
                )
            assert info["success"] and terminated, f"the plan for {task_id!r} does not reach the goal: {plan}"
            assert info["score"] > 0, f"task {task_id!r} is a success with score {info['score']}"


def _shows(plan: list[str], value: Any) -> bool:
    """Whether ``value`` holds the plan or, as a field of its own, its first action."""
    if isinstance(value, dict):
        return any(_shows(plan, item) for item in value.values())
    if isinstance(value, list | tuple):
        return list(value) == plan or any(_shows(plan, item) for item in value if not isinstance(item, str))
    return bool(value == plan[0])


def _reset_needed(subject: Subject) -> None:
    """``step()`` before ``reset()`` and after the world has ended raises ``ResetNeeded``."""
    with subject.env() as env:
        game = env.unwrapped
        _needs_reset(game, "before reset()")
        game.reset(seed=SEED, options={"task_id": subject.task_ids[0]})
        for action in plan_of(game):
            game.step(action)
        _needs_reset(game, "after the goal was reached")


def _needs_reset(game: Env, when: str) -> None:
    try:
        game.step(USELESS)
    except gym.error.ResetNeeded:
        return
    raise AssertionError(f"step() {when} must raise gymnasium.error.ResetNeeded")


def _pickles(subject: Subject) -> None:
    """An environment that was not reset yet can be pickled, and the copy plays the same."""
    task_id = subject.task_ids[0]
    actions, expected = subject.play(task_id)
    with subject.env() as env, contextlib.closing(pickle.loads(pickle.dumps(env.unwrapped))) as copy:
        _compare([begin(copy, task_id), *(plain(copy.step(a)) for a in actions)], expected, task_id, actions)


def _worker(subject: Subject) -> None:
    """A spawned worker process plays the same episodes (``GroupVectorEnv(workers=1)``)."""
    for here, there in subject.abroad:
        for turn, (one, two) in enumerate(zip(here, there, strict=True)):
            # the worker's environment has the TimeLimit wrapper, so only there `truncated` can be true
            assert one[:3] == two[:3], f"turn {turn}: a worker process shows {two[:3]!r}, this one {one[:3]!r}"


def _portable_info(subject: Subject) -> None:
    """Info holds no clock, process id or folder: it is equal in another process."""
    folders = {str(Path.home()), str(Path.cwd()), tempfile.gettempdir()} - {"/"}
    for here, there in subject.abroad:
        for turn, (one, two) in enumerate(zip(here, there, strict=True)):
            assert one[4] == two[4], f"turn {turn}: info is {two[4]!r} in a worker process, {one[4]!r} here"
            for folder in sorted(folders):
                assert folder + os.sep not in repr(one[4]), f"turn {turn}: info names the folder {folder}: {one[4]}"


def _close(subject: Subject) -> None:
    """``close()`` may be called twice, before and after a reset."""
    for reset in (False, True):
        env = subject.make()
        if reset:
            env.reset(seed=SEED)
        env.close()
        env.close()


CHECKS: dict[str, Callable[[Subject], None]] = {
    "gymnasium": _gymnasium,
    "tasks": _tasks,
    "splits": _splits,
    "task_id": _task_id,
    "spaces": _spaces,
    "info": _info,
    "deterministic": _deterministic,
    "seeds": _seeds,
    "global_rng": _global_rng,
    "interleaved": _interleaved,
    "junk": _junk,
    "turn_limit": _turn_limit,
    "admissible": _admissible,
    "oracle": _oracle,
    "reset_needed": _reset_needed,
    "pickles": _pickles,
    "worker": _worker,
    "portable_info": _portable_info,
    "close": _close,
}
"""The checks by name, in the order they run; each raises AssertionError or NotApplicable."""
