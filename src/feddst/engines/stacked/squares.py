"""Squared gradients of models side by side, gathered over their steps."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feddst.engines.stacked.model_stack import ModelStack


@dataclass
class StackedSquares:
    """See `Squares`. sums: float32 [M, width]; steps: [M]."""

    sums: Tensor
    steps: Tensor

    @classmethod
    def of(cls, stack: ModelStack) -> "StackedSquares":
        """No steps yet."""
        return cls(torch.zeros_like(stack.theta), torch.zeros(len(stack.theta), device=stack.theta.device))

    def add(self, gradients: Tensor, awake: NDArray[np.bool_]) -> None:
        """One more step of the models that are `awake`, [M], with these gradients, [M, width]."""
        stepping = torch.from_numpy(awake).to(self.sums.device)
        self.sums += gradients.square() * stepping[:, None]
        self.steps += stepping

    def mean(self) -> Tensor:
        """The mean over each model's steps, [M, width]; 0 if it took none."""
        return self.sums / self.steps.clamp(min=1)[:, None]
