"""Common facts of a network's kernels: the number of models and images, and the precision."""

from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

import torch
from torch import Tensor

_MOST = 2**31
"""Kernels count a layer's outputs with 32 bits."""


class Planes(NamedTuple):
    """One image's shape at a place in a network."""

    channels: int
    height: int
    width: int


class Slopes(NamedTuple):
    """The loss's slopes (its gradient) in a layer's output, [M, channels, height, width, images].

    Planes may be larger than the output; they are then zero below and to the right of it, and so is the memory before
    the values.
    """

    values: Tensor
    planes: Planes


@dataclass(frozen=True)
class Batch:
    """M models in rows of `row` numbers, with as many images for each; exact: no TF32 in matrix products."""

    models: int
    images: int
    row: int
    exact: bool
    device: torch.device

    @property
    def precision(self) -> Literal["ieee", "tf32"]:
        """Triton's name for the precision of matrix products."""
        return "ieee" if self.exact else "tf32"

    def room(self, planes: Planes) -> Tensor:
        """Memory for a layer's output, [M, channels, height, width, images], and a plane of ones after it."""
        plane = planes.height * planes.width * self.images
        size = self.size(planes) + plane
        if size >= _MOST:
            raise ValueError(f"{self.images} images of {self.models} models are too many at once")
        room = torch.empty(size, device=self.device)
        room[-plane:] = 1
        return room

    def size(self, planes: Planes) -> int:
        """How many outputs a layer has."""
        return self.models * prod(planes) * self.images


def ceiling(count: int, size: int) -> int:
    """How many pieces of a size cover a count."""
    return -(-count // size)


def power(count: int, least: int = 1) -> int:
    """The smallest power of two that is neither below the count nor below `least`."""
    return max(least, 1 << (count - 1).bit_length())
