"""How published runs talk to each environment: history, limits and parser, with sources."""

from dataclasses import dataclass
from typing import Literal

from seed_envs.errors import UnknownName


@dataclass(frozen=True)
class LanguagePreset:
    """Settings of the language layer for one environment.

    Lengths in tokens are of the model's own tokenizer. When a prompt is too long, the oldest
    whole turns of the history go first; the task and the format instructions always stay. A
    conversation that is too long is not cut: the model is not asked any more.
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
    layout: Literal["turn", "conversation"] = "turn"
    """``turn``: every turn is a fresh prompt of one message, with a window of history. ``conversation``: the
    observations and replies of the whole episode, each a message; nothing is ever taken out, so ``history``
    means nothing. Its template writes the first message where ``taken`` is 0 and a later one elsewhere."""
    source: str = ""


PRESETS = {
    preset.name: preset
    for preset in (
        LanguagePreset("generic", "generic", 5, 30, 2048, 512, source="for environments without a preset of their own"),
        LanguagePreset(
            "generic/conversation", "generic", 0, 30, 16_384, 512, style="conversation", layout="conversation",
            source="this project's: the whole episode as one chat",
        ),
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
        LanguagePreset(
            "alfworld/conversation", "alfworld", 0, 30, 16_384, 512, ("help",), style="conversation",
            layout="conversation", source="this project's: the whole episode as one chat",
        ),
        LanguagePreset("searchqa", "searchqa", 4, 4, 4096, 512, source="SEED's limits, strict parser"),
        LanguagePreset(
            "searchqa/seed", "searchqa", 4, 4, 4096, 512, parser="verl_agent",
            source="SEED, seed_trainer scripts at 2cf2fad (top_k 3)",
        ),
        LanguagePreset(
            "searchqa/search-r1", "searchqa", 0, 4, 4096, 500, style="search_r1", layout="conversation",
            source="Search-R1's dialect and limits at a14dc3a; found passages come as user messages",
        ),
        LanguagePreset(
            "searchqa/micro", "searchqa", 4, 4, 768, 48, style="compact",
            source="this project's, for models of a few million parameters",
        ),
        LanguagePreset(
            "searchqa/conversation", "searchqa", 0, 4, 8_192, 512, style="conversation", layout="conversation",
            source="this project's: the whole episode as one chat",
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
        LanguagePreset(
            "sokoban/conversation", "sokoban", 0, 15, 8_192, 512, style="conversation", layout="conversation",
            source="this project's: the whole episode as one chat",
        ),
        LanguagePreset("webshop", "webshop", 2, 15, 4096, 512, source="SEED's limits, strict parser"),
        LanguagePreset(
            "webshop/seed", "webshop", 2, 15, 4096, 512, max_prompt_chars=20_000, parser="verl_agent",
            source="SEED, seed_trainer scripts at 2cf2fad (small-synthetic)",
        ),
        LanguagePreset(
            "webshop/verl-agent", "webshop", 2, 15, 4096, 512, max_prompt_chars=13_000, parser="verl_agent",
            source="verl-agent's scripts at 8ca3a46",
        ),
        LanguagePreset(
            "webshop/conversation", "webshop", 0, 15, 24_576, 512, style="conversation", layout="conversation",
            source="this project's: the whole episode as one chat",
        ),
        LanguagePreset(
            "webshop/micro", "webshop", 14, 15, 768, 64, style="compact",
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
