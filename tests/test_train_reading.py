"""Whole iterations of the trainer where pages are read: the shop and the search engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from train_kit import FIXTURES, trainer, vary_returns, weights, write_skills

from seed_agent.policy import Completion, Prompt, Sampling

torch, text_folder, vision_folder = FIXTURES

PLACES: dict[str, dict[str, Any]] = {
    "webshop": {"env": "seed_envs/WebShop-v0", "language": "webshop/micro"},
    "searchqa": {"env": "seed_envs/SearchQA-v0", "language": "searchqa/micro"},
}
OPENINGS = {
    "webshop": "<think>look</think><action>search[red mug]</action>",
    "searchqa": "<think>look</think><search>river</search>",
}


def begin_well(policy: Any, opening: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the first reply of every episode be a search, so that the second prompt shows pages; return all prompts."""
    real, asked = policy.generate, list[str]()

    def generate(prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> list[Any]:
        found = list(real(prompts, sampling, seeds))
        if not sampling.stop:  # an analysis
            return found
        asked.extend(prompt.chat[-1].text for prompt in prompts)
        ids = tuple(policy.tokenizer(opening, add_special_tokens=False)["input_ids"])
        first = ["Turn 1." in prompt.chat[-1].text for prompt in prompts]
        return [Completion(opening, "stop", ids) if new else one for new, one in zip(first, found, strict=True)]

    monkeypatch.setattr(policy, "generate", generate)
    return asked


@pytest.mark.parametrize("method", ["grpo", "seed"])
@pytest.mark.parametrize("kind", PLACES)
def test_an_iteration_reads_pages_and_learns(
    kind: str, method: str, text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollout, analysis, scores and update: every second prompt holds what the search found."""
    run = trainer(text_folder, method=method, kl=0.0, lr=1e-2, **PLACES[kind])
    vary_returns(monkeypatch)
    asked = begin_well(run.policy, OPENINGS[kind], monkeypatch)
    analysed = write_skills(run.policy, monkeypatch, every=2)
    before, found = weights(run.policy), run.iteration(0)
    run.close()
    shown = [text for text in asked if "Turn 2." in text]
    assert len(asked) == 8 and len(shown) == 4
    assert all(("[back to search] page 1" if kind == "webshop" else "river") in text.lower() for text in shown)
    assert found["env/errors"] == 0 and found["rl/samples"] == 8 and found["rl/updates"] == 2
    assert weights(run.policy) != before and found["rl/grad_norm"] > 0
    assert len(analysed) == (4 if method == "seed" else 0)
    if method == "seed":
        assert found["skill/parse_rate"] == 0.5 and found["opd/loss"] != 0 and 0 < found["opd/gate"] < 1
        told = analysed[0].chat[0].text
        assert "search[" in told and ("Back to Search" if kind == "webshop" else "Doc 1") in told
