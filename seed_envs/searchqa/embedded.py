"""The embedded questions: those of the committed manifest, made from their ids and checked when they are played."""

from functools import cache
from typing import TYPE_CHECKING

from seed_envs import paths
from seed_envs.errors import DataError
from seed_envs.searchqa.asking import Question, ask
from seed_envs.searchqa.sources import TEST, QuestionSource
from seed_envs.searchqa.world import World, world
from seed_envs.seeding import canonical, sha256_text
from seed_envs.tasks import Task, TaskSet, read_manifest

if TYPE_CHECKING:
    from seed_envs.search.retrievers import Retriever

NAME = "searchqa-embedded"
SPLITS = ("train", "seen", "unseen")


def content_sha256(question: Question, known: World) -> str:
    """Return the identity of a question: its text and answers, and the passages they stand in."""
    passages = [known.texts[hop.passage] for hop in question.hops]
    return sha256_text(canonical([question.text, question.answers, passages]))


class EmbeddedQuestions(QuestionSource):
    """Questions about the encyclopedia."""

    splits = SPLITS

    def tasks(self, split: str) -> TaskSet:
        """Return a split; ``test`` is ``seen`` and ``unseen`` together."""
        if split == TEST:
            both = (task for part in SPLITS[1:] for task in _manifest()[part])
            return TaskSet(sorted(both), name=f"{NAME}/{TEST}")
        return _manifest()[split]

    def load(self, task: Task) -> Question:
        """Make a question.

        Raises:
            DataError: when it is not the one of the manifest.
        """
        question = ask(world(), task.id)
        if content_sha256(question, world()) != task.sha256:
            raise DataError(f"{task.id} is not the question its manifest lists; install the package anew")
        return question


def encyclopedia() -> "Retriever":
    """Return the embedded passages behind BM25, indexed in memory."""
    from seed_envs.search.passages import Passage
    from seed_envs.search.retrievers import BM25Retriever

    return BM25Retriever.in_memory(Passage.of(*passage) for passage in world().passages)


@cache
def _manifest() -> dict[str, TaskSet]:
    return read_manifest(paths.manifest_path(NAME))
