"""Unbiased quantisation: a few bits a value, and one scale for each block of 64.

With b bits there are the levels −L … L, L = 2^(b−1) − 1, in steps of s/L, where s is the block's largest magnitude
rounded up to a bfloat16. A value between two levels goes to the upper one with a probability equal to how far up
it lies, so that its expectation is the value itself; 0 stays 0. The expected squared error of a value that lies the
fraction f of a step above a level is f(1 − f)·(s/L)².

No block holds values of two tensors: the last block of a tensor is filled with zeros. First come all scales, 16 bits
each, then for every place of every block its level plus L, b bits each, the first in the lowest bits of a byte.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feddst.errors import WireError
from feddst.wire.values import ValueCodec

BLOCK = 64
SMALLEST_SCALE = 2.0**-100
LARGEST_SCALE = 0x7F7F
"""The highest 16 bits of the largest finite float32."""

_WORDS: dict[int, Any] = {2: "<u4", 4: "<u2", 8: "<u1"}
"""For b bits a value: a packed byte as an integer with one value a byte."""


class Quantiser(ValueCodec):
    """b bits a value, unbiased, of the change against the broadcast."""

    bits: int
    relative = True

    @property
    def top(self) -> int:
        """L: the highest level."""
        return (1 << (self.bits - 1)) - 1

    def size(self, counts: Sequence[int]) -> int:
        return sum(map(_blocks, counts)) * (2 + BLOCK * self.bits // 8)

    def encode(self, tensors: Sequence[Tensor], draws: np.random.Generator) -> bytes:
        blocks = in_blocks(tensors)
        scales = block_scales(blocks)
        uniform = torch.from_numpy(draws.random(tuple(blocks.shape), dtype=np.float32))
        levels = round_stochastically(blocks, scales, uniform, self.top)
        halves = (scales.view(torch.int32).numpy() >> 16).astype("<u2")
        return halves.tobytes() + self._pack(levels.add_(self.top).to(torch.uint8).view(-1).numpy()).tobytes()

    def decode(self, data: memoryview, counts: Sequence[int]) -> list[Tensor]:
        blocks = sum(map(_blocks, counts))
        halves = np.frombuffer(data[: 2 * blocks], dtype="<u2")
        if blocks and halves.max() > LARGEST_SCALE:
            raise WireError("the scale of a block is negative or not finite")
        codes = self._unpack(np.frombuffer(data[2 * blocks :], dtype=np.uint8))
        if blocks and codes.max() > 2 * self.top:
            raise WireError(f"a level is {codes.max()}, beyond the highest, {2 * self.top}")
        self._check_filling(codes, counts)
        steps = torch.from_numpy((halves.astype(np.uint32) << 16).view(np.float32)) / self.top
        levels = torch.from_numpy(codes).float().sub_(self.top).view(-1, BLOCK)
        return _parts_of(levels.mul_(steps[:, None]), counts)

    def _check_filling(self, codes: NDArray[np.uint8], counts: Sequence[int]) -> None:
        """Raise unless level 0 fills each last block. This checks levels, because a scale of 0 hides them."""
        end = 0
        for count in counts:
            start, end = end, end + _blocks(count) * BLOCK
            if (codes[start + count : end] != self.top).any():
                raise WireError("the last block of a tensor is not filled with zeros")

    def received(self, tensors: Sequence[Tensor], draws: Sequence[np.random.Generator]) -> list[Tensor]:
        blocks = in_blocks(tensors)
        scales = block_scales(blocks)
        shape = tuple(blocks.shape[1:])
        uniform = torch.from_numpy(np.stack([draw.random(shape, dtype=np.float32) for draw in draws]))
        levels = round_stochastically(blocks, scales, uniform.to(blocks.device), self.top)
        # Divide by a tensor: for a number, CUDA multiplies by its inverse, and decodes other bits than a CPU.
        steps = scales / scales.new_tensor(self.top)
        return _parts_of(levels.mul_(steps[..., None]), [value.shape[-1] for value in tensors])

    def expected_squared_error(self, tensors: Sequence[Tensor]) -> float:
        """The expected squared error, averaged over all values."""
        blocks = in_blocks(tensors)
        step = block_scales(blocks).double()[:, None] / self.top
        up = torch.frac(blocks.double() / step + self.top)
        return float((up * (1 - up) * step**2).sum()) / max(sum(map(len, tensors)), 1)

    def _pack(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        words: NDArray[Any] = codes.view(_WORDS[self.bits])
        packed = words.copy()
        for i in range(1, words.itemsize):
            packed |= words >> (i * (8 - self.bits))
        return packed.astype(np.uint8)

    def _unpack(self, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        words: NDArray[Any] = data.astype(_WORDS[self.bits])
        spread = words.copy()
        for i in range(1, words.itemsize):
            spread |= words << (i * (8 - self.bits))
        codes: NDArray[np.uint8] = spread.view(np.uint8) & np.uint8((1 << self.bits) - 1)
        return codes


class Quantised8(Quantiser):
    """Steps of 1/127 of a block's largest change."""

    name, code, bits = "q8", 8, 8


class Quantised4(Quantiser):
    """Steps of 1/7."""

    name, code, bits = "q4", 4, 4


class Quantised2(Quantiser):
    """Levels −1, 0 and 1."""

    name, code, bits = "q2", 3, 2


def in_blocks(tensors: Sequence[Tensor]) -> Tensor:
    """Flat tensors [..., n] as [..., blocks, BLOCK], each with zeros at its end."""
    rows, device = (tensors[0].shape[:-1], tensors[0].device) if tensors else ((), None)
    blocks = torch.zeros(*rows, sum(_blocks(value.shape[-1]) for value in tensors), BLOCK, device=device)
    for value, part in zip(tensors, _parts_of(blocks, [value.shape[-1] for value in tensors]), strict=True):
        part.copy_(value)
    return blocks


def _parts_of(blocks: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Where in [..., blocks, BLOCK] tensors of these many values lie, [..., n] each."""
    flat, start = blocks.flatten(-2), 0
    parts: list[Tensor] = []
    for count in counts:
        parts.append(flat[..., start : start + count])
        start += _blocks(count) * BLOCK
    return parts


def block_scales(blocks: Tensor) -> Tensor:
    """The largest magnitude of each block [..., blocks, BLOCK], rounded up to a bfloat16."""
    largest = blocks.abs().amax(dim=-1).clamp_(min=SMALLEST_SCALE)
    return ((largest.view(torch.int32) + 0xFFFF) & -0x10000).view(torch.float32)


def round_stochastically(blocks: Tensor, scales: Tensor, uniform: Tensor, top: int) -> Tensor:
    """Levels −top … top as float32 [..., blocks, BLOCK]; `uniform` is in [0, 1), of the same shape."""
    return (blocks * (top / scales)[..., None]).add_(uniform).floor_().clamp_(-top, top)


def _blocks(count: int) -> int:
    return -(-count // BLOCK)
