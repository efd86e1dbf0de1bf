"""How a training run is doing: a live line on a terminal, plain lines elsewhere, and optional sinks."""

import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from harness.progress import Bar
from seed_envs.cli.common import note
from seed_envs.errors import UnknownName

SHOWN = (
    ("reward", "env/reward", "{:.2f}"),
    ("success", "env/success", "{:.0%}"),
    ("opd", "opd/loss", "{:.4f}"),
    ("gate", "opd/gate", "{:.2f}"),
    ("active", "opd/active_ratio", "{:.0%}"),
    ("parsed", "skill/parse_rate", "{:.0%}"),
    ("reply", "env/reply_tokens", "{:.0f} tok"),
    ("entropy", "rl/entropy", "{:.2f}"),
    ("speed", "time/tokens_per_s", "{:.0f} tok/s"),
)
"""Label, metric and format; a method without a metric does not show it."""


def line(metrics: Mapping[str, Any]) -> str:
    """Return an iteration's figures in one line, the last evaluation among them."""
    parts = [f"{label} {form.format(metrics[key])}" for label, key, form in SHOWN if key in metrics]
    parts += [
        f"{key.removeprefix('eval/').removesuffix('/success')} {value:.1%}"
        for key, value in metrics.items()
        if key.startswith("eval/") and key.endswith("/success")
    ]
    if metrics.get("env/errors"):
        parts.append(f"{metrics['env/errors']} episodes broke")
    return ", ".join(parts)


EVERY_S = 5.0
"""Seconds between two plain lines; evaluations and the last iteration are always said."""


class TrainingMeter(Bar):
    """Shows how many iterations are done, the figures of the last one and the time left, on stderr."""

    def __init__(
        self,
        label: str,
        total: int,
        *,
        done: int = 0,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start at ``done`` iterations; ``terminal`` is found out unless given."""
        self.label, self.total, self._before, self._clock = label, total, done, clock
        self._started = clock()
        self._said = self._started - EVERY_S
        super().__init__(label, total, done=done, terminal=terminal, width=16)

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Show a finished iteration; iteration 0 is the evaluation before the first."""
        done = int(metrics["iteration"])
        text = line(metrics)
        if done > self._before:
            seconds = (self._clock() - self._started) / (done - self._before)
            text += f", {timedelta(seconds=round(seconds * (self.total - done)))} left"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, rest=text)
        elif self._clock() - self._said >= EVERY_S or done == self.total or any(k.startswith("eval/") for k in metrics):
            self._said = self._clock()
            with contextlib.suppress(OSError):  # a closed terminal is no reason to stop
                note(f"{self.label}: {done}/{self.total}: {text}")


class Sink(Protocol):
    """Takes the metrics of an iteration somewhere else."""

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Take them."""


class TensorBoard:
    """Event files in the run's folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Open the writer; needs the package tensorboard."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Write every number as a scalar."""
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, metrics["iteration"])
        self._writer.flush()


class WandB:
    """A Weights & Biases run, configured by that package's own variables."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Begin the run; needs the package wandb."""
        import wandb  # type: ignore[import-not-found,unused-ignore]

        self._run: Any = wandb.init(dir=str(folder), config=dict(config))

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Log them under their iteration."""
        self._run.log(dict(metrics), step=metrics["iteration"])


SINKS: dict[str, Callable[[Path, Mapping[str, Any]], Sink]] = {"tensorboard": TensorBoard, "wandb": WandB}


class SafeSink:
    """A sink that cannot stop a run: after its first failure it is silent, and one line says so."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        """Open the sink called ``name``.

        Raises:
            UnknownName: when there is none.
        """
        if name not in SINKS:
            raise UnknownName("sink", name, SINKS)
        self.name = name
        self._sink: Sink | None = None
        try:
            self._sink = SINKS[name](folder, config)
        except Exception as error:  # somebody else's package: whatever it raises, training goes on
            self._fail(error)

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Hand on the metrics while the sink works."""
        if self._sink is None:
            return
        try:
            self._sink.add(metrics)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._sink = None
        what = " ".join(str(error).split())[:160] or type(error).__name__
        note(f"warning: no more metrics to {self.name} ({what}); metrics.jsonl has them all")
