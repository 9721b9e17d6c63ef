"""What clients minimise, and how a model is judged."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

from feddst.core.batches import Batch, length
from feddst.core.examples import highest
from feddst.core.metric import Metric
from feddst.core.registry import Registry

if TYPE_CHECKING:
    from feddst.core.plan import LocalTraining

Reduction = Literal["mean", "sum"]
"""What becomes of the losses of several examples."""


class Objective(ABC):
    """A loss of a network's outputs and the targets, and metrics of both: a value of `local.objective`.

    outputs: the network's outputs for some examples; targets: the data set's targets for them, such as class labels,
    int64 [examples]. `heeds` names the options of `local` that it reads.
    """

    registry: "ClassVar[Registry[Objective]]"
    name: ClassVar[str]
    heeds: ClassVar[tuple[str, ...]] = ()

    @property
    def minimised(self) -> str:
        """The name by which clients know what they minimise."""
        return self.name

    @abstractmethod
    def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
        """The sum of the examples' losses, or that sum divided by `terms`, with a gradient."""

    def terms(self, targets: Any) -> float:
        """What the sum of these examples' losses is divided by for their mean: usually, how many examples there are."""
        return length(targets)

    @property
    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """What a model is judged by; tables and plots show the first."""

    def classes_in(self, targets: Batch) -> int:
        """How many classes these targets show that there are, where nothing else says so; 0 if they are none."""
        return highest([targets]) + 1

    def outputs_for(self, targets: Batch, classes: int) -> int:
        """How many numbers a network should give, for each example or place, where the choice is free."""
        return classes or 1

    def check_targets(self, targets: Batch, classes: int) -> None:
        """Raise `DataError` unless these can be its targets.

        `classes` is how many classes they have, 0 if they have none. It is called once for all training targets, and
        once for all test targets.
        """

    def check_outputs(self, outputs: Any, targets: Batch, classes: int) -> None:
        """Raise `ModelError` unless a network's outputs for two examples, with these targets, have a form that fits."""

    def with_options(self, local: "LocalTraining") -> "Objective":
        """The objective with the options of `local` that it reads."""
        return self


OBJECTIVES: Registry[Objective] = Registry("objective", Objective, travels=True)
"""Every objective, by the name a user types."""
Objective.registry = OBJECTIVES


def objective_of(local: "LocalTraining") -> Objective:
    """The objective that clients minimise, with its options."""
    return OBJECTIVES[local.objective].with_options(local)
