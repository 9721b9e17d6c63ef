"""Classification by squared error: the outputs should be 1 for the right class and 0 for the others."""

from typing import ClassVar

import torch
from torch import Tensor

from feddst.core.objective import Objective, Reduction
from feddst.core.registry import register


@register
class MeanSquaredError(Objective):
    """outputs: a number for each class, [examples, classes]; targets: int64 [examples].

    An example's loss is the mean over classes.
    """

    name: ClassVar[str] = "mse"

    def loss(self, outputs: Tensor, targets: Tensor, reduction: Reduction = "mean") -> Tensor:
        # F.one_hot looks at the targets, which models side by side cannot.
        wanted = (targets[:, None] == torch.arange(outputs.shape[1], device=targets.device)).to(outputs.dtype)
        losses = (outputs - wanted).square().mean(dim=1)
        return losses.mean() if reduction == "mean" else losses.sum()

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.argmax(dim=1) == targets
