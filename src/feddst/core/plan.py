"""What a client is asked to do, as data: any engine can carry it out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar

from feddst.core.objective import OBJECTIVES
from feddst.core.optimizer import OPTIMIZERS, SCHEDULES
from feddst.core.step import ClientStep, MaskBounds
from feddst.options import option

S = TypeVar("S", bound=ClientStep)


@dataclass(frozen=True)
class LocalTraining:
    """Training on a client's own images."""

    epochs: int = option(10, "E: passes over a client's images in one round", at_least=1)
    batch: int = option(32, "images in a minibatch", at_least=1)
    lr: float = option(0.01, "learning rate", above=0)
    momentum: float = option(0.9, "SGD momentum on the client, new each round", at_least=0, below=1)
    l2: float = option(0.001, "L2 regularisation", at_least=0)
    order: Literal["shuffled", "fixed"] = option(
        "shuffled", "minibatches drawn anew each epoch, or (published code) once for the whole run"
    )
    objective: str = option(
        "cross-entropy",
        "what clients minimise; what the compiled kernels do not know they train in PyTorch, which is slower",
        among=OBJECTIVES,
    )
    optimizer: str = option(
        "sgd",
        "what turns gradients into steps; with others than sgd and adam clients train in PyTorch, which is slower",
        among=OPTIMIZERS,
    )
    schedule: str = option("constant", "how the learning rate changes over rounds", among=SCHEDULES)
    weigh_by: Literal["images", "batches", "equal"] = option(
        "images", "a client's weight n_c in the average: its images, (published code) its minibatches, or 1"
    )

    def weight(self, images: int) -> int:
        """n_c of a client that trains on this many images."""
        return {"images": images, "batches": -(-images // self.batch), "equal": 1}[self.weigh_by]


USUAL = LocalTraining()
"""The default local training."""


@dataclass(frozen=True)
class ClientPlan:
    """One client's plan for one round.

    `steps` are what the method adds to the optimizer's steps. `keep` names parameters that stay with the client and
    are never sent: they come from its own state, or from the initial weights if it has none yet. With `train=False`
    the client only reports.
    """

    local: LocalTraining
    steps: tuple[ClientStep, ...] = ()
    keep: frozenset[str] = frozenset()
    train: bool = True

    @property
    def keeps_state(self) -> bool:
        """Whether the client keeps something for its later rounds."""
        return bool(self.keep) or any(type(step).keeps is not ClientStep.keeps for step in self.steps)

    def adding(self, *steps: ClientStep) -> "ClientPlan":
        """The same plan with more steps."""
        return replace(self, steps=(*self.steps, *steps))

    def at_rate(self, factor: float) -> "ClientPlan":
        """The same plan with the learning rate times `factor`."""
        return self if factor == 1 else replace(self, local=replace(self.local, lr=factor * self.local.lr))

    def step(self, kind: type[S]) -> S | None:
        """Its step of this kind, if it has one."""
        return next((step for step in self.steps if isinstance(step, kind)), None)

    def shortened(self, epochs: int) -> "ClientPlan":
        """The same plan cut to fewer epochs, as a straggler carries it out."""
        return self.lasting(min(epochs, self.local.epochs))

    def lasting(self, epochs: int) -> "ClientPlan":
        """The same plan for this many epochs."""
        return replace(self, local=replace(self.local, epochs=epochs))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups of tensors that are sent beside the model."""
        return tuple(group for step in self.steps for group in step.groups)

    @cached_property
    def own_layers(self) -> Sequence[str]:
        """The layers in which the client has a mask of its own, whatever mask it is sent."""
        return tuple(layer for step in self.steps for layer in step.own_layers)

    @property
    def needs_initial(self) -> bool:
        """Whether the client needs the weights that the run began with."""
        return bool(self.keep) or any(step.needs_initial for step in self.steps)

    def mask_bounds(self, layer: str, active: int | None) -> MaskBounds | None:
        """How a layer's mask may change: `ClientStep.mask_bounds` of the first step that changes masks."""
        found = (step.mask_bounds(layer, active) for step in self.steps)
        return next((bounds for bounds in found if bounds is not None), None)

    def trained_on(self, images: int) -> int:
        """How many of a client's images are trained on."""
        for step in self.steps:
            images = step.trained_on(images)
        return images

    @property
    def passes(self) -> int:
        """The most passes that the client makes over its images."""
        epochs = self.local.epochs if self.train else 0
        for step in self.steps:
            epochs = step.passes(epochs)
        return epochs

    def differentiated(self, images: int) -> int:
        """How many images dense gradients are taken over, beside training."""
        return sum(step.differentiated(self, images) for step in self.steps)
