"""Loading a transformers model: lazy imports, where it runs, what exactly was loaded."""

import contextlib
import hashlib
import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seed_envs.errors import ConfigError, DataError, MissingDependency

DTYPES = ("float32", "bfloat16", "float16")
VISION_TYPES = ("qwen2_5_vl", "qwen2_vl")
"""Model types whose images this backend can place; other vision models are refused."""


NEEDED = ("torch", "transformers", "accelerate")
"""What training imports, all of the extra ``train``; playing needs the first two."""


def absent(names: Iterable[str] = NEEDED) -> list[str]:
    """Return those of ``names`` that are not installed; nothing is imported."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def load(module: str) -> Any:
    """Import ``torch``, ``transformers`` or a companion when it is first needed.

    Raises:
        MissingDependency: when it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise MissingDependency(package, extra="train", purpose="a local language model (hf:NAME_OR_PATH)") from None


def load_for_training() -> None:
    """Import what training needs beside the model's own.

    Raises:
        MissingDependency: naming the first package that is not installed.
    """
    load(next(iter(absent()), "accelerate"))  # which imports the others


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model runs, in which number format, and why."""

    device: str
    dtype: str
    reason: str


def place(device: str = "", dtype: str = "") -> Placement:
    """Choose device and number format; what is given is checked, what is not is chosen.

    Raises:
        ConfigError: when this machine has no such device or the format is not known.
    """
    torch = load("torch")
    if dtype and dtype not in DTYPES:
        raise ConfigError(f"hf: dtype={dtype!r} cannot be used; expected {', '.join(DTYPES)}")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device:
        kind, why = _kind(device, gpus), "as asked"
    elif gpus:
        device, kind, why = "cuda:0", "cuda", f"the first of {gpus} CUDA device(s)"
    else:
        device, kind, why = "cpu", "cpu", "no CUDA device is visible"
    if dtype:
        format_why = "as asked"
    elif kind == "cuda":
        half = torch.cuda.is_bf16_supported()
        dtype, format_why = ("bfloat16", "the device has it") if half else ("float16", "the device has no bfloat16")
    else:
        dtype, format_why = "float32", f"the default on {kind}"
    if kind == "cuda":
        why += f"; {torch.cuda.get_device_name(device)}"
    return Placement(device, dtype, f"{device} ({why}), {dtype} ({format_why})")


def _kind(device: str, gpus: int) -> str:
    kind, _, index = device.partition(":")
    if kind == "cuda" and (index or "0").isdecimal() and int(index or 0) < gpus:
        return kind
    if device == "cpu":
        return kind
    there = f"{gpus} CUDA device(s)" if gpus else "no CUDA device"
    raise ConfigError(f"hf: device={device!r} cannot be used, torch sees {there} here; expected cpu, cuda or cuda:N")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory. ``images`` is its image processor, None for a text model."""

    model: Any
    tokenizer: Any
    images: Any


def load_model(name: str, placement: Placement) -> Loaded:
    """Load a model, its tokenizer and, for a vision model, its image processor.

    Args:
        name: A folder as ``save_pretrained`` writes it, or a name on the Hugging Face hub.
        placement: Where to, from ``place``.

    Raises:
        DataError: when there is no such model or it is incomplete.
        ConfigError: when it is of a kind that this backend cannot run.
        MissingDependency: when torch or transformers is not installed.
    """
    torch, transformers = load("torch"), load("transformers")
    source = source_of(name)
    try:
        with quiet():
            config = transformers.AutoConfig.from_pretrained(source)
            vision = getattr(config, "vision_config", None) is not None
            if vision and config.model_type not in VISION_TYPES:
                known = ", ".join(VISION_TYPES)
                raise ConfigError(f"hf:{name} is a vision model of type {config.model_type}; supported are {known}")
            factory = transformers.AutoModelForImageTextToText if vision else transformers.AutoModelForCausalLM
            model, report = factory.from_pretrained(
                source, dtype=getattr(torch, placement.dtype), output_loading_info=True
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            images = _image_processor(transformers, source) if vision else None
            model = model.to(placement.device).eval()
    except (ConfigError, MissingDependency):
        raise
    except Exception as error:  # the one boundary to files and hubs of any state
        raise DataError(complaint(name, error)) from error
    missing = sorted([*report["missing_keys"], *map(str, report["mismatched_keys"])])
    if missing:
        raise DataError(
            f"hf:{name} lacks {len(missing)} of the model's weights, such as {missing[0]}; expected a complete "
            "checkpoint as save_pretrained writes it"
        )
    return Loaded(model, tokenizer, images)


def source_of(name: str, kind: str = "hf") -> str:
    """Return what to load; a path that holds no model gets a message about paths, not about hubs.

    Raises:
        DataError: when ``name`` is a path and there is no model folder.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise DataError(f"{name} holds no config.json; expected a model folder as save_pretrained writes it")
    elif path.exists():
        raise DataError(f"{name} is a file; expected a model folder as save_pretrained writes it")
    elif name.startswith(("/", ".", "~")) or name.count("/") > 1 or ("/" in name and path.parent.is_dir()):
        raise DataError(
            f"there is no folder {name}; expected {kind}:FOLDER or {kind}:NAME such as {kind}:Qwen/Qwen3-0.6B"
        )
    return str(path) if path.is_dir() else name


def complaint(name: str, error: Exception, kind: str = "hf") -> str:
    """Return the one line that says why a model cannot be loaded and what to do."""
    first = " ".join((str(error).splitlines() or [""])[0].split())
    reason = f"{type(error).__name__}: {first[:200]}".rstrip(": ")
    if Path(name).expanduser().is_dir():
        return f"the model in {name} cannot be loaded ({reason}); expected a folder as save_pretrained writes it"
    return (
        f"{kind}:{name} is no folder here and cannot be had from the Hugging Face hub ({reason}); check the name, type "
        f"'hf download {name}' where there is a network, or give a folder: {kind}:FOLDER"
    )


def _image_processor(transformers: Any, source: str) -> Any:
    """Return the processor of Qwen2-VL and Qwen2.5-VL that needs no torchvision."""
    pil = getattr(transformers, "Qwen2VLImageProcessorPil", None)
    return (pil or transformers.Qwen2VLImageProcessor).from_pretrained(source)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and reports off stderr, where the suite's own lines go."""
    bars = load("transformers").utils.logging
    shown, level = bars.is_progress_bar_enabled(), bars.get_verbosity()
    bars.disable_progress_bar()
    bars.set_verbosity_error()
    try:
        yield
    finally:
        bars.set_verbosity(level)
        if shown:
            bars.enable_progress_bar()


def weights_sha256(model: Any) -> str:
    """Return the hash of what computes: name, format, shape and bytes of every tensor in memory.

    About 1 s per GB and core; another number format is another hash.
    """
    torch = load("torch")

    def digest(item: tuple[str, Any]) -> str:
        name, tensor = item
        found = hashlib.sha256(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return found.hexdigest()

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # hashing lets other threads run
        return hashlib.sha256("\n".join(pool.map(digest, sorted(model.state_dict().items()))).encode()).hexdigest()
