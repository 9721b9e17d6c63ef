"""One client's round on any engine: what it begins with, its epochs, and what it sends back."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from feddst.core import (
    ClientState,
    ClientStep,
    Examples,
    Masks,
    Objective,
    Positions,
    Tensors,
    Update,
    minibatches,
    objective_of,
)
from feddst.core.minibatches import Indices
from feddst.errors import DivergenceError
from feddst.wire import ClientTask


@dataclass
class Client(ABC):
    """A client in the middle of its round.

    `task` has the examples that it trains on. `slots` are the optimizer's state for each parameter, by slot name, new
    each round. Engines may keep `params` and `slots` elsewhere while they train: these are up to date after `expose`,
    and changes to them take effect at `adopt`. In `scratch` steps store what they need later, under names that they
    choose. `loss` is the last epoch's mean, after training.
    """

    task: ClientTask
    masks: Masks
    params: dict[str, Tensor]
    slots: dict[str, dict[str, Tensor]]
    scratch: dict[str, Any] = field(init=False, default_factory=dict)
    loss: float = field(init=False, default=0.0)

    @property
    def examples(self) -> Examples:
        """What it trains on."""
        return self.task.examples

    @cached_property
    def objective(self) -> Objective:
        """What it minimises."""
        return objective_of(self.task.plan.local)

    @property
    def draw(self) -> tuple[int, int, int]:
        """What its random draws are keyed by: seed, round, client."""
        return self.task.draw

    @abstractmethod
    def epochs(self, epochs: Sequence[Sequence[Indices]]) -> list[float]:
        """Take an optimizer step on each minibatch of each epoch.

        Returns for each epoch the sum of its images' losses, taken before each step.
        """

    @abstractmethod
    def mean_gradient(self, images: Tensor, temperature: float = 1.0) -> dict[str, Tensor]:
        """The task loss's gradient averaged over `images`, dense, with dropout off and BatchNorm frozen.

        The network's outputs are divided by `temperature`.
        """

    @abstractmethod
    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]:
        """A module with the client's weights, for work that needs autograd, and its parameters."""

    @abstractmethod
    def expose(self) -> None:
        """Bring `params` and `slots` up to date."""

    @abstractmethod
    def final(self, positions: Positions | None) -> dict[str, Tensor]:
        """The final weights, packed, on the CPU, in memory of their own.

        `positions`, if known, are those of the weights that the masks keep.
        """

    @abstractmethod
    def adopt(self, masks: Masks) -> None:
        """Continue with these masks, and with `params` and `slots` as they are."""

    def after_epoch(self, step: ClientStep, last_batch: Indices) -> None:
        """Carry out what a step does after an epoch that ended with this minibatch."""
        step.after_epoch(self, last_batch)

    @abstractmethod
    def buffers(self) -> dict[str, Tensor]:
        """The module's buffers as they are now."""


@dataclass(frozen=True)
class Beginning:
    """What a client's training begins with: its task, with the examples it trains on, its masks and its weights.

    `rows` are their indices in the examples it was given; None: all.
    """

    task: ClientTask
    masks: Masks
    weights: Tensors
    rows: Tensor | None = None


def beginning(module: nn.Module, task: ClientTask) -> Beginning:
    """What a task begins with, after its steps' `begin`; `module` may be overwritten."""
    sent, plan = task.sent.broadcast, task.plan
    own = {name: task.state.tensors.get(name, task.initial[name]) for name in sorted(plan.keep)}
    begun = Beginning(task, sent.masks, {**sent.params, **own} if own else sent.params)
    for step in plan.steps:
        begun = step.begin(module, begun)
    return begun


def train(client: Client) -> float:
    """Train all epochs and run the steps' hooks; returns the last epoch's mean loss."""
    plan, steps = client.task.plan, client.task.plan.steps
    if not plan.train:
        return 0.0
    for step in steps:
        if (loss := step.train(client)) is not None:
            return loss
    epochs = minibatches(len(client.examples), plan.local, *client.draw)
    loss = math.nan
    for stretch, due in stretches(steps, len(epochs)):
        loss = _epochs(client, epochs[stretch], stretch.start)
        for step in due:
            client.after_epoch(step, epochs[stretch.stop - 1][-1])
    return loss


