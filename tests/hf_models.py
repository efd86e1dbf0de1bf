"""Tiny random models for the tests of ``hf:``, and what those tests share."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seed_agent import tiny
from seed_agent.policy import MODELS, Message, Prompt, Sampling

PIP = "needs torch and transformers: pip install 'seed-suite[train]'"
KINDS = ("text", "qwen2_5_vl", "qwen2_vl")
STD = 0.15
"""Peaked enough for a misplaced position to show in the fifth digit, flat enough for rounding not to."""

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    pytest.importorskip("transformers", reason=PIP)
    module = pytest.importorskip("torch", reason=PIP)
    threads = module.get_num_threads()
    module.set_num_threads(1)
    yield module
    module.set_num_threads(threads)


@pytest.fixture(scope="module")
def folders(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    found = {"text": tiny.build_text_model(root / "text", std=STD)}
    for kind in KINDS[1:]:
        found[kind] = tiny.build_vision_model(root / kind, std=STD, kind=kind)  # type: ignore[arg-type]
    return found


@pytest.fixture(scope="module")
def policies(folders: dict[str, Path]) -> dict[str, Any]:
    return {kind: MODELS.get("hf")(f"{folder}?device=cpu&batch=3") for kind, folder in folders.items()}


@pytest.fixture
def text_model(policies: dict[str, Any]) -> Any:
    return policies["text"]


@pytest.fixture
def copy(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the text model's folder, to break."""
    return Path(shutil.copytree(folders["text"], tmp_path / "model"))


def picture(seed: int = 0, size: int = 96) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)


def chat(words: str, *images: np.ndarray[Any, Any]) -> tuple[Message, ...]:
    return (Message("user", words, images),)


def prompts_for(policy: Any, kind: str, count: int = 5) -> list[Prompt]:
    """Prompts of different lengths; those of vision models have none, one or two images."""
    found = []
    for i in range(count):
        images = [] if kind == "text" else [picture(10 * i + j) for j in range(i % 3)]
        words = "go to desk " * (1 + 7 * i % 12) + "then <image> " * len(images) + "look"
        found.append(policy.prompt(chat(words, *images)))
    assert len({len(prompt.ids or ()) for prompt in found}) > min(2, count - 1)
    return found


def texts_only(policy: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    return [tuple(policy.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]


def dictate(policy: Any, monkeypatch: pytest.MonkeyPatch, *replies: Sequence[int]) -> None:
    """Have the model "sample" given tokens, the n-th row those of the n-th reply."""
    left = iter(replies)

    def sample(rows: Sequence[Any], writers: Sequence[Any], sampling: Sampling) -> None:
        for writer in writers:
            for token in next(left):
                if not writer.add(token, -0.5):
                    break

    monkeypatch.setattr(policy.network, "sample", sample)


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` after checking that it is one line."""
    text = str(error)
    assert text and "\n" not in text and len(text) < 500
    return text


FIXTURES = (torch, folders, policies, text_model, copy)
"""For a test module to take: ``torch, folders, policies, text_model, copy = FIXTURES``."""
