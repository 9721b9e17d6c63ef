"""What a client is asked to do, as data: any engine can carry it out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from feddst.core.objective import OBJECTIVES
from feddst.core.optimizer import OPTIMIZERS, SCHEDULES
from feddst.core.step import ClientStep, MaskBounds
from feddst.options import option

S = TypeVar("S", bound=ClientStep)


@dataclass(frozen=True)
class LocalTraining:
    """Training on a client's own images."""

    epochs: int = option(10, "E: passes over a client's examples in one round", at_least=1)
    batch: int = option(32, "examples in a minibatch", at_least=1)
    lr: float = option(0.01, "learning rate", above=0)
    momentum: float = option(0.9, "SGD momentum on the client, new each round", at_least=0, below=1)
    l2: float = option(0.001, "L2 regularisation", at_least=0)
    order: Literal["shuffled", "fixed"] = option(
        "shuffled", "minibatches drawn anew each epoch, or (published code) once for the whole run"
    )
    objective: str = option(
        "cross-entropy",
        "what clients minimise: cross-entropy (a class for each example), binary, multi-label, squared-error, "
        "absolute-error, huber, segmentation (a class for each pixel), tokens (the next one at each position)",
        among=OBJECTIVES,
    )
    class_weights: tuple[float, ...] = option((), "a weight for each class in the loss; none: all equal", above=0)
    label_smoothing: float = option(0.0, "share of each target that is spread over all classes", at_least=0, below=1)
    huber_delta: float = option(1.0, "(huber) the error from which on the loss grows linearly", above=0)
    ignore_target: int = option(-100, "(segmentation, tokens) the target of places that do not count, as of padding")
    optimizer: str = option(
        "sgd",
        "what turns gradients into steps; with others than sgd, adam and adamw clients train in PyTorch, which is "
        "slower",
        among=OPTIMIZERS,
    )
    nesterov: bool = option(False, "(sgd) Nesterov's momentum")
    clip: float = option(
        0.0,
        "the largest norm of a step's gradient, before L2 regularisation; longer ones are shortened; 0: any",
        at_least=0,
    )
    schedule: str = option("constant", "how the learning rate changes over rounds, after the warm-up", among=SCHEDULES)
    warmup: int = option(0, "rounds in which the learning rate rises linearly, before the schedule begins", at_least=0)
    lr_end: float = option(
        0.0, "(linear, cosine) the share of local.lr that is left after the last round", at_least=0, at_most=1
    )
    lr_factor: float = option(
        0.5,
        "(step, exponential) what the learning rate is multiplied by every local.lr_every rounds",
        above=0,
        at_most=1,
    )
    lr_every: int = option(
        50, "(step, exponential) rounds in which the learning rate falls by local.lr_factor", at_least=1
    )
    schedule_within: Literal["constant", "linear", "cosine"] = option(
        "constant", "how the learning rate falls towards 0 over the steps of each round"
    )
    weigh_by: Literal["images", "batches", "equal"] = option(
        "images", "a client's weight n_c in the average: its images, (published code) its minibatches, or 1"
    )

    def weight(self, images: int) -> int:
        """n_c of a client that trains on this many images."""
        return {"images": images, "batches": -(-images // self.batch), "equal": 1}[self.weigh_by]

    def at_step(self, taken: int, planned: int) -> "LocalTraining":
        """The options with the learning rate of the step after `taken` others, of `planned` in the round."""
        if self.schedule_within == "constant":
            return self
        factor = SCHEDULES[self.schedule_within].factor(taken + 1, planned)
        return replace(self, lr=factor * self.lr)

    def in_round(self, round: int, rounds: int) -> float:
        """The factor on the learning rate in this round of `rounds`, or of any number if that is 0."""
        # Round 0 comes before training, and rounds that did not count are repeated beyond the last.
        r = max(1, min(round, rounds or round))
        if r <= self.warmup:
            return r / (self.warmup + 1)
        schedule = SCHEDULES[self.schedule].with_options(self)
        return schedule.factor(r - self.warmup, rounds and rounds - self.warmup)


USUAL = LocalTraining()
"""The default local training."""


STEPPING = (
    "optimizer",
    "nesterov",
    "clip",
    "schedule",
    "warmup",
    "lr_end",
    "lr_factor",
    "lr_every",
    "schedule_within",
)
"""Options that do nothing where clients take no steps."""


def idle_training(values: Mapping[str, Any]) -> dict[str, str]:
    """The options of local training that do nothing with these values, by dotted name, each with the reason."""
    found: dict[str, str] = {}
    kinds: Mapping[str, Mapping[str, Any]] = {
        "local.objective": OBJECTIVES,
        "local.optimizer": OPTIMIZERS,
        "local.schedule": SCHEDULES,
    }
    for chosen, registry in kinds.items():
        name = str(values.get(chosen))
        if name in registry:
            others = {option for one in registry.values() for option in one.heeds} - set(registry[name].heeds)
            found |= {f"local.{option}": f"{chosen} {name}" for option in others}
    if not values.get("local.momentum"):
        found.setdefault("local.nesterov", "local.momentum 0")
    return found


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

    def minimising(self, objective: str) -> "ClientPlan":
        """The same plan with another objective."""
        return (
            self if objective == self.local.objective else replace(self, local=replace(self.local, objective=objective))
        )

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
