"""Training presets ``ENV[-VARIANT...]/MODEL/METHOD``: rows of published values, each with its source.

``alfworld/qwen2.5-3b/seed``, ``sokoban/qwen2.5-vl-3b/grpo``, ``webshop-sdar/qwen2.5-7b/sdar``,
``searchqa-parity/qwen3-1.7b/seed``, ``alfworld/micro/seed`` (two CPU cores; needs ``model=``).
"""

from dataclasses import dataclass, field
from typing import Any

from seed_agent.methods import METHODS
from seed_agent.train.settings import Settings, build
from seed_envs.errors import ConfigError, UnknownName

SEED_CODE = "SEED's released scripts at 2cf2fad"
SDAR_CODE = "SDAR's released scripts at 8b85c23"
TABLE_5 = "SEED, arXiv 2607.14777, table 5"


@dataclass(frozen=True)
class Row:
    """Settings that belong together, and where each comes from."""

    values: dict[str, Any]
    sources: dict[str, str] = field(default_factory=dict)
    """By setting; those of ``source`` alone are left out."""
    source: str = ""
    sft: dict[str, Any] = field(default_factory=dict)
    """Arguments of stage 1."""
    parameters: float = 0.0
    """Millions, of a model."""

    def source_of(self, key: str) -> str:
        """Return where a value is from."""
        return self.sources.get(key, self.source)


COMMON = Row(
    {
        "iterations": 150,
        "group": 8,
        "lr": 1e-6,
        "weight_decay": 0.01,
        "warmup": 0,
        "clip_low": 0.2,
        "clip_high": 0.2,
        "kl": 0.01,
        "temperature": 1.0,
        "top_p": 1.0,
        "grad_clip": 1.0,
        "eval_temperature": 0.4,
        "eval_every": 5,
        "save_every": 10,
        "entropy": 0.0,
        "invalid_penalty": 0.0,
    },
    {
        "warmup": f"{SEED_CODE} (0 but for search; the paper's table says 0.1)",
        "grad_clip": SEED_CODE,
        "eval_every": SEED_CODE,
        "save_every": SEED_CODE,
        "entropy": "the paper names no such term; the released code's are in the parity variants",
        "invalid_penalty": "the paper names no such term; the released code's are in the parity variants",
    },
    TABLE_5,
    {"tasks": 180, "rollouts": 8, "epochs": 3, "batch": 8, "warmup": 0.1, "temperature": 0.4, "lr": 5e-6},
)
"""Stage 1: 180 x 8 trajectories at T 0.4, 3 epochs, lr 5e-6, batch 8, warm-up 0.1 (SEED, tables 3 and 5)."""

