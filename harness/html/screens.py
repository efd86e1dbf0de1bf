"""Screens: what a person would have seen in each turn, where an environment draws pages for a browser.

Records keep texts only, and a text does not tell all a page shows (WebShop's has no mark on what was
chosen). So the recorded actions are played again in an environment with ``render_mode="html"``, and
a screen counts only while the observation beside it is the recorded one, to the letter.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from harness.html.packing import CHUNK, compress, records, spaced, visible
from harness.html.reading import RunFiles
from harness.summary import Row
from seed_agent.trajectory import storable
from seed_envs.cli.foreign import call
from seed_envs.errors import SeedError
from seed_envs.vector import EnvMaker

MAX_EPISODES = 500
MAX_BYTES = 16_000_000
"""Above either, fewer of the page's episodes have screens, evenly spaced, and the page says so."""

_STYLE = re.compile("<style>(.*?)</style>", re.DOTALL)


@dataclass(frozen=True)
class _Played:
    """An episode played again."""

    documents: tuple[str, ...]
    """Before each turn and at the end."""
    whole: bool
    """Whether it went as recorded to the end."""


@dataclass(frozen=True)
class Screens:
    """What the page embeds of screens."""

    chunks: tuple[str, ...] = ()
    """Base64 of zlib of JSON, one per chunk of episodes: the documents, and their numbers by episode and turn."""
    style: str = ""
    """The one style sheet that screens may have."""
    note: str = ""
    """What is left out, and why."""


def pack_screens(run: RunFiles, rows: Sequence[Row]) -> Screens:
    """Return the screens of ``rows``, the episodes that the page holds; none where no environment draws any."""
    if not rows or not draws_pages(run.state["config"]["env"]["id"]):
        return Screens()
    chosen = spaced(range(len(rows)), min(len(rows), MAX_EPISODES))
    found: dict[int, _Played] = {}
    problems: list[str] = []
    envs = _Envs(run)
    for place, record in zip(chosen, records(run, [rows[i] for i in chosen]), strict=True):
        try:
            found[place] = _play(envs.of(record["env"]["kwargs"]), record)
        except SeedError as error:
            problems.append(str(error))
    packed = _packed(found, len(rows))
    while sum(map(len, packed)) > MAX_BYTES and len(found) > 1:
        keep = max(1, int(0.95 * len(found) * MAX_BYTES / sum(map(len, packed))))
        found = {place: found[place] for place in spaced(list(found), keep)}
        packed = _packed(found, len(rows))
    style = _STYLE.search(next((played.documents[0] for played in found.values() if played.documents), ""))
    return Screens(packed, style[1] if style else "", _note(found, len(rows), problems))


def draws_pages(env_id: str) -> bool:
    """Whether an environment of this suite has ``render_mode="html"``; no other code is run for a report."""
    import seed_envs  # noqa: F401  (registers its environments)

    entry: Any = gym.registry[env_id].entry_point if env_id in gym.registry else None
    if not isinstance(entry, str) or not entry.startswith("seed_envs."):
        return False
    return "html" in getattr(load_env_creator(entry), "metadata", {}).get("render_modes", ())


class _Envs:
    """The environments of a run, one per split."""

    def __init__(self, run: RunFiles) -> None:
        self._id = run.state["config"]["env"]["id"]
        self._data = run.state.get("options", {}).get("data", "embedded")
        self._made: dict[str, Any] = {}

    def of(self, kwargs: Mapping[str, Any]) -> Any:
        """Return the environment that a record describes, drawing pages.

        Raises:
            SeedError: when it cannot be made here; it is not tried again.
        """
        key = json.dumps(kwargs, sort_keys=True)
        if key not in self._made:
            # Records do not say where data lie; run.json does.
            data = {"data": self._data} if kwargs.get("data") in ("official", "local") else {}
            maker = EnvMaker(self._id, {**kwargs, **data, "render_mode": "html"})
            try:
                self._made[key] = call(self._id, maker).unwrapped
            except SeedError as error:
                self._made[key] = error
        if isinstance(self._made[key], SeedError):
            raise self._made[key]
        return self._made[key]


def _play(env: Any, record: Mapping[str, Any]) -> _Played:
    """Play an episode again, as far as it goes as it was recorded.

    Raises:
        SeedError: when the environment breaks.
    """
    task, turns = record["task_id"], record["turns"]
    seen = [turn["observation"] for turn in turns] + ([record["final"]] if record["final"] else [])
    documents: list[str] = []
    observation, _ = call(task, partial(env.reset, seed=record["seed"], options={"task_id": task}))
    for number, recorded in enumerate(seen):
        if storable(observation["text"]) != recorded["text"]:
            break
        documents.append(visible(call(task, env.render)))
        if number + 1 < len(seen):
            observation = call(task, partial(env.step, turns[number]["action"]))[0]
    return _Played(tuple(documents), len(documents) == len(seen))


def _packed(found: Mapping[int, _Played], total: int) -> tuple[str, ...]:
    """Return the chunks; an episode is a list of numbers of documents, empty where it has none."""
    chunks = []
    for start in range(0, total, CHUNK):
        numbers: dict[str, int] = {}
        places = range(start, min(start + CHUNK, total))
        shown = [found[place].documents if place in found else () for place in places]
        of = [[numbers.setdefault(document, len(numbers)) for document in documents] for documents in shown]
        chunks.append(compress({"documents": list(numbers), "of": of}) if numbers else "")
    return tuple(chunks)


def _note(found: Mapping[int, _Played], total: int, problems: Sequence[str]) -> str:
    """Say what is left out, and why."""
    there = sum(bool(played.documents) for played in found.values())
    torn = sum(not played.whole for played in found.values())
    told = []
    if there < total:
        told.append(f"{there:,} of {total:,} episodes here can show their pages as a person would have seen them")
    if problems:
        told.append(f"{len(problems):,} could not be played again ({problems[0]})")
    if torn:
        told.append(f"{torn:,} went another way when they were played again and show theirs up to there")
    return f"{'; '.join(told)}." if told else ""
