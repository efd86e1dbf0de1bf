"""``seed_envs/ALFWorld-v0``: household tasks in text."""

from typing import Any, ClassVar

from seed_envs import paths
from seed_envs.alfworld import engine, hints, oracle
from seed_envs.alfworld.embedded import EmbeddedSource
from seed_envs.alfworld.official import OfficialSource, open_source
from seed_envs.alfworld.problem import Actions, Game, State, compile_game
from seed_envs.alfworld.sources import GameSource, GameText
from seed_envs.alfworld.textworld import TextWorldBackend
from seed_envs.core import AgentEnv, View
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.seeding import derive
from seed_envs.tasks import Task, resolve_split

BACKENDS = ("native", "textworld")
GOAL_STYLES = ("templated", "human")


def make_source(data: str) -> GameSource:
    """Return the games that ``data`` names: ``embedded``, ``official`` or a folder.

    Raises:
        DataError: when a folder holds no games.
    """
    if data == "embedded":
        return EmbeddedSource()
    return open_source(str(paths.data_root("alfworld") if data == "official" else data))


class ALFWorldEnv(AgentEnv):
    """Household tasks in text: find things, clean, heat or cool them, put them somewhere.

    ## Description
    A native engine plays ALFWorld games with upstream's text, admissible commands and outcome.
    ``backend="textworld"`` plays the same games on the real TextWorld in a child process.

    ## Action Space
    A command, verbatim: ``go to desk 1``, ``take mug 1 from desk 1``, ``open fridge 1``, ...
    ``info["admissible_actions"]`` lists what is offered; anything else answers
    ``Nothing happens.`` and costs a turn.

    ## Observation Space
    ``Dict(text)``: what TextWorld would print.

    ## Starting State
    The middle of a room; the first observation names the receptacles and the goal.

    ## Rewards
    1 when the goal is reached, otherwise 0.

    ## Episode End
    Terminated when won; truncated by the turn limit (30; ``max_episode_steps`` overrides).

    ## Information
    The keys of ``seed_envs.core.Info``; ``extra`` holds ``grammar`` (``move`` or ``put``).

    ## Arguments
    ``data``: ``embedded`` (generated, in the package), ``official`` (``$ALFWORLD_DATA``) or a
    folder in the official layout. ``split``: ``train``, ``valid_seen``, ``valid_unseen``.
    ``backend``: ``native`` or ``textworld``. ``goal_style``: ``templated``, or ``human`` for
    sentences people wrote (official data; which of them depends on the seed alone).

    ## Version History
    v0: text and rules of alfworld 0.4.2.
    """

    version = "0"
    splits: ClassVar[tuple[str, ...]] = ("train", "valid_seen", "valid_unseen")
    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        *,
        data: str = "embedded",
        split: str = "train",
        backend: str = "native",
        goal_style: str = "templated",
        render_mode: str | None = None,
    ) -> None:
        """Open the games; see the class for the arguments.

        Raises:
            UnknownName: for an unknown split, backend or goal style.
            ConfigError: for human goals on embedded data.
            DataError: when the data are missing or torn.
            MissingDependency: when the TextWorld backend is not installed.
        """
        for kind, value, known in (("backend", backend, BACKENDS), ("goal style", goal_style, GOAL_STYLES)):
            if value not in known:
                raise UnknownName(kind, value, known)
        if render_mode not in (None, "ansi"):
            raise UnknownName("render mode", render_mode, ["ansi"])
        self.render_mode = render_mode
        self._source = make_source(str(data))
        if goal_style == "human" and not isinstance(self._source, OfficialSource):
            raise ConfigError(
                "embedded games have no human goal sentences; use data='official' with goal_style='human'"
            )
        self._goal_style = goal_style
        self.split = resolve_split(split, self._source.splits)
        self.tasks = self._source.tasks(self.split)
        self._textworld = TextWorldBackend() if backend == "textworld" else None
        self._game: Game | None = None
        self._state: State | None = None
        self._offered: Actions = {}
        self._text = ""

    @classmethod
    def split_names(cls, *, data: str = "embedded", **kwargs: Any) -> tuple[str, ...]:
        """Return the splits of ``data``, without upstream's extra ``valid_train``."""
        return tuple(split for split in make_source(str(data)).splits if split in cls.splits)

    def identity(self) -> dict[str, Any]:
        """Add the hash of the human sentences, which are no part of a task's content."""
        if self._goal_style != "human":
            return super().identity()
        assert isinstance(self._source, OfficialSource)
        return {**super().identity(), "data_sha256": self._source.human_goals_sha256(self.split)}

    def notices(self) -> list[str]:
        """Say what was skipped and how official data differ from the known release."""
        if not isinstance(self._source, OfficialSource):
            return []
        facts = self._source.describe(self.split)
        lines = [f"{self.split}: skipped {n} games {reason}" for reason, n in facts["skipped"].items()]
        if not self.tasks.name.startswith(self._source.name):
            odd = ", ".join(f"{facts[key]} {key}" for key in ("missing", "added", "changed") if facts[key])
            lines.append(f"{self.split}: not the release the manifest lists ({odd}); scores are of this data only")
        return lines

    def _begin(self, task: Task, seed: int) -> View:
        text = self._source.load(task)
        if self._goal_style == "human":
            assert isinstance(self._source, OfficialSource)
            goals = self._source.human_goals(task)
            sentence = goals[derive("human goal", seed, task.id) % len(goals)]
            text = GameText(text.problem, sentence.rstrip(".") + ".", text.grammar, text.path)
        self.instruction = text.instruction
        self._game = compile_game(text.problem, text.instruction, text.grammar)
        self._state = self._game.start
        if self._textworld is not None:
            shown = self._textworld.begin(text)
            return self._view(shown.text, shown.admissible, shown.won)
        return self._view(engine.intro(self._game, self._state))

    def _act(self, action: str) -> View:
        assert self._game is not None and self._state is not None
        before, offered = self._state, self._offered
        outcome = engine.step(self._game, before, action, offered)
        self._state = outcome.state
        judged: dict[str, Any] = {"admissible": outcome.admissible, "effective": outcome.state != before}
        if not outcome.admissible:
            judged["reason"] = hints.explain(self._game, before, action)
        if self._textworld is not None:
            shown = self._textworld.act(action)
            return self._view(shown.text, shown.admissible, shown.won, **judged)
        return self._view(outcome.text, **judged)

    def _view(self, text: str, listed: list[str] | None = None, won: bool | None = None, **judged: Any) -> View:
        """Show a state. The native engine keeps track beside TextWorld, for ``oracle`` and flags."""
        assert self._game is not None and self._state is not None
        self._offered = engine.admissible(self._game, self._state)
        self._text = text
        if won is None:
            won = engine.won(self._game, self._state)
        return View(
            text=text,
            admissible_actions=list(self._offered) if listed is None else listed,
            reward=float(won),
            terminated=won,
            success=won,
            score=float(won),
            extra={"grammar": self._game.grammar.tag},
            **judged,
        )

    def oracle(self) -> list[str]:
        """Return the shortest direct plan from the current state.

        Raises:
            Unreachable: when the goal is out of reach, e.g. with an object in hand that no
                place takes.
        """
        if self._game is None or self._state is None:
            raise ConfigError("the oracle needs a running episode; call reset() first")
        return oracle.plan(self._game, self._state)

    def render(self) -> str | None:
        """Return the last observation in ``ansi`` mode."""
        return self._text if self.render_mode == "ansi" else None

    def close(self) -> None:
        """End the TextWorld child, if there is one."""
        if self._textworld is not None:
            self._textworld.close()
