"""Images for Qwen2-VL and Qwen2.5-VL without torchvision: resizing, image tokens, positions."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from seed_agent.backends.hf_load import load
from seed_agent.policy import Pixels, Spans
from seed_envs.errors import ConfigError

MIN_PIXELS = 256 * 256
"""Smaller images are enlarged to about this many pixels before the model's own resizing.

Source: verl-agent's and SEED's ``process_image``: 96x96 becomes 256x256, bicubic.
"""

_REMEMBERED = 1 << 28
"""Bytes of patches kept, about."""

Grid = tuple[int, int, int]
"""Patches of an image in time, height and width, before merging."""


def enlarge(image: Pixels, min_pixels: int = MIN_PIXELS) -> Image.Image:
    """Return ``image`` with at least about ``min_pixels`` pixels, its proportions kept."""
    picture = Image.fromarray(image).convert("RGB")
    width, height = picture.size
    if width * height >= min_pixels:
        return picture
    factor = math.sqrt(min_pixels / (width * height))
    return picture.resize((int(width * factor), int(height * factor)))


@dataclass(frozen=True, slots=True)
class Vision:
    """The image side of a model: its processor and how images become tokens."""

    processor: Any
    image_token_id: int
    merge: int
    """Patches that become one token, in each direction."""
    pads: tuple[str, ...]
    """The texts of the tokens that stand for images and videos."""
    min_pixels: int = MIN_PIXELS
    _seen: dict[tuple[Any, ...], tuple[np.ndarray[Any, Any], Grid]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """What was made of the images seen last, oldest first: a picture is asked for several times, and games repeat
    theirs."""

    def patches(self, images: Sequence[Pixels]) -> tuple[Any, list[Grid]]:
        """Return the patches of all images as a tensor, and the grid of each image."""
        found = [self.look(image) for image in images]
        return load("torch").from_numpy(np.concatenate([patches for patches, _ in found])), [grid for _, grid in found]

    def look(self, image: Pixels) -> tuple[np.ndarray[Any, Any], Grid]:
        """Return an image's patches, float32 (patches, values), the same object for equal pixels, and its grid."""
        key = (image.shape, image.dtype.str, image.tobytes())
        found = self._seen.pop(key, None)
        if found is None:
            made = self.processor(images=[enlarge(image, self.min_pixels)], return_tensors="np")
            time, height, width = made["image_grid_thw"][0].tolist()
            found = made["pixel_values"], (time, height, width)
            while self._seen and len(self._seen) * found[0].nbytes > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
        self._seen[key] = found
        return found

    def tokens(self, grid: Grid) -> int:
        """Return how many tokens an image takes."""
        return math.prod(grid) // self.merge**2

    def expand(self, ids: Sequence[int], images: Sequence[Pixels]) -> list[int]:
        """Return ``ids`` with each image token repeated as often as its image needs.

        Raises:
            ConfigError: when the template did not place every image.
        """
        placed = list(ids).count(self.image_token_id)
        if placed != len(images):
            raise ConfigError(
                f"the chat template places {placed} of {len(images)} images; use the model's own template"
            )
        counts = iter([self.tokens(self.look(image)[1]) for image in images])
        return [i for i in ids for _ in range(next(counts) if i == self.image_token_id else 1)]

    def disarm(self, text: str) -> str:
        """Return ``text`` in which image and video tokens written as words are no tokens any more."""
        for pad in self.pads:
            text = text.replace(pad, pad.replace("|", ""))
        return text

    def positions(
        self, ids: Sequence[int], prompt: int, grids: Sequence[Grid], replies: Spans = ()
    ) -> np.ndarray[Any, Any]:
        """Return the position of every token in time, height and width: int64 of shape (3, n).

        Text advances all three together; an image spans a grid and the text after it goes on
        behind its longer side. Tokens of ``replies`` are text whatever they are, and where there
        are none, so are those from ``prompt`` on.

        Source: multimodal rotary positions of Qwen2-VL, for images.
        """
        text = {i for start, end in replies or ((prompt, len(ids)),) for i in range(start, end)}
        blocks = list(self._blocks(ids, text, grids))
        return np.concatenate(blocks, axis=1) if blocks else np.zeros((3, 0), np.int64)

    def _blocks(self, ids: Sequence[int], text: set[int], grids: Sequence[Grid]) -> Iterator[np.ndarray[Any, Any]]:
        at, position, left = 0, 0, iter(grids)
        while at < len(ids):
            if at not in text and ids[at] == self.image_token_id:
                time, height, width = next(left)
                height, width = height // self.merge, width // self.merge
                yield position + np.indices((time, height, width)).reshape(3, -1)
                at, position = at + time * height * width, position + max(height, width)
            else:
                yield np.full((3, 1), position)
                at, position = at + 1, position + 1


def vision_of(config: Any, processor: Any, tokenizer: Any, min_pixels: int = MIN_PIXELS) -> Vision:
    """Return the image side of a loaded model.

    Raises:
        ConfigError: when model and processor do not fit together.
    """
    merge = int(config.vision_config.spatial_merge_size)
    if processor.merge_size != merge:
        raise ConfigError(f"the image processor merges {processor.merge_size} patches and the model {merge}")
    pads = tokenizer.convert_ids_to_tokens([config.image_token_id, config.video_token_id])
    return Vision(processor, int(config.image_token_id), merge, tuple(pads), min_pixels)
