"""Which episodes an evaluation plays: every task of a split, or the draws of the published evaluations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from seed_envs.errors import ConfigError
from seed_envs.presets import preset_for
from seed_envs.seeding import Draws

FULL, PAPER = "full", "paper"
PROTOCOLS = (FULL, PAPER)
TEMPERATURE = 0.4
"""Of sampling in the published evaluations, and the default of every evaluation here."""
_DRAWS = 128
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "webshop": {"draws": _DRAWS, "replacement": False},
    "searchqa": {"draws": None, "replacement": False},
}
"""Environments whose published evaluation does not draw with replacement; None draws are every task once."""


def settings(name: str, env_id: str) -> dict[str, Any]:
    """Return what a run records of its protocol.

    ``full`` is every task of the split the same number of times. ``paper`` is the published evaluation: 128 draws
    with replacement; WebShop 128 different goals; SearchQA every question once.

    Source: arXiv 2607.14777 with its released scripts at 2cf2fad (a validation batch of 128, temperature 0.4; which
    draws it made is not published).
    """
    if name == FULL:
        return {"name": FULL}
    return {"name": PAPER, **_SETTINGS.get(preset_for(env_id).kind, {"draws": _DRAWS, "replacement": True})}


def draw(protocol: Mapping[str, Any], ids: Sequence[str], *, split: str, seed: int) -> Counter[str] | None:
    """Return how often each task is played; None where the protocol plays every task of ``ids`` alike.

    The draw follows from the seed, the split and the sorted ids. Without replacement a split of fewer tasks is played
    whole.
    """
    if protocol.get("draws") is None:
        return None
    draws, known = Draws("protocol", protocol["name"], seed, split), sorted(ids)
    if protocol["replacement"]:
        return Counter(draws.choice(known) for _ in range(protocol["draws"]))
    return Counter(draws.shuffled(known)[: protocol["draws"]])


def check(name: str, *, chosen: bool, attempts: int = 1) -> None:
    """Refuse a protocol that does not exist, or that draws tasks where others are ``chosen`` by hand or played again.

    Raises:
        ConfigError: saying what to leave out.
    """
    if name not in PROTOCOLS:
        raise ConfigError(f"unknown protocol {name!r}; expected {' or '.join(PROTOCOLS)}")
    if name == PAPER and chosen:
        raise ConfigError("--protocol paper draws its own tasks; leave out --limit and --ids, or the protocol")
    if name == PAPER and attempts > 1:
        raise ConfigError("--protocol paper plays each draw once; leave out --attempts, or the protocol")


def check_turns(name: str, given: int | None, published: int | None) -> None:
    """Refuse another turn limit than the published one, which is the environment's own or that of a preset.

    Raises:
        ConfigError: saying what to leave out.
    """
    if name == PAPER and given not in (None, published):
        limit = "no turn limit" if published is None else f"at most {published} turns"
        raise ConfigError(
            f"--protocol paper has {limit} here, not {given}; leave the turn limit out (presets have the limits that "
            "were published), or the protocol"
        )


def for_training(split: str) -> bool:
    """Whether a split is one that trainings learn from."""
    return split.endswith("train")


def check_split(name: str, split: str) -> None:
    """Refuse a training split under the published protocol, which evaluates on others.

    Raises:
        ConfigError: saying what to leave out.
    """
    if name == PAPER and for_training(split):
        raise ConfigError(f"--protocol paper is of evaluation splits; leave out --split {split}, or the protocol")
