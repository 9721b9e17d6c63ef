"""Squared gradients, gathered over the steps of a client's round."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from feddst.clients.client import Client
from feddst.core import Tensors
from feddst.core.minibatches import Indices


@dataclass
class Squares:
    """The sum of the squared gradients of `steps` steps."""

    steps: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, gradient: Tensors) -> None:
        """Add one step's gradient."""
        self.steps += 1
        for name, g in gradient.items():
            squared = g.detach().float().square()
            self.sums[name] = self.sums[name] + squared if name in self.sums else squared

    def mean(self, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their mean; zeros, in the shapes of `like`, if no step was taken."""
        if not self.steps:
            return {name: torch.zeros_like(value, dtype=torch.float32) for name, value in like.items()}
        return {name: value / self.steps for name, value in self.sums.items()}


def gather(client: Client, squares: Squares, batch: Indices) -> None:
    """Add the squared gradient of a minibatch, at a client's current weights."""
    client.expose()
    squares.add(client.mean_gradient(torch.from_numpy(batch).to(client.examples.device)))
