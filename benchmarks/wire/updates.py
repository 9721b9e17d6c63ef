"""Updates to send: what a FedDST client has after an epoch of real training on made-up images."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from feddst.clients.client import finished
from feddst.clients.reference import train_client
from feddst.core import Examples, LocalTraining, Masks, Update, generator, positions_of, unpacked
from feddst.methods import FedDST
from feddst.models import ModelConfig, initial_model, make_module, network
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import ClientTask, Layout, Message, Reference
from feddst.wire.update import answer_layout

NetworkName = Literal["mnist-cnn", "cifar10-cnn", "cifar100-cnn", "resnet18"]

SHAPES: Mapping[NetworkName, tuple[tuple[int, ...], int]] = {
    "mnist-cnn": ((1, 28, 28), 10),
    "cifar10-cnn": ((3, 32, 32), 10),
    "cifar100-cnn": ((3, 32, 32), 100),
    "resnet18": ((3, 32, 32), 100),
}
"""For each network the shape of an input and the number of classes."""

IMAGES = 40
"""How many made-up images the client has."""


@dataclass(frozen=True)
class Exchange:
    """One client's task, and its answer to it."""

    network: NetworkName
    level: float
    task: ClientTask
    update: Update

    @property
    def reference(self) -> Reference:
        """What the client was sent."""
        return self.task.sent

    @property
    def sent(self) -> Masks:
        """The masks of the broadcast."""
        return self.reference.broadcast.masks

    @property
    def layout(self) -> Layout:
        """The tensors of the answer."""
        return answer_layout(self.task)

    @property
    def values(self) -> int:
        """How many values the answer carries, buffers apart."""
        return sum(value.numel() for value in self.update.params.values())

    @cached_property
    def dense(self) -> dict[str, Tensor]:
        """The client's parameters as they lie in its module."""
        masks = self.sent if self.update.masks is None else self.update.masks
        return unpacked(self.update.params, positions_of(masks), masks)


def exchange(name: NetworkName, level: float, seed: int, alpha: float = 0.0) -> Exchange:
    """FedDST's first broadcast at this sparsity, and an answer to it; with `alpha`, its mask is readjusted."""
    shape, classes = SHAPES[name]
    module = make_module(lambda: network(ModelConfig(name=name), shape, classes), seed)
    method = FedDST(
        local=LocalTraining(epochs=1),
        sparsity=Sparsity(level=level),
        readjust=Timetable(alpha=alpha, every=1, decay="constant"),
    )
    state = method.init(initial_model(module), seed)
    draws = generator(seed, "made-up images")
    images = Examples(
        torch.from_numpy(draws.standard_normal((IMAGES, *shape), dtype=np.float32)),
        torch.from_numpy(draws.integers(0, classes, IMAGES)),
    )
    message = Message().read_as(Reference(method.broadcast(state, 0)))
    return answered(name, level, module, ClientTask(0, seed, method.plan(state, 0), message, images))


def answered(name: NetworkName, level: float, module: nn.Module, task: ClientTask) -> Exchange:
    """A task and its answer, after training in this module."""
    return Exchange(name, level, task, finished(train_client(module, task))[0])
