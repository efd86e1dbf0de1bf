"""Tiny trainers for the tests of the trainer, and stubs that make random models earn and write something."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from seed_agent import tiny
from seed_agent.policy import MODELS, Completion, Prompt, Sampling
from seed_agent.train.settings import Settings, build
from seed_agent.trajectory import Episode
from seed_envs.seeding import derive

PIP = "needs torch, transformers and accelerate: pip install 'seed-suite[train]'"
STD = 0.15
SKILL = '{"episode_summary": "It went wrong.", "episode_skill": "Find the lamp first, then take what is near it."}'


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    pytest.importorskip("accelerate", reason=PIP)
    pytest.importorskip("transformers", reason=PIP)
    module = pytest.importorskip("torch", reason=PIP)
    threads = module.get_num_threads()
    module.set_num_threads(1)  # results are bit-equal with one thread
    yield module
    module.set_num_threads(threads)


@pytest.fixture(scope="module")
def text_folder(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build_text_model(tmp_path_factory.mktemp("models") / "text", std=STD, hidden=32)


@pytest.fixture(scope="module")
def vision_folder(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build_vision_model(tmp_path_factory.mktemp("models") / "vision", std=STD)


FIXTURES = (torch, text_folder, vision_folder)
"""For a test module to take: ``torch, text_folder, vision_folder = FIXTURES``."""

SMALL = {
    "language": "alfworld",
    "iterations": 2,
    "tasks": 2,
    "group": 2,
    "minibatch": 4,
    "max_turns": 2,
    "max_reply_tokens": 6,
    "max_prompt_tokens": 2_000,
    "analyzer_prompt_tokens": 3_000,
    "analyzer_reply_tokens": 8,
    "lr": 1e-3,
    "eval_every": 0,
    "eval_splits": (),
}
TALK = {"language": "alfworld/conversation", "samples": "episode", "max_prompt_tokens": 3_500, "minibatch": 0}
SOKOBAN = {"env": "seed_envs/Sokoban-v0", "language": "sokoban", "reward": "native", "reward_scale": 1.0}


def small(folder: Path, **changes: Any) -> Settings:
    """Settings of a run of a second an iteration."""
    return build({**SMALL, "model": str(folder), "init": "given", **changes})


def policy_of(folder: Path, **options: Any) -> Any:
    options = {"device": "cpu", "batch": 16, **options}
    return MODELS.get("hf")(f"{folder}?{'&'.join(f'{k}={v}' for k, v in options.items())}")


def trainer(folder: Path, **changes: Any) -> Any:
    from seed_agent.train.loop import Trainer

    return Trainer(small(folder, **changes), policy_of(folder))


def weights(policy: Any) -> str:
    from seed_agent.backends.hf_load import weights_sha256

    return weights_sha256(policy.model)


def timeless(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if not key.startswith("time/")}


def vary_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have episodes earn 0 or 1 by their seed, so that groups do not tie."""

    def lot(episode: Episode, settings: Settings) -> float:
        return float(derive("lot", episode.seed) % 2)

    monkeypatch.setattr("seed_agent.train.samples.episode_return", lot)


def write_skills(policy: Any, monkeypatch: pytest.MonkeyPatch, *, every: int = 1) -> list[Prompt]:
    """Have the model answer every n-th analysis with a skill, the others with noise; return what was asked."""
    real, asked = policy.generate, list[Prompt]()

    def generate(prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> list[Any]:
        if sampling.stop:  # an action
            return list(real(prompts, sampling, seeds))
        asked.extend(prompts)
        return [Completion(SKILL if i % every == 0 else "no idea", "stop") for i in range(len(prompts))]

    monkeypatch.setattr(policy, "generate", generate)
    return asked
