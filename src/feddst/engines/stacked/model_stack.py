"""Models side by side while they train, and what can train them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.minibatches import Indices
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.lockstep import Lockstep


@dataclass
class ModelStack:
    """M models, a row each; see `Flat`.

    theta, velocity: float32 [M, width]; masks: uint8 [M, width], 0 where a weight is masked, frozen or not there;
    received: as theta, what the proximal term pulls to; buffers: [M, *shape] each.
    """

    theta: Tensor
    velocity: Tensor
    masks: Tensor
    received: Tensor
    buffers: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def empty(cls, models: int, flat: Flat, device: torch.device) -> "ModelStack":
        """Room for so many models, all zero."""
        theta, velocity, received = (torch.zeros(models, flat.width, device=device) for _ in range(3))
        return cls(theta, velocity, torch.zeros(models, flat.width, dtype=torch.uint8, device=device), received)


class Trainer(Protocol):
    """Trains the models of a stack."""

    def stack(self, models: int) -> ModelStack:
        """Room for so many models, which may be the same as before, with whatever is in it."""
        ...

    def epochs(self, stack: ModelStack, steps: Lockstep, local: LocalTraining, mu: float) -> Tensor:
        """SGD steps as planned; returns the mean loss of each model before each step, [steps, models].

        `mu` is the strength of the proximal term.
        """
        ...

    def mean_gradient(self, stack: ModelStack, chosen: Sequence[Indices], temperature: float = 1.0) -> Tensor:
        """Each model's gradient averaged over its own chosen images, dense, [M, width]; see `Client.mean_gradient`."""
        ...
