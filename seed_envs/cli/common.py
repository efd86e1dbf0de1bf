"""What every command shares: exit codes, one-line errors, tables, and arguments of an environment."""

import argparse
import codecs
import contextlib
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from seed_envs.cli import catalogue
from seed_envs.cli.foreign import exit_call, mend_streams
from seed_envs.errors import ConfigError, SeedError
from seed_envs.vector import EnvMaker
from seed_envs.visible import escaped, escaped_json

OK, FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141


def guarded(function: Callable[[], int], *, show_traceback: bool = False) -> int:
    """Run a command and return its exit code; what a user can cause never shows a traceback.

    Args:
        function: the command; its own code is returned when it ends by itself.
        show_traceback: also print the traceback of an error, for bug reports.

    Returns:
        2 after a ``SeedError`` or a failing file operation (one line on stderr), 130 after
        Ctrl-C, 141 when the reader of stdout has gone (silently, as other programs do).
    """
    mend_streams()
    try:
        code = _ended(function)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _discard(sys.stdout)
        return BROKEN_PIPE
    except (SeedError, OSError) as error:
        if show_traceback:
            note(traceback.format_exc().rstrip())
        note(f"error: {_with_folder(one_line(error))}")
        try:
            sys.stdout.flush()
        except OSError:
            _discard(sys.stdout)
        return USAGE


class ParserExit(SystemExit):
    """How ``Parser`` ends after --help or --version; no other ``SystemExit`` is a command's own."""


def _ended(function: Callable[[], int]) -> int:
    """Return the code of a command; code it has loaded may not end it.

    Raises:
        ConfigError: when something else than the parser called ``sys.exit``.
    """
    try:
        return function()
    except ParserExit as end:
        return end.code if isinstance(end.code, int) else OK
    except SystemExit as end:
        raise ConfigError(
            f"a plug-in, environment or policy called {exit_call(end)}; it is to raise an error instead; "
            "add --traceback to see where"
        ) from end


def _discard(stream: TextIO) -> None:
    """Send what is still buffered nowhere, else the interpreter complains at exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _with_folder(message: str) -> str:
    """Return ``message``, or why nothing can be found where the current folder was removed."""
    try:
        Path.cwd()
    except OSError:
        return f"the current folder is gone ({message}); change to one that exists: cd ~"
    return message


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` without line breaks."""
    if isinstance(error, OSError) and error.strerror:
        name = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{name}"
    return " ".join(str(error).split()) or type(error).__name__


def note(text: str) -> None:
    """Write a line to stderr: progress and errors, never results; that it cannot be is no error.

    Control characters, of names in records for instance, are written as escapes: they command no terminal.
    """
    try:
        sys.stderr.write(escaped(text) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        _discard(sys.stderr)


def say(text: str = "") -> None:
    """Write a line to stdout: results only, control characters as ``note`` writes them."""
    sys.stdout.write(escaped(text) + "\n")


def say_json(value: object) -> None:
    """Write a result as JSON to stdout, in ASCII where stdout cannot take every character."""
    utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    say(escaped_json(json.dumps(value, indent=2, ensure_ascii=not utf8)))


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ``ConfigError`` (so exit code 2 and one line) and never abbreviates."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what ``argparse.ArgumentParser`` takes."""
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    raw_text = argparse.RawDescriptionHelpFormatter
    """A formatter that leaves line breaks in descriptions and epilogs alone."""

    @staticmethod
    def count(text: str) -> int:
        """Read a number that is not negative, for ``type=``."""
        if not text.isdecimal():
            raise argparse.ArgumentTypeError(f"{text!r} is no number of 0 or more")
        return int(text)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise ConfigError(f"{message}; '{self.prog} --help' shows what can be given")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise what ``guarded`` takes for the end of a command."""
        if message:
            note(message.rstrip())
        raise ParserExit(status)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, keep: Sequence[int] = (0,)) -> None:
    """Write a table to stdout; columns in ``keep`` are never wrapped or cut, so they can be copied.

    In a pipe the table is plain: no frame, no colour, one line per row, as wide as it needs.
    Line breaks in a cell are kept in a terminal and become blanks in a pipe.
    """
    rows = [list(map(escaped, row)) for row in rows]
    if not sys.stdout.isatty():
        lines = [list(columns), *([cell.replace("\n", " ") for cell in row] for row in rows)]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        for line in lines:
            say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    from rich.console import Console  # a tenth of a second at every start, and a pipe needs none of it
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        shown.add_column(column, no_wrap=i in keep, overflow="ignore" if i in keep else "fold")
    for row in rows:
        shown.add_row(*map(Text, row))
    kept = sum(max(len(line) for row in [columns, *rows] for line in row[i].split("\n")) + 2 for i in keep)
    needed = kept + 20 * (len(columns) - len(keep))
    Console(file=sys.stdout, width=max(shutil.get_terminal_size().columns, needed)).print(shown, crop=False)


def names(values: Sequence[str], flag: str) -> tuple[str, ...]:
    """Return the names that a flag was given, as comma lists or repeated, each once.

    Raises:
        ConfigError: when one of them is empty.
    """
    found = [name.strip() for value in values for name in value.split(",")]
    if not all(found):
        raise ConfigError(f"{flag} has an empty name; expected names separated by commas")
    return tuple(dict.fromkeys(found))


def add_plugins(parser: argparse.ArgumentParser) -> None:
    """Add ``--plugin`` and ``--traceback``, which every command takes."""
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="MODULE", help="import this first (module or module:function)"
    )
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")


def add_environment(parser: argparse.ArgumentParser) -> None:
    """Add what names an environment: ID, ``key=value``, ``--data``, ``--split`` and ``--plugin``."""
    parser.add_argument("id", metavar="ID", help="environment, e.g. ALFWorld-v0 (see: python -m seed_envs list)")
    parser.add_argument(
        "settings", nargs="*", default=[], metavar="key=value", help="constructor arguments (see: info ID)"
    )
    parser.add_argument("--data", help="the same as data=DATA: embedded, official or a folder")
    parser.add_argument("--split", help="the same as split=SPLIT")
    add_plugins(parser)


def environment(args: argparse.Namespace) -> EnvMaker:
    """Return the recipe for the environment that the arguments of ``add_environment`` name.

    Raises:
        SeedError: when there is no such environment or it has no such argument.
    """
    env_id = catalogue.resolve(args.id, catalogue.environment_ids(args.plugin))
    flags = [f"{key}={value}" for key, value in (("data", args.data), ("split", args.split)) if value is not None]
    return EnvMaker(env_id, catalogue.parse_settings(env_id, [*args.settings, *flags]), tuple(args.plugin))
