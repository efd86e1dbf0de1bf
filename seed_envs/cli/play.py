"""``python -m seed_envs play ID``: a person plays in the terminal.

An environment may have two more things for people; agents never meet them:

- ``terminal() -> rich renderable or str``: what the observation's image shows, drawn for a terminal.
  Where stdout is none, or without it, ``render()`` as text stands in.
- ``shortcuts``: mappings of what may be typed to the action it stands for, one mapping per keyboard
  layout; the environment receives the action. A key that layouts read differently goes by the
  layout that was typed last.
"""

import contextlib
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
from rich.console import Console

from seed_envs.cli.common import OK, Parser, add_environment, environment, say
from seed_envs.cli.foreign import call, closing
from seed_envs.errors import SeedError
from seed_envs.vector import EnvMaker

PAGE = 30
HELP = """\
Type a command, or the number of one in the list.
  ?         list what is offered now; again for the next page
  ?WORD     list what is offered and contains WORD
  !hint     what the oracle would do next
  !restart  the same task from the start
  !quit     leave
  !help     this text"""

Ask = Callable[[], str | None]
"""Returns the next line, without its line end; None when there are no more."""


def main(argv: Sequence[str]) -> int:
    """Play one episode; the end of the input ends it without complaint."""
    parser = Parser(
        prog="python -m seed_envs play",
        description="Play in the terminal. Commands go to the environment as they are typed.",
        epilog=HELP,
        formatter_class=Parser.raw_text,
    )
    add_environment(parser)
    parser.add_argument("--task", metavar="ID", help="the task; one is drawn by default")
    parser.add_argument("--seed", type=Parser.count, help="the seed; drawn and shown by default")
    args = parser.parse_intermixed_args(argv)
    maker = environment(args)
    with closing(call(maker.id, lambda: _make(maker))) as env:
        seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
        Session(env, terminal_lines() if sys.stdin.isatty() else piped_lines).play(seed, args.task)
    return OK


