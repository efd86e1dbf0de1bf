"""Single episodes: the same task played by several methods side by side, and a strip of pictures."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.html.curves import spaced
from harness.plots.look import code_of, colour_of, label_of, page, plain
from harness.plots.reading import Result, one_env, records, results
from harness.runs import IMAGES
from seed_agent.trajectory import Episode, Turn
from seed_envs.errors import ConfigError, DataError, UnknownName
from seed_envs.parsing import strict
from seed_envs.tasks import resolve_split

_SEEN, _THOUGHT, _WIDE, _SIZE, _LINE = 260, 220, 62, 6.5, 0.125
"""Letters shown of an observation and a thought, letters of a line, points of letters, inches of lines."""
_PICTURE = 1.15
"""Inches of a picture and the space around it."""


@dataclass(frozen=True)
class Attempt:
    """A method's episode at the task."""

    result: Result
    episode: Episode

    @property
    def title(self) -> str:
        """Whose episode it is and how it ended."""
        one = self.result.whose
        seed = "" if one.seed is None else f", seed {one.seed}"
        return f"{one.label}{seed}: {self.episode.outcome.replace('_', ' ')}, {len(self.episode.turns)} turns"


def attempts(runs: Sequence[str], split: str | None, task: str | None) -> list[Attempt]:
    """Return each run's first attempt at one task: the one named, or the first that tells the runs apart.

    Raises:
        SeedError: when the runs have no such split or no task in common.
    """
    found = results(runs)
    one_env(found, "this figure")
    known = list(dict.fromkeys(one.split for one in found))
    name = known[0] if split is None else resolve_split(split, known)
    here = [one for one in found if one.split == name]
    if len(here) < len(runs):
        raise ConfigError(f"only {len(here)} of {len(runs)} runs played {name}; expected a split that all have")
    wins = [{row.key[1]: row.success for row in reversed(one.rows)} for one in here]
    shared = sorted(set(wins[0]).intersection(*wins[1:]))
    if not shared:
        raise ConfigError(f"the runs have no task of {name} in common")
    if task is not None and task not in shared:
        raise UnknownName("task of all runs", task, shared)
    telling = [one for one in shared if wins[0][one] and not all(w[one] for w in wins)]
    telling += [one for one in shared if len({w[one] for w in wins}) > 1]
    telling += [one for one in shared if wins[0][one]]
    chosen = task or (telling or shared)[0]
    return [Attempt(one, _episode(one, chosen)) for one in here]


def _episode(one: Result, task: str) -> Episode:
    first = next(row for row in one.rows if row.key[1] == task)
    whole = [episode for episode in records(one.whose.folder) if episode.key == first.key]
    return whole[-1]  # of an episode that broke and was played again, the last counts


def side_by_side_figure(found: Sequence[Attempt], turns: int) -> Any:
    """Write out what each method saw, thought and did at the same task, as SEED's figures 6 and 12 to 17 do.

    Args:
        found: An attempt for each column.
        turns: Shown of each; the ones in the middle are left out where there are more.
    """
    columns = [list(_lines(one.episode, turns)) for one in found]
    caption = (
        f"{_about(found)} Grey: what was seen; below it the thought; bold: the action, \N{BALLOT X} where it was "
        "refused or the reply was ill-formed."
    )
    height = _LINE * (max(map(len, columns)) + 2)
    figure = page(_WIDE * _SIZE * 0.0088 * len(columns), height, caption)
    axes = figure.subplots(1, len(columns), squeeze=False).ravel()
    for place, one, lines in zip(axes, found, columns, strict=True):
        place.set_axis_off()
        place.set_title(plain(one.title), fontsize=8, loc="left", color=colour_of(one.result.whose.method)[0])
        place.set_ylim(height / _LINE - 2, 0)
        for at, (text, look) in enumerate(lines):
            place.text(0, at + 0.5, plain(text), fontsize=_SIZE, family="DejaVu Sans Mono", **look)
    return figure


