"""Client steps: what a method adds to local training, as data with the hooks that carry it out."""

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from feddst.core.registry import Registry
from feddst.core.tensors import Tensors

if TYPE_CHECKING:
    from feddst.core.plan import ClientPlan


@dataclass(frozen=True)
class MaskBounds:
    """How a client may change a layer's mask: in the end it keeps `least` to `most` weights.

    At most `leaving` of the weights sent are gone, and at most `entering` are new. None: any number.
    """

    least: int
    most: int | None = None
    leaving: int | None = None
    entering: int | None = None


class ClientStep(ABC):
    """Something that local training does besides the optimizer's steps.

    A subclass is a frozen dataclass with a `name`, registered with `feddst.register`. Its fields are its data: they
    cross process boundaries and networks, so they are numbers, texts, and tuples, sets and tables of these.

    Its methods are of two sorts. The hooks carry it out, in the order of a client's round: `begin`, `train`,
    `before_batch`, `at_gradient`, `after_epoch`, `reports`, `keeps`. Each does nothing by default. They are given the
    `Client`, see `feddst.clients.client`. The other methods tell the server what to expect in the update, and what it
    costs.
    """

    registry: "ClassVar[Registry[type[ClientStep]]]"
    name: ClassVar[str]

    # The hooks ----------------------------------------------------------------------------------------------------

    def begin(self, module: Any, begun: Any) -> Any:
        """The `Beginning` that replaces `begun`; `module` may be overwritten."""
        return begun

    def train(self, client: Any) -> float | None:
        """Train instead of the epochs, and return the last mean loss; None leaves the epochs to be trained."""
        return None

    @property
    def looks_at_batches(self) -> bool:
        """Whether `before_batch` is called; minibatches are then trained one by one."""
        return False

    def before_batch(self, client: Any, batch: NDArray[np.int64]) -> None:
        """Called before the optimizer steps on the images at these indices."""

    @property
    def changes_gradients(self) -> bool:
        """Whether it has an `at_gradient` of its own."""
        return type(self).at_gradient is not ClientStep.at_gradient

    def at_gradient(self, gradient: Tensor, theta: Tensor, received: Tensor) -> None:
        """Change a parameter's gradient in place, [*shape], given its value now and as it was received.

        It is that of the loss with L2 regularisation. Where a weight is masked out it is 0, before and after.
        """

    def pauses(self, epochs: int) -> Sequence[int]:
        """Of this many epochs, those after which `after_epoch` is called, from 1."""
        return ()

    def after_epoch(self, client: Any, last_batch: NDArray[np.int64]) -> None:
        """Called after an epoch that `pauses` names; its last minibatch had the images at these indices."""

    def reports(self, client: Any) -> Mapping[str, Tensors]:
        """What to send beside the weights, by group: for each of `groups` a tensor for each parameter."""
        return {}

    def keeps(self, client: Any) -> Tensors:
        """What the client keeps until its next round, on the CPU, under names that the step chooses.

        It is then in `client.task.state.tensors`.
        """
        return {}

    # What the server expects --------------------------------------------------------------------------------------

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups that `reports` gives, each with a tensor of the shape of every parameter."""
        return ()

    @property
    def own_layers(self) -> Sequence[str]:
        """The layers in which a client has a mask of its own, whatever mask it is sent."""
        return ()

    @property
    def needs_initial(self) -> bool:
        """Whether the client needs the weights that the run began with."""
        return False

    def mask_bounds(self, layer: str, active: int | None) -> MaskBounds | None:
        """How a layer's mask may change; it is sent with `active` weights, or (None) without a mask.

        None if the step does not change masks.
        """
        return None

    def check_report(self, group: str, name: str, value: Tensor) -> None:
        """Raise `WireError` if a parameter's tensor of one of `groups` has values that no client can have."""

    def trained_on(self, images: int) -> int:
        """How many of this many images are trained on."""
        return images

    def passes(self, epochs: int) -> int:
        """The most passes that the client makes over its images, in a plan for `epochs`."""
        return epochs

    def differentiated(self, plan: "ClientPlan", images: int) -> int:
        """How many images a dense gradient is taken over, beside training; second derivatives count twice."""
        return 0

    def check(self) -> None:
        """Raise `OptionError` or `ValueError` if the fields are invalid: they may come from a network."""


class Steps(Registry[type[ClientStep]]):
    """Client steps: their fields are sent to clients."""

    def admit(self, item: Any) -> None:
        super().admit(item)
        if "__dataclass_params__" not in vars(item) or not item.__dataclass_params__.frozen:
            raise TypeError(
                f"a client step must be a frozen dataclass: write @dataclass(frozen=True) between @feddst.register and "
                f"{item.__name__}"
            )


STEPS = Steps("client step", ClientStep, classes=True, travels=True)
"""Every kind of step, by its name."""
ClientStep.registry = STEPS
