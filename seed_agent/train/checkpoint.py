"""Checkpoints that are whole or not there: all state, written aside, marked done, renamed."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seed_agent.backends.hf_load import load, quiet, weights_sha256
from seed_envs.errors import DataError, SeedError
from seed_envs.seeding import canonical

DONE = "DONE"
STATE, OPTIMIZER = "state.json", "optimizer.pt"


class SaveFailed(SeedError):
    """A checkpoint could not be written; the one before is whole."""


def save(
    folder: Path,
    model: Any,
    tokenizer: Any,
    extra: Mapping[str, Any],
    *,
    optimizer: Any = None,
    images: Any = None,
) -> None:
    """Write a checkpoint: a plain Hugging Face folder, the optimiser's state and ``extra``.

    Args:
        folder: Replaced as a whole.
        model: Its weights are written as they are in memory.
        tokenizer: Written with its chat template.
        extra: JSON; ``stage`` (``base``, ``sft`` or ``rl``) says what made the weights.
        optimizer: Its state, for a run that goes on.
        images: The image processor of a vision model, without which the folder cannot be loaded.

    Raises:
        SaveFailed: when the disk is full or the folder cannot be written.
    """
    aside = folder.with_name(f".{folder.name}.new")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        with quiet():
            model.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
            if images is not None:
                images.save_pretrained(aside)
        if optimizer is not None:
            load("torch").save(optimizer.state_dict(), aside / OPTIMIZER)
        state = {**extra, "weights_sha256": weights_sha256(model)}
        (aside / STATE).write_text(canonical(state) + "\n", encoding="utf-8")
        for file in sorted(aside.iterdir()):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        (aside / DONE).touch()
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        shutil.rmtree(aside, ignore_errors=True)
        raise SaveFailed(
            f"cannot write the checkpoint {folder}: {error}; make room or choose another --out, then repeat the command"
        ) from None


def read_state(folder: Path) -> dict[str, Any]:
    """Return what ``save`` was given as ``extra``, and the weights' hash.

    Raises:
        DataError: when the folder is no finished checkpoint.
    """
    if not (folder / DONE).is_file():
        raise DataError(f"{folder} is no finished checkpoint: it has no {DONE}")
    try:
        return dict(json.loads((folder / STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / STATE} cannot be read: {error}") from None


def latest(folder: Path) -> Path | None:
    """Return the newest finished checkpoint below ``folder``, None where there is none."""
    found = [path for path in sorted(folder.glob("iteration_*")) if (path / DONE).is_file()]
    return found[-1] if found else None


def stage_of(model: str) -> str:
    """Return what made the weights in a folder: ``sft`` or ``rl``; ``base`` for any other model."""
    try:
        found = str(read_state(Path(model).expanduser()).get("stage", "base"))
    except DataError:
        return "base"
    return found if found in ("sft", "rl") else "base"


def restore(folder: Path, model: Any, optimizer: Any, *, digest: str = "") -> dict[str, Any]:
    """Load weights and optimiser in place and return the state.

    Raises:
        DataError: when the checkpoint is torn, of another model or, where a digest is given, of
            another run. The model is then as it was or not to be used.
    """
    state = read_state(folder)
    if digest and state.get("digest") != digest:
        raise DataError(f"{folder} is a checkpoint of another run; choose another --out")
    try:
        with quiet():
            loaded = type(model).from_pretrained(folder, dtype=model.dtype)
        model.load_state_dict(loaded.state_dict())
        held = load("torch").load(folder / OPTIMIZER, map_location=model.device, weights_only=True)
        optimizer.load_state_dict(held)
    except Exception as error:  # the one boundary to files of any state
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise DataError(
            f"{folder} is torn or a checkpoint of another model ({reason}); remove it or choose another --out"
        ) from error
    if weights_sha256(model) != state.get("weights_sha256"):
        raise DataError(f"the weights in {folder} are not those that were saved; remove it and repeat the command")
    return state


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` finished checkpoints."""
    done = [path for path in sorted(folder.glob("iteration_*")) if (path / DONE).is_file()]
    for path in done[: max(0, len(done) - keep)]:
        shutil.rmtree(path, ignore_errors=True)
