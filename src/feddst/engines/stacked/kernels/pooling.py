"""Max-pooling with stride 1, with the ReLU after it."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from feddst.engines.stacked.kernels.batch import Batch, Planes, Slopes, ceiling

_FORWARD = 1024
_BACK = 512
_NOBODY = tl.constexpr(255)


class Pool:
    """The maximum of every square of `side` pixels, and its place; `relu`: at least zero, with no place if zero."""

    def __init__(self, batch: Batch, source: Planes, side: int, relu: bool) -> None:
        self.batch, self.source, self.side, self.relu = batch, source, side, relu
        self.result = Planes(source.channels, source.height - side + 1, source.width - side + 1)
        self._choice = torch.empty(batch.size(self.result), dtype=torch.uint8, device=batch.device)

    def forward(self, theta: Tensor, x: Tensor, y: Tensor) -> None:
        batch = self.batch
        grid = (ceiling(prod(self.result) * batch.images, _FORWARD), batch.models)
        _pool[grid](x, y, self._choice, *self.source, batch.images, self.side, self.relu, _FORWARD, num_warps=8)

    def backward(
        self, theta: Tensor, x: Tensor, slopes: Slopes, into: Tensor, back: Slopes | None, alive: bool
    ) -> None:
        if back is None:
            return
        batch = self.batch
        grid = (ceiling(prod(self.source) * batch.images, _BACK), batch.models)
        _pool_back[grid](
            slopes.values,
            self._choice,
            x,
            back.values,
            *self.source,
            back.planes.height,
            back.planes.width,
            batch.images,
            self.side,
            alive,
            _BACK,
            num_warps=4,
        )


@triton.jit
def _pool(
    source,
    result,
    choice,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    images: tl.constexpr,
    side: tl.constexpr,
    relu: tl.constexpr,
    block: tl.constexpr,
):
    high: tl.constexpr = height - side + 1
    wide: tl.constexpr = width - side + 1
    total: tl.constexpr = channels * high * wide * images
    model = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * block + tl.arange(0, block)
    known = at < total
    pixel = at // images
    plane = pixel // (high * wide)
    row = pixel // wide % high
    column = pixel % wide
    start = source + model * (channels * height * width * images)
    start += ((plane * height + row) * width + column) * images + at % images
    best = tl.load(start, mask=known, other=0.0)
    taken = tl.zeros((block,), dtype=tl.int32)
    for k in tl.static_range(1, side * side):
        value = tl.load(start + (k // side * width + k % side) * images, mask=known, other=0.0)
        better = (value > best) | (value != value)
        best = tl.where(better, value, best)
        taken = tl.where(better, k, taken)
    if relu:
        dead = best <= 0
        best = tl.where(dead, 0.0, best)
        taken = tl.where(dead, _NOBODY, taken)
    tl.store(result + model * total + at, best, mask=known)
    tl.store(choice + model * total + at, taken.to(tl.uint8), mask=known)


@triton.jit
def _pool_back(
    slope,
    choice,
    source,
    back,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    back_height: tl.constexpr,
    back_width: tl.constexpr,
    images: tl.constexpr,
    side: tl.constexpr,
    alive: tl.constexpr,
    block: tl.constexpr,
):
    high: tl.constexpr = height - side + 1
    wide: tl.constexpr = width - side + 1
    total: tl.constexpr = channels * height * width * images
    model = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * block + tl.arange(0, block)
    known = at < total
    pixel = at // images
    plane = pixel // (height * width)
    row = pixel // width % height
    column = pixel % width
    first = ((plane * high + row) * wide + column) * images + at % images
    slope += model * (channels * high * wide * images)
    choice += model * (channels * high * wide * images)
    sums = tl.zeros((block,), dtype=tl.float32)
    for k in tl.static_range(0, side * side):
        up = k // side
        left = k % side
        inside = known & (row >= up) & (row < high + up) & (column >= left) & (column < wide + left)
        shift = (up * wide + left) * images
        taken = tl.load(choice + first - shift, mask=inside, other=_NOBODY)
        value = tl.load(slope + first - shift, mask=inside, other=0.0)
        sums += tl.where(taken == k, value, 0.0)
    if alive:
        sums = tl.where(tl.load(source + model * total + at, mask=known, other=0.0) > 0, sums, 0.0)
    back += model * (channels * back_height * back_width * images)
    tl.store(back + ((plane * back_height + row) * back_width + column) * images + at % images, sums, mask=known)
