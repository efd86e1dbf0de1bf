"""Images as PNG files and as records: one encoding for run folders, servers and training."""

import io
from hashlib import sha256
from typing import Any

import numpy as np

from seed_agent.trajectory import Image


def encode_png(pixels: Any) -> bytes:
    """Return an RGB image, uint8 of shape (height, width, 3), as a PNG file."""
    from PIL import Image as PillowImage  # here, for text needs none

    buffer = io.BytesIO()
    PillowImage.fromarray(np.asarray(pixels)).save(buffer, format="PNG")
    return buffer.getvalue()


def pixels_hash(pixels: Any) -> str:
    """Return the sha256 of the raw bytes, whatever the encoder of the file."""
    return sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()


def record(content: bytes, pixels: Any) -> Image:
    """Return the record of an image and its encoded file."""
    return Image(file_sha256=sha256(content).hexdigest(), pixels_sha256=pixels_hash(pixels))
