"""Client optimizers, and schedules of the learning rate."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from feddst.core.registry import Registry
from feddst.core.tensors import Masks, Tensors

if TYPE_CHECKING:
    from feddst.core.plan import LocalTraining


class Stepper(ABC):
    """An optimizer at work on one client's parameters, for one round."""

    @property
    @abstractmethod
    def slots(self) -> dict[str, dict[str, Tensor]]:
        """Its state by slot name: for every parameter a tensor of its shape, whose contents may be changed."""

    @abstractmethod
    def step(self, gradients: Tensors, masks: Masks, local: "LocalTraining") -> None:
        """Take one step, in place, along the gradients of the parameters that have one.

        They are 0 where a weight is masked out: there the weight and its state are 0 after the step too.
        """


class ClientOptimizer(ABC):
    """Turns gradients into steps: a value of `local.optimizer`. Subclass `LocalOptimizer` to write one.

    `heeds` names the options of `local` that it reads beside `lr` and `l2`; those of other optimizers are refused with
    it. A `decoupled` one is given gradients without L2 regularisation: `local.l2` is the weight decay that it does
    itself.
    """

    registry: "ClassVar[Registry[ClientOptimizer]]"
    name: ClassVar[str]
    heeds: ClassVar[tuple[str, ...]] = ()
    decoupled: ClassVar[bool] = False

    @abstractmethod
    def begin(self, params: Tensors) -> Stepper:
        """The optimizer at the start of a client's round, to change these parameters."""


class LocalOptimizer(ClientOptimizer):
    """An optimizer that steps one parameter after another.

    `slots` name its state for every parameter: tensors of the parameter's shape, 0 at the start of each round. They
    are set to 0 again where a weight leaves or enters, so a grown weight begins with 0. An `elementwise` one steps each
    number by itself, whatever the shape: then the stacked engine takes the steps of many clients at once. It does so
    apart for those at different steps, unless the optimizer says that it never `counts_steps`.
    """

    slots: ClassVar[tuple[str, ...]] = ()
    elementwise: ClassVar[bool] = False
    counts_steps: ClassVar[bool] = True

    @abstractmethod
    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: "LocalTraining", taken: int
    ) -> None:
        """Change a parameter and its slots in place, after `taken` steps in this round.

        The gradient is that of the loss with L2 regularisation, unless the optimizer is `decoupled`, and what the
        plan's steps add. It is 0 where a weight is masked out: there nothing may change.
        """

    def begin(self, params: Tensors) -> Stepper:
        slots = {slot: {name: torch.zeros_like(value) for name, value in params.items()} for slot in self.slots}
        return _OneByOne(self, params, slots)


@dataclass
class _OneByOne(Stepper):
    """Steps of a `LocalOptimizer`."""

    optimizer: LocalOptimizer
    params: Tensors
    kept: dict[str, dict[str, Tensor]]
    taken: int = field(init=False, default=0)

    @property
    def slots(self) -> dict[str, dict[str, Tensor]]:
        return self.kept

    def step(self, gradients: Tensors, masks: Masks, local: "LocalTraining") -> None:
        for name, gradient in gradients.items():
            slots = {slot: kept[name] for slot, kept in self.kept.items()}
            self.optimizer.step(self.params[name], gradient, slots, local, self.taken)
        self.taken += 1


OPTIMIZERS: Registry[ClientOptimizer] = Registry("local optimizer", ClientOptimizer, travels=True)
"""Every optimizer that clients may use, by the name a user types."""
ClientOptimizer.registry = OPTIMIZERS


class Schedule(ABC):
    """How the learning rate changes over rounds: a value of `local.schedule`.

    One that `needs_rounds` is allowed only if the number of rounds is known. `heeds` names the options of `local` that
    `with_options` reads; those of other schedules are refused with it.
    """

    registry: "ClassVar[Registry[Schedule]]"
    name: ClassVar[str]
    needs_rounds: ClassVar[bool] = False
    heeds: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def factor(self, round: int, rounds: int) -> float:
        """The factor on `local.lr` in round 1, 2, … of `rounds`: above 0. `rounds` is 0 if there is no end."""

    def with_options(self, local: "LocalTraining") -> Self:
        """The schedule with the options of `local` that concern it."""
        return self


SCHEDULES: Registry[Schedule] = Registry("schedule of the learning rate", Schedule)
"""Every schedule, by the name a user types."""
Schedule.registry = SCHEDULES