def terminal_lines() -> Ask:
    """Return an ``Ask`` with line editing and history where Python has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (importing it is what switches it on)

    def ask() -> str | None:
        try:
            return input("> ")
        except EOFError:
            say()
            return None

    return ask


def piped_lines() -> str | None:
    """Read a line from a pipe or file and show it, so that the transcript can be read."""
    line = sys.stdin.readline()
    if not line:
        return None
    line = line.rstrip("\r\n")
    say(f"> {line}")
    return line


def _make(maker: EnvMaker) -> gym.Env[Any, Any]:
    """Make the environment, drawing itself as text where it can (images do not show in a terminal)."""
    env = maker()
    if "ansi" not in env.metadata.get("render_modes", []) or "render_mode" in maker.kwargs:
        return env
    with closing(env):
        pass
    return EnvMaker(maker.id, {**maker.kwargs, "render_mode": "ansi"}, maker.plugins)()


class Session:
    """One person, one task, as many restarts as they like."""

    def __init__(self, env: gym.Env[Any, Any], ask: Ask) -> None:
        """Play ``env`` with the lines that ``ask`` returns."""
        self.env, self.ask = env, ask
        self.limit = env.spec.max_episode_steps if env.spec else None
        self.layouts: Sequence[Mapping[str, str]] = getattr(env.unwrapped, "shortcuts", ())
        self.layout: Mapping[str, str] = {}
        self.page = 0
        self.info: dict[str, Any] = {}

    def play(self, seed: int, task_id: str | None = None) -> dict[str, Any]:
        """Play until the world ends, the turns are used up, or the player leaves; return the last info.

        Raises:
            UnknownName: for a task that does not exist.
        """
        self._begin(seed, task_id)
        while True:
            say()
            line = self.ask()
            if line is None or line.strip() == "!quit":
                self._result("left")
                return self.info
            if line.strip() == "!restart":
                self._begin(seed, self.info["task_id"])
                continue
            action = self._action(line)
            if action is None:
                continue
            step = partial(self.env.step, action)
            observation, _, terminated, truncated, self.info = call("the episode", step, problem="broke")
            self.page = 0
            self._show(observation)
            if terminated or truncated:
                say()
                self._result("solved" if self.info["success"] else "out of turns" if truncated else "not solved")
                return self.info

    def _begin(self, seed: int, task_id: str | None) -> None:
        options = {} if task_id is None else {"task_id": task_id}
        observation, self.info = call(
            "the episode", partial(self.env.reset, seed=seed, options=options), problem="broke"
        )
        self.page = 0
        say(f"task {self.info['task_id']}  seed {seed}")
        say(f"goal: {self.info['instruction']}")
        say("(? lists what you can do, !help tells the rest)")
        if self.layouts:
            short = (", ".join(f"{key} {action}" for key, action in layout.items()) for layout in self.layouts)
            say(f"(in short: {'; or '.join(short)})")
        say()
        self._show(observation)

    def _show(self, observation: dict[str, Any]) -> None:
        say(observation["text"])
        if "image" in observation:
            self._draw()
        if self.info["reason"]:
            say(f"({self.info['reason']})")
        say(f"[turn {self.info['turn']} of {self.limit or 'any number'}]")

    def _draw(self) -> None:
        """Show what the image shows, as well as stdout can."""
        draw = getattr(self.env.unwrapped, "terminal", None)
        if draw is not None and sys.stdout.isatty():
            Console(file=sys.stdout, markup=False, highlight=False).print(draw())
        elif self.env.render_mode == "ansi":
            say(str(self.env.render()))

    def _action(self, line: str) -> str | None:
        """Return the action a line means; None when it was answered here and costs no turn."""
        word = line.strip()
        offered: list[str] | None = self.info["admissible_actions"]
        if word.startswith("?"):
            self._list(offered, word[1:].strip())
        elif word == "!hint":
            say(self._hint())
        elif word.startswith("!"):
            say(HELP if word == "!help" else f"there is no {word}; !help lists what there is")
        elif not word:
            say("type a command, or ? to list what you can do")
        elif word.isdecimal() and len(word) < 10 and offered is not None:
            if 1 <= int(word) <= len(offered):
                say(f"= {offered[int(word) - 1]}")
                return offered[int(word) - 1]
            say(f"there is no number {word}; the list goes from 1 to {len(offered)}")
        elif any(word in layout for layout in self.layouts) and word not in (offered or ()):
            return self._short(word)
        else:
            return line
        return None

    def _short(self, word: str) -> str | None:
        """Return the action that a short form stands for; None when it is not clear which."""
        fitting = [layout for layout in self.layouts if word in layout]
        actions = sorted({layout[word] for layout in fitting})
        if len(fitting) == 1:
            self.layout = fitting[0]
        if len(actions) > 1 and word not in self.layout:
            say(f"{word} may be {' or '.join(actions)}; type the word, or another short form first")
            return None
        action = actions[0] if len(actions) == 1 else self.layout[word]
        say(f"= {action}")
        return action

    def _list(self, offered: list[str] | None, word: str) -> None:
        if offered is None:
            say(self._examples())
            return
        rows = [f"{number:4}  {action}" for number, action in enumerate(offered, 1) if word in action]
        if word:
            say("\n".join(rows) or f"nothing offered now contains {word!r}")
            return
        pages = max(1, -(-len(rows) // PAGE))
        start = self.page % pages * PAGE
        say("\n".join(rows[start : start + PAGE]))
        if pages > 1:
            say(f"({start + 1} to {min(start + PAGE, len(rows))} of {len(rows)}; ? for more)")
        self.page += 1

    def _examples(self) -> str:
        """Return what to say where actions cannot be listed."""
        try:
            found = self.env.get_wrapper_attr("suggestions")()
        except (NotImplementedError, AttributeError):
            return "this environment has no list of actions; its first message says what it takes"
        return "actions cannot be listed here; for example:\n" + "\n".join(f"      {action}" for action in found)

    def _hint(self) -> str:
        try:
            plan = self.env.get_wrapper_attr("oracle")()
        except (NotImplementedError, AttributeError):
            return "this environment has no oracle to ask"
        except SeedError as error:
            return f"the oracle knows no way: {error}"
        return f"hint: {plan[0]}" if plan else "hint: there is nothing left to do"

    def _result(self, how: str) -> None:
        info = self.info
        say(f"{how}: success {'yes' if info['success'] else 'no'}, score {info['score']:g}, turns {info['turn']}")
