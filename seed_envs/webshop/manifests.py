"""The tasks of the embedded catalogue; ``python -m seed_envs.webshop.manifests`` writes their manifest anew.

A task is one goal of one product. No product is in two splits, and no two tasks ask for the same
thing: the same query, attributes and options.
"""

import argparse
import re
from collections.abc import Iterator
from functools import cache

from seed_envs import paths
from seed_envs.errors import DataError
from seed_envs.seeding import Draws
from seed_envs.tasks import Task, TaskSet, read_manifest, resolve_split, write_manifest
from seed_envs.webshop.catalogue import EMBEDDED, embedded
from seed_envs.webshop.generator_words import SHELVES
from seed_envs.webshop.goals import Goal, human_goals, synthetic_goals
from seed_envs.webshop.product import Product

SPLITS = ("train", "dev", "test", "unseen")
UNSEEN = "grocery"
"""The category that is in no other split."""
HELD_OUT = 32
"""Products of each other category in ``dev``, and as many in ``test``."""
UNSEEN_PRODUCTS = 128

_ID = re.compile(r"webshop/([0-9A-Z]{10})/(synthetic|human)-(0|[1-9][0-9]{0,5})")
_MAKERS = {"synthetic": synthetic_goals, "human": human_goals}


def goal_of(product: Product, style: str, number: int) -> Goal:
    """Return one goal of a product.

    Args:
        product: what it asks for.
        style: ``synthetic`` or ``human``.
        number: its place among the product's goals of that style.

    Raises:
        DataError: when the product has no such goal.
    """
    goals = list(_MAKERS[style]([product]))
    if number >= len(goals):
        raise DataError(f"{product.asin} has {len(goals)} {style} goals, none of number {number}")
    return goals[number]


class EmbeddedGoals:
    """The tasks that come with the package; nothing to download."""

    name = EMBEDDED
    splits = SPLITS

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split, sorted by id; ``seen`` is ``test``.

        Raises:
            UnknownName: when there is no such split.
        """
        return _manifest()[resolve_split(split, self.splits)]

    def load(self, task: Task) -> Goal:
        """Return the goal of a task.

        Raises:
            DataError: when it is not the goal the manifest lists.
        """
        found = _ID.fullmatch(task.id)
        if found is None or found[1] not in embedded():
            raise DataError(f"{task.id!r} is no task of the embedded shop; list them with EmbeddedGoals().tasks(split)")
        goal = goal_of(embedded().product(found[1]), found[2], int(found[3]))
        if goal.sha256 != task.sha256:
            raise DataError(f"{task.id} is not the goal its manifest lists; install the package anew")
        return goal


@cache
def _manifest() -> dict[str, TaskSet]:
    return read_manifest(paths.manifest_path(EMBEDDED))


def build() -> list[Task]:
    """Return the tasks of every split: the held-out ones first, then for training what is still new."""
    asked: set[tuple[object, ...]] = set()
    return [task for split, product, styles in _plan() for task in _tasks(split, product, styles, asked)]


def _plan() -> Iterator[tuple[str, Product, tuple[str, ...]]]:
    """Yield split, product and the styles of its goals; held-out products have one goal, in turns."""
    shop = embedded()
    order = {c: Draws(EMBEDDED, "splits", c).shuffled(shop.in_category(c)) for c in SHELVES}
    for category, asins in order.items():
        for place, asin in enumerate(asins[: UNSEEN_PRODUCTS if category == UNSEEN else 2 * HELD_OUT]):
            split = "unseen" if category == UNSEEN else "dev" if place < HELD_OUT else "test"
            yield split, shop.product(asin), (("synthetic", "human")[place % 2],)
    for category, asins in order.items():
        for asin in asins[2 * HELD_OUT :] if category != UNSEEN else ():
            yield "train", shop.product(asin), ("synthetic", "human")


def _tasks(split: str, product: Product, styles: tuple[str, ...], asked: set[tuple[object, ...]]) -> Iterator[Task]:
    draws = Draws(EMBEDDED, "goals", product.asin)
    for style in styles:
        goals = list(enumerate(_MAKERS[style]([product])))
        for number, goal in draws.shuffled(goals):
            wanted = (goal.query, tuple(sorted(goal.attributes)), tuple(sorted(map(_value, goal.options))))
            if wanted not in asked:
                asked.add(wanted)
                yield Task(f"webshop/{product.asin}/{style}-{number}", split, product.category, goal.sha256)
                break


def _value(option: str | tuple[str, str]) -> str:
    return option if isinstance(option, str) else option[1]


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m seed_envs.webshop.manifests", description=__doc__).parse_args()
    title = "Goals of the embedded WebShop catalogue: id, split, category, sha256 of the goal"
    write_manifest(paths.manifest_path(EMBEDDED), build(), title=title)
