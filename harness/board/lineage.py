"""How a model was trained, from the files that training left around its weights."""

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from seed_agent.train.checkpoint import read_state
from seed_agent.train.settings import HOW, Settings
from seed_envs.errors import DataError
from seed_envs.seeding import canonical, sha256_text

RL, SFT, METRICS = "train.json", "sft.json", "metrics.jsonl"
KEYS = ("env/success", "env/score", "env/turns", "opd/loss")
"""Metrics kept of every iteration, beside those of evaluations."""
MOST = 200
"""Points of a curve, at most."""


def lineage(model: str | None) -> dict[str, Any] | None:
    """Return how the weights in the folder ``model`` came about; None for a model that this suite did not train.

    The keys: ``stage`` (``rl`` or ``sft``), ``iteration``, ``seed``, ``settings`` (of ``train.json`` or
    ``sft.json``), ``sft`` (the plan of stage 1, or None), ``base`` (what the first stage began with), ``curve``.

    Raises:
        DataError: when the files are there and cannot be read, or are of other weights.
    """
    folder = Path(model or "").expanduser()
    if not model or not (folder / "state.json").is_file():
        return None
    state = read_state(folder)
    stage = state.get("stage")
    if stage not in ("rl", "sft"):
        return None
    home = _home(folder, RL if stage == "rl" else SFT)
    content = _read(home / (RL if stage == "rl" else SFT))
    try:
        settings = content["settings"]
        if stage == "rl" and content["digest"] != state["digest"]:
            raise DataError(f"{folder} holds weights of another run than {home / RL} describes; expected its own")
        sft = {**content["plan"], "seed": settings["seed"]} if stage == "sft" else None
        base, seed, iteration = settings["model"], int(settings["seed"]), int(state.get("iteration", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{home} holds no training run of this program ({error!r})") from None
    if stage == "rl":
        before = lineage(base) or {}
        sft, base = before.get("sft"), before.get("base", base)
    return {
        "stage": stage,
        "iteration": iteration,
        "seed": seed,
        "settings": settings,
        "sft": sft,
        "base": base,
        "curve": _curve(home / METRICS, iteration) if stage == "rl" else [],
    }


def _home(folder: Path, name: str) -> Path:
    """Return the folder of the training run that weights lie in: their folder's parent, or its parent."""
    absolute = folder.absolute()
    for parent in (absolute.parent, absolute.parent.parent):
        if (parent / name).is_file():
            return parent
    raise DataError(
        f"{folder} was trained by this suite and {name} of its run is not there; keep the weights in the run's folder"
    )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def _curve(path: Path, iteration: int) -> list[dict[str, Any]]:
    """Return the metrics up to an iteration, thinned; those of evaluations are all kept."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        known = {line["iteration"]: line for line in lines if 0 <= line["iteration"] <= iteration}
        rows = [known[at] for at in sorted(known)]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # a curve is no part of what is claimed
    every = max(1, -(-len(rows) // MOST))
    points = []
    for row in rows:
        evaluated = {key: value for key, value in row.items() if key.startswith("eval/") and _is_number(value)}
        own = {key: row[key] for key in KEYS if _is_number(row.get(key))}
        if evaluated or row["iteration"] % every == 0:
            points.append({"iteration": row["iteration"], "values": own | evaluated})
    return points


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def training(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row says of training (``entry.Training``) from what ``lineage`` found.

    Raises:
        DataError: when the settings are not those of a training run.
    """
    try:
        settings = Settings.model_validate(found["settings"])
        plan = found["sft"]
        shared = settings.model_dump(mode="json", exclude={"seed", "model"})
        rl = found["stage"] == "rl"
        done = int(found["iteration"]) if rl else 0
        planned = settings.iterations if rl else 0
        budget = settings.fraction_mode == "budget"
        decides = {key: value for key, value in shared.items() if key not in HOW} | {"base": found["base"], "sft": plan}
        if plan is not None:
            decides["sft"] = {key: value for key, value in plan.items() if key not in ("seed", "fit")}
        return {
            "digest": sha256_text(canonical({**decides, "iterations done": done})),
            "preset": settings.preset,
            "model": found["base"],
            "env": settings.env,
            "iterations": done,
            "planned": planned,
            "tasks": settings.tasks if rl else 0,
            "group": settings.group if rl else 0,
            "episodes": done * settings.tasks * settings.group if rl else 0,
            "fraction": (done / planned if budget else settings.fraction) if rl else 1.0,
            "fraction_mode": settings.fraction_mode,
            "stage1": None if plan is None else _stage1(plan),
            "settings": shared,
        }
    except (KeyError, TypeError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"what the run says about its training cannot be used: {first}") from None


def _stage1(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{key: plan[key] for key in ("tasks", "rollouts", "temperature", "annotator")},
        "episodes": plan["tasks"] * plan["rollouts"],
        "epochs": plan["fit"]["epochs"],
    }
