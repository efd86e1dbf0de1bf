"""Lucene's BM25 in Lucene's arithmetic: 32-bit floats, and lengths kept in one byte.

    score = weight - weight / (1 + frequency / (k1 * (1 - b + b * length / average)))
    weight = boost * ln(1 + (documents - df + 0.5) / (df + 0.5))

Source: Lucene's ``BM25Similarity`` and ``SmallFloat`` (versions 8 to 10 agree).
"""

import math

import numpy as np
import numpy.typing as npt

K1, B = 0.9, 0.4
"""Anserini's and pyserini's defaults."""

Floats = npt.NDArray[np.float32]

_EXACT = 24
"""Lengths below it have a byte of their own."""


def encode_length(length: int) -> int:
    """Return the byte Lucene keeps for a length: exact up to 40, then 4 significant bits, rounded down.

    Args:
        length: terms of a document, 0 to 2**31 - 1.
    """
    if length < _EXACT:
        return length
    rest = length - _EXACT
    shift = max(rest.bit_length() - 4, -1)
    return _EXACT + (rest if rest < 8 else (rest >> shift & 7) | shift + 1 << 3)


def decode_length(byte: int) -> int:
    """Return the shortest length that ``encode_length`` gives ``byte`` for."""
    if byte < _EXACT:
        return byte
    shift = (byte - _EXACT >> 3) - 1
    return _EXACT + (byte - _EXACT if shift < 0 else (byte - _EXACT & 7 | 8) << shift)


LENGTHS = np.array([decode_length(byte) for byte in range(256)], dtype=np.float32)


def idf(documents: int, df: int) -> np.float32:
    """Return how much a term tells that occurs in ``df`` of ``documents``."""
    return np.float32(math.log(1 + (documents - df + 0.5) / (df + 0.5)))


def saturations(freqs: npt.NDArray[np.integer], bytes_: npt.NDArray[np.integer], average: float) -> Floats:
    """Return ``1 + frequency / norm`` for pairs of a frequency and a length byte.

    Args:
        freqs: how often a term occurs in a document.
        bytes_: lengths of these documents as ``encode_length`` gives them.
        average: mean length over the documents that have terms.
    """
    one, k1, b = np.float32(1), np.float32(K1), np.float32(B)
    inverse = one / (k1 * ((one - b) + b * LENGTHS / np.float32(average)))
    result: Floats = one + freqs.astype(np.float32) * inverse[bytes_]
    return result


def contributions(weight: np.float32, saturation: Floats) -> Floats:
    """Return what a term of ``weight`` adds to the score at each of ``saturation``."""
    return weight - weight / saturation
