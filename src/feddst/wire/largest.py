"""Top-k codecs: of each tensor only the largest changes, as positions, signs and one common magnitude.

Of a tensor's n values the k = ⌈n/m⌉ largest in magnitude are sent, of equal ones those that come first; a value of 0
never is. All that are sent arrive with the same magnitude, their mean, which is the nearest to them in least squares.
All others arrive as 0. That is far from unbiased: what is left out is lost, unless the client keeps it and adds it to
its next change (`wire.feedback`). Nothing is random.

First come the scales of all tensors that have values, a bfloat16 each: its error is at most one part in 256, little
beside the spread of the magnitudes that it stands for. Then come, for one tensor after another in one stream of bits,
the positions in Elias–Fano code and the signs: the w lowest bits of each position, lowest first; the rest of it in a
bitmap of k + ⌊(n − 1)/2^w⌋ bits, where the i-th position p has its one at i + ⌊p/2^w⌋; a bit for each sign, 1 for up.
w is the smallest for which that is shortest. Where fewer than k values are not 0, the last of them is repeated: a
tensor of zeros names position 0, upwards, with scale 0.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feddst.errors import WireError
from feddst.wire.bits import Bits, Members, append_low_bits, flags, low_bits, pack
from feddst.wire.quantise import LARGEST_SCALE
from feddst.wire.values import ValueCodec

STEPS = 2**30
"""Magnitudes are added up in whole steps; this many make the power of two below the largest."""
EXPONENT = 0x7F800000
"""The exponent in the bits of a float32."""


class Largest(ValueCodec):
    """Sends one value in m of the change against the broadcast."""

    one_in: ClassVar[int]
    """m."""
    relative = True
    random = False

    def size(self, counts: Sequence[int]) -> int:
        filled = [count for count in counts if count]
        return 2 * len(filled) + -(-sum(map(self._bits, filled)) // 8)

    def encode(self, tensors: Sequence[Tensor], draws: np.random.Generator) -> bytes:
        scales: list[Tensor] = []
        pieces: list[Bits] = []
        for values in tensors:
            if len(values):
                picked, scale = choose(values, self._travelling(len(values)))
                scales.append(scale)
                pieces += self._write(np.flatnonzero(picked.numpy()), values.numpy())
        halves = torch.cat([*scales, torch.empty(0)]).view(torch.int32).numpy() >> 16
        return halves.astype("<u2").tobytes() + pack(pieces)

    def decode(self, data: memoryview, counts: Sequence[int]) -> list[Tensor]:
        filled = sum(count > 0 for count in counts)
        halves = np.frombuffer(data[: 2 * filled], dtype="<u2")
        if filled and halves.max() > LARGEST_SCALE:
            raise WireError("the scale of a tensor is negative or not finite")
        scales = iter((halves.astype(np.uint32) << 16).view(np.float32))
        bits = np.unpackbits(np.frombuffer(data[2 * filled :], dtype=np.uint8), bitorder="little")
        tensors: list[Tensor] = []
        for count in counts:
            values = np.zeros(count, dtype=np.float32)
            if count:
                mine, bits = np.split(bits, [self._bits(count)])
                positions, up = self._read(mine, count)
                scale = next(scales)
                values[positions] = np.where(up, scale, -scale)
            tensors.append(torch.from_numpy(values))
        if bits.any():
            raise WireError("the bits after the last sign are not zero")
        return tensors

    def received(self, tensors: Sequence[Tensor], draws: Sequence[np.random.Generator]) -> list[Tensor]:
        return [self._arriving(values.float()) if values.shape[-1] else values.float() for values in tensors]

    def _arriving(self, values: Tensor) -> Tensor:
        picked, scale = choose(values, self._travelling(values.shape[-1]))
        return torch.where(picked, torch.where(values < 0, -scale, scale), 0.0)

    def _travelling(self, count: int) -> int:
        """k."""
        return -(-count // self.one_in)

    def _bits(self, count: int) -> int:
        """How many bits positions and signs of a tensor take; never fewer than those of a smaller one."""
        k = self._travelling(count)
        return _position_bits(count, k, _low_width(count, k)) + k

    def _write(self, picked: Members, values: NDArray[np.float32]) -> list[Bits]:
        """Positions and signs of the values that are sent."""
        k = self._travelling(len(values))
        positions = np.zeros(k, dtype=np.int64)
        positions[: len(picked)] = picked
        positions[len(picked) :] = picked[-1] if len(picked) else 0
        width = _low_width(len(values), k)
        ones = (positions >> width) + np.arange(k)
        up = (values[positions] >= 0).view(np.uint8)
        return [low_bits(positions, width), flags(k + (len(values) - 1 >> width), ones), up]

    def _read(self, bits: Bits, count: int) -> tuple[Members, Bits]:
        """Positions and signs in a tensor of `count` values."""
        k = self._travelling(count)
        width = _low_width(count, k)
        low, bitmap, up = np.split(bits, [k * width, len(bits) - k])
        positions = np.flatnonzero(bitmap)
        if len(positions) != k:
            raise WireError(f"a tensor of {count} values comes with {len(positions)} positions, it must have {k}")
        positions -= np.arange(k)
        append_low_bits(positions, low)
        steps = np.diff(positions)
        others = np.count_nonzero(steps)
        if (steps[:others] <= 0).any():
            raise WireError("the positions in a tensor do not rise")
        if positions[-1] >= count:
            raise WireError(f"the value section names position {positions[-1]} of {count}")
        if (up[others:] != up[-1]).any():
            raise WireError("a position is repeated with another sign")
        return positions, up


class Largest8(Largest):
    """One in eight."""

    name, code, one_in = "top8", 9, 8


class Largest16(Largest):
    """One in sixteen."""

    name, code, one_in = "top16", 10, 16


class Largest32(Largest):
    """One in thirty-two."""

    name, code, one_in = "top32", 11, 32


def choose(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Which of [..., n] are sent, and as what magnitude [..., 1], the same to the last bit on every device.

    Magnitudes are compared as the integers of their bits, which have the same order, with NaN above all.
    """
    sizes = values.abs().view(torch.int32)
    largest = sizes.topk(k, dim=-1, sorted=False).values
    least = largest.amin(dim=-1, keepdim=True).clamp_(min=1)
    above, equal = sizes > least, sizes == least
    room = k - above.sum(dim=-1, keepdim=True)
    picked = equal.cumsum(dim=-1, dtype=torch.int32).le(room).logical_and_(equal).logical_or_(above)
    return picked, _mean(largest)


def _mean(sizes: Tensor) -> Tensor:
    """The mean of the magnitudes other than 0 with these bits [..., k], as a bfloat16; NaN if one is not finite.

    They are added up as integers, since sums of floats depend on their order, and so on the device.
    """
    magnitudes, top = sizes.view(torch.float32), sizes.amax(dim=-1, keepdim=True)
    step = (top & EXPONENT).view(torch.float32).clamp_(min=torch.finfo(torch.float32).tiny).double() / STEPS
    total = (magnitudes.double() / step).round_().long().sum(dim=-1, keepdim=True)
    number = sizes.count_nonzero(dim=-1).unsqueeze(-1).clamp_(min=1)
    mean = (total.double() / number.double() * step).float().clamp_(max=torch.finfo(torch.bfloat16).max)
    return mean.masked_fill_(top >= EXPONENT, torch.nan).bfloat16().float()


def _position_bits(count: int, k: int, width: int) -> int:
    return k * (width + 1) + (count - 1 >> width)


@lru_cache(maxsize=1024)
def _low_width(count: int, k: int) -> int:
    """w."""
    return min(range(count.bit_length()), key=lambda width: _position_bits(count, k, width))
