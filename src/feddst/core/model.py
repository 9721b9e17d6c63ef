"""What a method knows about the model it federates."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from feddst.core.tensors import Tensors


@dataclass(frozen=True)
class Layer:
    """A weight tensor that may be pruned: its parameter name, its shape, and how many biases go with it.

    `stacked` is the number of matrices stacked in it, such as the gates of an LSTM.
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
    """The active share of the prunable weights, and the unmasked share of all weights and biases."""

    prunable: float
    all: float


@dataclass(frozen=True)
class LayerTimes:
    """The time of a training step, in any unit: for each active weight of a prunable layer, plus a constant."""

    per_weight: Mapping[str, float]
    constant: float = 0.0


def biases_beside(params: Mapping[str, Tensor], weight: str) -> int:
    """How many biases go with a weight tensor, found by name."""
    owner, dot, own = weight.rpartition(".")
    bias = f"{owner}{dot}{own.replace('weight', 'bias')}"
    return params[bias].numel() if bias in params and bias != weight else 0


@dataclass(frozen=True)
class InitialModel:
    """Freshly drawn parameters and buffers, and which of the parameters may be pruned.

    `layer_times` works out what a training step costs; it is slow, so only methods that need it call it.
    """

    params: Tensors
    layers: tuple[Layer, ...]
    buffers: Tensors = field(default_factory=dict)
    layer_times: Callable[[TimeBasis], LayerTimes] | None = None
