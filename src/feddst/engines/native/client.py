"""One client's round through the compiled kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from feddst import _native
from feddst.clients import reference
from feddst.clients.client import Client, beginning, train
from feddst.clients.optimizers import SGD, Adam
from feddst.clients.steps import Growth, Proximal, Readjust
from feddst.clients.steps.readjust import grown_by
from feddst.core import (
    OBJECTIVES,
    OPTIMIZERS,
    ClientStep,
    Masks,
    Positions,
    Tensors,
    count_active,
    packed,
    positions_of,
)
from feddst.core.minibatches import Indices
from feddst.engines.native.chain import Chain
from feddst.engines.native.known import LOSSES, why_unknown
from feddst.engines.native.weights import Beginnings
from feddst.models import load
from feddst.wire import ClientTask


@dataclass
class Workbench:
    """One thread's means to train clients: a session's memory, and a module for what needs autograd."""

    chain: Chain
    beginnings: Beginnings
    session: _native.Session
    module: nn.Module

    @cached_property
    def shapes(self) -> dict[str, torch.Size]:
        """Parameters' shapes."""
        return {name: value.shape for name, value in self.module.named_parameters()}

    @cached_property
    def trained(self) -> tuple[list[bool], list[bool]]:
        """Which of the weights and biases are trained."""
        chosen = {name for name, value in self.module.named_parameters() if value.requires_grad}
        return [name in chosen for name in self.chain.weights], [name in chosen for name in self.chain.biases]


