"""How published runs talk to each environment: history, limits and parser, with sources."""

from dataclasses import dataclass
from typing import Literal

from seed_envs.errors import UnknownName


@dataclass(frozen=True)
class LanguagePreset:
    """Settings of the language layer for one environment.

    Lengths in tokens are of the model's own tokenizer. When a prompt is too long, the oldest
    whole turns of the history go first; the task and the format instructions always stay.
    """

    name: str
    kind: str
    """Which prompt templates and which projection rules."""
    history: int
    """Turns of history shown at most."""
    max_turns: int
    max_prompt_tokens: int
    max_reply_tokens: int
    hidden_actions: tuple[str, ...] = ()
    """Offered by the environment, not listed in the prompt."""
    max_prompt_chars: int | None = None
    """Beyond this many characters the whole history goes at once (published for WebShop)."""
    parser: Literal["strict", "verl_agent"] = "strict"
    style: str = ""
    """The style of prompt template, whatever the method; "" for the method's own."""
    source: str = ""


PRESETS = {
    preset.name: preset
    for preset in (
        LanguagePreset("generic", "generic", 5, 30, 2048, 512, source="for environments without a preset of their own"),
        LanguagePreset("alfworld", "alfworld", 5, 30, 2048, 512, ("help",), source="SEED's limits, strict parser"),
        LanguagePreset(
            "alfworld/seed", "alfworld", 5, 30, 2048, 512, ("help",), parser="verl_agent",
            source="SEED, seed_trainer scripts at 2cf2fad",
        ),
        LanguagePreset(
            "alfworld/sdar", "alfworld", 2, 50, 2048, 512, ("help",), parser="verl_agent",
            source="SDAR's scripts at 8b85c23; verl-agent's own",
        ),
        LanguagePreset(
            "alfworld/micro", "alfworld", 8, 20, 768, 32, ("help", "inventory", "look"), style="compact",
            source="this project's, for models of a few million parameters",
        ),
        LanguagePreset("sokoban", "sokoban", 2, 15, 1024, 512, source="SEED's limits, strict parser"),
        LanguagePreset(
            "sokoban/seed", "sokoban", 2, 15, 1024, 512, parser="verl_agent",
            source="SEED, seed_trainer scripts at 2cf2fad (6x6, 1 box)",
        ),
        LanguagePreset(
            "sokoban/micro", "sokoban", 2, 15, 256, 24, style="compact",
            source="this project's, for models of a few million parameters",
        ),
    )
}  # fmt: skip


def preset_for(env_id: str) -> LanguagePreset:
    """Return the default preset of an environment id; ``generic`` where it has none.

    A third party adds its own to ``PRESETS`` under its environment's name in lower case.
    """
    kind = env_id.rsplit("/", 1)[-1].split("-v", 1)[0].lower()
    return PRESETS.get(kind, PRESETS["generic"])


def get_preset(name: str) -> LanguagePreset:
    """Return the preset called ``name``.

    Raises:
        UnknownName: with the nearest names.
    """
    if name not in PRESETS:
        raise UnknownName("language preset", name, PRESETS)
    return PRESETS[name]
