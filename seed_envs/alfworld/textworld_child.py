"""The program that runs TextWorld for ``textworld.TextWorldBackend``; not for direct use.

JSON lines on the standard streams. ``{"begin": PATH}`` loads an official game file,
``{"problem": TEXT}`` pairs a PDDL problem with the domain and grammar of the installed alfworld,
``{"act": COMMAND}`` plays. Every answer is ``{"text", "admissible", "won"}`` or ``{"error"}``.

A process of its own because the stack is not thread-safe, replaces ``sys.stdout`` and ``sys.argv``
and prints from C++.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO


class Player:
    """One TextWorld environment, wrapped as alfworld's own ``AlfredTWEnv`` wraps it.

    No expert, no planner and no ``policy_commands``: on a large house they run for minutes.
    Source: alfworld 0.4.2, ``AlfredTWEnv.init_env``.
    """

    def __init__(self) -> None:
        """Import the stack (seconds) and build the environment."""
        os.environ["ALFWORLD_DATA"] = tempfile.gettempdir()  # importing alfworld creates the folder this names
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs.pddl import PddlEnv

        if sys.version_info >= (3, 13):
            _mend_evaluation()
        wanted = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
        self._env = AlfredInfos(AlfredDemangler(PddlEnv(wanted), shuffle=False))

    def begin(self, game: str | dict[str, Any]) -> dict[str, Any]:
        """Load a game, a file's path or its content, and return what is shown first."""
        self._env.load(game)
        return self._shown(self._env.reset())

    def act(self, command: str) -> dict[str, Any]:
        """Take one command and return what is shown then."""
        return self._shown(self._env.step(command)[0])

    @staticmethod
    def _shown(state: Any) -> dict[str, Any]:
        return {
            "text": state["feedback"],
            "admissible": list(state["admissible_commands"]),
            "won": bool(state["won"]),
        }


def package_game(problem: str) -> dict[str, Any]:
    """Return the content of a game file made of ``problem`` and the installed package's logic."""
    import alfworld.info

    return {
        "pddl_domain": Path(alfworld.info.ALFRED_PDDL_PATH).read_text(encoding="utf-8"),
        "grammar": Path(alfworld.info.ALFRED_TWL2_PATH).read_text(encoding="utf-8"),
        "pddl_problem": problem,
        "solvable": True,
        "walkthrough": None,
    }


def _mend_evaluation() -> None:
    """Let grammar expressions see their variables on Python 3.13 and later.

    TextWorld 1.7 writes them into ``locals()`` before ``eval``, which PEP 667 made a no-op.
    """
    from textworld.envs.pddl import textgen

    def derive(symbol: Any, context: Any = None) -> list[Any]:
        variables = (context or symbol.context)["variables"]
        return [textgen.TerminalSymbol(eval(symbol.expression, dict(variables)))]

    textgen.EvalSymbol.derive = derive


def answer(player: Player, request: dict[str, Any]) -> dict[str, Any]:
    """Serve one request; whatever TextWorld raises becomes an ``error``."""
    try:
        if "act" in request:
            return player.act(request["act"])
        return player.begin(package_game(request["problem"]) if "problem" in request else request["begin"])
    except Exception as error:
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}


def take_stdout() -> TextIO:
    """Return the real standard output and point descriptor 1 at standard error.

    What the libraries print, from Python or C++, must not get between the answers.
    """
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return replies


def main() -> None:
    """Answer requests until standard input ends, as it does when the parent goes away."""
    requests, replies = sys.stdin, take_stdout()
    player = Player()
    try:
        for line in requests:
            replies.write(json.dumps(answer(player, json.loads(line))) + "\n")
            replies.flush()
    except BrokenPipeError:
        os._exit(0)  # the parent is gone; a normal exit would fail again on the unsent answer


if __name__ == "__main__":
    main()
