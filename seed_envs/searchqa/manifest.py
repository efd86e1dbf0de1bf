"""Choosing the committed questions: ``python -m seed_envs.searchqa.manifest`` writes the manifest anew.

Every entity is on one side, training or test, and is asked about on that side alone. A question is
kept when its text does not hold its answer and when the searches of its plan find what they need
among the passages that an agent would be shown.
"""

import argparse
from collections.abc import Iterator

from seed_envs.errors import DataError
from seed_envs.paths import manifest_path
from seed_envs.searchqa.asking import SEEN, UNSEEN, Question, ask, candidates, forms
from seed_envs.searchqa.embedded import NAME, content_sha256, encyclopedia
from seed_envs.searchqa.scoring import comparable
from seed_envs.searchqa.world import world
from seed_envs.seeding import Draws, derive
from seed_envs.tasks import Task, write_manifest

TOP_K = 3
PLAN = (
    *(("train", style, 1_500) for style in SEEN),
    *(("seen", style, 64) for style in SEEN),
    *(("unseen", style, 32) for style in UNSEEN),
)
"""Split, style and number of questions."""


def build() -> list[Task]:
    """Return the tasks of every split; takes some seconds."""
    return [task for part in PLAN for task in _choose(*part)]


def is_test(key: str) -> bool:
    """Whether an entity is asked about in the test splits: one in four is."""
    return derive("searchqa side", key) % 4 == 0


def _choose(split: str, style: str, count: int) -> Iterator[Task]:
    """Yield ``count`` tasks, the forms of the style in turn; a form that has nothing left drops out."""
    rest = {name: _questions(split, style, name) for name in forms(style)}
    kept = 0
    while kept < count:
        assert rest, f"{style} has only {kept} questions for {split}"
        for name in list(rest)[: count - kept]:
            question = next(rest[name], None)
            if question is None:
                del rest[name]
                continue
            kept += 1
            yield Task(question.id, split, style, content_sha256(question, world()))


def _questions(split: str, style: str, name: str) -> Iterator[Question]:
    known, arity = candidates(world(), style, name)
    draws = Draws("searchqa question", split, style, name)
    side = draws.shuffled([entity.key for entity in known if is_test(entity.key) == (split != "train")])
    groups = [[key] for key in side]
    if arity == 2:
        groups = [[key, draws.choice(side)] for _ in range(4) for key in side]
    seen, wanted = set[str](), "yes"
    for group in groups:
        question = _made(f"{style}/{name}/{'+'.join(group)}")
        if question is None or question.text in seen or len(set(group)) < len(group):
            continue
        if question.answers[0] in ("yes", "no"):  # take them in turn, or nearly all would be no
            if question.answers[0] != wanted:
                continue
            wanted = "no" if wanted == "yes" else "yes"
        seen.add(question.text)
        yield question


def _made(question_id: str) -> Question | None:
    try:
        question = ask(world(), question_id)
    except DataError:  # nobody's father is known, or both are as old
        return None
    contest = len(question.hops) == 2 and question.hops[1].query in question.text
    told = any(comparable(answer) in comparable(question.text) for answer in question.answers)
    return question if (contest or not told) and _searchable(question) else None


def _searchable(question: Question) -> bool:
    found = _PASSAGES.search([hop.query for hop in question.hops], TOP_K)
    return all(hop.passage in {p.id for p in hits} for hop, hits in zip(question.hops, found, strict=True))


_PASSAGES = encyclopedia()

if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m seed_envs.searchqa.manifest", description=__doc__).parse_args()
    write_manifest(manifest_path(NAME), build(), title="SearchQA questions: id, split, category, sha256 of the content")
