"""Tiny random models: what is written, that it is what the seed says, and that it loads anywhere."""

from pathlib import Path
from typing import Any

import pytest

from seed_agent import tiny

PIP = "needs torch and transformers: pip install 'seed-suite[train]'"
TEXTS = ("go to desk 1, take the mug 1 from the desk 1", "<think>the mug</think><action>look</action>")


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip("transformers", reason=PIP)
    return pytest.importorskip("torch", reason=PIP)


@pytest.fixture(scope="module")
def folder(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build_text_model(tmp_path_factory.mktemp("tiny"))


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_the_weights_are_the_seed_s_and_torch_s_own_state_is_left_alone(torch: Any, tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    folders = [tiny.build_text_model(tmp_path / str(i), seed=seed, texts=TEXTS) for i, seed in enumerate((3, 3, 4))]
    assert torch.equal(torch.rand(3), expected)
    first, again, other = map(weights, folders)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])
    assert (folders[0] / "tokenizer.json").read_bytes() == (folders[1] / "tokenizer.json").read_bytes()


def test_the_default_model_is_small_and_loads_by_the_library_s_own_classes(folder: Path) -> None:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert 100_000 < sum(parameter.numel() for parameter in model.parameters()) < 500_000
    assert model.generation_config.eos_token_id == model.config.eos_token_id
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == model.config.vocab_size == 1024
    assert tokenizer.convert_ids_to_tokens(model.config.eos_token_id) == tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize("text", ["go to desk 1\n<action>look</action>", "naïve 日本 🙂 \x00\t  two  blanks ", ""])
def test_any_text_goes_round(folder: Path, text: str) -> None:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id and tokenizer.bos_token_id not in ids[1:]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_the_tokenizer_knows_the_games_words(folder: Path) -> None:
    import transformers

    text = "You are in the middle of a room. Looking quickly around you, you see a countertop 1, and a fridge 1."
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer(text)["input_ids"]) < len(text) / 3


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen2_vl"])
def test_vision_models_are_of_the_kind_asked_for(torch: Any, tmp_path: Path, kind: Any) -> None:
    import transformers

    folder = tiny.build_vision_model(tmp_path / "vl", kind=kind, texts=TEXTS, vocab=300)
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder)
    assert model.config.model_type == kind
    assert sum(parameter.numel() for parameter in model.parameters()) < 500_000
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.convert_ids_to_tokens(model.config.image_token_id) == "<|image_pad|>"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert text == (
        "<|bos|><|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>what?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("kind", ["text", "qwen2_5_vl"])
def test_a_few_steps_of_training_lower_the_loss(torch: Any, tmp_path: Path, kind: str) -> None:
    """The model is trainable as saved: the smoke runs and the trainer start from it."""
    from seed_agent.backends.hf import make
    from seed_agent.backends.hf_model import Row

    build = tiny.build_text_model if kind == "text" else tiny.build_vision_model
    policy = make(str(build(tmp_path / "model", texts=TEXTS, vocab=300)))
    ids = tuple(policy.tokenizer("go to desk 1 <action>look</action>")["input_ids"])
    optimiser = torch.optim.AdamW(policy.model.parameters(), lr=0.01)
    losses = []
    for _ in range(8):
        loss = -policy.network.logprobs([Row(ids, 3)]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
