"""Tiny random language models: real model classes and files, for tests, smoke runs and training from scratch.

    build_text_model(Path("tiny"))     # then: hf:tiny
    build_vision_model(Path("tiny-vl"))

They know nothing. What they are good for is everything that does not depend on what is known.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from seed_agent.backends.hf_load import load, quiet
from seed_agent.circuits import HEAD, THETA
from seed_envs.alfworld.env import ALFWorldEnv
from seed_envs.prompting import builtin_template

CONTEXT = 4096
"""Tokens a tiny model can hold."""

SPECIAL = (
    "<|bos|>", "<|pad|>", "<|im_start|>", "<|im_end|>",
    "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
_BOS, _PAD, _END, _VISION_START, _VISION_END, _IMAGE, _VIDEO = 0, 1, 3, 4, 5, 6, 7

CHAT_TEMPLATE = """\
{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}
{% if part.type == "image" %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""In the manner of ChatML, without a system prompt of its own; images where their parts stand."""


def build_text_model(
    folder: Path,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    vocab: int = 1024,
    std: float = 0.02,
    texts: Iterable[str] | None = None,
    copying: bool = False,
) -> Path:
    """Write a causal language model (Llama) with random weights and its tokenizer into ``folder``.

    Args:
        folder: Made when it is not there; files of the same names are replaced.
        seed: Of the weights; torch's own random state is left as it is.
        hidden: Width, a multiple of 8; the default model has 0.1 to 0.2 M parameters.
        layers: Number of layers.
        vocab: Tokens of the tokenizer at most, 264 or more (all bytes and the special tokens).
        std: Standard deviation of the initial weights; 0.3 and more gives peaked predictions.
        texts: What the tokenizer learns from; by default prompts and games of ALFWorld.
        copying: Give its heads the size that ``circuits.wire_copying`` asks for.

    Returns:
        ``folder``, to be named ``hf:FOLDER``.

    Raises:
        MissingDependency: when torch or transformers is not installed.
    """
    transformers = load("transformers")
    tokenizer = build_tokenizer(vocab, texts)
    sizes = _sizes(tokenizer, hidden, layers, std)
    if copying:
        sizes |= {"head_dim": HEAD, "rope_parameters": {"rope_type": "default", "rope_theta": THETA}}
    config = transformers.LlamaConfig(**sizes)
    return _save(folder, tokenizer, transformers.LlamaForCausalLM, config, seed)


def build_vision_model(
    folder: Path,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    vocab: int = 1024,
    std: float = 0.02,
    texts: Iterable[str] | None = None,
    kind: Literal["qwen2_5_vl", "qwen2_vl"] = "qwen2_5_vl",
) -> Path:
    """Write a vision-language model (Qwen2.5-VL or Qwen2-VL) with random weights into ``folder``.

    Patches of 14x14 pixels, 2x2 of them a token, as the published models have. The arguments are
    those of ``build_text_model``.

    Raises:
        MissingDependency: when torch or transformers is not installed.
    """
    transformers = load("transformers")
    tokenizer = build_tokenizer(vocab, texts)
    text = _sizes(tokenizer, hidden, layers, std)
    sixth = hidden // 4 // 2 // 3  # rotary dimensions of a head of a quarter of the width, in three parts
    sections = [hidden // 8 - 2 * sixth, sixth, sixth]
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": sections}
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": 14, "spatial_merge_size": 2}
    if kind == "qwen2_vl":
        vision |= {"embed_dim": 32, "hidden_size": hidden, "mlp_ratio": 2}
        config_type, model_type = transformers.Qwen2VLConfig, transformers.Qwen2VLForConditionalGeneration
    else:
        vision |= {"hidden_size": 32, "out_hidden_size": hidden, "intermediate_size": 64, "fullatt_block_indexes": [1]}
        config_type, model_type = transformers.Qwen2_5_VLConfig, transformers.Qwen2_5_VLForConditionalGeneration
    config = config_type(
        text_config=text,
        vision_config={**vision, "initializer_range": std},
        image_token_id=_IMAGE,
        video_token_id=_VIDEO,
        vision_start_token_id=_VISION_START,
        vision_end_token_id=_VISION_END,
        tie_word_embeddings=True,
    )
    pil = getattr(transformers, "Qwen2VLImageProcessorPil", None) or transformers.Qwen2VLImageProcessor
    pil(patch_size=14, merge_size=2).save_pretrained(folder)
    return _save(folder, tokenizer, model_type, config, seed)


def build_tokenizer(vocab: int = 1024, texts: Iterable[str] | None = None) -> Any:
    """Return a byte-level BPE tokenizer with chat tokens and ``CHAT_TEMPLATE``; any text goes round.

    Raises:
        MissingDependency: when tokenizers or transformers is not installed.
    """
    tokenizers, transformers = load("tokenizers"), load("transformers")
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer, core.decoder = byte_level, tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(byte_level.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_default_texts() if texts is None else texts, trainer)
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{SPECIAL[_BOS]} $A", special_tokens=[(SPECIAL[_BOS], _BOS)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=SPECIAL[_BOS],
        pad_token=SPECIAL[_PAD],
        eos_token=SPECIAL[_END],
        model_max_length=CONTEXT,
        chat_template=CHAT_TEMPLATE,
    )


def _default_texts() -> Iterator[str]:
    """Yield the built-in prompts and what a few embedded ALFWorld games print when played well."""
    for kind in ("alfworld", "sokoban"):
        for style in ("plain", "react"):
            yield builtin_template(kind, style).text
    env = ALFWorldEnv(split="train")
    for task in list(env.tasks)[::40]:
        observation, info = env.reset(seed=0, options={"task_id": task.id})
        for action in env.oracle():
            yield f"{observation['text']}\n- " + "\n- ".join(info["admissible_actions"])
            yield f"<think>Next: {action}.</think><action>{action}</action>"
            observation, *_, info = env.step(action)
    env.close()


def _sizes(tokenizer: Any, hidden: int, layers: int, std: float) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": std,
        "tie_word_embeddings": True,
        "bos_token_id": _BOS,
        "eos_token_id": _END,
        "pad_token_id": _PAD,
    }


def _save(folder: Path, tokenizer: Any, model_type: Any, config: Any, seed: int) -> Path:
    torch = load("torch")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = model_type(config)
    ends = {"bos_token_id": _BOS, "eos_token_id": _END, "pad_token_id": _PAD}
    model.generation_config = load("transformers").GenerationConfig(**ends)
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder
