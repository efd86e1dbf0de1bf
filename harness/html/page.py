"""The page: what it says above the episodes, and its rendering to one self-contained file."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from harness.html.packing import LABELS, Packed, pack, visible
from harness.html.reading import RunFiles
from harness.table import number, percent
from seed_envs.seeding import canonical

_HERE = Path(__file__).parent
RATES = {
    "ill_formed": ("ill-formed", "share of replies without the required form"),
    "inadmissible": ("inadmissible", "share of actions the environment did not offer"),
    "ineffective": ("ineffective", "share of actions that changed nothing"),
    "truncated_reply": ("cut replies", "share of replies cut off by length"),
}


def render(run: RunFiles) -> bytes:
    """Return the page of ``run``: a pure function of its files."""
    packed = pack(run)
    script, style = _asset("report.js"), _asset("report.css")
    page = _template().render(
        config=run.state["config"],
        complete=run.complete,
        warnings=list(_warnings(run)),
        left_out=_left_out(packed),
        cards=[_card(name, run) for name in run.planned],
        table={name: run.summary["splits"][name] for name in run.planned} if run.complete else {},
        provenance=_provenance(run),
        embedded=packed.embedded,
        # Safe between script tags as they are: JSON without "<", and base64.
        index=Markup(packed.index),
        chunks=[Markup(chunk) for chunk in packed.chunks],
        images=[Markup(images) for images in packed.images],
        csp=f"default-src 'none'; script-src {_csp_hash(script)}; style-src {_csp_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        script=Markup(script),
        style=Markup(style),
    )
    return (page + "\n").encode("utf-8", "replace")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters |= {"percent": percent, "number": number}
    return environment.get_template("report.html.jinja")


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _csp_hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _warnings(run: RunFiles) -> Iterable[tuple[str, str]]:
    """Yield what nobody may overlook: a heading and a sentence each."""
    have, planned = len(run.rows), sum(run.planned.values())
    status = str(run.state.get("status"))
    if not run.complete:
        yield (
            "This run is not finished",
            f"{have:,} of {planned:,} episodes are here (status: {status}). Part of a run is no result, so no score "
            "is shown; repeat the command below to go on.",
        )
    elif not run.finished:
        yield "This run was not closed", f"Every episode is here, but its status is {status}; repeat the command below."
    broke = [row for row in run.rows if row.failed_to_finish]
    if broke:
        kinds = Counter(row.error.partition(":")[0] for row in broke)
        named = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        yield (
            f"{len(broke):,} of {have:,} episodes broke",
            f"They count as failures ({named}); repeat the command below to play them again.",
        )
    if run.torn:
        yield "The last record is torn", "It was not written whole and does not count."
    if run.altered:
        yield "summary.json does not match the records", "The numbers here are computed from trajectories.jsonl."


def _left_out(packed: Packed) -> str:
    if packed.embedded == packed.total:
        return ""
    return (
        f"This page holds {packed.embedded:,} of {packed.total:,} episodes, evenly spaced by split, task and attempt; "
        f"the other {packed.total - packed.embedded:,} are in trajectories.jsonl beside it. "
        "The numbers above are over all of them."
    )


def _card(name: str, run: RunFiles) -> dict[str, Any]:
    """Return what stands in the card of a split; there is a result only when the run is complete."""
    split, planned = run.summary["splits"].get(name), run.planned[name]
    if split is None:
        return {"name": name, "n": 0, "planned": planned, "attempts": 1, "result": None, "health": []}
    outcomes = {outcome: split["outcomes"][outcome] for outcome in LABELS if split["outcomes"][outcome]}
    rates = [(*RATES[key], percent(value), False) for key, value in split["turn_rates"].items()]
    late, errors = outcomes.get("step_limit", 0), split["errors"]
    mean_turns = split["turns"]["mean"]
    health = [
        *rates,
        ("out of turns", "share of episodes that ran out of turns", percent(late / split["n"]), False),
        ("errors", "share of episodes that broke, as failures", percent(errors["rate"]), errors["count"] > 0),
        ("mean turns", "turns per episode", "-" if mean_turns is None else f"{mean_turns:.1f}", False),
    ]
    return {
        "name": name,
        "n": split["n"],
        "planned": planned,
        "n_tasks": split["n_tasks"],
        "attempts": split["attempts"],
        "result": split if run.complete else None,
        "passes": _passes(split),
        "health": health,
        "outcomes": [(outcome, LABELS[outcome], count) for outcome, count in outcomes.items()],
    }


def _passes(split: Mapping[str, Any]) -> str:
    if not split["pass_at"]:
        return ""
    k = str(split["attempts"])
    return f"pass@{k} {percent(split['pass_at'].get(k))}, pass^{k} {percent(split['pass_hat'].get(k))}"


def _provenance(run: RunFiles) -> dict[str, Any]:
    """Return what a reader needs to get the same result again, and to see that it is the same."""
    state, starts = run.state, list(run.state["provenance"])
    last = starts[-1] if starts else {}
    facts = {"records sha256": run.summary["records_sha256"], "configuration digest": state["digest"]}
    if last:
        dirty = {True: " with changes that are not committed", False: "", None: ""}[last.get("git_dirty")]
        facts |= {
            "commit": f"{last.get('git_commit') or 'not known'}{dirty}",
            "python": last.get("python"),
            "platform": f"{last.get('platform')}, {last.get('cpus')} CPUs",
        }
    shown = {"config", "options", "provenance"}
    return {
        "command": last.get("command", ""),
        "facts": facts,
        "sections": {
            "Configuration": _flat(state["config"]),
            "Options that change no result": _flat(state.get("options", {})),
            **{key: _flat(value) for key, value in state.items() if isinstance(value, Mapping) and key not in shown},
            "Packages": _flat(last.get("packages", {})),
        },
        "starts": [_flat({key: value for key, value in start.items() if key != "packages"}) for start in starts],
    }


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as dotted keys and short texts."""
    flat: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            flat |= _flat(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = "-" if item is None else item if isinstance(item, str) else canonical(item)
    return flat
