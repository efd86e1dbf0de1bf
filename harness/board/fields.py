"""What the fields of a row may hold: short texts, counts, shares, times, small objects; nothing without bound."""

import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from seed_envs.visible import HIDDEN

TAG = r"^[a-z0-9][a-z0-9._-]{0,150}$"
SHA256 = r"^[0-9a-f]{64}$"
LARGEST = 2**63 - 1


class Part(BaseModel):
    """What every part of a row is: immutable, and without a field that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Open(BaseModel):
    """A part of a summary: what else ``summary.json`` has is kept."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


def _printable(text: str) -> str:
    if found := HIDDEN.search(text):
        raise ValueError(f"it holds the character U+{ord(found[0]):04X}, which no reader would see")
    return text


def _one_line(text: str) -> str:
    if "\n" in text or "\t" in text:
        raise ValueError("it has a line end or a tab; expected one line")
    return _printable(text)


def _small(value: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(value, allow_nan=False)) > 100_000:
        raise ValueError("it is longer than 100,000 characters of JSON")
    return value


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _ordered(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError("its low end is above its high end")
    return pair


Hash = Annotated[str, StringConstraints(pattern=SHA256)]
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")]
Tag = Annotated[str, StringConstraints(pattern=TAG)]
Line = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_one_line)]
Name = Annotated[str, StringConstraints(max_length=200), AfterValidator(_one_line)]
"""May be empty."""
Note = Annotated[str, StringConstraints(max_length=5000), AfterValidator(_printable)]
"""May be empty, and have several lines."""
Command = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
"""Pages show what is hidden in it spelled out."""
Time = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"), AfterValidator(_time)]
"""UTC, ISO 8601, to the second."""
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Some = Annotated[int, Field(ge=1, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
Interval = Annotated[
    tuple[Annotated[float, Field(ge=-10, le=10)], Annotated[float, Field(ge=-10, le=10)]], AfterValidator(_ordered)
]
"""Student's of two training seeds leaves [0, 1] by far: 6.4 at most."""
Facts = Annotated[dict[str, Any], AfterValidator(_small)]
