"""What clients minimise, and how a model is scored."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import Tensor

from feddst.core.registry import Registry

Reduction = Literal["mean", "sum"]
"""What becomes of the losses of several examples."""


class Objective(ABC):
    """A loss of a network's outputs and the targets, and a score: a value of `local.objective`.

    outputs: the network's outputs for some examples; targets: the data set's targets for them, such as class labels,
    int64 [examples].
    """

    registry: "ClassVar[Registry[Objective]]"
    name: ClassVar[str]

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor, reduction: Reduction = "mean") -> Tensor:
        """The mean or the sum of the examples' losses, with a gradient."""

    @abstractmethod
    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Each example's score, [examples]: their mean is the reported accuracy."""


OBJECTIVES: Registry[Objective] = Registry("objective", Objective, travels=True)
"""Every objective, by the name a user types."""
Objective.registry = OBJECTIVES
