"""A person at the terminal, played by lists of lines."""

import io
import re
import sys
from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import pytest
from rich.console import Console
from rich.text import Text
from toys import registered  # noqa: F401 (a fixture)

from seed_envs.__main__ import main
from seed_envs.alfworld.env import ALFWorldEnv
from seed_envs.cli.play import PAGE, Session
from seed_envs.core import AgentEnv, View
from seed_envs.sokoban import render, terminal
from seed_envs.sokoban.engine import SYMBOLS, parse
from seed_envs.tasks import Task, TaskSet

COUNTER = ("toy/Counter-v0", "--plugin", "toy_suite:register", "--seed", "1", "--task", "train/05")


class Lines:
    """Answers with the given lines, then with the end of the input."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = list(lines)

    def __call__(self) -> str | None:
        return self.lines.pop(0) if self.lines else None

    def isatty(self) -> bool:
        return False

    def readline(self) -> str:
        return self.lines.pop(0) + "\n" if self.lines else ""


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs ``play`` with lines on stdin and returns (code, stdout, stderr)."""

    def run(lines: Iterable[str], *args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", Lines(lines))
        code = main(["play", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_game_is_played_to_its_end(typed: Any) -> None:
    code, out, err = typed(["add 3", "!hint", "add 1", "add 1", "never read"], *COUNTER)
    start = int(re.search(r"The counter shows (\d)", out)[1])  # type: ignore[index]
    assert (code, err) == (0, "")
    assert "task train/05  seed 1\ngoal: Reach 5." in out
    assert f"> add 3\nThe counter shows {start + 3}.\n[turn 1 of 12]" in out
    assert "hint: add 1" in out
    assert out.splitlines()[-1] == f"solved: success yes, score 1, turns {1 + 5 - start - 3}"
    assert "never read" not in out


def test_the_oracles_hints_win_in_alfworld(capsys: pytest.CaptureFixture[str]) -> None:
    env = gym.make("seed_envs:seed_envs/ALFWorld-v0", split="valid_unseen")

    def ask() -> str:
        said = capsys.readouterr().out.splitlines()
        hint = next((line for line in reversed(said) if line.startswith("hint: ")), None)
        return hint.removeprefix("hint: ") if hint else "!hint"

    info = Session(env, ask).play(seed=7)
    env.close()
    assert info["success"]
    assert f"solved: success yes, score 1, turns {info['turn']}" in capsys.readouterr().out


def test_numbers_choose_from_the_list(typed: Any) -> None:
    _, out, _ = typed(["?", "2", "0", "9", "-1", "!quit"], *COUNTER)
    assert "   1  add 1\n   2  add 3\n   3  take 1\n" in out
    start = int(re.search(r"The counter shows (\d)", out)[1])  # type: ignore[index]
    assert f"> 2\n= add 3\nThe counter shows {start + 3}." in out
    assert out.count("the list goes from 1 to 3") == 2
    assert "> -1\nNothing happens.\n(no such action)\n[turn 2 of 12]" in out  # not a number of the list: an action


def test_what_costs_no_turn(typed: Any) -> None:
    _, out, _ = typed(["", "  ", "?", "?zz", "!hint", "!help", "!undo"], *COUNTER)
    assert "nothing offered now contains 'zz'" in out
    assert "there is no !undo" in out
    assert "!restart  the same task from the start" in out
    assert out.splitlines()[-1] == "left: success no, score 0, turns 0"


def test_commands_reach_the_environment_as_typed(typed: Any) -> None:
    _, out, _ = typed(["ADD 3", " add 3"], *COUNTER)
    assert out.count("(no such action)") == 2


def test_restart_begins_the_same_episode(typed: Any) -> None:
    code, out, _ = typed(
        ["take 1", "!restart", "!quit"], "toy/Counter-v0", "--plugin", "toy_suite:register", "--seed", "9"
    )
    starts = re.findall(r"task (\S+)  seed (\d+)\n.*\n.*\n\n.*\nThe counter shows (\d)\.\n\[turn 0", out)
    assert code == 0
    assert len(starts) == 2
    assert starts[0] == starts[1]


def test_out_of_turns_is_no_success(typed: Any) -> None:
    _, out, _ = typed(["take 1"] * 5, *COUNTER, "max_episode_steps=2")
    assert "[turn 2 of 2]" in out
    assert out.splitlines()[-1] == "out of turns: success no, score 0, turns 2"


def test_the_end_of_the_input_ends_politely(typed: Any) -> None:
    code, out, err = typed([], "alfworld")
    assert (code, err) == (0, "")
    assert "Your task is to:" in out
    assert out.splitlines()[-1] == "left: success no, score 0, turns 0"


def test_a_drawn_seed_is_shown_and_repeats_the_game(typed: Any) -> None:
    _, first, _ = typed(["look"], "alfworld")
    seed = re.search(r"seed (\d+)", first)[1]  # type: ignore[index]
    _, second, _ = typed(["look"], "alfworld", "--seed", seed)
    assert second == first


def test_ctrl_c_and_ctrl_d_at_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stdin = Lines([])
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    for error, code in ((EOFError, 0), (KeyboardInterrupt, 130)):

        def typed(prompt: str, error: type[BaseException] = error) -> str:
            raise error

        monkeypatch.setattr("builtins.input", typed)
        assert main(["play", *COUNTER]) == code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert ("left:" in captured.out) == (code == 0)


def test_an_environment_without_a_list(typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seed_envs.registry._LOADED", set())
    for env_id in ("toy/Counter-v0", "toy/Parrot-v0"):
        monkeypatch.delitem(gym.registry, env_id, raising=False)
    _, out, _ = typed(["?", "3", "cheese"], "parrot", "--plugin", "toy_suite:register", "--task", "cheese")
    assert "has no list of actions" in out
    assert "That is not the word.\n(another word was asked for)" in out  # 3 went to the environment
    assert out.splitlines()[-1] == "solved: success yes, score 1, turns 2"


class Crowd(AgentEnv):
    """Offers many actions and knows no oracle."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    tasks = TaskSet([Task("one", "train", "only", "0" * 64)])
    render_mode = "ansi"

    def _begin(self, task: Task, seed: int) -> View:
        return View("Begin.", [f"go {n:03}" for n in range(2 * PAGE + 5)], image=None)

    def _act(self, action: str) -> View:
        return View("The end.", [], terminated=True, score=0.25, admissible=True, effective=True)

    def _observation(self, view: View) -> dict[str, Any]:
        return {"text": view.text, "image": "pixels"}

    def render(self) -> Any:
        return "#@ .#"


def test_long_lists_are_paged_and_images_are_drawn_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    info = Session(Crowd(), Lines(["?", "?", "?", "?", "?64", "!hint", "65"])).play(seed=0)
    out = capsys.readouterr().out
    assert re.findall(r"\((\d+) to (\d+) of 65; \? for more\)", out) == [
        ("1", "30"), ("31", "60"), ("61", "65"), ("1", "30"),
    ]  # fmt: skip
    assert out.count("  65  go 064\n") == 2
    assert "no oracle" in out
    assert out.count("#@ .#") == 2
    assert out.endswith("not solved: success no, score 0.25, turns 1\n")
    assert info["score"] == 0.25


# --- pictures and short forms -----------------------------------------------------------------------------------------

ROOM = ("sokoban", "--task", "sokoban/6x6-1box/100009", "--seed", "1")


class Drawn(Crowd):
    """Has a picture for people, whose words must not be taken for markup."""

    shortcuts = ({"d": "go 001", "q": "go 002"}, {"d": "go 003", "go 000": "go 004"})

    def terminal(self) -> Any:
        return Text("red [bold]", style="on red")


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], term: str) -> str:
    """Return what the start of an episode of ``Drawn`` prints on a terminal of some kind."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", term)
    Session(Drawn(), Lines([])).play(seed=0)
    return capsys.readouterr().out


def test_a_terminal_gets_the_picture_in_colour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shown(monkeypatch, capsys, "xterm-256color")
    assert "\x1b[41mred [bold]\x1b[0m\n" in out
    assert "#@ .#" not in out


def test_a_terminal_without_colour_gets_its_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shown(monkeypatch, capsys, "dumb")
    assert "red [bold]\n" in out
    assert "\x1b" not in out


def test_a_pipe_gets_text_and_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    Session(Drawn(), Lines([])).play(seed=0)
    out = capsys.readouterr().out
    assert "#@ .#" in out
    assert "red" not in out


def test_short_forms_stand_for_actions(capsys: pytest.CaptureFixture[str]) -> None:
    taken = []

    class Goes(Drawn):
        def _act(self, action: str) -> View:
            taken.append(action)
            return View("On.", ["go 000"], admissible=True, effective=True)

    Session(Goes(), Lines(["q", "d", "go 000", "D", "d ", "x"])).play(seed=0)
    assert taken == ["go 002", "go 001", "go 000", "D", "go 001", "x"]  # what is offered is no short form
    out = capsys.readouterr().out
    assert "(in short: d go 001, q go 002; or d go 003, go 000 go 004)" in out
    assert "= go 002\n" in out


def test_a_key_that_layouts_read_differently_goes_by_the_one_in_use(typed: Any) -> None:
    _, out, _ = typed(["d", "l", "d", "w", "d", "r", "d"], *ROOM)
    assert "> d\nd may be down or right; type the word, or another short form first\n\n> l\n= left\n" in out
    assert re.findall(r"^= (\w+)$", out, re.MULTILINE) == ["left", "down", "up", "right", "right", "down"]
    assert "(in short: u up, d down, l left, r right; or w up, s down, a left, d right)" in out
    assert out.splitlines()[-1].endswith("turns 6")


def test_sokoban_in_a_pipe_is_its_text_board(typed: Any) -> None:
    code, out, err = typed(["!hint", "sideways"], *ROOM)
    assert (code, err) == (0, "")
    (board,) = set(re.findall(r"The image shows the room\.\n((?:[#_OXP]{6}\n){6})", out))  # twice the same
    assert sorted({*board}) == sorted("\n#OPX_")
    assert "(no action 'sideways'; expected up, down, left, right)" in out
    assert "\x1b" not in out


def test_short_forms_reach_other_environments_as_typed(typed: Any) -> None:
    _, out, _ = typed(["u", "w"], *COUNTER)
    assert out.count("(no such action)") == 2
    assert "in short" not in out


def printed(lines: list[str], colours: Any = None, width: int = 40) -> list[str]:
    """Return a room as a terminal shows it."""
    console = Console(force_terminal=True, color_system=colours, width=width, _environ={})
    with console.capture() as capture:
        console.print(terminal.picture(*parse(lines)))
    return capture.get().splitlines()


CELLS = ["#######", "#_P__X#", "#√___O#", "#_____#", "#######"]


def test_every_cell_of_a_room_can_be_told_without_colour() -> None:
    assert printed(CELLS) == [
        "##############  @@ you",
        "##  @@    []##  [] box",
        "##{}      ()##  () target",
        "##          ##  {} box on a target",
        "##############  @) you on a target",
    ]
    assert printed(["#####", "#S__#", "#_X_#", "#___#", "#####"])[1] == "##@)    ##  [] box"
    assert len(set(terminal.GLYPHS.values())) == len(terminal.GLYPHS) == len(SYMBOLS)


def test_every_cell_of_a_room_has_the_colour_of_its_pixel() -> None:
    rows, pixels = printed(CELLS, "truecolor"), render.tiny(*parse(CELLS))
    for row, line in enumerate(CELLS):
        found = re.findall(r"48;2;(\d+);(\d+);(\d+)m(..)\x1b", rows[row])
        assert [tuple(map(int, cell[:3])) for cell in found] == [tuple(map(int, pixel)) for pixel in pixels[row]]
        assert [cell[3] for cell in found] == [terminal.GLYPHS[SYMBOLS.index(symbol)] for symbol in line]


def test_a_room_wider_than_the_terminal_is_cut_not_folded() -> None:
    wide = ["#" * 30, "#PXO" + "_" * 25 + "#", *["#" * 30] * 3]
    assert [len(line) for line in printed(wide, width=20)] == [20] * 5


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["alfworld", "--task", "nope"], "unknown task id 'nope'"),
        (["alfworld", "--split", "tests"], "unknown split 'tests'; "),
        (["alfworld", "splt=train"], "did you mean split?"),
        (["alfworld", "train"], "'train' is no setting; expected key=value"),
        (["alfworld", "--seed", "-3"], "'-3' is no number of 0 or more"),
        (["alfworld", "max_episode_steps=0"], "expected a whole number of 1 or more"),
        (["alfworld", "--data", "/no/such/folder"], "python -m seed_envs fetch alfworld"),
        (["alfworld", "--plugin", "no_such_module"], "plug-in 'no_such_module' cannot be loaded"),
        (["alfwurld"], "unknown environment 'alfwurld'"),
        ([], "required: ID"),
    ],
)
def test_what_cannot_be_played_is_one_line(typed: Any, args: list[str], message: str) -> None:
    code, out, err = typed([], *args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_an_environment_that_cannot_be_made_is_one_line(typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in ("raise TypeError('no such thing')", "sys.exit(0)"):
        monkeypatch.setattr("toy_suite.counter.Counter.__init__", lambda *_, code=code, **__: exec(code))
        status, out, err = typed([], *COUNTER)
        assert (status, out) == (2, "") and err.count("\n") == 1 and "toy/Counter-v0 cannot be made: " in err


def test_a_number_of_thousands_of_digits_is_no_number_in_the_list(typed: Any) -> None:
    code, out, err = typed(["9" * 5000, "!quit"], *COUNTER)
    assert (code, err) == (0, "") and "there is no number" not in out


@pytest.mark.parametrize("method", ["reset", "step"])
def test_an_environment_that_breaks_is_one_line(
    method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("torn")

    monkeypatch.setattr(ALFWorldEnv, {"reset": "_begin", "step": "_act"}[method], broken)
    monkeypatch.setattr("sys.stdin", io.StringIO("look\n"))
    assert main(["play", "ALFWorld-v0"]) == 2
    assert "error: the episode broke: ZeroDivisionError: torn" in capsys.readouterr().err
