"""The page of an evaluation: what it says above the episodes, and the episodes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup

from harness.html.packing import LABELS, Packed, pack
from harness.html.reading import RunFiles
from harness.html.rendering import origin, render_page
from harness.html.screens import pack_screens
from harness.table import percent, together

RATES = {
    "ill_formed": ("ill-formed", "share of replies without the required form"),
    "inadmissible": ("inadmissible", "share of actions the environment did not offer"),
    "ineffective": ("ineffective", "share of actions that changed nothing"),
    "truncated_reply": ("cut replies", "share of replies cut off by length"),
}


def render(run: RunFiles) -> bytes:
    """Return the page of ``run``: a pure function of its files."""
    packed = pack(run)
    screens = pack_screens(run, packed.rows)
    return render_page(
        "report",
        script="report.js",
        framed_style=screens.style,
        config=run.state["config"],
        protocol=run.summary["protocol"],
        complete=run.complete,
        warnings=list(_warnings(run)),
        left_out=[note for note in (_left_out(packed), screens.note) if note],
        cards=[_card(name, run) for name in run.planned],
        table={name: run.summary["splits"][name] for name in run.planned} if run.complete else {},
        provenance=_provenance(run),
        notices=run.notices,
        ceilings=run.ceilings,
        together=together(run.summary["splits"]) if run.complete else None,
        embedded=packed.embedded,
        # Safe between script tags as they are: JSON without "<", and base64.
        index=Markup(packed.index),
        chunks=[Markup(chunk) for chunk in packed.chunks],
        images=[Markup(images) for images in packed.images],
        screens=[Markup(chunk) for chunk in screens.chunks],
    )


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
        "attempts": split["attempts"] if split["pass_at"] or split["attempts"] == 1 else f"up to {split['attempts']}",
        "result": split if run.complete else None,
        "passes": _passes(split),
        "ceiling": run.ceilings.get(name),
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
    state = run.state
    shown = {"config", "options", "provenance", "ceilings"}
    return origin(
        state["provenance"],
        made="Played",
        note="The same records hash in another run means the same observations, replies, actions and rewards in every "
        "turn.",
        facts={"records sha256": run.summary["records_sha256"], "configuration digest": state["digest"]},
        sections={
            "Configuration": state["config"],
            "Options that change no result": state.get("options", {}),
            **{key: value for key, value in state.items() if isinstance(value, Mapping) and key not in shown},
        },
    )
