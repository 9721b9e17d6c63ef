"""Models side by side while they train, and the trainers' protocol."""

from collections.abc import Iterable, Sequence
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

    theta: float32 [M, width]; masks: uint8 [M, width], 0 where a weight is masked, frozen or absent;
    received: like theta, the target of the proximal term; slots: the optimizer's state, like theta each; buffers:
    [M, *shape] each.
    """

    theta: Tensor
    masks: Tensor
    received: Tensor
    slots: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def empty(cls, models: int, flat: Flat, device: torch.device) -> "ModelStack":
        """Memory for `models` models, all zero."""
        theta, received = (torch.zeros(models, flat.width, device=device) for _ in range(2))
        return cls(theta, torch.zeros(models, flat.width, dtype=torch.uint8, device=device), received)

    def forget(self, slots: Iterable[str]) -> None:
        """Set the optimizer's state to 0, where there is memory for it; else make it."""
        for slot in slots:
            if slot in self.slots:
                self.slots[slot].zero_()
            else:
                self.slots[slot] = torch.zeros_like(self.theta)


class Trainer(Protocol):
    """Trains the models of a stack."""

    def stack(self, models: int) -> ModelStack:
        """Memory for `models` models; it may be used memory, with its old contents."""
        ...

    def epochs(self, stack: ModelStack, steps: Lockstep, local: LocalTraining, mu: float) -> Tensor:
        """Optimizer steps as planned; returns the mean loss of each model before each step, [steps, models].

        `mu` is the strength of the proximal term.
        """
        ...

    def mean_gradient(
        self, stack: ModelStack, chosen: Sequence[Indices], local: LocalTraining, temperature: float = 1.0
    ) -> Tensor:
        """Each model's gradient averaged over its own chosen images, dense, [M, width]; see `Client.mean_gradient`."""
        ...
