"""Policies as a run plans them: a name, what decides their replies, and how to seat them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.protocol import TEMPERATURE
from seed_agent.chat import ChatPlayer, Language
from seed_agent.methods import METHODS
from seed_agent.policy import COLDEST, MODELS, Player, Policy, Sampling, make_player, split_spec
from seed_agent.skills.library import LIBRARIES, skill_for
from seed_envs.core import Info
from seed_envs.errors import ConfigError
from seed_envs.parsing import stops
from seed_envs.presets import LanguagePreset, get_preset, preset_for
from seed_envs.prompting import IMAGE, Past, Template, builtin_template, read_template

_DECIDES = ("kind", "model", "weights_sha256", "dtype", "chat_template_sha256", "chat_template_variables", "min_pixels")
"""Facts of a model that decide its replies; the others (device, threads, versions) are provenance."""


@dataclass(frozen=True)
class Speech:
    """What the command line says about the language layer; None where it says nothing."""

    method: str = "vanilla"
    preset: str | None = None
    prompt_file: Path | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_reply_tokens: int | None = None
    think: bool = True

    @property
    def given(self) -> bool:
        """Whether anything concerns language models only."""
        return self != Speech(preset=self.preset)


@dataclass(frozen=True)
class Seat:
    """A policy in one environment."""

    name: str
    make: Callable[[], Player]
    config: Mapping[str, Any] = field(default_factory=dict)
    """What decides the result beside the name; part of the run's digest."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else a reader of the run wants to know."""
    check: Callable[[], None] | None = None
    """Raises where the policy cannot be asked, such as a server that is not there; to be called before it plays."""


class Seats:
    """Makes seats; a model is loaded once, whatever the number of environments it plays in."""

    def __init__(self, speech: Speech) -> None:
        """Resolve what does not depend on the environment.

        Raises:
            SeedError: when the preset, the method or the prompt file cannot be used.
        """
        self.speech = speech
        self.method = METHODS.get(speech.method)
        self.preset = get_preset(speech.preset) if speech.preset else None
        self.template = read_template(speech.prompt_file) if speech.prompt_file else None
        self._models: dict[str, Policy] = {}

    def seat(self, spec: str, env_id: str, *, image: bool = False) -> Seat:
        """Return the seat of ``spec`` in an environment, which shows pictures where ``image`` says so.

        Raises:
            SeedError: when the policy cannot be made or does not go with the flags.
        """
        kind, rest = split_spec(spec)
        preset = self._preset(env_id)
        if kind not in MODELS:
            player = make_player(spec)
            return Seat(player.name, lambda: player)
        if spec not in self._models:
            self._models[spec] = MODELS.get(kind)(rest)
        policy, language = self._models[spec], self._language(preset)
        _try_out(language.template, image)
        if image and not getattr(policy, "sees", True):
            raise ConfigError(
                f"{policy.name} takes no pictures and {env_id} shows them; "
                "take a vision model, or --set observation=text"
            )
        facts = dict(policy.facts())
        config = {
            "method": self.method.name,
            "model": {key: facts[key] for key in _DECIDES if key in facts},
            "language": language.facts(),
        }
        skill = self._library(language.preset.kind) if self.method.test_skill else None
        check = getattr(policy, "check_server", None)
        return Seat(policy.name, lambda: ChatPlayer(policy, language, skill_for=skill), config, facts, check)

    @staticmethod
    def _library(kind: str) -> Callable[[Info], str]:
        """Return what a method that acts with a skill is shown: the static library's text for the task."""
        LIBRARIES.get(kind)  # an environment without a library is refused before anything is played
        return lambda info: skill_for(kind, info["category"], info["task_id"])

    def _language(self, preset: LanguagePreset) -> Language:
        speech = self.speech
        sampling = Sampling(
            temperature=TEMPERATURE if speech.temperature is None else speech.temperature,
            top_p=1.0 if speech.top_p is None else speech.top_p,
            max_tokens=speech.max_reply_tokens or preset.max_reply_tokens,
            stop=stops(preset.kind),
        )
        template = self.template or builtin_template(preset.kind, preset.style or self.method.prompt)
        language = Language(template, preset, sampling, require_think=speech.think)
        language.parse("")  # refuses a parser that does not know the environment
        return language

    def _preset(self, env_id: str) -> LanguagePreset:
        own = preset_for(env_id)
        if self.preset is None:
            return own
        if self.preset.kind not in (own.kind, "generic"):
            raise ConfigError(f"preset {self.preset.name} is for {self.preset.kind}; {env_id} takes {own.name}")
        return self.preset


def _try_out(template: Template, image: bool) -> None:
    """Render a template as it will be, so that a wrong one is refused before anything is played.

    Raises:
        ConfigError: when it is malformed, asks for what it is not given, or shows no picture.
    """
    for taken in (0, 1):
        past = [Past(1, "something", "an action", "a thought")][:taken]
        text = template.render(
            instruction="a task",
            observation="something",
            taken=taken,
            history=past,
            admissible=["an action"],
            image=image,
        )
        if image and IMAGE not in text:
            raise ConfigError(f"prompt template {template.name} shows no picture; write {IMAGE} where it goes")


def is_model(spec: str) -> bool:
    """Whether ``spec`` names a language model."""
    return split_spec(spec)[0] in MODELS


def limited(max_turns: int | None, speech: Speech) -> int | None:
    """Return the turn limit: the one given, else that of a preset that was named."""
    if max_turns is None and speech.preset is not None:
        return get_preset(speech.preset).max_turns
    return max_turns


def check_flags(speech: Speech, specs: tuple[str, ...]) -> None:
    """Refuse flags of the language layer where no policy speaks.

    Raises:
        ConfigError: naming what was given in vain, or a value out of range.
    """
    if speech.given and not any(is_model(spec) for spec in specs):
        vain = [
            f"--{name.replace('_', '-')}"
            for name, value in vars(replace(speech, preset=None)).items()
            if value != getattr(Speech(), name)
        ]
        flags = ", ".join(vain).replace("--think", "--no-think")
        raise ConfigError(f"{flags} is for language models; no policy here is one (hf:..., vllm:... or openai:...)")
    heat = speech.temperature
    if heat is not None and not (heat == 0 or COLDEST <= heat <= 10):
        raise ConfigError(f"--temperature {heat:g} cannot be used; expected 0 (greedy), or {COLDEST:g} to 10")
    if speech.top_p is not None and not 0 < speech.top_p <= 1:
        raise ConfigError(f"--top-p {speech.top_p:g} cannot be used; expected a number above 0 and at most 1")
