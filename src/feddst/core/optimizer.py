"""Local optimizers, and schedules of the learning rate over rounds."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from feddst.core.registry import Registry

if TYPE_CHECKING:
    from feddst.core.plan import LocalTraining


class LocalOptimizer(ABC):
    """Turns a gradient into a step: a value of `local.optimizer`.

    `slots` name its state for every parameter: tensors of the parameter's shape, 0 at the start of each round. They
    are set to 0 again where a weight leaves or enters, so a grown weight begins with 0.
    """

    registry: "ClassVar[Registry[LocalOptimizer]]"
    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: "LocalTraining", taken: int
    ) -> None:
        """Change a parameter and its slots in place, after `taken` steps in this round.

        The gradient is that of the loss with L2 regularisation and what the plan's steps add. It is 0 where a weight
        is masked out: there nothing may change.
        """


OPTIMIZERS: Registry[LocalOptimizer] = Registry("local optimizer", LocalOptimizer, travels=True)
"""Every optimizer that clients may use, by the name a user types."""
LocalOptimizer.registry = OPTIMIZERS


class Schedule(ABC):
    """How the learning rate changes over rounds: a value of `local.schedule`.

    One that `needs_rounds` is allowed only if the number of rounds is known.
    """

    registry: "ClassVar[Registry[Schedule]]"
    name: ClassVar[str]
    needs_rounds: ClassVar[bool] = False

    @abstractmethod
    def factor(self, round: int, rounds: int) -> float:
        """The factor on `local.lr` in round 1, 2, … of `rounds`: above 0. `rounds` is 0 if there is no end."""


SCHEDULES: Registry[Schedule] = Registry("schedule of the learning rate", Schedule)
"""Every schedule, by the name a user types."""
Schedule.registry = SCHEDULES
