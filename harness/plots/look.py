"""How every figure looks: a colour and a marker per method, one style, captions, and bytes that repeat."""

import hashlib
import io
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from harness.records import WriteFailed
from seed_agent.methods import METHODS
from seed_envs.errors import ConfigError
from seed_envs.files import write_atomically

GREY, ACCENT = "#6b6b6b", "#0a5ea8"
COLOURS = {
    # untrained: greys; SEED: the accent; what is left out of it: lighter blues; all others: Tol's muted scheme
    "vanilla": (GREY, "o"),
    "react": ("#9a9a9a", "s"),
    "skill-prompt-star": ("#3d3d3d", "*"),
    "grpo": ("#ddaa33", "s"),
    "skill-grpo": ("#999933", "^"),
    "skill-grpo-star": ("#999933", "*"),
    "opsd": ("#cc6677", "v"),
    "grpo-opsd": ("#882255", "D"),
    "skill-sd": ("#44aa99", "P"),
    "skill-sd-bank": ("#117733", "X"),
    "rlsd": ("#aa4499", "<"),
    "sdar": ("#bb5500", ">"),
    "opid": ("#332288", "h"),
    "seed": (ACCENT, "o"),
    "seed-no-sft": ("#5b9bd5", "v"),
    "seed-no-opd": ("#5b9bd5", "^"),
    "seed-static-skill": ("#88ccee", "s"),
    "seed-frozen-analyzer": ("#88ccee", "D"),
    "seed-no-gate": ("#88ccee", "P"),
}
"""Colour and marker of every method of the table, the same in every figure; no two share both.

Source: P. Tol, Colour schemes, technical note SRON/EPS/TN/09-002, 'muted', which colour-blind readers can tell apart.
"""
_SPARE = tuple((colour, marker) for marker in "dHp8" for colour in ("#666633", "#cc3311", "#009988", "#ee7733"))
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e2dd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "seed-suite",
    "savefig.dpi": 200,
}
_CAPTION, _LINE = 7.0, 0.135
"""Points of a caption's letters, inches of its lines."""
SUFFIXES = (".png", ".svg")


def colour_of(method: str) -> tuple[str, str]:
    """Return colour and marker of a method; one that is not in the table keeps its own in every figure, too."""
    if method in COLOURS:
        return COLOURS[method]
    return _SPARE[hashlib.sha256(method.encode("utf-8", "replace")).digest()[0] % len(_SPARE)]


def label_of(method: str) -> str:
    """Return how a method is printed."""
    return METHODS.get(method).label or method if method in METHODS else method


def in_order(methods: Iterable[str]) -> list[str]:
    """Return distinct methods as ``COLOURS`` lists them, then all others by name."""
    place = {name: i for i, name in enumerate(COLOURS)}
    return sorted(set(methods), key=lambda name: (place.get(name, len(place)), name))


def plain(text: str) -> str:
    """Return ``text`` as the font can show it, with no letter that means anything to matplotlib."""
    shown = "".join(c if c in "\n " or _drawable(c) else "\N{WHITE SQUARE}" for c in text)
    shown = f" {shown}" if shown[:1] == "_" else shown  # which would hide it in a legend
    return shown.replace("$", r"\$")


@cache
def _drawable(letter: str) -> bool:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    found = (get_font(findfont(FontProperties(family=name))) for name in ("DejaVu Sans", "DejaVu Sans Mono"))
    return letter.isprintable() and all(font.get_char_index(ord(letter)) for font in found)


def told(found: Mapping[str, str]) -> str:
    """Return what a caption says of each method, once for those of which it says the same."""
    methods: dict[str, list[str]] = {}
    for method, text in found.items():
        methods.setdefault(text, []).append(label_of(method))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in methods.items())


def seeds_of(seeds: Iterable[int | None]) -> str:
    """Return training seeds as a caption names them."""
    known = [str(seed) for seed in dict.fromkeys(seeds) if seed is not None]
    return f"training seed{'s' * (len(known) > 1)} {', '.join(known)}" if known else "no training seed known"


def code_of(commits: Iterable[str]) -> str:
    """Return the end of every caption: which code the runs are of."""
    return f"Code: {', '.join(sorted(set(commits))) or 'unknown'}."


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the suite's style, whatever the user's own settings of matplotlib are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def panels(count: int, caption: str, *, columns: int = 3, size: tuple[float, float] = (3.4, 2.6)) -> tuple[Any, Any]:
    """Return a figure and ``count`` axes of ``size`` inches each, with the caption below them."""
    across = min(count, columns)
    down = -(-count // across)
    figure = page(max(across * size[0], 5.2), down * size[1], caption)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for unused in axes[count:]:
        unused.set_axis_off()
    return figure, axes[:count]


def page(width: float, height: float, caption: str) -> Any:
    """Return an empty figure of ``width`` x ``height`` inches, with the caption below."""
    from matplotlib.figure import Figure

    lines = textwrap.wrap(caption, int(width * 17.5))
    below = _LINE * (len(lines) + 1)
    figure = Figure(figsize=(width, height + below), layout="constrained")
    figure.get_layout_engine().set(rect=(0, below / (height + below), 1, height / (height + below)))  # type: ignore
    text = plain("\n".join(lines))
    figure.text(0.01, _LINE / 2 / (height + below), text, va="bottom", fontsize=_CAPTION, color="#444444")
    return figure


def legend(figure: Any, axes: Sequence[Any]) -> None:
    """Put one legend of all that is drawn above the axes."""
    found: dict[str, Any] = {}
    for one in axes:
        for handle, name in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    figure.legend(found.values(), found.keys(), loc="outside upper center", ncols=min(len(found), 5))


def rate_axis(axes: Any, *, top: float = 1.0) -> None:
    """Have the vertical axis be a rate, from 0 to all of it."""
    from matplotlib.ticker import PercentFormatter

    axes.set_ylim(0, top)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def check_out(out: Path) -> None:
    """Refuse a file of another kind before anything is read.

    Raises:
        ConfigError: naming the kinds there are.
    """
    if out.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out {out} cannot be drawn; expected a file that ends in {' or '.join(SUFFIXES)}")


def save(figure: Any, out: Path) -> None:
    """Write a figure; the same figure gives the same bytes.

    Raises:
        WriteFailed: when it cannot be written.
    """
    content, kind = io.BytesIO(), out.suffix.lower().removeprefix(".")
    figure.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    try:
        write_atomically(out, content.getvalue())
    except OSError as error:
        raise WriteFailed(out, error, kept="") from None
