"""Classification: the negative logarithm of the right class's probability."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from feddst.core.objective import Objective, Reduction
from feddst.core.registry import register


@register
class CrossEntropy(Objective):
    """outputs: a score for each class, [examples, classes]; targets: int64 [examples]."""

    name: ClassVar[str] = "cross-entropy"

    def loss(self, outputs: Tensor, targets: Tensor, reduction: Reduction = "mean") -> Tensor:
        return F.cross_entropy(outputs, targets, reduction=reduction)

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.argmax(dim=1) == targets