ENVS = {
    "alfworld": Row(
        {
            "env": "seed_envs/ALFWorld-v0",
            "language": "alfworld/seed",
            "tasks": 16,
            "minibatch": 256,
            "reward": "success",
            "reward_scale": 10.0,
            "analyzer_prompt_tokens": 16_384,
            "analyzer_reply_tokens": 4_096,
            "eval_splits": ("valid_seen",),
            "eval_limit": None,
        },
        {
            "language": f"{SEED_CODE}: 30 turns, history 5, prompts of 2048 and replies of 512 tokens",
            "eval_limit": "this project's: every game of the split once, where the papers draw 128",
        },
        SEED_CODE,
    ),
    "sokoban": Row(
        {
            "env": "seed_envs/Sokoban-v0",
            "language": "sokoban/seed",
            "tasks": 32,
            "minibatch": 64,
            "reward": "native",
            "reward_scale": 1.0,
            "analyzer_prompt_tokens": 24_576,
            "analyzer_reply_tokens": 2_048,
            "eval_splits": ("seen",),
            "eval_limit": 128,
        },
        {"language": f"{SEED_CODE}: 6x6, one box, 15 turns, prompts of 1024 and replies of 512 tokens"},
        SEED_CODE,
        {"temperature": 1.0, "lr": 2e-6},
    ),
    "webshop": Row(
        {
            "env": "seed_envs/WebShop-v0",
            "language": "webshop/seed",
            "tasks": 16,
            "minibatch": 64,
            "reward": "success",
            "reward_scale": 10.0,
            "adv_std": "none",
            "analyzer_prompt_tokens": 16_384,
            "analyzer_reply_tokens": 4_096,
            "eval_splits": ("test",),
            "eval_limit": 128,
        },
        {
            "language": f"{SEED_CODE}: 15 turns, history 2, prompts of 4096 and replies of 512 tokens",
            "reward": f"{SEED_CODE}: 10 for a score of 1, else 0",
            "adv_std": f"{SEED_CODE} (mean_norm, for WebShop alone); the paper's formula divides by the std",
            "eval_limit": "SEED, table 3: 128 test goals; which ones, this project draws once",
        },
        SEED_CODE,
    ),
    "searchqa": Row(
        {
            "env": "seed_envs/SearchQA-v0",
            "language": "searchqa/seed",
            "tasks": 128,
            "minibatch": 512,
            "kl": 0.001,
            "warmup": 120,
            "reward": "success",
            "reward_scale": 1.0,
            "analyzer_prompt_tokens": 16_384,
            "analyzer_reply_tokens": 4_096,
            "eval_every": 0,
            "eval_splits": ("seen", "unseen"),
            "eval_limit": None,
        },
        {
            "language": f"{SEED_CODE}: 4 turns, all of them shown, prompts of 4096 and replies of 512 tokens",
            "warmup": f"{SEED_CODE}: 0.1 of 150 iterations, here as 15 iterations of at most 8 mini-batches",
            "reward": f"{SEED_CODE}: exact match",
            "eval_every": f"{SEED_CODE}: at the end alone",
            "eval_limit": "SEED, table 3: all 51,713 test questions",
        },
        SEED_CODE,
    ),
}

_PARITY = Row(
    {
        "adv_stats": "step_rows",
        "adv_std": "sample",
        "adv_singleton": "raw",
        "dual_clip": 3.0,
        "entropy": 0.001,
        "invalid_penalty": 0.1,
    },
    {"dual_clip": f"{SEED_CODE} (verl's default)"},
    f"{SEED_CODE}; they differ from the paper's formulas",
)

VARIANTS = {
    "sdar": {
        "alfworld": Row(
            {"language": "alfworld/sdar", "eval_limit": 128},
            {"language": f"{SDAR_CODE}: 50 turns, history 2"},
            SDAR_CODE,
        ),
        "webshop": Row({"adv_std": "population"}, {"adv_std": f"{SDAR_CODE}: with the std, unlike SEED's"}, SDAR_CODE),
        "searchqa": Row(
            {"minibatch": 256, "eval_temperature": 0.0},
            {"eval_temperature": f"{SDAR_CODE}: left at its default, which is greedy"},
            SDAR_CODE,
        ),
    },
    "parity": {
        "alfworld": _PARITY,
        "sokoban": _PARITY,
        "webshop": _PARITY,
        "searchqa": Row(
            {**_PARITY.values, "entropy": 0.0, "invalid_penalty": 0.01, "env_args": {"search_turns": 3}},
            {**_PARITY.sources, "env_args": f"{SEED_CODE}: a search of the last turn is not made"},
            _PARITY.source,
        ),
    },
}
"""What may follow an environment's name after a hyphen, and what it changes there; they apply in this order."""

_LARGE = {"dtype": "bfloat16", "gradient_checkpointing": True, "micro_tokens": 16_384, "batch": 128}
_MODEL_SOURCE = "SEED, arXiv 2607.14777, section 5; precision from its scripts, token budgets this project's"

