"""vLLM's engine in this process: how it is imported, started, given weights, ended."""

import hashlib
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seed_agent.backends.hf_load import load
from seed_envs.errors import ConfigError, DataError, MissingDependency, SeedError

MEMORY = 0.5
"""Share of the device's memory for weights and cache, where nothing is said."""

_QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}
"""Unless the user says otherwise; stdout is for results."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How vLLM is started."""

    dtype: str
    context: int
    """Tokens of prompt and reply together."""
    batch: int = 64
    """Sequences computed together, at most."""
    memory: float = MEMORY
    eager: bool = False


def library() -> Any:
    """Import vLLM when it is first needed, quiet and without processes of its own.

    Raises:
        MissingDependency: when it is not installed.
        ConfigError: when it is and cannot be imported.
    """
    # weights in training are handed over as tensors, so the engine has to live in this process
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        raise missing((error.name or "vllm").partition(".")[0]) from None
    except ImportError as error:
        raise ConfigError(f"vLLM is installed and cannot be imported here: {_first(error)}") from error


def missing(package: str = "vllm") -> MissingDependency:
    """Return the error of vLLM, or a package it needs, that is not installed."""
    purpose = "a model on vLLM (vllm:NAME_OR_PATH, rollout_backend=vllm)"
    return MissingDependency(package, extra="vllm", purpose=purpose, instead="or stay with transformers (hf)")


def start(source: str, options: EngineOptions) -> Any:
    """Start vLLM's engine, a ``vllm.LLM``, in this process.

    Args:
        source: A model folder, or a name on the Hugging Face hub.
        options: Number format, context, memory.

    Raises:
        ConfigError: when vLLM refuses, in one line with its reason.
    """
    vllm = library()
    try:
        return vllm.LLM(
            source,
            dtype=options.dtype,
            max_model_len=options.context,
            max_num_seqs=options.batch,
            gpu_memory_utilization=options.memory,
            enforce_eager=options.eager,
            logprobs_mode="processed_logprobs",  # of the distribution sampled from, not of the raw logits
            generation_config="vllm",  # the model's own defaults (penalties, top_k, a length) must not come in
            seed=0,  # of vLLM's own streams; every request brings its seed
            disable_log_stats=True,
            use_tqdm_on_load=False,
        )
    except Exception as error:  # the one boundary to vLLM's checks of model, machine and memory
        raise ConfigError(
            f"vLLM cannot run {source}: {_first(error)}; where memory is short, lower context={options.context} or "
            f"change memory={options.memory:g}"
        ) from error


def sync(llm: Any, model: Any, dtype: str) -> None:
    """Give an engine the weights of ``model`` as they are now, and have it forget what it computed with others.

    Args:
        llm: The engine.
        model: A transformers model of the same configuration.
        dtype: The engine's number format.

    Raises:
        SeedError: when vLLM cannot take them.
    """
    weights = checkpoint_weights(model, getattr(load("torch"), dtype))
    try:
        llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
    except Exception as error:  # the one boundary to vLLM's loaders
        raise SeedError(f"vLLM cannot take over the weights in training: {_first(error)}") from error
    # what is cached of a prompt was computed with the old weights
    if llm.reset_prefix_cache() is False:
        raise SeedError("vLLM kept its prefix cache after new weights came; replies would mix old and new weights")


def shut_down(llm: Any) -> None:
    """End an engine and free its memory."""
    end = getattr(getattr(getattr(llm, "llm_engine", None), "engine_core", None), "shutdown", None)
    if end is not None:
        end()


def checkpoint_weights(model: Any, dtype: Any) -> Iterator[tuple[str, Any]]:
    """Yield a transformers model's weights under the names of its checkpoint, in vLLM's number format.

    Tied weights come under each of their names: vLLM's CPU kernels keep a packed copy for each.
    """
    state = model.state_dict()
    revert = getattr(importlib.import_module("transformers.core_model_loading"), "revert_weight_conversion", None)
    if revert is not None:  # some architectures are held in memory otherwise than in their files
        state = revert(model, state)
    for name, tensor in state.items():
        yield name, tensor.detach().to(dtype) if tensor.is_floating_point() else tensor


def files_sha256(source: str) -> str:
    """Return the hash of a model's weight files, of a folder or of the hub's copy here.

    Raises:
        DataError: when there are none.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = Path(load("transformers.utils.hub").cached_file(source, "config.json")).parent
    files = sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
    if not files:
        raise DataError(f"{folder} holds no weights; expected *.safetensors")
    lines = []
    for path in files:
        with path.open("rb") as file:
            lines.append(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _first(error: Exception) -> str:
    first = " ".join((str(error).splitlines() or [""])[0].split())
    return f"{type(error).__name__}: {first[:300]}".rstrip(": ")
