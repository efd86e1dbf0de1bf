"""``seed_envs/Sokoban-v0``: push boxes onto targets, seen as a picture or as text."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium import spaces

from seed_envs import paths
from seed_envs.core import MAX_TEXT, AgentEnv, View
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.sokoban import engine, render, solver
from seed_envs.sokoban.boxoban import RELEASED, BoxobanLevels
from seed_envs.sokoban.engine import DIRECTIONS
from seed_envs.sokoban.generator import Level
from seed_envs.sokoban.sources import RANDOM, SPLITS, EmbeddedRooms, RandomRooms, RoomSource
from seed_envs.spaces import Utf8
from seed_envs.tasks import Task, resolve_split

if TYPE_CHECKING:
    from rich.console import Group

OBSERVATIONS = ("rgb", "tiny", "text")
PARITIES = ("none", "verl_agent")
INSTRUCTION = "Push every box onto a target."
PICTURE_TEXT = "The image shows the room."
_WORDS = (*DIRECTIONS, "still")

Size = str | Sequence[int]


def make_source(data: str, size: Size | None = None, boxes: int | None = None) -> RoomSource:
    """Return the rooms that the arguments name; see ``SokobanEnv``.

    Raises:
        ConfigError: when a size cannot be made, or is given for levels from files.
        DataError: when a folder holds no levels.
    """
    chosen = size is not None or boxes is not None
    if data == "embedded":
        return RandomRooms(*read_size("6x6" if size is None else size), _count(boxes)) if chosen else EmbeddedRooms()
    if chosen:
        raise ConfigError("levels from files have a size of their own; use size and boxes with data='embedded'")
    return BoxobanLevels(paths.data_root("sokoban") if data == "official" else Path(data).expanduser())


def read_size(size: Size) -> tuple[int, int]:
    """Return (rows, columns) from ``"6x7"`` or ``(6, 7)``.

    Raises:
        ConfigError: when it is neither.
    """
    found = re.fullmatch(r"(\d{1,4})x(\d{1,4})", size) if isinstance(size, str) else None
    pair: list[Any] = [] if isinstance(size, str) or not isinstance(size, Sequence) else list(size)
    values = [int(n) for n in found.groups()] if found else pair
    if len(values) != 2 or any(type(value) is not int for value in values):
        raise ConfigError(f"{size!r} is no room size; expected rows and columns such as '6x6' or (6, 6)")
    return values[0], values[1]


def _count(boxes: int | None) -> int:
    if boxes is None:
        return 1
    if type(boxes) is not int:
        raise ConfigError(f"{boxes!r} is no number of boxes; expected an integer from 1")
    return boxes


class SokobanEnv(AgentEnv):
    """A player in a room of walls pushes boxes onto targets; what is pushed wrongly stays stuck.

    ## Description
    gym-sokoban's rules and rewards on rooms of an own generator. With one or two boxes the length
    of the shortest solution is known exactly.

    ## Action Space
    ``up``, ``down``, ``left`` or ``right``, verbatim: walk a cell, pushing a box that has free
    floor behind it. Anything else is refused: nothing changes and the turn is spent.

    ## Observation Space
    ``Dict(text, image)``. ``observation="rgb"``: a picture of 16 pixels a cell, uint8 of shape
    (16 * rows, 16 * columns, 3), 96x96 for 6x6 rooms; ``"tiny"``: one pixel a cell. Both have a
    fixed sentence as text. ``"text"``: no image, and the text is the room, one line a row: ``#``
    wall, ``_`` floor, ``O`` target, ``X`` box, ``√`` box on a target, ``P`` player, ``S`` player
    on a target. Where a split has rooms of several sizes, smaller ones are shown with more wall
    at the right and below.

    ## Starting State
    No box on a target, the player on plain floor; Boxoban levels start as their files say.

    ## Rewards
    -0.1 a turn, +1 when more boxes are on targets than before, -1 when fewer, +10 when all are.

    ## Episode End
    Terminated when all boxes are on targets; truncated by the turn limit (15;
    ``max_episode_steps`` overrides). A stuck box does not end the episode.

    ## Information
    The keys of ``seed_envs.core.Info``. ``score`` is 1 when solved, else 0. ``extra`` holds
    ``difficulty`` (moves at the start, None when unknown), ``difficulty_kind`` (``optimal``,
    ``upper_bound``, ``unknown``), ``size`` (``"6x6"``), ``boxes`` (how many) and ``on_target`` (the
    share of them that is on targets).

    ## Arguments
    ``data``: ``embedded`` (generated), ``official`` (Boxoban below ``$SEED_DATA/sokoban``) or a
    folder of Boxoban levels. ``split``: ``train``, ``seen`` (other rooms, as large), ``unseen``
    (larger rooms, two boxes); ``hard``, ``medium-train``, ... for Boxoban. ``size`` (``"7x7"``,
    rows x columns from 5x5) and ``boxes`` make rooms of any kind from seeds, split ``random``.
    ``observation``: see above. ``parity="verl_agent"``: see ``docs/sokoban.md``. ``render_mode``:
    ``ansi`` or ``rgb_array``.

    ## Version History
    v0: rules of gym-sokoban 0.0.6.
    """

    version = "0"
    splits: ClassVar[tuple[str, ...]] = SPLITS
    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012
    instruction = INSTRUCTION
    shortcuts: ClassVar[Sequence[Mapping[str, str]]] = (
        {"u": "up", "d": "down", "l": "left", "r": "right"},
        {"w": "up", "s": "down", "a": "left", "d": "right"},
    )
    """For people: see ``seed_envs.cli.play``."""

    def __init__(
        self,
        *,
        data: str = "embedded",
        split: str | None = None,
        size: Size | None = None,
        boxes: int | None = None,
        observation: str = "rgb",
        parity: str = "none",
        render_mode: str | None = None,
    ) -> None:
        """Open the rooms; see the class for the arguments.

        Raises:
            UnknownName: for an unknown split, observation, parity or render mode.
            ConfigError: for a size or number of boxes no room can be made of.
            DataError: when levels are missing or torn.
        """
        known = (("observation", observation, OBSERVATIONS), ("parity", parity, PARITIES))
        for kind, value, values in known:
            if value not in values:
                raise UnknownName(kind, value, values)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UnknownName("render mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        if split == RANDOM and data == "embedded":
            size = size or "6x6"
        self._source = make_source(str(data), size, boxes)
        self._loose = parity == "verl_agent"
        self._observe = observation
        self.split = resolve_split(split or self._source.splits[0], self._source.splits)
        self.tasks = self._source.tasks(self.split)
        self._canvas = self._source.canvas(self.split)
        self.observation_space = self._space()
        self._level: Level | None = None
        self._state = engine.State(0, 0)
        self._plan: list[str] = []

    @classmethod
    def split_names(
        cls, *, data: str = "embedded", size: Size | None = None, boxes: int | None = None, **kwargs: Any
    ) -> tuple[str, ...]:
        """Return the splits of these rooms."""
        return tuple(make_source(str(data), size, boxes).splits)

    def notices(self) -> list[str]:
        """Say how Boxoban levels on disk differ from the release."""
        if not self.tasks.name.startswith("boxoban-local/"):
            return []
        return [f"{self.split}: {len(self.tasks)} levels, the release has {RELEASED[self.split]}"]

    def _space(self) -> spaces.Dict:
        text = Utf8(MAX_TEXT)
        if self._observe == "text":
            return spaces.Dict({"text": text})
        side = render.TILE if self._observe == "rgb" else 1
        shape = (self._canvas[0] * side, self._canvas[1] * side, 3)
        return spaces.Dict({"text": text, "image": spaces.Box(0, 255, shape, np.uint8)})

    def _begin(self, task: Task, seed: int) -> View:
        self._level = self._source.load(task)
        self._state = self._level.start
        self._plan = list(self._level.plan)
        return self._view()

    def _act(self, action: str) -> View:
        assert self._level is not None
        word = self._word(action)
        number = DIRECTIONS.index(word) + 1 if word in DIRECTIONS else engine.STILL
        before = self._state
        self._state, reward, _ = engine.step(self._level.room, before, number)
        if self._state != before:
            # A plan is followed to its end: planning anew each turn could go to and fro between two.
            self._plan = self._plan[1:] if self._plan[:1] == [word] else []
        reason = "" if word else f"no action {action[:40]!r}; expected {', '.join(DIRECTIONS)}"
        return self._view(reward=reward, admissible=bool(word), effective=self._state != before, reason=reason)

    def _word(self, action: str) -> str | None:
        """Return what the action means: itself, or by verl-agent's rule the first word it contains."""
        if not self._loose:
            return action if action in DIRECTIONS else None
        lowered = action.lower()
        return next((word for word in _WORDS if word in lowered), None)

    def _view(self, **judged: Any) -> View:
        assert self._level is not None
        level, state = self._level, self._state
        room, solved = level.room, engine.solved(level.room, state)
        image = None
        if self._observe != "text":
            draw = render.rgb if self._observe == "rgb" else render.tiny
            image = draw(room, state, canvas=self._canvas)
        return View(
            text=self.board() if image is None else PICTURE_TEXT,
            image=image,
            admissible_actions=sorted(DIRECTIONS),
            terminated=solved,
            success=solved,
            score=float(solved),
            extra={
                "difficulty": level.difficulty,
                "difficulty_kind": level.kind,
                "size": f"{room.height}x{room.width}",
                "boxes": state.boxes.bit_count(),
                "on_target": (state.boxes & room.targets).bit_count() / state.boxes.bit_count(),
            },
            **judged,
        )

    def board(self) -> str:
        """Return the room as it stands, a line a row in the symbols of ``engine.SYMBOLS``, whatever is observed."""
        assert self._level is not None
        return "\n".join(engine.rows(self._level.room, self._state))

    def oracle(self) -> list[str]:
        """Return moves that solve the room from here: the fewest for one or two boxes.

        Raises:
            Unreachable: when a box is stuck, or with more boxes no plan was found in the bound.
        """
        if self._level is None:
            raise ConfigError("the oracle needs a running episode; call reset() first")
        if not self._plan:
            self._plan = solver.solve(self._level.room, self._state)
        return list(self._plan)

    def render(self) -> str | render.Pixels | None:
        """Return the room as text (``ansi``) or as a picture (``rgb_array``)."""
        if self._level is None or self.render_mode is None:
            return None
        if self.render_mode == "ansi":
            return self.board()
        return render.rgb(self._level.room, self._state, canvas=self._canvas)

    def terminal(self) -> "Group":
        """Return the room in coloured cells, for people; see ``seed_envs.cli.play``."""
        from seed_envs.sokoban import terminal

        if self._level is None:
            raise ConfigError("there is no room yet; call reset() first")
        return terminal.picture(self._level.room, self._state)
