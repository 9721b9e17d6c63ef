"""What a method is told about the model it federates."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from feddst.core.tensors import Tensors


@dataclass(frozen=True)
class Layer:
    """A weight tensor that may be pruned: its parameter name, its shape, and how many biases sit beside it.

    `stacked` is how many matrices lie in it one upon another, as the gates of an LSTM do.
    """

    name: str
    shape: tuple[int, ...]
    biases: int = 0
    stacked: int = 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)


TimeBasis = Literal["measured", "flops"]


@dataclass(frozen=True)
class Densities:
    """Which share of the prunable weights is active, and which of all weights and biases is not masked."""

    prunable: float
    all: float


@dataclass(frozen=True)
class LayerTimes:
    """What a training step costs: for each active weight of a prunable layer, and whatever is active. In any unit."""

    per_weight: Mapping[str, float]
    constant: float = 0.0


def biases_beside(params: Mapping[str, Tensor], weight: str) -> int:
    """How many biases sit beside a weight tensor, found by name."""
    owner, dot, own = weight.rpartition(".")
    bias = f"{owner}{dot}{own.replace('weight', 'bias')}"
    return params[bias].numel() if bias in params and bias != weight else 0


@dataclass(frozen=True)
class InitialModel:
    """Freshly drawn parameters and buffers, and which of the parameters may be pruned.

    `layer_times` finds out what a training step costs; it takes a while, so only methods that need it ask.
    """

    params: Tensors
    layers: tuple[Layer, ...]
    buffers: Tensors = field(default_factory=dict)
    layer_times: Callable[[TimeBasis], LayerTimes] | None = None
