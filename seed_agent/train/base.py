"""The base-policy builder: a tiny model from nothing to a player that sometimes succeeds.

    build_base("alfworld", Path("base"))     # then: hf:base

What it has seen, and what not, is written to ``card.json`` beside the model.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from seed_agent.backends.hf import HFPolicy
from seed_agent.backends.hf_load import Placement, load_model, weights_sha256
from seed_agent.backends.hf_vision import vision_of
from seed_agent.chat import Language
from seed_agent.circuits import wire_copying
from seed_agent.methods import METHODS
from seed_agent.policy import Sampling
from seed_agent.tiny import build_text_model, build_vision_model
from seed_agent.train import checkpoint
from seed_agent.train.demos import Demos, Recipe, gather
from seed_agent.train.fit import Companions, FitPlan, encode, fit
from seed_agent.train.folder import BUILDING, CARD, check_base, locked
from seed_agent.train.readers import READERS, tokens_of
from seed_agent.train.rollouts import Stage
from seed_agent.train.settings import Settings
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.files import write_atomically
from seed_envs.parsing import blocks
from seed_envs.presets import get_preset
from seed_envs.prompting import builtin_template

Report = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Base:
    """A tiny model for one kind of environment and how it is pre-trained."""

    env: str
    language: str
    recipe: Recipe
    plan: FitPlan
    env_args: tuple[tuple[str, Any], ...] = ()
    vision: bool = False
    hidden: int = 128
    layers: int = 2
    vocab: int = 2048
    rows: int = 64
    """Environments played at once."""


BASES = {
    "alfworld": Base(
        "seed_envs/ALFWorld-v0",
        "alfworld/micro",
        Recipe(noise=0.3, search=0.5, imperfect=3, skilled=300, analyses=400, analysis_chars=4_000),
        FitPlan(epochs=1, lr=2e-3, batch=16, warmup=0.05, prompt_weight=0.1, micro_tokens=4_096),
    ),
    "sokoban": Base(
        "seed_envs/Sokoban-v0",
        "sokoban/micro",
        Recipe(noise=0.45, imperfect=2, skilled=300, analyses=60, analysis_chars=4_000),
        FitPlan(epochs=3, lr=2e-3, batch=32, warmup=0.05, micro_tokens=4_096),
        env_args=(("observation", "rgb"),),
        vision=True,
        vocab=768,
    ),
    "webshop": Base(
        "seed_envs/WebShop-v0",
        "webshop/micro",
        Recipe(noise=0.1, imperfect=2, skilled=200, analyses=60, analysis_chars=4_000),
        FitPlan(epochs=2, lr=2e-3, batch=16, warmup=0.05, prompt_weight=0.1, micro_tokens=4_096),
    ),
    "searchqa": Base(
        "seed_envs/SearchQA-v0",
        "searchqa/micro",
        Recipe(noise=0.25, imperfect=1, skilled=200, analyses=60, analysis_chars=4_000),
        FitPlan(epochs=3, lr=2e-3, batch=16, warmup=0.05, prompt_weight=0.1, micro_tokens=4_096),
        vocab=3072,
    ),
}
"""By kind of environment; a third party adds its own."""


def tags_of(kind: str) -> tuple[str, ...]:
    """Return the tags of a reply; each is a token, so that replies are short."""
    return tuple(text for name in ("think", *blocks(kind)) for text in (f"<{name}>", f"</{name}>"))


def base_of(kind: str) -> Base:
    """Return the builder's row for a kind of environment.

    Raises:
        UnknownName: when there is none.
    """
    if kind not in BASES:
        raise UnknownName("base policy", kind, BASES)
    return BASES[kind]


def build_base(
    env_kind: str, out: Path, *, seed: int = 0, report: Report = lambda metrics: None, base: Base | None = None
) -> dict[str, Any]:
    """Build a tiny model, pre-train it on training tasks and write it to ``out`` with its card.

    A finished folder is returned as it is; an unfinished one is built anew (minutes).

    Args:
        env_kind: One of ``BASES``.
        out: The folder, to be named ``hf:OUT``.
        seed: Of the weights, the play and the order of fitting.
        report: Told ``{"part": ..., ...}`` as parts end.
        base: In place of ``BASES[env_kind]``.

    Returns:
        The card.

    Raises:
        UnknownName: when nobody wrote down how to build a base for the environment.
        ConfigError: when ``out`` holds another base policy or anything else, or another process is building in it.
    """
    base = base or base_of(env_kind)
    wanted = json.loads(json.dumps({"seed": seed, "base": asdict(base)}))
    if (out / CARD).exists() and (out / checkpoint.DONE).exists():
        card = dict(json.loads((out / CARD).read_text(encoding="utf-8")))
        if card["made_from"] != wanted:
            raise ConfigError(f"{out} holds a base policy of another kind or seed; choose another --out")
        return card
    check_base(out)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        (out / BUILDING).touch()
        return _build(env_kind, base, out, wanted, report)


def _build(env_kind: str, base: Base, out: Path, wanted: Mapping[str, Any], report: Report) -> dict[str, Any]:
    started, seed = time.monotonic(), int(wanted["seed"])
    demos = _gather(base, seed)
    report({"part": "play", "seconds": time.monotonic() - started, "examples": len(demos.examples), **demos.episodes})
    policy = new_policy(base, out, demos, seed)
    rows = [encode(policy, example.chat, example.reply) for example in demos.examples]
    plan = replace(base.plan, seed=seed)
    history = fit(policy, rows, plan, report=lambda metrics: report({"part": "fit", **metrics}))
    card = {
        "made_from": wanted,
        "parameters": policy.parameters,
        "vocabulary": len(policy.tokenizer),
        "weights_sha256": weights_sha256(policy.model),
        "fit": history,
        "seen": _seen(demos, rows),
    }
    checkpoint.save(out, policy.model, Companions(policy), {"base": env_kind})
    write_atomically(out / CARD, (json.dumps(card, indent=2, sort_keys=True) + "\n").encode())
    report({"part": "done", "seconds": time.monotonic() - started})
    return card


def _gather(base: Base, seed: int) -> Demos:
    settings = Settings(env=base.env, env_args=dict(base.env_args), language=base.language, seed=seed)
    stage = Stage(settings, "train", base.rows)
    preset = get_preset(base.language)
    template = builtin_template(preset.kind, preset.style or METHODS.get("vanilla").prompt)
    try:
        return gather(stage, Language(template, preset, Sampling()), base.recipe, seed=seed)
    finally:
        stage.close()


def new_policy(base: Base, folder: Path, demos: Demos, seed: int) -> HFPolicy:
    """Write a model with random weights and a tokenizer of the demonstrations' words, and load it."""
    texts = [
        text
        for e in demos.examples[:: max(1, len(demos.examples) // 4_000)]
        for text in ("user", e.chat[-1].text, "assistant", e.reply)
    ]
    build = build_vision_model if base.vision else partial(build_text_model, copying=True)
    build(folder, seed=seed, hidden=base.hidden, layers=base.layers, vocab=base.vocab, texts=texts)
    loaded = load_model(str(folder), Placement("cpu", "float32", "tiny models are built on the CPU"))
    kind = get_preset(base.language).kind
    loaded.tokenizer.add_tokens([*tags_of(kind), *tokens_of(kind)])
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        loaded.model.resize_token_embeddings(len(loaded.tokenizer), mean_resizing=False)
    if not base.vision:
        wire_copying(loaded.model, seed=seed, recall=kind in READERS)
    vision = None
    if loaded.images is not None:
        pixels = 0  # small pictures stay small: a cell of a room is a patch
        vision = vision_of(loaded.model.config, loaded.images, loaded.tokenizer, pixels)
    return HFPolicy(folder.name, loaded.model, loaded.tokenizer, vision, batch=base.rows)


def _seen(demos: Demos, rows: list[Any]) -> dict[str, Any]:
    """State exactly what the model was fitted to."""
    kinds = {kind: [e for e in demos.examples if e.kind == kind] for kind in ("play", "skill", "analysis")}
    return {
        "splits": ["train"],
        "tasks": len({example.task_id for example in demos.examples}),
        "episodes": demos.episodes,
        "successes": demos.successes,
        "examples": {kind: len(found) for kind, found in kinds.items()},
        "prompt_tokens": sum(row.prompt for row in rows),
        "reply_tokens": sum(len(row.ids) - row.prompt for row in rows),
    }
