"""Results of evaluations: bars with intervals and a dot per seed, by method, by category, by share of the data."""

from collections.abc import Sequence
from typing import Any

from harness.paired import t_interval
from harness.plots.look import code_of, colour_of, label_of, legend, panels, plain, rate_axis, seeds_of, told
from harness.plots.reading import Result, by_method, groups_of, one_env
from harness.stats import Interval, clustered_wilson, mean
from harness.summary import Row
from seed_envs.errors import ConfigError
from seed_envs.tasks import resolve_split

ALL = "all"
Value = tuple[float, Interval | None, list[float]]
"""Mean over seeds, its 95 % interval, and the success of each seed."""


def overview_figure(found: Sequence[Result]) -> Any:
    """Draw the success of every method in every environment and split, as SEED's figure 1 does."""
    _one_fraction(found)
    places = list(dict.fromkeys((one.whose.env, one.split) for one in found))
    size = (max(3.4, 0.4 * len({one.whose.method for one in found})), 2.6)
    figure, axes = panels(len(places), f"Success (pooled over episodes). {_how(found)}", size=size)
    for place, (env, split) in zip(axes, places, strict=True):
        here = by_method(one for one in found if (one.whose.env, one.split) == (env, split))
        for at, (method, several) in enumerate(here.items()):
            _bar(place, at, 0.7, method, _value([list(one.rows) for one in several]))
        place.set_title(plain(f"{env} {split}"), fontsize=9)
        place.set_xticks(range(len(here)), [plain(label_of(name)) for name in here], rotation=30, ha="right")
        place.grid(visible=False, axis="x")
        rate_axis(place)
    return figure


def types_figure(found: Sequence[Result], split: str) -> Any:
    """Draw the success of methods by category of one split, as SEED's figure 5 does.

    Raises:
        SeedError: for several environments, or when a run has no such split.
    """
    env = one_env(found, "this figure")
    name = resolve_split(split, list(dict.fromkeys(one.split for one in found)))
    here = [one for one in found if one.split == name]
    _one_fraction(here)
    methods = by_method(here)
    categories = list(dict.fromkeys(category for one in here for category in one.categories))
    names = [*sorted(categories), ALL]
    figure, (axes,) = panels(
        1, f"{env} {name}, success by category; '{ALL}' pools the episodes. {_how(here)}", size=(1 + len(names), 3.0)
    )
    width = 0.8 / len(methods)
    for i, (method, several) in enumerate(methods.items()):
        for at, category in enumerate(names):
            rows = [list(one.rows) if category == ALL else one.categories.get(category, []) for one in several]
            if played := [each for each in rows if each]:
                _bar(axes, at - 0.4 + width * (i + 0.5), 0.9 * width, method, _value(played), named=category == ALL)
    counts = [max(len(one.rows if c == ALL else one.categories.get(c, [])) for one in here) for c in names]
    axes.set_xticks(range(len(names)), [plain(f"{c}\nn = {n}") for c, n in zip(names, counts, strict=True)])
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("success")
    rate_axis(axes)
    legend(figure, [axes])
    return figure


def fraction_figure(found: Sequence[Result]) -> Any:
    """Draw success by the share of the data that was trained on, as SEED's figure 4 does.

    Raises:
        ConfigError: for several environments or ways to take a share, or when there is only one share.
    """
    env = one_env(found, "this figure")
    modes = sorted({one.whose.mode for one in found if one.whose.fraction < 1})
    if len(modes) > 1:
        raise ConfigError("some runs had a share of the budget and others of the tasks; draw them apart")
    if len({one.whose.fraction for one in found}) < 2:
        raise ConfigError(f"all runs had {found[0].whose.fraction:g} of the data; expected runs of several fractions")
    splits = list(dict.fromkeys(one.split for one in found))
    what = {"budget": "iterations", "subset": "training tasks"}[modes[0]]
    figure, axes = panels(len(splits), f"{env}, success by the share of {what}. {_how(found)}")
    for place, split in zip(axes, splits, strict=True):
        for method, several in by_method(one for one in found if one.split == split).items():
            _line(place, method, several)
        place.set_title(plain(split), fontsize=9)
        place.set_xlabel(f"share of {what}")
        place.xaxis.set_major_formatter("{x:.0%}")
        place.set_xlim(0, 1.05)
        rate_axis(place)
    legend(figure, axes)
    return figure


def _line(axes: Any, method: str, several: Sequence[Result]) -> None:
    shares = sorted({one.whose.fraction for one in several})
    values = [_value([list(one.rows) for one in several if one.whose.fraction == share]) for share in shares]
    colour, marker = colour_of(method)
    means = [value for value, _, _ in values]
    axes.plot(shares, means, color=colour, marker=marker, markersize=5, label=plain(label_of(method)))
    for share, (value, ends, each) in zip(shares, values, strict=True):
        _interval(axes, share, value, ends, colour)
        if len(each) > 1:
            axes.plot([share] * len(each), each, color=colour, marker=".", linestyle="", markersize=4, alpha=0.5)


def _value(seeds: Sequence[Sequence[Row]]) -> Value:
    """Return the mean over seeds of success, with an interval over seeds, or of one seed over its tasks."""
    each = [mean(row.success for row in rows) or 0.0 for rows in seeds]
    ends = t_interval(each) if len(each) > 1 else clustered_wilson(groups_of(seeds[0]))
    return mean(each) or 0.0, ends and (max(ends[0], 0.0), min(ends[1], 1.0)), each


def _bar(axes: Any, at: float, width: float, method: str, value: Value, *, named: bool = False) -> None:
    colour, marker = colour_of(method)
    height, ends, each = value
    axes.bar(at, height, width, color=colour, alpha=0.85, label=plain(label_of(method)) if named else None)
    _interval(axes, at, height, ends, "#222222")
    if len(each) > 1:
        places = [at + width * ((i + 0.5) / len(each) - 0.5) * 0.6 for i in range(len(each))]
        look = {"marker": marker, "markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.6}
        axes.plot(places, each, linestyle="", color="#222222", **look)


def _interval(axes: Any, at: float, value: float, ends: Interval | None, colour: str) -> None:
    if ends is not None:
        below, above = max(value - ends[0], 0.0), max(ends[1] - value, 0.0)
        axes.errorbar([at], [value], [[below], [above]], color=colour, capsize=2.5, linewidth=1, fmt="none")


def _one_fraction(found: Sequence[Result]) -> None:
    shares = sorted({one.whose.fraction for one in found})
    if len(shares) > 1:
        raise ConfigError(
            f"the runs had {', '.join(f'{share:g}' for share in shares)} of the data; "
            "draw them apart, or by python -m harness.figures fraction"
        )


def _how(found: Sequence[Result]) -> str:
    """Return what a reader must know of rates: intervals, n, seeds and code."""
    about = {name: seeds_of(one.whose.seed for one in several) for name, several in by_method(found).items()}
    sizes = [len(one.rows) for one in found]
    n = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    return (
        "Whiskers: 95 %, over training seeds (Student) with a dot per seed, or over tasks (Wilson) where there is one "
        f"seed. n = {n} episodes per seed and split. {told(about)}. "
        f"{code_of(commit for one in found for commit in one.whose.commits)}"
    )