def _lines(episode: Episode, most: int) -> Any:
    """Yield the lines of a column with their look."""
    chosen = spaced_ends(list(enumerate(episode.turns, 1)), most)
    before = 0
    for number, turn in chosen:
        if number > before + 1:
            yield f"({number - before - 1} turns left out)", {"color": "#888888", "style": "italic"}
        before = number
        seen = turn.observation.text or ("a picture" if turn.observation.images else "")
        yield from ((line, {"color": "#777777"}) for line in _wrapped(f"{number:2}  ", seen, _SEEN))
        if thought := strict(turn.reply).thought:
            yield from ((line, {"color": "#222222"}) for line in _wrapped("    ", thought, _THOUGHT))
        yield from ((line, {"weight": "bold"}) for line in _wrapped(_mark(turn), turn.action or "(nothing)", _SEEN))
        yield "", {}
    if episode.final is not None and episode.final.text:
        yield from ((line, {"color": "#777777"}) for line in _wrapped("end ", episode.final.text, _SEEN))


def _mark(turn: Turn) -> str:
    return "  \N{BALLOT X} " if turn.admissible is False or not turn.format_ok else "  > "


def _wrapped(lead: str, text: str, most: int) -> list[str]:
    short = " ".join(text.split())
    short = short if len(short) <= most else f"{short[: most - 1].rstrip()}…"
    return textwrap.wrap(short, _WIDE, initial_indent=lead, subsequent_indent="    ") or [lead.rstrip()]


def spaced_ends(items: list[Any], most: int) -> list[Any]:
    """Return the first and the last of ``items``, ``most`` in all."""
    if len(items) <= most:
        return items
    return [*items[: most - most // 2], *items[len(items) - most // 2 :]]


def strip_figure(found: Sequence[Attempt], most: int) -> Any:
    """Put the pictures of episodes in rows, the action taken below each, as SEED's figure 7 does.

    Raises:
        SeedError: when an episode has no pictures, or they are not in the run's folder.
    """
    from matplotlib.image import imread

    rows = [spaced(_pictures(one), most) for one in found]
    across = max(map(len, rows))
    figure = page(across * _PICTURE, len(rows) * (_PICTURE + 0.35), f"{_about(found)} Below each picture: the action.")
    axes = figure.subplots(len(rows), across, squeeze=False)
    for line, one, pictures in zip(axes, found, rows, strict=True):
        for place in line:
            place.set_axis_off()
        for place, (path, text) in zip(line, pictures, strict=False):
            place.imshow(imread(path), interpolation="nearest")
            place.text(0.5, -0.04, plain(text), transform=place.transAxes, ha="center", va="top", fontsize=7)
        line[0].set_title(plain(one.title), fontsize=8, loc="left", color=colour_of(one.result.whose.method)[0])
    return figure


def _pictures(one: Attempt) -> list[tuple[Path, str]]:
    """Return the files of an episode's pictures and the action taken at each, the last one's outcome in its place."""
    episode, folder = one.episode, one.result.whose.folder
    seen = [(turn.observation.images, f"{i} {turn.action or '(nothing)'}") for i, turn in enumerate(episode.turns, 1)]
    if episode.final is not None:
        seen.append((episode.final.images, episode.outcome.replace("_", " ")))
    found = [(folder / IMAGES / f"{image.file_sha256}.png", text) for images, text in seen for image in images[:1]]
    if not found:
        raise ConfigError(f"the episode in {folder} has no pictures; expected a run of an environment that shows some")
    missing = next((path for path, _ in found if not path.is_file()), None)
    if missing is not None:
        raise DataError(f"{missing} is missing; pictures are kept by python -m harness.eval, not by training")
    return found


def _about(found: Sequence[Attempt]) -> str:
    """Return which task it is, whose goal, n and code."""
    episode, whose = found[0].episode, [one.result.whose for one in found]
    goal = " ".join(episode.instruction.split())
    goal = goal if len(goal) <= 200 else f"{goal[:199]}…"
    names = " and ".join(dict.fromkeys(label_of(one.method) for one in whose))
    return (
        f"{whose[0].env} {episode.split}, task {episode.task_id}, by {names} (n = 1 episode each). {goal} "
        f"{code_of(commit for one in whose for commit in one.commits)}"
    )
