"""Curves of training: one environment in two panels, or a grid of environments and models."""

from collections.abc import Sequence
from typing import Any

from harness.html.curves import MOST, WINDOW, centred_mean, spaced, thinned
from harness.plots.look import code_of, colour_of, label_of, legend, panels, plain, rate_axis, seeds_of, told
from harness.plots.reading import Training, by_method, one_env
from harness.stats import mean
from seed_envs.errors import ConfigError

SUCCESS, TURNS, LOSS = "env/success", "env/turns", "opd/loss"
TITLES = {SUCCESS: "success", TURNS: "turns per episode", LOSS: "OPD loss"}


def training_figure(runs: Sequence[Training]) -> Any:
    """Draw success and turns per iteration of methods in one environment, as SEED's figure 3 does.

    Raises:
        ConfigError: for runs of several environments, or without these metrics.
    """
    env = one_env(runs, "this figure")
    figure, axes = panels(2, f"{env}, success and turns of training episodes. {how_drawn(runs)}")
    for place, key in zip(axes, (SUCCESS, TURNS), strict=True):
        _draw(place, runs, key)
    legend(figure, axes)
    return figure


def grid_figure(runs: Sequence[Training], key: str) -> Any:
    """Draw a metric for every environment (rows) and model (columns), as SEED's figures 8 and 9 do.

    Raises:
        ConfigError: when no run has the metric.
    """
    having = [run for run in runs if run.files.points(key)]
    if not having:
        raise ConfigError(f"none of the runs has {key}; expected runs of a method that measures it, such as seed")
    envs, models = sorted({run.whose.env for run in having}), sorted({run.whose.model for run in having})
    places = [(env, model) for env in envs for model in models]
    caption = f"{TITLES[key].capitalize()} per iteration. {how_drawn(having)}"
    figure, axes = panels(len(places), caption, columns=len(models))
    for place, (env, model) in zip(axes, places, strict=True):
        here = [run for run in having if (run.whose.env, run.whose.model) == (env, model)]
        if here:
            _draw(place, here, key)
        else:
            place.set_axis_off()
        place.set_title(plain(f"{env}, {model}"), fontsize=9)
    legend(figure, axes)
    return figure


def how_drawn(runs: Sequence[Training]) -> str:
    """Return what a reader must know of curves: how they are smoothed, n, seeds and code."""
    about = {}
    for method, several in by_method(runs).items():
        iterations, n = _span([run.files.done for run in several]), _span([run.episodes for run in several])
        about[method] = f"{iterations} iterations, n = {n} episodes each, {seeds_of(r.whose.seed for r in several)}"
    return (
        f"Pale: every iteration of every run; bold: mean over seeds, as the centred mean of {WINDOW} iterations (fewer "
        f"at the ends). {told(about)}. {code_of(commit for run in runs for commit in run.whose.commits)}"
    )


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _draw(axes: Any, runs: Sequence[Training], key: str) -> None:
    """Draw a metric of several runs: every value, and a smooth line for each method."""
    for method, several in by_method(runs).items():
        colour, marker = colour_of(method)
        columns = [dict(run.files.points(key)) for run in several]
        for column in columns:
            points = thinned(sorted(column.items()), MOST // 2)
            axes.plot(*zip(*points, strict=True), color=colour, alpha=0.25, linewidth=0.8) if points else None
        shared = sorted(set(columns[0]).intersection(*columns[1:]))
        means = [mean(column[at] for column in columns) or 0.0 for at in shared]
        smooth = spaced(list(zip(shared, centred_mean(means), strict=True)), MOST)
        if smooth:
            every = max(1, len(smooth) // 8)
            look = {"color": colour, "marker": marker, "markevery": (every // 2, every), "markersize": 4}
            axes.plot(*zip(*smooth, strict=True), linewidth=1.8, label=plain(label_of(method)), **look)
    axes.set_xlabel("iteration")
    axes.set_ylabel(TITLES[key])
    if key == SUCCESS:
        rate_axis(axes)
    else:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]) if key == LOSS else 0.0)
