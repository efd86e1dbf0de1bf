"""The model of a run: loaded as the settings say, and what it must have been before."""

from typing import Literal

from seed_agent.backends.hf import HFPolicy, make
from seed_agent.backends.hf_load import load
from seed_agent.methods import METHODS
from seed_agent.train.actor import check_backend
from seed_agent.train.checkpoint import stage_of
from seed_agent.train.settings import Settings
from seed_envs.errors import ConfigError

Start = Literal["base", "sft"]


def load_policy(settings: Settings, *, start: Start | None = None) -> HFPolicy:
    """Load ``settings.model`` with float32 (or, for tests, float64) weights.

    Args:
        settings: Name the model, its number format and the batch.
        start: What it must be; by default what the method starts from.

    Raises:
        ConfigError: when no model is named or it is not what the method starts from.
        DataError: when there is no such model.
        MissingDependency: when torch, transformers or accelerate is not installed.
    """
    if start is not None and settings.rollout_backend != "hf":
        raise ConfigError(f"stage 1 plays on transformers; leave out rollout_backend={settings.rollout_backend}")
    check_backend(settings)
    load("accelerate")
    needs = missing(settings, start=start)
    if needs:
        raise ConfigError(needs)
    pixels = "" if settings.min_pixels is None else f"&min_pixels={settings.min_pixels}"
    policy = make(f"{settings.model}?batch={settings.batch}&dtype=float32{pixels}")
    if settings.dtype == "float64":
        policy.model.double()
    return policy


def missing(settings: Settings, *, start: Start | None = None) -> str:
    """Say what has to be done before the run can start, "" for nothing; no weights are read."""
    if not settings.model:
        return "no model is named; give model=FOLDER or model=NAME, or a preset whose model has a name"
    wanted, found = start or METHODS.get(settings.method).init, stage_of(settings.model)
    if settings.init == "given" or wanted == found:
        return ""
    if wanted == "sft":
        return (
            f"method {settings.method} starts from a stage-1 model and {settings.model} is none; first "
            f"python -m harness.train --stage sft, then model=RUN/final here, or init=given to start as it is"
        )
    who = f"method {settings.method}" if start is None else "stage 1"
    return (
        f"{who} starts from a base model and {settings.model} comes from stage {found}; "
        "name another model, or init=given to start from it all the same"
    )
