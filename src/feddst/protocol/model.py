"""What a method is told about the model it federates."""

import math
from dataclasses import dataclass, field

from feddst.protocol.tensors import Tensors


@dataclass(frozen=True)
class Layer:
    """A weight tensor that may be pruned: its parameter name, its shape, and how many biases sit beside it."""

    name: str
    shape: tuple[int, ...]
    biases: int = 0

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class InitialModel:
    """Freshly drawn parameters and buffers, and which of the parameters may be pruned."""

    params: Tensors
    layers: tuple[Layer, ...]
    buffers: Tensors = field(default_factory=dict)
