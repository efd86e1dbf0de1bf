"""Finished runs of ``harness.eval`` as a leaderboard takes them: unchanged since, and with their provenance."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.board.actions import Header, Logged, of_run
from harness.board.checks import recomputed
from harness.board.entry import Ceiling
from harness.runs import ANOTHER, RECORDS, RUN, SUMMARY, read_run
from harness.summary import Key, Row
from seed_agent.trajectory import why
from seed_envs.errors import DataError
from seed_envs.seeding import canonical, sha256_text


class Changed(DataError):
    """A finished run whose files are not those that it wrote: one is missing, torn or was edited."""


class _Env(BaseModel):
    id: str
    version: str
    kwargs: dict[str, Any]


class _Split(BaseModel):
    manifest: str
    manifest_sha256: str
    tasks: int
    episodes: int


class _Protocol(BaseModel):
    name: str
    draws: int | None = None
    replacement: bool = False


class _Config(BaseModel):
    env: _Env
    max_turns: int | None
    splits: dict[str, _Split] = Field(min_length=1)
    policy: str
    method: str | None = None
    model: dict[str, Any] = {}
    language: dict[str, Any] | None = None
    protocol: _Protocol
    attempts: int = Field(ge=1)
    seed: int


class _Unknown(BaseModel):
    unknown: str


class _Learnt(BaseModel):
    """As ``lineage`` gives it."""

    stage: Literal["rl", "sft"]
    iteration: int
    seed: int
    settings: dict[str, Any]
    sft: dict[str, Any] | None
    base: str
    curve: list[dict[str, Any]]


class _Start(BaseModel):
    policy: dict[str, Any] = {}
    training: _Unknown | _Learnt | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None


class _Ceiling(Ceiling):
    """That of ``run.json`` has the categories beside."""

    model_config = ConfigDict(extra="ignore")


class _State(BaseModel):
    """What is read of ``run.json`` without asking again of what type it is."""

    config: _Config
    provenance: list[_Start] = Field(min_length=1)
    ceilings: dict[str, _Ceiling] = {}


@dataclass(frozen=True)
class Finished:
    """A run folder: its ``run.json`` and its ``summary.json``."""

    folder: Path
    state: Mapping[str, Any]
    summary: Mapping[str, Any]

    @property
    def config(self) -> Mapping[str, Any]:
        """What decided the result."""
        return dict(self.state["config"])

    @property
    def starts(self) -> list[Mapping[str, Any]]:
        """The provenance of every start, oldest first."""
        return list(self.state["provenance"])

    @property
    def protocol(self) -> str:
        """The protocol's name."""
        return str(self.config.get("protocol", {}).get("name", "full"))

    @contextmanager
    def episodes(self) -> Iterator[tuple[Header, dict[Key, Row], Iterator[Logged]]]:
        """Open the records, as ``actions.of_run``.

        Raises:
            DataError: also when ``summary.json`` is not what the records give.
        """
        with of_run(self.folder / RECORDS) as (header, rows, episodes):
            found = recomputed(rows, int(self.summary["planned"]), self.protocol)
            if found != self.summary:
                raise DataError(
                    f"{self.folder / SUMMARY} is not what {RECORDS} gives (it says {_first(self.summary, found)}); "
                    "one of the two was changed since the run was finished"
                )
            _expect(self.config, header, rows, self.folder)
            yield header, rows, episodes


def _expect(config: Mapping[str, Any], header: Header, rows: Mapping[Key, Row], folder: Path) -> None:
    """Raise ``DataError`` where the records are not of the run that ``config`` describes."""
    stated = {name: (split["manifest_sha256"], split["episodes"]) for name, split in config["splits"].items()}
    played = Counter(split for split, _, _ in rows)
    found = {name: (record.manifest_sha256, played[name]) for name, record in header.splits.items()}
    envs = {(record.id, record.max_turns) for record in header.splits.values()}
    if (header.policy, found, envs) != (config["policy"], stated, {(config["env"]["id"], config["max_turns"])}):
        raise DataError(
            f"{folder / RECORDS} is not of the run that {folder / RUN} describes; one of the two was changed"
        )


def _first(stated: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    from harness.runs import flat

    old, new = flat(stated), flat(found)
    key = next((key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)), "the same")
    return f"{key} {old.get(key)!r:.70}; the records give {new.get(key)!r:.70}"


def read_finished(folder: Path) -> Finished:
    """Read a finished run.

    Raises:
        Changed: when it was finished, and its configuration was edited or its summary is missing or torn.
        SeedError: when the folder holds none, or it was not finished.
    """
    if not folder.is_dir():
        raise DataError(f"there is no run in {folder}; expected a folder that harness.eval wrote")
    state = read_run(folder, ANOTHER)
    if state is None:
        raise DataError(f"there is no run in {folder}; expected a folder that harness.eval wrote")
    if state["status"] != "finished":
        raise DataError(f"the run in {folder} is {state['status']}, not finished; repeat its command to go on")
    try:
        _State.model_validate(state, strict=True)
        sound = sha256_text(canonical(state["config"])) == state["digest"]
    except ValidationError as error:
        raise DataError(f"{folder / RUN} is not as it was written: {why(error)}; repeat its command") from None
    except (ValueError, TypeError, RecursionError):  # no JSON that this program writes
        sound = False
    if not sound:
        raise Changed(f"{folder / RUN} is not as it was written: its configuration has another digest")
    return Finished(folder, state, _summary(folder / SUMMARY))


def _summary(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "no JSON"
        raise Changed(f"{path} cannot be read ({reason}); repeat the run's command, which writes it again") from None
    if not isinstance(found, dict) or type(found.get("planned")) is not int:
        raise Changed(f"{path} is not as it was written; remove it and repeat the run's command")
    return found
