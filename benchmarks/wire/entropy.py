"""The fewest bits there could be: what sizes are measured against."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from feddst.wire import ValueCodec
from feddst.wire.quantise import BLOCK, Quantiser

SCALE_BITS = 16


def value_bits(codec: ValueCodec, section: memoryview, counts: Sequence[int]) -> float:
    """Bits for the values in a plain section.

    Of quantised values: the entropy of their levels, each taken by itself, and the scales as they are. Of all
    others: their width.
    """
    if not isinstance(codec, Quantiser):
        return 8.0 * codec.size(counts)
    levels = np.concatenate(levels_of(codec, section, counts))
    return entropy(np.bincount(levels)) * len(levels) + SCALE_BITS * blocks_of(counts)


def blocks_of(counts: Sequence[int]) -> int:
    """How many blocks, and so scales, tensors of these many values have."""
    return sum(-(-count // BLOCK) for count in counts)


def levels_of(codec: Quantiser, section: memoryview, counts: Sequence[int]) -> list[NDArray[np.int64]]:
    """The levels of each tensor in a plain section, counted from 0, without those that fill its last block."""
    packed = np.frombuffer(section[2 * blocks_of(counts) :], dtype=np.uint8)
    bits = np.unpackbits(packed, bitorder="little").reshape(-1, codec.bits)
    levels = bits @ (1 << np.arange(codec.bits))
    starts = np.cumsum([0, *(blocks_of([count]) * BLOCK for count in counts)])
    return [levels[start : start + count] for start, count in zip(starts, counts, strict=False)]


def entropy(counts: NDArray[np.int64]) -> float:
    """Bits of one symbol, where each symbol occurs so many times."""
    shares = counts[counts > 0] / max(int(counts.sum()), 1)
    return float(-(shares * np.log2(shares)).sum())


def choice_bits(size: int, count: int) -> float:
    """log₂ of the number of ways to choose `count` of `size`."""
    ways = math.lgamma(size + 1) - math.lgamma(count + 1) - math.lgamma(size - count + 1)
    return max(ways / math.log(2), 0.0)


def mask_bits(size: int, count: int) -> float:
    """n·H: the entropy of `size` bits of which each is one with probability count/size."""
    return size * entropy(np.array([count, size - count]))
