"""From cells to commands: what makes every result of a sweep, what of it is there, and what each method is given."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.config import Options, make_plans
from harness.players import Speech
from harness.protocol import FULL, PAPER, TEMPERATURE
from harness.runs import SUMMARY
from harness.sweeps.grid import Cell, Grid, cells_of
from harness.sweeps.units import DONE, EVALUATION, TRAINING, Step, Unit, content_of, ordered
from harness.train import evaluation_flags, preset_of, stage1_of
from seed_agent.methods import METHODS, Method
from seed_agent.skills.library import LIBRARIES
from seed_agent.train.model import elsewhere, lacking, missing
from seed_agent.train.plan import check_stage1, make_plan
from seed_agent.train.presets import get_preset
from seed_agent.train.rollouts import language_of, method_of
from seed_agent.train.settings import HOW, Settings
from seed_envs.errors import ConfigError, SeedError
from seed_envs.presets import get_preset as get_language
from seed_envs.presets import preset_for


@dataclass(frozen=True)
class SweepPlan:
    """Every cell of a grid with its commands."""

    grid: Grid
    root: Path
    cells: tuple[Unit, ...]
    shared: tuple[Unit, ...]
    left_out: Mapping[str, str]
    """Methods that do not fit an environment, and why; ``--methods all`` alone leaves any out."""
    notices: tuple[str, ...] = ()
    lacking: str = ""
    """Packages that the commands still to run need and this machine does not have, "" for none."""

    @cached_property
    def steps(self) -> list[Step]:
        """Every command once, after what it needs."""
        return ordered(step for unit in self.cells for step in unit.steps)

    @property
    def units(self) -> dict[str, Unit]:
        """Every folder by name."""
        return {unit.name: unit for unit in (*self.shared, *self.cells)}


def plan_sweep(grid: Grid, root: Path) -> SweepPlan:
    """Resolve a grid to commands; no weights are read and nothing is written.

    Raises:
        SeedError: when a cell cannot be made as asked, or its folder holds something else.
    """
    planner, cells, left_out = _Planner(grid, root), [], dict[str, str]()
    for cell in cells_of(grid):
        name = f"{cell.env}/{cell.method}"
        reason = left_out.get(name) or planner.misfit(cell)
        if reason and not grid.every_method:
            raise ConfigError(f"{name} cannot be run: {reason}")
        if reason:
            left_out[name] = reason
        else:
            cells.append(planner.unit(cell))
    for env in grid.envs if grid.every_method else ():
        reasons = [left_out.get(f"{env}/{name}") for name in grid.method_names if METHODS.get(name).trained]
        if all(reasons):
            raise ConfigError(f"no method can be trained in {env}: {reasons[0]}")
    plan = SweepPlan(grid, root, tuple(cells), tuple(planner.shared.values()), left_out, tuple(planner.notices))
    for unit in plan.units.values():
        unit.check()
    for step in plan.steps:
        _check_kept(step)
    if all(step.done for step in plan.steps):  # nothing needs the weights or the packages
        return plan
    named = filter(None, map(elsewhere, planner.models))
    lacks = next(filter(None, map(lacking, planner.backends)), "")
    return replace(plan, notices=(*plan.notices, *named), lacking=lacks)


def _check_kept(step: Step) -> None:
    """Refuse a finished training that did not keep a checkpoint which is asked for now."""
    lost = [path.parent for path in step.products if not path.is_file()]
    if step.what == TRAINING and lost and step.products[0].is_file():
        raise ConfigError(
            f"the training in {step.folder} is finished and did not keep {lost[0].name}; "
            "leave that fraction out or choose another --out"
        )


@dataclass
class _Planner:
    grid: Grid
    root: Path
    shared: dict[str, Unit] = field(default_factory=dict)
    notices: dict[str, None] = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    """Folders and names that were given, or are the presets'."""
    backends: dict[str, None] = field(default_factory=dict)
    _checked: set[tuple[Any, ...]] = field(default_factory=set)
    _splits: dict[str, dict[str, int]] = field(default_factory=dict)

    @cached_property
    def _plugins(self) -> list[str]:
        return [text for name in self.grid.plugins for text in ("--plugin", name)]

    def _flags(self, cell: Cell, method: str) -> list[str]:
        """Return what all trainings of an environment and model have in common."""
        flags = ["--preset", f"{cell.env}/{cell.model}/{method}"]
        flags += [] if self.grid.data == "embedded" else ["--data", self.grid.data]
        return flags + self._plugins

    def _own(self, *, stage1: bool) -> list[str]:
        return [text for text in self.grid.settings if stage1 or not text.startswith("sft.")]

    # --- what does not fit -------------------------------------------------------------------------------------------

    def misfit(self, cell: Cell) -> str:
        """Return why a method cannot be run in an environment, "" where it can."""
        settings = self._settings(cell)
        method = METHODS.get(cell.method)
        try:
            if method.uses_skills and method.skill_source == "static":
                LIBRARIES.get(preset_for(settings.env).kind)
            if method.trained:
                language_of(settings, method_of(settings), temperature=settings.temperature)
        except SeedError as error:
            return str(error)
        return ""

    def _settings(self, cell: Cell, *more: str) -> Settings:
        return preset_of([*self._flags(cell, cell.method), *self._own(stage1=False), *more]).settings

    def _check(self, cell: Cell, settings: Settings) -> None:
        """Refuse what a dry run of the training refuses, once for all seeds."""
        for key in ("history", "max_prompt_tokens"):
            if getattr(settings, key) is not None:
                raise ConfigError(f"{key}= cannot be set in a sweep: evaluation takes the language's; give language=")
        if "split" in settings.env_args or settings.env_args.get("data", self.grid.data) != self.grid.data:
            raise ConfigError("env_args= cannot set data or split in a sweep: --data and --splits say it")
        subset = cell.fraction if self.grid.fraction_mode == "subset" else None
        style = get_language(settings.language).style
        if style and METHODS.get(cell.method).prompt != "plain":
            self.notices[f"the prompt of {cell.method} is not used: {settings.language} has one of its own"] = None
        checked = (cell.env, cell.method, cell.model, subset)
        if METHODS.get(cell.method).trained and checked not in self._checked:
            make_plan(settings)
        self._checked.add(checked)
        self.backends[settings.rollout_backend] = None

    def _known_start(self, settings: Settings, model: str) -> None:
        """Refuse a model that training from a base model would refuse."""
        if needs := missing(settings.model_copy(update={"model": model}), start="base"):
            raise ConfigError(needs)

    # --- what cells share --------------------------------------------------------------------------------------------

    def _base(self, cell: Cell) -> tuple[str, tuple[Step, ...]]:
        """Return the model that everything starts from, and the command that makes it where none is given."""
        named = cell.path or get_preset(f"{cell.env}/{cell.model}/{cell.method}").settings.model
        if named:
            self.models[named] = None
            return named, ()
        name = f"{cell.env}/_base/{cell.model}"
        out = self.root / name / "run"
        kind = cell.env.split("-")[0]
        arguments = ("--stage", "base", "--env", kind, *self._plugins, "--out", str(out))
        unit = self._share(name, "base", arguments, (out / DONE, out / "card.json"), {"env": kind}, ())
        return str(out), unit.steps

    def _stage1(self, cell: Cell) -> tuple[str, tuple[Step, ...], dict[str, Any]]:
        """Return the model that stage 1 makes, its command, and what it is given."""
        base, needs = self._base(cell)
        name = f"{cell.env}/_stage1/{cell.model}/s{cell.seed}"
        out = self.root / name / "run"
        flags = ["--stage", "sft", *self._flags(cell, "seed"), "--seed", str(cell.seed)]
        arguments = [*flags, *self._own(stage1=True), f"model={base}", "--out", str(out)]
        preset = preset_of(arguments)
        if not needs:
            self._known_start(preset.settings, base)
        sft = stage1_of(preset)
        checked = (cell.env, "stage 1", cell.model)
        if checked not in self._checked:
            check_stage1(preset.settings, **{key: sft[key] for key in ("tasks", "temperature", "annotator")})
        self._checked.add(checked)
        given = {"stage1_episodes": sft["tasks"] * sft["rollouts"], "stage1_annotator": sft["annotator"]}
        config = {"settings": _identity(preset.settings), "stage1": sft}
        unit = self._share(name, "stage1", tuple(arguments), (out / "final" / DONE,), config, needs)
        return str(out / "final"), unit.steps, given

    def _share(
        self,
        name: str,
        what: str,
        arguments: tuple[str, ...],
        products: tuple[Path, ...],
        config: Mapping[str, Any],
        needs: tuple[Step, ...],
    ) -> Unit:
        folder = self.root / name
        step = Step(what, name, folder, "harness.train", arguments, products, needs)
        return self.shared.setdefault(name, Unit(name, folder, content_of(config, {}, [step]), (step,)))

    # --- cells -------------------------------------------------------------------------------------------------------

    def unit(self, cell: Cell) -> Unit:
        """Return a cell's folder and commands."""
        method = METHODS.get(cell.method)
        given = {"stage1_episodes": 0, "stage1_annotator": None, "annotator": None, **_skills(method)}
        if not method.trained:
            model, needs = self._base(cell)
            settings = self._settings(cell)
            self._check(cell, settings)
            trained: dict[str, Any] = {"iteration": 0, "run": None}
            own: tuple[Step, ...] = ()
        else:
            model, step, settings, trained, more = self._training(cell, method)
            given |= more
            home = step.unit == cell.name
            own, needs = ((step,) if home else ()), (step,)
        if method.distill is not None and method.skill_source in ("external", "bank"):
            given["annotator"] = settings.annotator
        given |= {"rl_iterations": trained["iteration"]}
        given |= {"rl_episodes": trained["iteration"] * settings.tasks * settings.group}
        folder = self.root / cell.name
        evaluation = self._evaluation(cell, settings, model, needs)
        config = {
            **{key: getattr(cell, key) for key in ("env", "method", "model", "path", "fraction", "seed")},
            "fraction_mode": self.grid.fraction_mode if method.trained else None,
            "settings": _identity(settings),
            **trained,
            "evaluation": {
                "splits": self._tasks(settings),
                "protocol": self.grid.protocol,
                "limit": self.grid.limit,
                "seed": self.grid.eval_seed,
            },
        }
        steps = (*own, evaluation)
        return Unit(cell.name, folder, content_of(config, given, ordered(steps)), steps, cell)

    def _training(self, cell: Cell, method: Method) -> tuple[str, Step, Settings, dict[str, Any], dict[str, Any]]:
        """Return the trained model, its command and settings, where in the run it is taken, and what was given."""
        budget = self.grid.fraction_mode == "budget"
        share = max(self.grid.fractions) if budget else cell.fraction
        assert share is not None and cell.fraction is not None
        start, needs = self._base(cell)
        given = dict[str, Any]()
        if method.init == "sft":
            start, needs, given = self._stage1(cell)
        home = Cell(cell.env, cell.method, cell.model, cell.path, share, cell.seed).name
        out = self.root / home / TRAINING
        flags = [*self._flags(cell, cell.method), "--seed", str(cell.seed)]
        flags += [] if share == 1 else ["--fraction", str(share)]
        flags += [] if budget else ["--fraction-mode", "subset"]
        flags += [*self._own(stage1=False), f"model={start}"]
        settings = preset_of(flags).settings
        if not needs:
            self._known_start(settings, start)
        marks = self._marks(settings) if budget else {share: settings.planned}
        kept = [str(mark) for fraction, mark in marks.items() if fraction < share]
        flags += [f"milestones={','.join(kept)}"] if kept else []
        settings = preset_of(flags).settings
        self._check(cell, settings)
        iteration = marks[cell.fraction]
        model = out / "final" if cell.fraction == share else out / "milestones" / f"iteration_{iteration:06d}"
        products = (out / "final" / DONE, *(out / "milestones" / f"iteration_{int(n):06d}" / DONE for n in kept))
        arguments = (*flags, "--out", str(out))
        step = Step(TRAINING, home, self.root / home, "harness.train", arguments, products, needs)
        return str(model), step, settings, {"iteration": iteration, "run": f"{home}/{TRAINING}"}, given

    def _marks(self, settings: Settings) -> dict[float, int]:
        """Return the iteration at which each fraction of the budget is spent."""
        marks = {f: settings.model_copy(update={"fraction": f}).planned for f in sorted(self.grid.fractions)}
        for one, two in zip(list(marks), list(marks)[1:], strict=False):
            if marks[one] == marks[two]:
                raise ConfigError(
                    f"fractions {one:g} and {two:g} of {settings.iterations} iterations are both iteration "
                    f"{marks[one]}; leave one out"
                )
        return marks

    def _evaluation(self, cell: Cell, settings: Settings, model: str, needs: tuple[Step, ...]) -> Step:
        out = self.root / cell.name / EVALUATION
        if self.grid.protocol == PAPER and not any(s.startswith("eval_temperature=") for s in self.grid.settings):
            settings = settings.model_copy(update={"eval_temperature": TEMPERATURE})
        flags = [*evaluation_flags(settings, model), "--split", ",".join(self._tasks(settings))]
        flags += [] if self.grid.protocol == FULL else ["--protocol", self.grid.protocol]
        flags += [] if self.grid.limit is None else ["--limit", self.grid.limit]
        flags += ["--seed", str(self.grid.eval_seed), "--batch", str(settings.batch), *self._plugins, "--out", str(out)]
        return Step(EVALUATION, cell.name, self.root / cell.name, "harness.eval", tuple(flags), (out / SUMMARY,), needs)

    def _tasks(self, settings: Settings) -> dict[str, int]:
        """Return the splits to evaluate and how many tasks of each; training's fraction has no say in it."""
        others = {key: value for key, value in settings.env_args.items() if key != "data"}
        known = json.dumps([settings.env, others, settings.language, settings.max_turns], sort_keys=True)
        if known not in self._splits:
            options = Options(
                envs=(settings.env,),
                data=self.grid.data,
                splits=self.grid.splits,
                policies=("scripted:random",),
                settings=others,
                max_turns=settings.max_turns,
                speech=Speech(preset=settings.language),
                protocol=self.grid.protocol,
                limit=self.grid.limit,
                seed=self.grid.eval_seed,
                plugins=self.grid.plugins,
            )
            (plan,) = make_plans(options)
            found = {split.name: len(split.tasks) for split in plan.splits}
            final = {name: count for name, count in found.items() if name != "dev" or self.grid.splits}
            self._splits[known] = final or found
        return self._splits[known]


def _skills(method: Method) -> dict[str, Any]:
    source = method.skill_source
    return {
        "skill_source": source if method.uses_skills else "none",
        "train_skill": source if method.train_skill else "none",
        "test_skill": source if method.test_skill else "none",
    }


def _identity(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(mode="json", exclude=set(HOW))
