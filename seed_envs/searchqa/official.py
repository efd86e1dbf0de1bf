"""The seven public question sets in a folder, as FlashRAG lays them out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seed_envs.errors import DataError
from seed_envs.searchqa.asking import Question
from seed_envs.searchqa.questions import SUFFIXES, read_questions
from seed_envs.searchqa.sources import TEST, QuestionSource
from seed_envs.seeding import canonical, sha256_text
from seed_envs.tasks import Task, TaskSet

SEEN = ("nq", "hotpotqa")
UNSEEN = ("triviaqa", "popqa", "2wikimultihopqa", "musique", "bamboogle")
RELEASED: Mapping[str, Mapping[str, int]] = {
    "train": {"nq": 79_168, "hotpotqa": 90_447},
    "seen": {"nq": 3_610, "hotpotqa": 7_405},
    "unseen": {"triviaqa": 11_313, "popqa": 14_267, "2wikimultihopqa": 12_576, "musique": 2_417, "bamboogle": 125},
}
"""Questions by split and set. Source: FlashRAG's table; Search-R1 trains on the first two."""
_FILES = {"train": ("train",), "test": ("test", "dev")}
"""The files that a set may keep a split in; a set without a test file is tested on its dev file."""


def content_sha256(question: Question) -> str:
    """Return the identity of a question: its set, text and golden answers."""
    return sha256_text(canonical([question.style, question.text, question.answers]))


class OfficialQuestions(QuestionSource):
    """Questions in ``ROOT/SET/{train,dev,test}.jsonl`` (or ``.parquet``), or ``ROOT/{train,test}.parquet``.

    ``train`` holds the training files of nq and hotpotqa, ``seen`` their test files, ``unseen``
    those of the other five sets, ``test`` all seven.
    """

    def __init__(self, root: Path) -> None:
        """Look for files.

        Raises:
            DataError: when there are none.
        """
        self.root = Path(root).expanduser()
        self._tables: dict[str, dict[str, Question]] = {}
        self.splits = tuple(split for split in RELEASED if self.files(split))
        if not self.splits:
            raise DataError(
                f"there are no question files in {self.root}; expected {self.root}/nq/test.jsonl and the like; "
                "get them with: python -m seed_envs fetch searchqa"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the questions behind; a copy reads its own."""
        return {**vars(self), "_tables": {}}

    def files(self, split: str) -> list[tuple[Path, str]]:
        """Return (path, set) of the files that a split is read from."""
        stems = _FILES["train" if split == "train" else "test"]
        found = [(path, name) for name in released(split) if (path := _file(self.root / name, stems)) is not None]
        common = _file(self.root, stems[:1])
        return found or ([] if common is None else [(common, "")])

    def questions(self, split: str) -> dict[str, Question]:
        """Return the questions of a split by id, read at the first call.

        Raises:
            DataError: when a file is torn or an id occurs twice.
        """
        if split not in self._tables:
            table: dict[str, Question] = {}
            for path, name in self.files(split):
                for row in read_questions(path, name):
                    if row.style not in released(split):
                        continue
                    if row.id in table:
                        raise DataError(f"{path}: the id {row.id!r} occurs twice")
                    table[row.id] = row
            self._tables[split] = table
        return self._tables[split]

    def tasks(self, split: str) -> TaskSet:
        """Return the questions of a split as tasks, sorted by id.

        Raises:
            DataError: when a file is torn, or none holds a question of this split.
        """
        if not self.questions(split):
            places = ", ".join(str(path) for path, _ in self.files(split))
            raise DataError(f"there are no questions of the split {split!r} in {places}; expected {released(split)}")
        sides = {name: side for side, sets in RELEASED.items() if side != "train" for name in sets}
        rows = (
            Task(q.id, "train" if split == "train" else sides[q.style], q.style, content_sha256(q))
            for q in self.questions(split).values()
        )
        kind = "local" if self.differences(split) else "official"
        return TaskSet(sorted(rows), name=f"searchqa-{kind}/{split}")

    def load(self, task: Task) -> Question:
        """Return a question.

        Raises:
            DataError: when the files have changed since the tasks were listed.
        """
        question = self.questions(task.split).get(task.id)
        if question is None or content_sha256(question) != task.sha256:
            raise DataError(f"{task.id} is not in {self.root} as it was; the files have changed")
        return question

    def differences(self, split: str) -> list[str]:
        """Return how the number of questions differs from the release, a text per set."""
        counts = Counter(question.style for question in self.questions(split).values())
        return [f"{name} {counts[name]} of {n}" for name, n in released(split).items() if counts[name] != n]


def released(split: str) -> dict[str, int]:
    """Return the released number of questions of each set in a split (``test``: of all seven)."""
    parts = ("seen", "unseen") if split == TEST else (split,)
    return {name: n for part in parts for name, n in RELEASED[part].items()}


def _file(folder: Path, stems: Sequence[str]) -> Path | None:
    paths = (folder / f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)
