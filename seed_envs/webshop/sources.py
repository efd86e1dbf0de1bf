"""Where goals come from: the embedded manifest, or official files under one of two split schemes."""

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Protocol

from seed_envs import paths
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.tasks import Task, TaskSet, compare_manifests, read_manifest, resolve_split
from seed_envs.webshop.catalogue import embedded, open_catalogue
from seed_envs.webshop.goals import UPSTREAM_SEED, Goal, human_goals, synthetic_goals, upstream_draws, upstream_order
from seed_envs.webshop.manifests import EmbeddedGoals
from seed_envs.webshop.official import PROFILES
from seed_envs.webshop.oracle import own_options
from seed_envs.webshop.product import Catalogue, Product
from seed_envs.webshop.reward import score
from seed_envs.webshop.tagger import get_tagger

SCHEMES = ("fixed", "verl_agent")
MANIFEST = "webshop-{}"
"""Names of the committed manifests of official goals; small-synthetic has one."""
_BOUNDS = {"test": (0, 500), "dev": (500, 1_500), "train": (1_500, None)}
_VERL_BOUNDS = {"test": (0, 500), "train": (500, None)}


class GoalSource(Protocol):
    """A named collection of goals in splits, over one catalogue."""

    @property
    def shop(self) -> Catalogue:
        """The products."""

    @property
    def splits(self) -> Sequence[str]:
        """The splits there are; none is empty."""

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split, sorted by id."""

    def goal(self, task: Task) -> Goal:
        """Return what a task asks for."""

    def price(self, product: Product) -> float:
        """Return what buying a product costs."""

    def notices(self, split: str) -> list[str]:
        """Return what a user should know about these goals."""


def open_goals(data: str, profile: str, scheme: str, worker_seed: int) -> GoalSource:
    """Return the goals that the arguments name, the same object for the same goals in a process.

    Args:
        data: ``embedded``, ``official`` or a folder of official files.
        profile: one of ``PROFILES``; of official files.
        scheme: one of ``SCHEMES``.
        worker_seed: what a worker of verl-agent seeds its generators with; of that scheme.

    Raises:
        UnknownName: for an unknown profile or scheme.
        ConfigError: when arguments do not go together.
        DataError: when files are missing or torn.
    """
    for kind, value, known in (("WebShop profile", profile, tuple(PROFILES)), ("split scheme", scheme, SCHEMES)):
        if value not in known:
            raise UnknownName(kind, value, known)
    if type(worker_seed) is not int or worker_seed < 0:
        raise ConfigError(f"worker_seed={worker_seed!r} is no seed; expected an integer from 0")
    if scheme == "fixed" and worker_seed:
        raise ConfigError("worker_seed needs split_scheme='verl_agent': with 'fixed' all processes have the same goals")
    if data == "embedded":
        if profile != next(iter(PROFILES)):
            raise ConfigError(f"embedded goals have no profiles; use profile={profile!r} with data='official'")
        if scheme != "fixed":
            raise ConfigError(
                "embedded goals have one split scheme; use split_scheme='verl_agent' with data='official'"
            )
        return _Embedded()
    shop = open_catalogue(data, PROFILES[profile][0])
    return _official(shop, data, profile, None if scheme == "fixed" else worker_seed)


@cache
def _official(shop: Catalogue, data: str, profile: str, worker_seed: int | None) -> "OfficialGoals":
    return OfficialGoals(shop, profile, worker_seed, data=data)


class _Embedded(EmbeddedGoals):
    """The embedded goals, with their products at frozen prices."""

    @property
    def shop(self) -> Catalogue:
        """The products."""
        return embedded()

    def goal(self, task: Task) -> Goal:
        """Return what a task asks for."""
        return self.load(task)

    def price(self, product: Product) -> float:
        """Return what buying a product costs."""
        return product.price

    def notices(self, split: str) -> list[str]:
        """Return nothing: every embedded goal can be reached."""
        return []


class OfficialGoals:
    """The goals of official files, in upstream's order and cut into its splits by position."""

    def __init__(
        self, shop: Catalogue, profile: str, worker_seed: int | None = None, *, data: str = "official"
    ) -> None:
        """Make the goals.

        Args:
            shop: the catalogue of the profile.
            data: where the catalogue is from; a copy in another process reads it there.
            profile: one of ``PROFILES``.
            worker_seed: None for prices and order that are the same everywhere; a number for what a
                verl-agent worker with this seed plays, whose prices, ceilings and order are its own.

        Raises:
            ConfigError: when the files make no goals.
        """
        self.shop, self.profile, self.worker_seed, self._data = shop, profile, worker_seed, data
        make = human_goals if PROFILES[profile][1] == "human" else synthetic_goals
        self._prices: dict[str, float] = {}
        if worker_seed is None:
            self.goals = upstream_order(make(shop.instructed()))
        else:
            self._prices, ceiling = upstream_draws(map(shop.product, shop.asins), worker_seed)
            self.goals = upstream_order(make(shop.instructed(), ceiling), worker_seed)
        if not self.goals:
            raise ConfigError(
                f"the files in {data} make no goals for the profile {profile!r}: {len(shop):,} products, none with a "
                "usable instruction; are they the official ones? type: python -m seed_envs fetch webshop"
            )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as what the goals are made from."""
        scheme = "fixed" if self.worker_seed is None else "verl_agent"
        return open_goals, (self._data, self.profile, scheme, self.worker_seed or 0)

    @property
    def splits(self) -> Sequence[str]:
        """``train``, ``dev`` and ``test``; those that are not empty."""
        return tuple(split for split in ("train", "dev", "test") if self._places(split))

    def _places(self, split: str) -> Sequence[int]:
        bounds = _BOUNDS if self.worker_seed is None else _VERL_BOUNDS
        places = range(len(self.goals))[slice(*bounds[split])] if split in bounds else range(0)
        if self.worker_seed is not None or split != "train":
            return places
        # Upstream makes a few goals twice, where a product lists a value twice; none is in two splits here.
        held_out = set(self._hashes[: places.start])
        return [place for place in places if self._hashes[place] not in held_out]

    @cached_property
    def _hashes(self) -> list[str]:
        return [goal.sha256 for goal in self.goals]

    @property
    def _prefix(self) -> str:
        return f"webshop/{self.profile}" + ("" if self.worker_seed is None else f"-worker{self.worker_seed}")

    @cached_property
    def _tasks(self) -> dict[str, TaskSet]:
        return {split: self._make(split) for split in self.splits}

    def _make(self, split: str) -> TaskSet:
        found = [
            Task(f"{self._prefix}/{place:05d}", split, self.goals[place].category, self._hashes[place])
            for place in self._places(split)
        ]
        name = f"{self._prefix.replace('/', '-')}/{split}"
        if self.worker_seed is None:
            known = released(self.profile)
            listed = {task.id: task for task in known.get(split, ())}
            if known and any(compare_manifests({task.id: task for task in found}, listed).values()):
                name = name.replace("webshop-", "webshop-local-", 1)
        return TaskSet(found, name=name)

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split, in upstream's order."""
        return self._tasks[resolve_split(split, self.splits)]

    def goal(self, task: Task) -> Goal:
        """Return what a task asks for."""
        return self.goals[int(task.id.rpartition("/")[2])]

    def price(self, product: Product) -> float:
        """Return what buying a product costs."""
        return self._prices.get(product.asin, product.price)

    @cached_property
    def leaks(self) -> dict[str, int]:
        """How many test and training goals of this worker lie elsewhere in other places of the data.

        Keys: ``test_in_train_of_worker_0``, ``train_in_fixed_test``, ``train_in_fixed_dev``. Goals are
        the same here when they ask for the same options of the same product, whatever the price.
        """
        make = human_goals if PROFILES[self.profile][1] == "human" else synthetic_goals
        asked = list(make(self.shop.instructed()))
        fixed, worker = ([_content(goal) for goal in upstream_order(asked, seed)] for seed in (UPSTREAM_SEED, 0))
        mine = [_content(goal) for goal in self.goals]
        test, train = set(mine[:500]), set(mine[500:])
        return {
            "test_in_train_of_worker_0": len(test & set(worker[500:])),
            "train_in_fixed_test": len(train & set(fixed[:500])),
            "train_in_fixed_dev": len(train & set(fixed[500:1_500])),
        }

    def notices(self, split: str) -> list[str]:
        """Say which goals cannot be reached, what leaks, and how the files differ from the release."""
        best = [best_score(self, task) for task in self.tasks(split)]
        missed, total = sum(value < 1 for value in best), len(best)
        lines = []
        if missed:
            lines.append(
                f"{split}: {missed} of {total} goals cannot reach 1 with the product they were made from: by that way "
                f"success is at most {1 - missed / total:.1%} and the mean score {sum(best) / total:.4f}"
            )
        if self.worker_seed is not None:
            leaks = self.leaks
            told = {
                "test": f"{leaks['test_in_train_of_worker_0']} of its test goals are training goals of worker seed 0",
                "train": f"it holds {leaks['train_in_fixed_test']} test and {leaks['train_in_fixed_dev']} dev goals "
                "of split_scheme=fixed",
            }
            lines.append(f"{split}: split_scheme=verl_agent leaks: {told[split]}")
        elif self.tasks(split).name.startswith("webshop-local-"):
            lines.append(f"{split}: not the goals of the release; scores are of these files only")
        return lines


def best_score(source: GoalSource, task: Task) -> float:
    """Return the ceiling of a task: what its own product with the options asked for is worth."""
    goal = source.goal(task)
    product = source.shop.product(goal.asin)
    # Whichever tagger: against itself a title has enough nouns in common.
    return score(product, goal, own_options(goal, product), source.price(product), get_tagger("light")).reward


def _content(goal: Goal) -> tuple[object, ...]:
    return goal.asin, goal.attributes, goal.options


@cache
def released(profile: str) -> Mapping[str, TaskSet]:
    """Return the committed manifest of a profile by split; empty for profiles without one."""
    path = paths.manifest_path(MANIFEST.format(profile))
    return read_manifest(path) if path.is_file() else {}
