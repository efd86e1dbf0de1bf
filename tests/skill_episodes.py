"""Episodes for the tests of skills: played ones and hand-made ones."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from seed_agent.policy import make_player
from seed_agent.rollout import Request, env_record, play
from seed_agent.trajectory import EnvRecord, Episode, Image, Seen, Turn
from seed_envs.vector import EnvMaker, GroupVectorEnv

ENV = EnvRecord(
    id="seed_envs/ALFWorld-v0", version="0", max_turns=30, manifest="alfworld-embedded", manifest_sha256="0" * 64
)
ALFWORLD, SOKOBAN = "seed_envs/ALFWorld-v0", "seed_envs/Sokoban-v0"
WEBSHOP, SEARCHQA = "seed_envs/WebShop-v0", "seed_envs/SearchQA-v0"


def turn(observation: str = "You see a shelf 1.", action: str = "look", **changes: Any) -> Turn:
    images = changes.pop("images", ())
    known = {"reply": f"<think>so</think><action>{action}</action>", "action": action, "format_ok": True,
             "admissible": True, "effective": True}  # fmt: skip
    return Turn(observation=Seen.of(observation, images), **(known | changes))


def episode(turns: Sequence[Turn], **changes: Any) -> Episode:
    known: dict[str, Any] = {
        "task_id": "train/heat/1",
        "task_sha256": "0" * 64,
        "split": "train",
        "category": "pick_heat_then_place_in_recep",
        "attempt": 0,
        "seed": 7,
        "policy": "test",
        "env": ENV,
        "final": Seen.of("The end."),
        "outcome": "success",
        "success": True,
        "score": 1.0,
    }
    return Episode(turns=tuple(turns), **(known | changes))


def numbered(count: int, **changes: Any) -> Episode:
    """An episode of ``count`` steps that can be told apart."""
    first = turn("You are in a room.\n\nYour task is to: put a hot mug in desk.", "act 0")
    return episode([first, *(turn(f"Seen {i}.", f"act {i}") for i in range(1, count))][:count], **changes)


def pictured(count: int) -> Episode:
    """An episode seen as pictures; the loader's shas are ``0``, ``1``, ..."""
    env = ENV.model_copy(update={"id": SOKOBAN})
    turns = [turn("The image shows the room.", "up", images=(Image(file_sha256=str(i), pixels_sha256=str(i)),))
             for i in range(count)]  # fmt: skip
    return episode(turns, env=env, category="short", task_id="sokoban/6x6-1box/000001")


@cache
def played(env_id: str, policy: str, **kwargs: Any) -> tuple[Episode, ...]:
    """Six episodes over a training split, by task id."""
    maker = EnvMaker(env_id, kwargs={"split": "train", **kwargs})
    env = maker()
    tasks = list(env.unwrapped.tasks)  # type: ignore[attr-defined]
    envs = GroupVectorEnv(maker, num_tasks=3)
    requests = [Request(task) for task in tasks[:: len(tasks) // 6][:6]]
    found = sorted(play(requests, make_player(policy), envs, env_record(maker, env)), key=lambda e: e.task_id)
    envs.close()
    env.close()
    return tuple(found)