MODELS = {
    "qwen2.5-3b": Row({"model": "Qwen/Qwen2.5-3B-Instruct", **_LARGE}, source=_MODEL_SOURCE, parameters=3_086),
    "qwen2.5-7b": Row({"model": "Qwen/Qwen2.5-7B-Instruct", **_LARGE}, source=_MODEL_SOURCE, parameters=7_616),
    "qwen3-1.7b": Row(
        {"model": "Qwen/Qwen3-1.7B", "think": False, **_LARGE},
        {"think": "SEED's scripts: thinking switched off, so a reply needs no think block"},
        _MODEL_SOURCE,
        parameters=1_721,
    ),
    "qwen2.5-vl-3b": Row({"model": "Qwen/Qwen2.5-VL-3B-Instruct", **_LARGE}, source=_MODEL_SOURCE, parameters=3_755),
    "micro": Row(
        {
            "iterations": 30,
            "tasks": 16,
            "group": 8,
            "minibatch": 256,
            "lr": 1e-4,
            "kl": 0.0,
            "old": "sampled",
            "micro_tokens": 4_096,
            "analyzer_prompt_tokens": 1_400,
            "analyzer_reply_tokens": 224,
            "batch": 128,
            "eval_every": 0,
            "eval_limit": None,
            "eval_temperature": 1.0,
        },
        source="this project's, for a model of a few million parameters on two CPU cores",
        sft={"tasks": 24, "rollouts": 4, "temperature": 1.0, "epochs": 3, "lr": 5e-4},
    ),
}
_TEXT_MODELS = ("micro", "qwen2.5-3b", "qwen2.5-7b", "qwen3-1.7b")
FOR_ENV = {
    "alfworld": _TEXT_MODELS,
    "sokoban": ("micro", "qwen2.5-vl-3b"),
    "webshop": _TEXT_MODELS,
    "searchqa": _TEXT_MODELS,
}
"""The models each environment was published with."""

_MICRO: dict[str, dict[str, Any]] = {
    "alfworld": {"iterations": 20, "minibatch": 1_024, "lr": 2e-4},
    "sokoban": {"min_pixels": 0, "iterations": 16, "lr": 3e-4},
    "searchqa": {"warmup": 0},
}
"""What ``micro`` changes for one environment."""


@dataclass(frozen=True)
class Preset:
    """A preset resolved: the settings, where they come from, and the arguments of stage 1."""

    settings: Settings
    sources: dict[str, str]
    sft: dict[str, Any]
    parameters: float | None
    """Millions of parameters, where the preset names the model."""


def get_preset(name: str) -> Preset:
    """Return the preset called ``name``.

    Raises:
        ConfigError: when the name is not of the form ENV/MODEL/METHOD, or env and model do not go together.
        UnknownName: for an unknown part, with the nearest names.
    """
    parts = name.split("/")
    if len(parts) != 3:
        raise ConfigError(f"preset {name!r}: expected ENV/MODEL/METHOD, for example alfworld/qwen2.5-3b/seed")
    place, model, method = parts
    env, *variants = place.split("-")
    _known("environment of a preset", env, ENVS)
    _known("model of a preset", model, FOR_ENV[env])
    METHODS.get(method)
    for variant in variants:
        _known("variant of a preset", variant, [known for known, rows in VARIANTS.items() if env in rows])
    chosen = [VARIANTS[variant][env] for variant in VARIANTS if variant in variants]
    values: dict[str, Any] = {"preset": name, "method": method}
    sources, sft = dict[str, str](), dict[str, Any]()
    for row in [COMMON, ENVS[env], *chosen, MODELS[model]]:
        # a parity row says which std the code divides by, not that it divides: WebShop's does not
        new = {key: v for key, v in row.values.items() if not (row is _PARITY and values.get(key) == "none")}
        values |= new
        sources |= {key: row.source_of(key) for key in new}
        sft |= row.sft
    if model == "micro":
        own = {"language": f"{env}/micro", **_MICRO.get(env, {})}
        values, sources = values | own, sources | dict.fromkeys(own, MODELS["micro"].source)
    return Preset(build(values), sources, sft, MODELS[model].parameters or None)


def names() -> list[str]:
    """Return ``ENV/MODEL`` of every combination, variants included; a method may follow each."""
    found = []
    for env, models in FOR_ENV.items():
        places = [env]
        for variant, rows in VARIANTS.items():
            places += [f"{place}-{variant}" for place in places if env in rows]
        found += [f"{place}/{model}" for place in places for model in models]
    return sorted(found)


def _known(kind: str, name: str, known: Any) -> None:
    if name not in known:
        raise UnknownName(kind, name, known)
