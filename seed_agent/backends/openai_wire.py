"""What goes over the wire to OpenAI-compatible servers and what comes back, as pure functions."""

import base64
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pydantic import BaseModel, Field, FiniteFloat, TypeAdapter, ValidationError

from seed_agent.images import encode_png
from seed_agent.policy import Completion, Message, Pixels, Sampling
from seed_agent.trajectory import why
from seed_envs.errors import ConfigError
from seed_envs.prompting import IMAGE

_TOO_LONG = re.compile(r"context[ _](length|window|size)|model length|token count|prompt is too long", re.IGNORECASE)


def content(message: Message) -> str | list[dict[str, Any]]:
    """Return the text, or its parts with each image where an ``<image>`` marker stands.

    Raises:
        ConfigError: when there are more images than markers.
    """
    if not message.images:
        return message.text
    first, *others = message.text.split(IMAGE, len(message.images))
    if len(others) != len(message.images):
        raise ConfigError(f"a message has {len(message.images)} images and {len(others)} {IMAGE} markers")
    parts: list[dict[str, Any]] = [{"type": "text", "text": first}]
    for image, text in zip(message.images, others, strict=True):
        parts.append({"type": "image_url", "image_url": {"url": _data_url(image)}})
        parts.append({"type": "text", "text": text})
    return [part for part in parts if part.get("text") != ""]


def _data_url(image: Pixels) -> str:
    return "data:image/png;base64," + base64.b64encode(encode_png(image)).decode("ascii")


def logprobs_agree(sampling: Sampling) -> bool:
    """Whether a server's log-probabilities are the same before and after scaling."""
    return sampling.temperature == 1 and sampling.top_p == 1


def too_long(complaint: str) -> bool:
    """Whether a server complains that the prompt does not fit the model."""
    return _TOO_LONG.search(complaint) is not None


def complaint(body: str) -> str:
    """Return the message in an error's body, in whichever of the usual places it is."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return body
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return found if isinstance(found, str) else json.dumps(found)


def retry_after(value: str) -> float:
    """Return the seconds a ``Retry-After`` header asks for: a number or a date, 0 for anything else."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            seconds = (date - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):
            return 0.0
    return seconds if seconds > 0 else 0.0


def read_completion(body: bytes, sampling: Sampling) -> Completion:
    """Return the first completion of a server's answer.

    Raises:
        ValueError: when there is none, with what is wrong in one line.
    """
    try:
        return _Reply.model_validate_json(body).choices[0].completion(sampling)
    except ValidationError as error:
        raise ValueError(why(error)) from None


class _Logprob(BaseModel):
    logprob: FiniteFloat


_IDS = TypeAdapter(tuple[int, ...])
_LOGPROBS = TypeAdapter(tuple[_Logprob, ...])


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    """One completion as servers return it; what only some return is read with care."""

    message: _Message
    finish_reason: str | None = None
    stop_reason: Any = None
    matched_stop: Any = None
    logprobs: Any = None
    token_ids: Any = None

    def completion(self, sampling: Sampling) -> Completion:
        """Return the completion with its stop string, token ids and log-probabilities."""
        text = self.message.content or ""
        if self.finish_reason == "length":
            return Completion(text, "length", *self._tokens(sampling))
        closing = self._stop_string(text, sampling.stop) if self.finish_reason == "stop" else ""
        return Completion(text if text.endswith(closing) else text + closing, "stop", *self._tokens(sampling))

    def _stop_string(self, text: str, stops: Sequence[str]) -> str:
        """Return the stop string that ended ``text``, "" for none."""
        if {"stop_reason", "matched_stop"} & self.model_fields_set:
            said = self.matched_stop if self.stop_reason is None else self.stop_reason
            return said if said in stops else ""
        return next((stop for stop in stops if _leaves_open(text, stop)), "")

    def _tokens(self, sampling: Sampling) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
        """Return token ids and their log-probabilities, None for what is missing or does not fit."""
        try:
            ids = _IDS.validate_python(self.token_ids)
        except ValidationError:
            return None, None
        if not logprobs_agree(sampling):
            return ids, None
        try:
            logp = tuple(row.logprob for row in _LOGPROBS.validate_python(self.logprobs["content"]))
        except (ValidationError, KeyError, TypeError):
            return ids, None
        return (ids, logp) if len(ids) == len(logp) else (None, None)


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


def _leaves_open(text: str, stop: str) -> bool:
    """Whether ``stop`` is a closing tag and the last such tag in ``text`` is an opening one."""
    name = re.fullmatch(r"</(\w+)>", stop)
    tags = re.findall(rf"<\s*+(/?)\s*+{name[1]}\s*+>", text, re.IGNORECASE) if name else []
    return bool(tags) and not tags[-1]
