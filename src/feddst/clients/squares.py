"""Squared gradients, gathered over the steps of a client's round."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from feddst.core import ClientWork, Tensors


@dataclass
class Squares:
    """The squares of the gradients of so many steps, added up."""

    steps: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, gradient: Tensors) -> None:
        """One more step, with this gradient."""
        self.steps += 1
        for name, g in gradient.items():
            squared = g.detach().float().square()
            self.sums[name] = self.sums[name] + squared if name in self.sums else squared

    def mean(self, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their mean; zeros, in the shapes of `like`, if no step was taken."""
        if not self.steps:
            return {name: torch.zeros_like(value, dtype=torch.float32) for name, value in like.items()}
        return {name: value / self.steps for name, value in self.sums.items()}


def wanted(work: ClientWork) -> bool:
    """Whether a client is to gather squared gradients while it trains."""
    return any(report.kind == "squared-gradient" for report in work.report)
