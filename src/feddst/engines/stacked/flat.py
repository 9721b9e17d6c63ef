"""All parameters of a model in one row, so that M models are one matrix."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from torch import Tensor

from feddst.core import Tensors

_ALIGNED = 32
"""Tensors begin at multiples of this many numbers: memory is read in pieces of 128 bytes."""


@dataclass(frozen=True)
class Flat:
    """Where each tensor of a model lies in a row of `width` numbers; gaps between tensors stay zero."""

    shapes: Mapping[str, tuple[int, ...]]

    @cached_property
    def starts(self) -> Mapping[str, int]:
        """Where each tensor begins."""
        return dict(zip(self.shapes, accumulate(self._rooms, initial=0), strict=False))

    @cached_property
    def width(self) -> int:
        """How long a row is."""
        return sum(self._rooms)

    @property
    def _rooms(self) -> list[int]:
        return [-(-math.prod(shape) // _ALIGNED) * _ALIGNED for shape in self.shapes.values()]

    def view(self, rows: Tensor, name: str) -> Tensor:
        """One tensor of every model, [M, *shape], in the memory of `rows`, [M, width]."""
        shape, start = self.shapes[name], self.starts[name]
        return rows[:, start : start + math.prod(shape)].view(-1, *shape)

    def views(self, rows: Tensor) -> dict[str, Tensor]:
        """All tensors of every model, [M, *shape] each."""
        return {name: self.view(rows, name) for name in self.shapes}

    def fill(self, row: Tensor, tensors: Tensors) -> None:
        """Write one model's tensors into its row, [width]."""
        for name, value in tensors.items():
            self.view(row[None], name).copy_(value[None])
