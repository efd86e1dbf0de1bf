"""Many episodes side by side: tasks times group members, in this process or in workers."""

import atexit
import contextlib
import multiprocessing
import pickle
import re
import signal
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from seed_envs.core import prepare_steps
from seed_envs.errors import ConfigError, SeedError, UnknownName, WorkerDied
from seed_envs.registry import load_plugins

Env = gym.Env[Any, Any]


@dataclass(frozen=True)
class EnvMaker:
    """A picklable recipe for one environment: id, arguments and the plug-ins to load first."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()

    def __call__(self) -> Env:
        """Make the environment, without the checks that ``check`` runs once and for all."""
        import seed_envs  # noqa: F401  (registers the ids, in worker processes too)

        load_plugins(self.plugins)
        try:
            return gym.make(self.id, disable_env_checker=True, **self.kwargs)
        except gym.error.UnregisteredEnv:
            raise UnknownName("environment", self.id, gym.registry) from None
        except TypeError as error:
            found = re.search(r"unexpected keyword argument ('\w+')", str(error))
            if found is None:
                raise
            raise ConfigError(f"{self.id} does not take {found[1]} as an argument") from error


@dataclass(frozen=True, slots=True)
class Failure:
    """What a row answers when its environment raised or its worker died."""

    type: str
    message: str
    details: str = ""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Describe ``error``; the traceback goes to ``details``."""
        details = "".join(traceback.format_exception(error))
        return cls(type(error).__name__, str(error) or type(error).__name__, details)


