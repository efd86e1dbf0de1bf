"""``toy/Counter-v0``: an environment written on ``AgentEnv``."""

from seed_envs.core import AgentEnv, View
from seed_envs.seeding import Draws, canonical, sha256_text
from seed_envs.tasks import Task, TaskSet, resolve_split

MOVES = {"add 1": 1, "add 3": 3, "take 1": -1}
GOALS = {"train": range(5, 13), "unseen": range(13, 17)}


def task_set(split: str) -> TaskSet:
    """Return the tasks of a split: one per number to reach."""
    return TaskSet(
        (
            Task(f"{split}/{n:02}", split, "even" if n % 2 == 0 else "odd", sha256_text(canonical({"goal": n})))
            for n in GOALS[split]
        ),
        name=f"toy_counter/{split}",
    )


class Counter(AgentEnv):
    """Reach a number by adding 1 or 3 and taking 1; the seed sets the start (0, 1 or 2)."""

    version = "1"
    splits = ("train", "unseen")

    def __init__(self, split: str = "train") -> None:
        """Choose the ``split``."""
        self.tasks = task_set(resolve_split(split, self.splits))

    def _begin(self, task: Task, seed: int) -> View:
        self._goal = int(task.id.rsplit("/", 1)[-1])
        self._count = Draws("start", seed).below(3)
        self.instruction = f"Reach {self._goal}."
        return self._view(f"{self.instruction}\nThe counter shows {self._count}.")

    def _act(self, action: str) -> View:
        change = MOVES.get(action)
        if change is None:
            return self._view("Nothing happens.", admissible=False, effective=False, reason="no such action")
        self._count += change
        return self._view(f"The counter shows {self._count}.", admissible=True, effective=True)

    def _view(self, text: str, admissible: bool | None = None, effective: bool | None = None, reason: str = "") -> View:
        won = self._count == self._goal
        return View(
            text, sorted(MOVES), reward=float(won), terminated=won, success=won, score=float(won),
            admissible=admissible, effective=effective, reason=reason, extra={"count": self._count},
        )  # fmt: skip

    def oracle(self) -> list[str]:
        """Return the fewest moves; the goal can always be reached."""
        distance = self._goal - self._count
        if distance < 0:
            return ["take 1"] * -distance
        return ["add 3"] * (distance // 3) + ["add 1"] * (distance % 3)
