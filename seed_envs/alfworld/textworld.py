"""The real alfworld/TextWorld stack behind the same calls as the native engine.

One child process per backend: TextWorld must not share a process with anything that uses
threads, ``sys.argv`` or standard output.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from seed_envs.alfworld.grammar import GOAL_MARK
from seed_envs.alfworld.official import read_game
from seed_envs.alfworld.sources import GameText
from seed_envs.errors import ConfigError, DataError, MissingDependency, SeedError, WorkerDied

TIMEOUT = 120.0
"""Seconds one answer may take; a large kitchen loads in under 10."""
SUPPORTED = {"alfworld": ((0, 4, 2), (0, 5)), "textworld": ((1, 7), (1, 8))}
"""Versions known to print what the native engine prints: from, and below."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What TextWorld shows after it began a game or took a command."""

    text: str
    admissible: list[str]
    """Every command offered now, sorted."""
    won: bool


def check_installed() -> dict[str, str]:
    """Return the installed versions of the stack, without importing it.

    Raises:
        MissingDependency: when a package is not installed.
        ConfigError: when a version is outside ``SUPPORTED``.
    """
    found = {}
    for package, module in (("alfworld", "alfworld"), ("textworld", "textworld"), ("textworld[pddl]", "fast_downward")):
        if importlib.util.find_spec(module) is None:
            raise MissingDependency(
                package, extra="alfworld", purpose="backend='textworld'", instead="backend='native' needs nothing"
            )
    for package, (lowest, above) in SUPPORTED.items():
        found[package] = version = importlib.metadata.version(package)
        if not lowest <= tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < above:
            wanted = f">={_dotted(lowest)},<{_dotted(above)}"
            raise ConfigError(
                f"{package} {version} is installed and backend='textworld' is tested with {package}{wanted}; "
                "type: pip install 'seed-suite[alfworld]'"
            )
    return found


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


class TextWorldBackend:
    """Plays games in TextWorld; the child process starts with the first game.

    A copy made by pickling starts its own child. After any error the next ``begin`` starts
    a fresh one.
    """

    def __init__(self) -> None:
        """Check that the stack is there.

        Raises:
            MissingDependency, ConfigError: see ``check_installed``.
        """
        check_installed()
        self._child: _Child | None = None

    def __reduce__(self) -> tuple[type["TextWorldBackend"], tuple[()]]:
        """Pickle as a fresh backend: a process cannot travel."""
        return TextWorldBackend, ()

    def begin(self, game: GameText) -> Shown:
        """Load ``game`` and return what is shown first.

        An official game is played from its own file; any other from its problem with the domain
        and grammar of the installed alfworld package.

        Raises:
            ConfigError: when a game without a file asks for another grammar than the package's.
            DataError: when the file cannot be read or TextWorld refuses the game.
            WorkerDied: when the child process ends or does not answer in ``TIMEOUT`` seconds.
        """
        if game.path is None and game.grammar.tag != "move":
            raise ConfigError(
                f"a game with the {game.grammar.tag!r} grammar and no file cannot be played by TextWorld: "
                "the installed alfworld has the 'move' grammar; use backend='native'"
            )
        if game.path is None:
            request, told = {"problem": game.problem}, ""
        else:
            request, told = {"begin": str(game.path.absolute())}, read_game(game.path).instruction
        if self._child is None:
            self._child = _Child()
        answer = self._ask(request)
        if "error" in answer:
            raise DataError(f"TextWorld cannot load {game.path or 'the game'} ({answer['error']})")
        if told != game.instruction:  # no file, or a sentence other than the file's
            answer["text"] = _tell(answer["text"], game.instruction)
        return Shown(**answer)

    def act(self, command: str) -> Shown:
        """Take one command, verbatim.

        Raises:
            WorkerDied: as for ``begin``.
            SeedError: when no game is running, or when TextWorld itself raises.
        """
        if self._child is None:
            raise SeedError("no TextWorld game is running; call begin(game) first")
        answer = self._ask({"act": command})
        if "error" in answer:
            raise SeedError(f"TextWorld failed on the command {command!r} ({answer['error']}); begin the game again")
        return Shown(**answer)

    def close(self) -> None:
        """End the child process; a later ``begin`` starts another. Calling it twice is fine."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()

    def _ask(self, request: dict[str, str]) -> dict[str, Any]:
        assert self._child is not None
        try:
            answer = self._child.ask(request)
        except BaseException:  # a stray answer must never be read as the next one's
            self.close()
            raise
        if "error" in answer:
            self.close()  # TextWorld leaves its parsers and streams in any state
        return answer

    def __del__(self) -> None:
        """End the child with its backend."""
        if getattr(self, "_child", None) is not None:
            self.close()


def _tell(text: str, instruction: str) -> str:
    """Return a first observation with its goal sentence replaced by ``instruction``."""
    return text.partition(GOAL_MARK)[0] + GOAL_MARK + instruction


class _Child:
    """The child process and its pipes."""

    def __init__(self) -> None:
        package_root = str(Path(__file__).parents[2])
        paths = [*filter(None, [os.environ.get("PYTHONPATH")]), package_root]  # as the parent finds things
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "seed_envs.alfworld.textworld_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            encoding="utf-8",
            process_group=0,  # Ctrl-C is for the parent, which ends the child in its own time
        )
        self.pid = self._process.pid

    def ask(self, request: dict[str, str]) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises:
            WorkerDied: when the child ends, or is ended for taking longer than ``TIMEOUT``.
        """
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(TIMEOUT, give_up)
        timer.start()
        line = ""
        try:
            with contextlib.suppress(BrokenPipeError):  # then there is no answer to read either
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if line.endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        if late.is_set():
            raise WorkerDied(f"TextWorld did not answer within {TIMEOUT:g} s and was ended; begin the game again")
        raise WorkerDied(f"the TextWorld process ended ({self._last_words()}); begin the game again")

    def _last_words(self) -> str:
        """Return how the process ended and the last line it printed."""
        status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        ended = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"{ended}: {said}" if said else ended

    def stop(self) -> None:
        """End the process and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