class _Local:
    """The rows of one worker: environments called by row number."""

    def __init__(self, make: Callable[[], Env], rows: Sequence[int]) -> None:
        self._make = make
        self._envs: dict[int, Env | None] = dict.fromkeys(rows)

    def env(self, row: int) -> Env:
        found = self._envs[row]
        if found is None:
            found = self._envs[row] = self._make()
        return found

    def run_all(self, calls: "Sequence[Call]") -> list[Any]:
        prepare_steps((self._envs.get(row), args[0]) for row, method, args, _ in calls if method == "step" and args)
        return [self.run(*call) for call in calls]

    def run(self, row: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``method`` of a row's environment; an exception comes back as a value."""
        try:
            env = self.env(row)
            if method in ("reset", "step"):
                return getattr(env, method)(*args, **kwargs)
            found = env.get_wrapper_attr(method)
            return found(*args, **kwargs) if callable(found) else found
        except (Exception, SystemExit) as error:  # the one boundary between an environment and the batch
            if method == "reset" and not isinstance(error, SeedError):
                self.drop(row)
            return Failure.of(error)

    def drop(self, row: int) -> None:
        """Forget a row's environment, so that the next use makes a new one."""
        env, self._envs[row] = self._envs[row], None
        if env is not None:
            with contextlib.suppress(Exception):
                env.close()

    def close(self) -> None:
        for row in self._envs:
            self.drop(row)


Call = tuple[int, str, tuple[Any, ...], dict[str, Any]]


def _serve(pipe: Connection, make: Callable[[], Env], rows: Sequence[int]) -> None:
    """Answer calls until the pipe closes; runs in a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    local = _Local(make, rows)
    try:
        while (calls := pipe.recv()) is not None:
            answers = local.run_all(calls)
            try:
                pipe.send(answers)
            except OSError:
                raise
            except Exception:  # what an object raises when it cannot be pickled is its own affair
                pipe.send([_sendable(answer) for answer in answers])
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        local.close()


def _sendable(answer: Any) -> Any:
    """Return ``answer``, or a failure in its place when it cannot cross to another process."""
    try:
        pickle.dumps(answer)
    except Exception as error:
        return Failure.of(error)
    return answer


class _Worker:
    """A worker process and the rows it holds; started at first use, again after it died."""

    def __init__(self, make: Callable[[], Env], rows: Sequence[int]) -> None:
        self._make, self.rows = make, rows
        self._process: Any = None
        self._pipe: Connection | None = None
        self._answered = False

    def send(self, calls: list[Call]) -> None:
        if self._process is None:
            self._start()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            cast(Connection, self._pipe).send(calls)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        # not daemonic: an environment may start a process of its own
        process = context.Process(target=_serve, args=(child, self._make, self.rows), daemon=False)
        # Ctrl-C is this process's to handle, also while the child still imports: it inherits the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(f"workers need a maker they can import, such as EnvMaker(id): {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            child.close()
        self._process = process
        atexit.register(self.close)  # or the interpreter would wait for the process for ever

    def receive(self, count: int) -> list[Any]:
        try:
            answers = list(cast(Connection, self._pipe).recv())
            self._answered = True
            return answers
        except (EOFError, ConnectionResetError, OSError):
            self._process.join()
            code = self._process.exitcode
            self.close()
            how = f"was killed by signal {-code}" if code and code < 0 else f"ended with status {code}"
            hint = "" if self._answered else "; a script with workers runs below: if __name__ == '__main__':"
            failure = Failure.of(WorkerDied(f"the worker process {how} while it owed an answer{hint}"))
            return [failure] * count

    def close(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(OSError, ValueError):
            cast(Connection, self._pipe).send(None)
            cast(Connection, self._pipe).close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process = None
        atexit.unregister(self.close)


class GroupVectorEnv(VectorEnv[dict[str, Any], Sequence[str | None], Any]):
    """``num_tasks`` tasks times ``group_size`` members; row i plays task ``i // group_size``.

    Every member of a group gets the same task and the same seed. A row that has ended stays
    inactive (``active[i]`` false): it takes ``None``, repeats its last observation and earns 0
    until it is reset, so groups with early finishers need no padding. With ``workers=0`` all
    rows live in this process; otherwise in that many spawned processes, with equal results.

    ``run`` is the row-level call for loops that must outlive a broken environment: it returns a
    ``Failure`` in the place of an answer. ``reset``, ``step`` and ``call`` raise instead.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, make: str | Callable[[], Env], *, num_tasks: int, group_size: int = 1, workers: int = 0) -> None:
        """Make the rows from an environment id or a picklable function that makes one.

        Raises:
            ConfigError: when a count is out of range.
        """
        self.closed = True  # there is nothing to close yet
        if num_tasks < 1 or group_size < 1 or workers < 0:
            raise ConfigError("num_tasks and group_size must be at least 1 and workers at least 0")
        self._maker = EnvMaker(make) if isinstance(make, str) else make
        self.num_tasks, self.group_size = num_tasks, group_size
        self.num_envs = num_tasks * group_size
        count = min(workers, self.num_envs)
        self._workers = [_Worker(self._maker, range(w, self.num_envs, count)) for w in range(count)]
        self._local = _Local(self._maker, range(self.num_envs) if not count else range(1))
        probe = self._local.env(0)
        self.spec = probe.spec
        self.single_observation_space, self.single_action_space = probe.observation_space, probe.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.active = np.zeros(self.num_envs, dtype=bool)
        self._last: list[tuple[Any, dict[str, Any]]] = [(self._blank(), {})] * self.num_envs
        self.closed = False

    @property
    def prototype(self) -> Env:
        """An environment of this kind in this process, to ask for tasks and identity."""
        return self._local.env(0)

    def run(self, calls: Iterable[Call]) -> list[Any]:
        """Make ``(row, method, args, kwargs)`` calls, workers in parallel; answers in order.

        Raises:
            gymnasium.error.ClosedEnvironmentError: after ``close``.
        """
        if self.closed:
            raise gym.error.ClosedEnvironmentError("this GroupVectorEnv is closed; make another one")
        calls = list(calls)
        if not self._workers:
            return self._local.run_all(calls)
        owned: list[list[int]] = [[] for _ in self._workers]
        for position, call in enumerate(calls):
            owned[call[0] % len(self._workers)].append(position)
        busy = [(worker, positions) for worker, positions in zip(self._workers, owned, strict=True) if positions]
        answers: list[Any] = [None] * len(calls)
        try:
            for worker, positions in busy:
                worker.send([calls[p] for p in positions])
            for worker, positions in busy:
                for position, answer in zip(positions, worker.receive(len(positions)), strict=True):
                    answers[position] = answer
        except BaseException:  # Ctrl-C too: an answer left in a pipe would be taken for that of a later call
            for worker, _ in busy:
                worker.close()
            raise
        return answers

    def call(self, name: str, *args: Any, rows: Sequence[int] | None = None, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method (or read an attribute) of every row, or of ``rows``.

        Raises:
            SeedError: when a row raised.
        """
        chosen = range(self.num_envs) if rows is None else rows
        return tuple(self._checked(self.run((row, name, args, kwargs) for row in chosen)))

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: an integer gives task t the seed ``seed + t``; a list gives one seed per task.
            options: ``task_ids`` (one per task) chooses the tasks; ``reset_mask`` (a boolean
                per row) resets only those rows. Without ``task_ids`` a seed is needed where a
                group has several members, so that they agree on the task.

        Raises:
            UnknownName: for another option.
            ConfigError: when a list has the wrong length or a group could not agree.
            EnvFailed: when a row raised; it is inactive then, the others have begun.
        """
        options = dict(options or {})
        for key in options:
            if key not in ("task_ids", "reset_mask"):
                raise UnknownName("reset option", key, ["task_ids", "reset_mask"])
        task_ids = options.get("task_ids")
        seeds = self._seeds(seed)
        for name, values in (("task_ids", task_ids), ("seed", seeds)):
            if values is not None and len(values) != self.num_tasks:
                raise ConfigError(f"{name} has {len(values)} entries; expected one per task ({self.num_tasks})")
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs)), dtype=bool)
        if mask.shape != (self.num_envs,):
            raise ConfigError(f"reset_mask has shape {mask.shape}; expected ({self.num_envs},)")
        if self.group_size > 1 and task_ids is None and any(s is None for s in seeds):
            raise ConfigError("members of a group must share a task: pass task_ids or a seed")
        rows = np.flatnonzero(mask).tolist()
        calls: list[Call] = []
        for row in rows:
            task = row // self.group_size
            chosen = {} if task_ids is None else {"options": {"task_id": task_ids[task]}}
            calls.append((row, "reset", (), {"seed": seeds[task], **chosen}))
        answers = self.run(calls)
        for row, answer in zip(rows, answers, strict=True):
            self.active[row] = not isinstance(answer, Failure)
            if self.active[row]:
                self._last[row] = answer
        self._checked(answers)
        return self._batch()

    def step(
        self, actions: Sequence[str | None]
    ) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one turn in every active row; inactive rows must get ``None``.

        Raises:
            ConfigError: when the number of actions or the place of a ``None`` is wrong.
            EnvFailed: when a row raised; it is inactive then, the others have taken their turn.
        """
        if len(actions) != self.num_envs:
            raise ConfigError(f"{len(actions)} actions for {self.num_envs} rows")
        for row, action in enumerate(actions):
            if (action is not None) != bool(self.active[row]):
                state = "active and needs an action" if action is None else "over and takes None"
                raise ConfigError(f"row {row} is {state}")
        rows = np.flatnonzero(self.active).tolist()
        rewards = np.zeros(self.num_envs)
        ended = np.zeros((2, self.num_envs), dtype=bool)
        answers = self.run((row, "step", (actions[row],), {}) for row in rows)
        for row, answer in zip(rows, answers, strict=True):
            if isinstance(answer, Failure):
                self.active[row] = False
                continue
            observation, rewards[row], ended[0, row], ended[1, row], info = answer
            self._last[row] = (observation, info)
            self.active[row] = not ended[:, row].any()
        self._checked(answers)
        observations, infos = self._batch()
        return observations, rewards, ended[0], ended[1], infos

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers and close every environment."""
        for worker in self._workers:
            worker.close()
        self._local.close()

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_tasks
        if isinstance(seed, int | np.integer):
            return [int(seed) + task for task in range(self.num_tasks)]
        return list(seed)

    def _blank(self) -> dict[str, Any]:
        """Return what a row shows that was never reset: no text, a black image."""
        assert isinstance(self.single_observation_space, spaces.Dict)
        parts = self.single_observation_space.spaces.items()
        return {k: "" if isinstance(part, spaces.Text) else np.zeros(part.shape or (), part.dtype) for k, part in parts}

    def _batch(self) -> tuple[dict[str, Any], dict[str, Any]]:
        observations: dict[str, Any] = {}
        for key, first in self._last[0][0].items():
            column = [observation[key] for observation, _ in self._last]
            observations[key] = tuple(column) if isinstance(first, str) else np.stack(column)
        keys = next((info for _, info in self._last if info), {})
        infos = {key: tuple(info.get(key) for _, info in self._last) for key in keys}
        return observations, infos

    @staticmethod
    def _checked(answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, Failure):
                raise EnvFailed(answer)
        return answers


class EnvFailed(SeedError):
    """An environment raised inside ``GroupVectorEnv``."""

    def __init__(self, failure: Failure) -> None:
        """Carry the ``failure`` and print its type and message."""
        super().__init__(f"{failure.type}: {failure.message}")
        self.failure = failure
