"""Prompts as template files: what an agent is told, from what it saw and did."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from seed_envs.errors import ConfigError, DataError, UnknownName
from seed_envs.searchqa.dialects import FILTERS
from seed_envs.seeding import sha256_text

STYLES = ("plain", "react")
IMAGE = "<image>"
"""Where an image stands in a message."""

_FOLDER = Path(__file__).parent / "prompts"
_JINJA = ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined,
    autoescape=False,
    keep_trailing_newline=False,
    trim_blocks=True,
    lstrip_blocks=True,
)
_JINJA.filters.update(FILTERS)


@dataclass(frozen=True, slots=True)
class Past:
    """One turn of the history window."""

    number: int
    """1 for the episode's first turn."""
    observation: str
    """What was seen before the action."""
    action: str
    thought: str = ""


@dataclass(frozen=True)
class Template:
    """A Jinja template of one user message.

    It is given: ``instruction``, ``observation``, ``taken`` (turns taken so far), ``history``
    (``Past`` rows, oldest first), ``admissible`` (actions offered, or None), ``image`` (whether
    an image is shown; write ``<image>`` where it goes). Anything else is an error. The filters of
    ``seed_envs.searchqa.dialects`` put a search and its result into a published form. Blocks are
    trimmed as in chat templates: the line end after ``%}`` goes unless written ``+%}``.
    """

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """The hash of the template text, for the run record."""
        return sha256_text(self.text)

    @cached_property
    def _compiled(self) -> jinja2.Template:
        try:
            return _JINJA.from_string(self.text)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"prompt template {self.name}, line {error.lineno}: {error.message}") from None

    def render(
        self,
        *,
        instruction: str,
        observation: str,
        taken: int,
        history: Sequence[Past] = (),
        admissible: Sequence[str] | None = None,
        image: bool = False,
    ) -> str:
        """Return the message.

        Raises:
            ConfigError: when the template is malformed or asks for something it is not given.
        """
        given: dict[str, Any] = {
            "instruction": instruction,
            "observation": observation,
            "taken": taken,
            "history": list(history),
            "admissible": None if admissible is None else list(admissible),
            "image": image,
        }
        try:
            return self._compiled.render(given)
        except (jinja2.TemplateError, TypeError, ZeroDivisionError) as error:
            known = ", ".join(given)
            raise ConfigError(f"prompt template {self.name}: {error}; a template is given {known}") from None


def builtin_template(kind: str, style: str = "plain") -> Template:
    """Return the template of an environment ``kind`` (``alfworld``, ``sokoban``) in a style.

    Raises:
        UnknownName: when there is none.
    """
    path = _FOLDER / f"{kind}.{style}.jinja"
    if not path.is_file():
        raise UnknownName("prompt template", f"{kind}.{style}", (p.stem for p in sorted(_FOLDER.glob("*.jinja"))))
    return Template(f"{kind}.{style}", path.read_text(encoding="utf-8"))


def read_template(path: Path) -> Template:
    """Return the template in a user's file.

    Raises:
        DataError: when the file cannot be read as UTF-8 text.
        ConfigError: when it is no valid template.
    """
    try:
        template = Template(path.name, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the prompt file {path}: {error}") from None
    _ = template._compiled
    return template