def stretches(steps: Sequence[ClientStep], epochs: int) -> Iterator[tuple[slice, list[ClientStep]]]:
    """The epochs in stretches, split where steps pause: each stretch, and the steps that run after it."""
    waiting = [(stop, step) for step in steps for stop in step.pauses(epochs)]
    done = 0
    for stop in sorted({stop for stop, _ in waiting} | {epochs}):
        yield slice(done, stop), [step for when, step in waiting if when == stop]
        done = stop


def _epochs(client: Client, epochs: Sequence[Sequence[Indices]], done: int) -> float:
    """Train some epochs, after `done` others; returns the last one's mean loss."""
    task, looking = client.task, [step for step in client.task.plan.steps if step.looks_at_batches]
    show = partial(_show, client, looking)
    sums = [train_batch_by_batch(client, one, show) for one in epochs] if looking else client.epochs(epochs)
    count = len(task.data)
    losses = [total / count for total in sums]
    for epoch, loss in enumerate(losses, done + 1):
        refuse_diverged(loss, epoch, task.client, task.round, task.plan.local.lr)
    return losses[-1]


def _show(client: Client, steps: Sequence[ClientStep], batch: Indices) -> None:
    for step in steps:
        step.before_batch(client, batch)


def train_batch_by_batch(client: Client, batches: Sequence[Indices], before: Callable[[Indices], None]) -> float:
    """Train one epoch, calling `before` before each step; returns the sum of the images' losses."""
    total = 0.0
    for batch in batches:
        before(batch)
        [loss] = client.epochs([[batch]])
        total += loss
    return total


def refuse_diverged(loss: float, epoch: int, client: int, round: int, lr: float) -> None:
    """Raise if an epoch's loss is not finite."""
    if not math.isfinite(loss):
        raise DivergenceError(
            f"client {client} diverged in round {round}, epoch {epoch}: its loss is {loss} (lower local.lr, now {lr:g})"
        )


def diverged(name: str, client: int, round: int, lr: float) -> DivergenceError:
    """The error to raise if a client's final weights are not finite."""
    return DivergenceError(
        f"client {client} diverged in round {round}: {name} is not finite (lower local.lr, now {lr:g})"
    )


def finished(client: Client) -> tuple[Update, ClientState]:
    """What the client sends back, and what it keeps."""
    task, plan, sent = client.task, client.task.plan, client.task.sent
    if plan.keep or plan.groups:
        client.expose()
    masks = {name: mask.cpu() for name, mask in client.masks.items()}
    held = sent.broadcast.masks
    changed = any(name not in held or not _same(mask, held[name]) for name, mask in masks.items())
    active = client.final(None if changed else sent.positions)
    if not _finite(active.values()):
        name = next(name for name, value in active.items() if not torch.isfinite(value).all())
        raise diverged(name, task.client, task.round, plan.local.lr)
    update = Update(
        client=task.client,
        round=task.round,
        weight=plan.local.weight(len(task.data)),
        params={name: value for name, value in active.items() if plan.train and name not in plan.keep},
        buffers=client.buffers() if plan.train else {},
        masks=masks if changed else None,
        extra={group: tensors for step in plan.steps for group, tensors in step.reports(client).items()},
    )
    kept = {name: client.params[name].detach().cpu().clone() for name in sorted(plan.keep)}
    for step in plan.steps:
        kept |= step.keeps(client)
    return update, replace(task.state, tensors={**task.state.tensors, **kept})


def _finite(values: Collection[Tensor]) -> bool:
    # If the sum of squares is finite, all values are. If it is not, it may only have overflowed.
    squares = [float(flat @ flat) for flat in (value.reshape(-1) for value in values)]
    return math.isfinite(sum(squares)) or all(bool(torch.isfinite(value).all()) for value in values)


def _same(mask: Tensor, held: Tensor) -> bool:
    return mask is held or torch.equal(mask, held)
