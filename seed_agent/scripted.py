"""Policies that act on the environment itself: oracle, random, noisy oracle and replay."""

from collections.abc import Sequence
from pathlib import Path

from seed_agent.policy import Decision, Player, Situation
from seed_agent.trajectory import Episode, read_line
from seed_envs.errors import ConfigError, DataError, SeedError, UnknownName
from seed_envs.seeding import Draws, sha256_text
from seed_envs.vector import Failure, GroupVectorEnv

NAMES = ("oracle", "random", "noisy-oracle:P", "replay:FILE")
_OUT_OF_REACH = "Unreachable"


def make(rest: str) -> Player:
    """Make the scripted policy called ``rest``: one of ``NAMES``.

    Raises:
        UnknownName: for another name.
        ConfigError: when an argument is missing, wrong or not wanted.
        DataError: when a replay file cannot be read.
    """
    name, _, argument = rest.partition(":")
    if name in ("oracle", "random"):
        if argument:
            raise ConfigError(f"scripted:{name} takes no argument; got {argument!r}")
        return Oracle() if name == "oracle" else Random()
    if name == "noisy-oracle":
        return Oracle(noise=_probability(argument))
    if name == "replay":
        return Replay(Path(argument)) if argument else _missing("replay:FILE, a trajectories.jsonl")
    raise UnknownName("scripted policy", name, ["oracle", "random", "noisy-oracle", "replay"])


def _missing(what: str) -> Player:
    raise ConfigError(f"an argument is missing; expected scripted:{what}")


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ConfigError(f"{text!r} is no probability; expected scripted:noisy-oracle:P with P from 0 to 1")
    return value


def _scripted(action: str) -> Decision:
    return Decision(reply=action, action=action, stop_reason="scripted")


class Oracle:
    """Follows the environment's own plan; with ``noise``, a random action that often instead.

    A noisy episode can end up where no plan leads on (an object in hand that fits nowhere);
    it then acts at random and fails honestly. The pure oracle reports that as its own error.
    """

    def __init__(self, noise: float = 0.0) -> None:
        """Take a random action with probability ``noise``."""
        self.noise = noise
        self.name = f"scripted:noisy-oracle:{noise!r}" if noise else "scripted:oracle"

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        """Plan anew in every row, so that noise never throws it off."""
        noisy = {s.row for s in situations if self.noise and _draws(s).chance(self.noise)}
        planning = [s.row for s in situations if s.row not in noisy]
        plans = dict(zip(planning, envs.run((row, "oracle", (), {}) for row in planning), strict=True))
        lost = {row for row, plan in plans.items() if self.noise and _out_of_reach(plan)}
        offers = _offers([s for s in situations if s.row in noisy | lost], envs)
        return [_random(s, offers[s.row]) if s.row in offers else self._follow(plans[s.row]) for s in situations]

    @staticmethod
    def _follow(plan: list[str] | Failure) -> Decision | Failure:
        if isinstance(plan, Failure):
            return plan
        if not isinstance(plan, list | tuple) or not all(isinstance(action, str) for action in plan):
            return Failure("OracleError", f"the oracle answered a {type(plan).__name__}; expected a list of texts")
        if not plan:
            return Failure("PolicyError", "the oracle's plan is empty although the episode goes on")
        return _scripted(plan[0])


def _out_of_reach(plan: object) -> bool:
    return isinstance(plan, Failure) and plan.type == _OUT_OF_REACH


class Random:
    """Draws one of the actions offered, or suggested, from the episode's seed and the turn alone."""

    name = "scripted:random"

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        """Draw for every row."""
        offers = _offers(situations, envs)
        return [_random(s, offers[s.row]) for s in situations]


def _draws(situation: Situation) -> Draws:
    return Draws("turn", situation.seed, len(situation.turns))


def _offers(situations: Sequence[Situation], envs: GroupVectorEnv) -> dict[int, Sequence[str]]:
    """Return by row what the environment lists, or what it suggests where it has no list."""
    silent = [s.row for s in situations if s.info["admissible_actions"] is None]
    answers = envs.run((row, "suggestions", (), {}) for row in silent)
    suggested = {row: answer for row, answer in zip(silent, answers, strict=True) if isinstance(answer, list)}
    return {s.row: s.info["admissible_actions"] or suggested.get(s.row, []) for s in situations}


def _random(situation: Situation, actions: Sequence[str]) -> Decision | Failure:
    if not actions:
        return Failure("PolicyError", "a random action needs an environment that lists its actions")
    draws = _draws(situation)
    draws.random_raw()  # the first word decides about noise
    return _scripted(draws.choice(actions))


class Replay:
    """Repeats the replies of recorded episodes, matched by task and attempt.

    Its name holds the hash of the file's content, not its path: another file, another policy.
    """

    def __init__(self, path: Path) -> None:
        """Read the episodes of a ``trajectories.jsonl``.

        Raises:
            DataError: when the file is missing, torn or holds no episodes.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read {path} ({error}); expected the trajectories.jsonl of a run") from None
        self.name = f"scripted:replay:{sha256_text(text)[:12]}"
        lines = text.removesuffix("\n").split("\n") if text else []
        self._episodes: dict[tuple[str, int], Episode] = {}
        for number, line in enumerate(lines, 1):
            try:
                episode = read_line(line)
            except SeedError as error:
                raise DataError(f"{path}:{number}: {error}") from None
            self._episodes[episode.task_id, episode.attempt] = episode
        if not self._episodes:
            raise DataError(f"{path} holds no episodes; expected the trajectories.jsonl of a run")

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        """Give the recorded turn, flags and token ids included."""
        return [self._next(s) for s in situations]

    def _next(self, situation: Situation) -> Decision | Failure:
        episode = self._episodes.get((situation.task_id, situation.attempt))
        if episode is None:
            where = f"task {situation.task_id}, attempt {situation.attempt}"
            return Failure("PolicyError", f"the replay file has no episode of {where}")
        done = len(situation.turns)
        if done >= len(episode.turns):
            return Failure("PolicyError", f"the replay file's episode ends after {done} turns; this one goes on")
        turn = episode.turns[done]
        return Decision(
            reply=turn.reply,
            action=turn.action,
            format_ok=turn.format_ok,
            stop_reason=turn.stop_reason,
            format_reason=turn.format_reason,
            token_ids=turn.token_ids,
            logp=turn.logp,
        )
