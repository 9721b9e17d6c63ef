"""What all kernels of one network must know: how many models and images, and how exact they are."""

from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

import torch
from torch import Tensor

_MOST = 2**31
"""Kernels count what a layer gives with 32 bits."""


class Planes(NamedTuple):
    """What one image is at some place in a network."""

    channels: int
    height: int
    width: int


class Slopes(NamedTuple):
    """The loss's slopes in what a layer gives, [M, channels, height, width, images].

    Planes may be larger than what the layer gives; below and to the right of it they are then zero, and so is what
    lies before the values.
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
        """What Triton calls the exactness of a matrix product."""
        return "ieee" if self.exact else "tf32"

    def room(self, planes: Planes) -> Tensor:
        """Room for what a layer gives, [M, channels, height, width, images], and a plane of ones after it."""
        plane = planes.height * planes.width * self.images
        size = self.size(planes) + plane
        if size >= _MOST:
            raise ValueError(f"{self.images} images of {self.models} models are too many at once")
        room = torch.empty(size, device=self.device)
        room[-plane:] = 1
        return room

    def size(self, planes: Planes) -> int:
        """How many numbers a layer gives."""
        return self.models * prod(planes) * self.images


def ceiling(count: int, size: int) -> int:
    """How many pieces of a size cover a count."""
    return -(-count // size)


def power(count: int, least: int = 1) -> int:
    """The smallest power of two that is neither below the count nor below `least`."""
    return max(least, 1 << (count - 1).bit_length())
