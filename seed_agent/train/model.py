"""The model of a run: loaded as the settings say, and what it must have been before."""

from pathlib import Path
from typing import Literal

from seed_agent.backends.hf import HFPolicy, make
from seed_agent.backends.hf_load import NEEDED, absent, load_for_training, source_of
from seed_agent.backends.vllm_engine import missing as missing_vllm
from seed_agent.methods import METHODS
from seed_agent.train.actor import check_backend
from seed_agent.train.checkpoint import stage_of
from seed_agent.train.settings import Settings
from seed_envs.errors import ConfigError, installs

Start = Literal["base", "sft"]


def load_policy(settings: Settings, *, start: Start | None = None) -> HFPolicy:
    """Load ``settings.model`` with float32 (or, for tests, float64) weights.

    Args:
        settings: Name the model, its number format and the batch.
        start: What it must be; by default what the method starts from.

    Raises:
        ConfigError: when no model is named or it is not what the method starts from.
        DataError: when there is no such model.
        MissingDependency: when vLLM is asked for, or torch, transformers or accelerate, and not installed.
    """
    check_backend(settings)
    if start is not None:
        check_stage1_backend(settings)
    if settings.rollout_backend == "vllm" and absent(["vllm"]):
        raise missing_vllm()
    load_for_training()
    needs = missing(settings, start=start)
    if needs:
        raise ConfigError(needs)
    pixels = "" if settings.min_pixels is None else f"&min_pixels={settings.min_pixels}"
    policy = make(f"{settings.model}?batch={settings.batch}&dtype=float32{pixels}")
    if settings.dtype == "float64":
        policy.model.double()
    return policy


def check_stage1_backend(settings: Settings) -> None:
    """Refuse to play stage 1 on anything but transformers.

    Raises:
        ConfigError: naming the setting.
    """
    if settings.rollout_backend != "hf":
        raise ConfigError(f"stage 1 plays on transformers; leave out rollout_backend={settings.rollout_backend}")


def lacking(backend: str = "hf") -> str:
    """Say which packages this machine lacks to train and to play by ``backend`` (hf or vllm), "" for none."""
    names = absent([*NEEDED, *(["vllm"] if backend == "vllm" else [])])
    if not names:
        return ""
    extra = "vllm" if "vllm" in names else "train"
    return f"not installed here: {', '.join(names)}; a run needs the extra '{extra}': {installs(extra)}"


def elsewhere(model: str) -> str:
    """Say that a model is no folder here but a name, "" for a folder.

    Raises:
        DataError: when it is a path and there is no model.
    """
    if Path(source_of(model)).is_dir():
        return ""
    return f"there is no folder {model} here; it is taken for a name on the Hugging Face hub"


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
