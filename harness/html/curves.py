"""Curves as numbers a template can draw: smoothing, thinning, axes. Places are 0 to 1000, from the top left."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.stats import Interval

Item = TypeVar("Item")

WINDOW = 13
"""Points of the centred mean.

Source: SEED (arXiv 2607.14777), figure 3.
"""
MOST = 400
"""Places across at which a curve is drawn, at most; a page of 10,000 iterations stays small."""
LARGEST = 1e100
"""Anything beyond it is no measurement, and could not be drawn."""

Points = Sequence[tuple[float, float]]
Write = Callable[..., str]
"""Turns a number, and digits where the usual four are too few, into text."""


@dataclass(frozen=True)
class Axis:
    """A straight scale, with the places of its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...] = ()

    def place(self, value: float) -> float:
        """Return where ``value`` is between ``low`` (0) and ``high`` (1)."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Mark:
    """A point with its interval, in percent of the picture's width and height."""

    x: float
    y: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Chart:
    """One picture. ``raw`` and ``mean`` are points of an SVG polyline."""

    key: str
    label: str
    caption: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    raw: str = ""
    mean: str = ""
    marks: tuple[Mark, ...] = ()


def finite(value: object) -> float | None:
    """Return a number that can be drawn, None for anything else: NaN, infinity, a text, true."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        return None
    return float(value)


def centred_mean(values: Sequence[float], window: int = WINDOW) -> list[float]:
    """Return the mean of each value and its neighbours, ``window // 2`` to either side, fewer at the edges.

    Args:
        values: Finite numbers.
        window: An odd number of values.
    """
    half = window // 2
    around = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
    return [math.fsum(near) / len(near) for near in around]


def thinned(points: Points, most: int = MOST) -> list[tuple[float, float]]:
    """Return at most ``2 * most`` points: the lowest and the highest of each of ``most`` equal parts, in order.

    No peak is lost, which taking every n-th point would do.
    """
    if len(points) <= 2 * most:
        return list(points)
    kept = []
    for part in range(most):
        here = points[part * len(points) // most : (part + 1) * len(points) // most]
        ends = {min(here, key=lambda point: point[1]), max(here, key=lambda point: point[1])}
        kept += sorted(ends)
    return kept


def spaced(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most ``most`` of ``items``, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def axis(low: float, high: float, *, integer: bool = False) -> Axis:
    """Return a scale from ``low`` to ``high`` or a little beyond, which ends in round numbers."""
    from matplotlib.ticker import MaxNLocator  # here, for it takes a moment to import

    if low == high:
        high = low + (abs(low) or 1.0)
    found = MaxNLocator(nbins=4, integer=integer, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    ticks = tuple(float(tick) for tick in found)
    return Axis(min(low, ticks[0]), max(high, ticks[-1]), ticks)


def steps(last: int) -> Axis:
    """Return the horizontal scale of all charts: iterations from 0 to ``last``."""
    high = max(last, 1)
    return Axis(0, high, tuple(tick for tick in axis(0, high, integer=True).ticks if tick <= high))


def share(value: float, digits: int = 3) -> str:
    """Return a share as percent."""
    return f"{100 * value:.{digits}g} %"


def plain(value: float, digits: int = 4) -> str:
    """Return a number, large ones whole."""
    return f"{value:,.0f}" if digits <= 4 and 1e3 <= abs(value) < 1e9 else f"{value:.{digits}g}"


def curve(key: str, label: str, points: Points, *, x: Axis, unit: str = "", left_out: int = 0) -> Chart:
    """Return the chart of a metric: every value, and the centred mean over them.

    Args:
        key: The metric's name in ``metrics.jsonl``.
        label: What it is.
        points: Iteration and value; at least one.
        x: The horizontal scale.
        unit: ``whole`` for a share whose scale is 0 to 100 %, ``share`` for one whose scale fits it, ``count`` for
            what is never negative, "" for any number.
        left_out: Iterations that have the metric, but no number.
    """
    values = [value for _, value in points]
    text: Write = share if unit in ("whole", "share") else plain
    low, high = min(values), max(values)
    if unit:
        low = min(low, 0.0)
    if unit == "whole":
        high = max(high, 1.0)
    y = axis(low, high)
    mean = centred_mean(values)
    smooth = [(at, value) for (at, _), value in zip(points, mean, strict=True)]
    caption = (
        f"last {text(values[-1])}, {WINDOW}-point mean {text(mean[-1])}; lowest {text(min(values))}, "
        f"highest {text(max(values))}; n = {len(values):,} iteration{'' if len(values) == 1 else 's'}"
    )
    if left_out:
        caption += f", {left_out:,} more without a number"
    marks = tuple(
        _mark(at, value, None, f"{at:,}: {text(value)}", x, y) for at, value in points[:1] if len(points) == 1
    )
    return Chart(
        key=key,
        label=label,
        caption=caption,
        x_ticks=_x_ticks(x),
        y_ticks=_y_ticks(y, text),
        raw=_polyline(thinned(points), x, y),
        mean=_polyline(spaced(smooth, MOST), x, y),
        marks=marks,
    )


def evaluations(
    key: str, label: str, found: Sequence[tuple[int, float, Interval | None]], *, x: Axis, sizes: Sequence[int]
) -> Chart:
    """Return the chart of a share that was evaluated now and then, with intervals.

    Args:
        key: The metric's name.
        label: What it is.
        found: Iteration, share and its 95 % interval, where it is known; at least one.
        x: The horizontal scale.
        sizes: How many episodes each of them had.
    """
    y = axis(0.0, 1.0)
    shown = spaced(found, MOST // 4)
    marks = tuple(_mark(at, rate, ends, f"iteration {at:,}: {_spoken(rate, ends)}", x, y) for at, rate, ends in shown)
    _, rate, ends = found[-1]
    span = f"{min(sizes):,}" if len(set(sizes)) == 1 else f"{min(sizes):,} to {max(sizes):,}"
    caption = (
        f"last {_spoken(rate, ends)}; n = {span} episodes, {len(found):,} evaluation{'' if len(found) == 1 else 's'}"
    )
    if len(shown) < len(found):
        caption += f", of which {len(shown)} are drawn"
    line = _polyline([(at, rate) for at, rate, _ in shown], x, y)
    return Chart(key, label, caption, _x_ticks(x), _y_ticks(y, share), mean=line, marks=marks)


def _spoken(rate: float, ends: Interval | None) -> str:
    return share(rate) if ends is None else f"{share(rate)}, 95 % interval {100 * ends[0]:.1f} to {100 * ends[1]:.1f}"


def _mark(at: float, value: float, ends: Interval | None, text: str, x: Axis, y: Axis) -> Mark:
    low, high = ends or (value, value)
    return Mark(100 * x.place(at), _down(y, value), _down(y, low), _down(y, high), text)


def _down(y: Axis, value: float) -> float:
    return 100 * (1 - y.place(value))


def _x_ticks(x: Axis) -> tuple[tuple[float, str], ...]:
    return tuple((100 * x.place(tick), f"{tick:,.0f}") for tick in x.ticks)


def _y_ticks(y: Axis, text: Write) -> tuple[tuple[float, str], ...]:
    """Return places and labels, in as many digits as tell them apart."""
    for digits in range(3, 18):
        labels = [text(tick, digits) for tick in y.ticks]
        if len(set(labels)) == len(labels):
            break
    return tuple((_down(y, tick), label) for tick, label in zip(y.ticks, labels, strict=True))


def _polyline(points: Points, x: Axis, y: Axis) -> str:
    return " ".join(f"{1000 * x.place(at):.0f},{10 * _down(y, value):.0f}" for at, value in points)