@dataclass
class NativeClient(Client):
    """A client whose weights are in a session while it trains; `params` and `slots` hold them when exposed.

    `structure` is the session's. When it is `outdated`, masks have changed since; weights they exclude are zero there.
    `taken` counts the optimizer's steps.
    """

    bench: Workbench
    received: Tensors
    structure: _native.Structure
    exposed: bool = False
    outdated: bool = False
    taken: int = 0

    @cached_property
    def optimizer(self) -> SGD | Adam:
        """What turns gradients into steps."""
        found = OPTIMIZERS[self.task.plan.local.optimizer]
        assert isinstance(found, SGD | Adam)
        return found

    @cached_property
    def loss_name(self) -> str:
        """The kernels' name of what the client minimises."""
        return LOSSES[OBJECTIVES[self.task.plan.local.objective].minimised]

    @cached_property
    def seen(self) -> tuple[NDArray[np.float32], NDArray[np.int64] | NDArray[np.float32]]:
        """The examples' inputs and targets as the kernels read them."""
        inputs, targets = self.examples.pair
        return inputs.numpy(), targets_for(self.loss_name, targets)

    def begin(self, weights: _native.Weights) -> None:
        """Bring the received weights into the session."""
        self.bench.session.load(weights, len(self.optimizer.slots))
        self.bench.session.set_trained(*self.bench.trained)
        if self._pull():
            self.bench.session.set_anchor(weights)

    def epochs(self, epochs: Sequence[Sequence[Indices]]) -> list[float]:
        if self.exposed or self.outdated:
            self.expose()
            self._return()
        local, batches = self.task.plan.local, [batch for epoch in epochs for batch in epoch]
        adam = self.optimizer if isinstance(self.optimizer, Adam) else None
        # One call for all epochs: each call waits for Python's lock when it returns.
        losses = iter(
            self.bench.session.train(
                *self.seen,
                np.concatenate(batches),
                [len(batch) for batch in batches],
                local.lr,
                local.momentum,
                local.l2,
                self._pull(),
                self.loss_name,
                None if adam is None else (adam.beta1, adam.beta2, adam.epsilon),
                self.taken,
                self.optimizer.decoupled,
            )
        )
        self.taken += len(batches)
        return [sum(next(losses) for _ in epoch) for epoch in epochs]

    def after_epoch(self, step: ClientStep, last_batch: Indices) -> None:
        if type(step) is Readjust and self._knows(step.growth) and not self.exposed and not self.outdated:
            self._readjust(step, last_batch)
        else:
            step.after_epoch(self, last_batch)

    def _knows(self, growth: Growth) -> bool:
        """Whether the kernels know this growth: the usual one by gradient, with every weight trained."""
        usual = (growth.rule, growth.grow_from, growth.weights) == ("gradient", "inactive", "pruned")
        return usual and all(self.bench.trained[0])

    def _readjust(self, step: Readjust, last_batch: Indices) -> None:
        moves = [
            step.exchange(name, active) if name in step.drop else None
            for name, active in zip(self.bench.chain.weights, self.structure.active, strict=True)
        ]
        masks = {name: torch.empty(self.bench.shapes[name], dtype=torch.bool) for name in step.drop}
        self.bench.session.readjust(
            *self.seen,
            grown_by(self, step.growth, last_batch),
            moves,
            self.bench.beginnings.bytes_of(masks),
            self.loss_name,
        )
        self.masks, self.outdated = {**self.masks, **masks}, True

    def mean_gradient(self, images: Tensor, temperature: float = 1.0) -> dict[str, Tensor]:
        self._load()
        found = self._room()
        arrays = self.bench.beginnings.arrays(found)
        self.bench.session.mean_gradient(*self.seen, images.numpy(), temperature, *arrays, self.loss_name)
        for name, value in self.bench.module.named_parameters():
            if not value.requires_grad:
                found[name].zero_()
        return found

    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]:
        load(self.bench.module, self.params, {})
        return self.bench.module, dict(self.bench.module.named_parameters())

    def expose(self) -> None:
        if self.exposed:
            return
        self.params, self.slots = self._room(), {name: self._room() for name in self.optimizer.slots}
        self.bench.session.store(*self.bench.beginnings.arrays(self.params))
        for number, slot in enumerate(self.slots.values()):
            self.bench.session.store(*self.bench.beginnings.arrays(slot), number)
        self.exposed = True

    def adopt(self, masks: Masks) -> None:
        self.masks = masks

    def final(self, positions: Positions | None) -> dict[str, Tensor]:
        if self.exposed:
            return packed(self.params, positions_of(self.masks) if positions is None else positions)
        names = [name for pair in zip(self.bench.chain.weights, self.bench.chain.biases, strict=True) for name in pair]
        there = [name for name in names if name is not None]
        shapes = self.bench.shapes
        held, values = self._packed()
        pieces = torch.from_numpy(values).split_with_sizes([held.get(name, shapes[name].numel()) for name in there])
        return {
            name: piece if name in self.masks else piece.view(shapes[name])
            for name, piece in zip(there, pieces, strict=True)
        }

    def buffers(self) -> dict[str, Tensor]:
        return {}

    def _packed(self) -> tuple[Mapping[str, int], NDArray[np.float32]]:
        """How many weights each masked layer holds, and all values: layer by layer, weights then bias."""
        if self.outdated:
            return count_active(self.masks), self.bench.session.packed(self.bench.beginnings.bytes_of(self.masks))
        held = dict(zip(self.bench.chain.weights, self.structure.active, strict=True))
        return held, self.bench.session.packed()

    def _return(self) -> None:
        """Continue in the session with these `masks`, `params` and `slots`."""
        self.structure = self.bench.beginnings.structure(self.masks)
        self._load()
        for number, slot in enumerate(self.slots.values()):
            self.bench.session.load_slot(number, *self.bench.beginnings.arrays(slot))
        if self._pull():
            self.bench.session.set_anchor(self.bench.beginnings.weights(self.structure, self.received))
        self.exposed = self.outdated = False

    def _load(self) -> None:
        """Bring `params` into the session, with empty slots."""
        self.bench.session.load(self.bench.beginnings.weights(self.structure, self.params), len(self.optimizer.slots))

    def _room(self) -> dict[str, Tensor]:
        return {name: torch.empty(shape) for name, shape in self.bench.shapes.items()}

    def _pull(self) -> float:
        """The strength of the proximal term."""
        proximal = self.task.plan.step(Proximal)
        return 0.0 if proximal is None else proximal.pull


def targets_for(loss: str, targets: Tensor) -> NDArray[np.int64] | NDArray[np.float32]:
    """Targets as a loss of the kernels reads them: class labels, [n], or numbers, [n, …]."""
    return targets.numpy() if loss == "cross-entropy" else targets.to(torch.float32).contiguous().numpy()


def train_client(bench: Workbench, task: ClientTask) -> Client:
    """The client of a task after training; in PyTorch where the kernels do not know the plan."""
    if why_unknown(task.plan):
        return reference.train_client(bench.module, task)
    begun = beginning(bench.module, task)
    weights = bench.beginnings.of(begun)
    client = NativeClient(
        task=begun.task,
        masks=begun.masks,
        params={},
        slots={},
        bench=bench,
        structure=weights.structure,
        received=begun.weights,
    )
    client.begin(weights)
    client.loss = train(client)
    return client
