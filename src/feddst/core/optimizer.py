"""How clients step, and how long their steps are from round to round."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from feddst.core.registry import Registry

if TYPE_CHECKING:
    from feddst.core.plan import LocalTraining


class LocalOptimizer(ABC):
    """What turns a gradient into a step: a value of `local.optimizer`.

    `slots` name what it remembers of every weight: tensors of the parameter's shape, new each round and 0 at first.
    They are set to 0 again where a weight leaves or enters, so a weight that grows begins with none.
    """

    registry: "ClassVar[Registry[LocalOptimizer]]"
    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: "LocalTraining", taken: int
    ) -> None:
        """Change a parameter, and what is remembered of it, in place, after so many steps in this round.

        The gradient is that of the loss with L2 regularisation and what the plan's steps add, and 0 where the weight is
        masked out: there nothing may change.
        """


OPTIMIZERS: Registry[LocalOptimizer] = Registry("local optimizer", LocalOptimizer, travels=True)
"""Every optimizer that clients may use, by the name a user types."""
LocalOptimizer.registry = OPTIMIZERS


class Schedule(ABC):
    """How the learning rate changes over rounds: a value of `local.schedule`.

    One that `needs_rounds` can only be used where the number of rounds is known.
    """

    registry: "ClassVar[Registry[Schedule]]"
    name: ClassVar[str]
    needs_rounds: ClassVar[bool] = False

    @abstractmethod
    def factor(self, round: int, rounds: int) -> float:
        """What `local.lr` is multiplied by in this round, 1, 2, …, of so many: above 0. 0 rounds: without end."""


SCHEDULES: Registry[Schedule] = Registry("schedule of the learning rate", Schedule)
"""Every schedule, by the name a user types."""
Schedule.registry = SCHEDULES
