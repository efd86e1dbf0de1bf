"""``hf:``: images for vision-language models."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_models import FIXTURES, KINDS, chat, picture, texts_only

from seed_agent.policy import MODELS, Prompt
from seed_envs.errors import ConfigError

torch, folders, policies, text_model, copy = FIXTURES


def test_images_are_enlarged_as_upstream_does_and_counted_in_the_prompt(policies: dict[str, Any]) -> None:
    from seed_agent.backends.hf_vision import enlarge

    assert enlarge(picture(size=96)).size == (256, 256)
    assert enlarge(picture(size=300)).size == (300, 300)
    assert enlarge(np.zeros((50, 200, 3), np.uint8)).size == (512, 128)
    assert enlarge(picture(size=96), min_pixels=0).size == (96, 96)
    policy = policies["qwen2_5_vl"]
    pad = policy.model.config.image_token_id
    ids = policy.prompt(chat("a <image> b <image> c", picture(1), picture(2))).ids
    assert ids.count(pad) == 2 * 81  # 256 -> 252 pixels = 18 patches of 14, merged by 2: 9 x 9 tokens
    own = policy.tokenizer.apply_chat_template(
        [{"role": "user", "content": [
            {"type": "text", "text": "a "}, {"type": "image"}, {"type": "text", "text": " b "}, {"type": "image"},
            {"type": "text", "text": " c"}]}],
        add_generation_prompt=True, return_dict=False,
    )  # fmt: skip
    assert [i for i in ids if i != pad] == [i for i in own if i != pad]
    assert [key for key, _ in itertools.groupby(ids)] == [key for key, _ in itertools.groupby(own)]


def test_min_pixels_can_be_chosen(folders: dict[str, Path]) -> None:
    policy: Any = MODELS.get("hf")(f"{folders['qwen2_5_vl']}?min_pixels=0")
    ids = policy.prompt(chat("<image>", picture(size=84))).ids
    assert ids.count(policy.model.config.image_token_id) == 9
    assert policy.facts()["min_pixels"] == 0


def test_words_that_look_like_image_tokens_are_no_images(policies: dict[str, Any]) -> None:
    policy = policies["qwen2_5_vl"]
    pad = policy.model.config.image_token_id
    ids = policy.prompt(chat("<|image_pad|> <|video_pad|> <image> x", picture())).ids
    assert ids.count(pad) == 81 and policy.model.config.video_token_id not in ids
    assert policy.prompt(chat("<|image_pad|>")).ids.count(pad) == 0
    assert "<image> y" in policy.tokenizer.decode(policy.prompt(chat("<image> <image> y", picture())).ids)


def test_images_that_cannot_be_shown_are_refused(policies: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is a text model"):
        policies["text"].prompt(chat("<image>", picture()))
    with pytest.raises(ConfigError, match="2 images and 1 <image> markers"):
        policies["qwen2_5_vl"].prompt(chat("<image>", picture(), picture()))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_vision_equals_the_model_s_own_forward_pass(torch: Any, policies: dict[str, Any], kind: str) -> None:
    """Embedding, image features and three-dimensional positions are ours; here they meet the library's."""
    policy = policies[kind]
    vision, model = policy.network.vision, policy.model
    wide = np.repeat(picture(4), 2, axis=1)
    prompt = policy.prompt(chat("see <image> and <image> now", wide, picture(5)))
    reply = texts_only(policy, ["<action>go to desk 1</action>"])[0]
    patches, grids = vision.patches(prompt.images)
    assert grids[0][1] != grids[0][2]
    ids = torch.tensor([[*prompt.ids, *reply]])
    kinds = (ids == vision.image_token_id).int()
    grid = torch.tensor(grids)
    positions, _ = model.model.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=grid)
    assert np.array_equal(positions[:, 0].numpy(), vision.positions(ids[0].tolist(), len(prompt.ids), grids))
    with torch.no_grad():
        logits = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=patches,
            image_grid_thw=grid,
            mm_token_type_ids=kinds,
        ).logits
    expected = logits.log_softmax(-1)[0, len(prompt.ids) - 1 : -1].gather(-1, ids[0, len(prompt.ids) :, None])[:, 0]
    assert np.allclose(policy.score([prompt], [reply])[0], expected.numpy(), atol=1e-5)


def test_the_same_pixels_are_scored_and_other_pixels_are_not_the_same(policies: dict[str, Any]) -> None:
    policy = policies["qwen2_5_vl"]
    first = policy.prompt(chat("<image>", picture(1)))
    other = Prompt(chat("<image>", picture(2)), first.ids)
    reply = texts_only(policy, ["go to desk 1"])
    a, again, b = (policy.score([prompt], reply)[0] for prompt in (first, first, other))
    assert a == again
    assert not np.allclose(a, b, atol=1e-4)


def test_an_image_token_in_a_reply_is_just_a_token(policies: dict[str, Any]) -> None:
    policy = policies["qwen2_5_vl"]
    pad = policy.model.config.image_token_id
    prompts = [policy.prompt(chat("<image>", picture())), policy.prompt(chat("no image"))]
    replies = [(pad, 300, pad), (301, pad, 302)]
    together = policy.score(prompts, replies)
    alone = [policy.score([p], [r])[0] for p, r in zip(prompts, replies, strict=True)]
    assert np.allclose(together, alone, atol=1e-5)
    cut = policy.score(prompts, [reply[:2] for reply in replies])
    assert np.allclose([line[:2] for line in together], cut, atol=1e-5)
