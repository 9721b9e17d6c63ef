"""One client's round through the compiled kernels."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from feddst import _native
from feddst.engines.base import Job, Outcome
from feddst.engines.client import Client, beginning, outcome, train
from feddst.engines.native.chain import Chain
from feddst.models import load
from feddst.protocol import Masks, Tensors
from feddst.protocol.minibatches import Indices

Arrays = list[NDArray[np.float32] | None]


class Structures:
    """Index structures for masks; clients of a round that hold the same masks share one."""

    def __init__(self, chain: Chain, network: _native.Network) -> None:
        self._chain = chain
        self._network = network
        self._last: tuple[Masks, _native.Structure] | None = None
        self._lock = threading.Lock()

    def shared(self, masks: Masks) -> _native.Structure:
        """The structure for masks that others will ask for too."""
        with self._lock:
            if self._last is None or not _equal(self._last[0], masks):
                self._last = masks, self.of(masks)
            return self._last[1]

    def of(self, masks: Masks) -> _native.Structure:
        """A structure for masks of a client's own."""
        return _native.Structure(self._network, [self._bytes(masks, name) for name in self._chain.weights])

    @staticmethod
    def _bytes(masks: Masks, name: str) -> NDArray[np.uint8] | None:
        return masks[name].contiguous().numpy().view(np.uint8) if name in masks else None


def _equal(some: Masks, others: Masks) -> bool:
    return some.keys() == others.keys() and all(torch.equal(mask, others[name]) for name, mask in some.items())


@dataclass
class Workbench:
    """What one thread needs to train clients: a session's memory, and a module for what only autograd can do."""

    chain: Chain
    structures: Structures
    session: _native.Session
    module: nn.Module

    def arrays(self, tensors: Mapping[str, Tensor]) -> tuple[Arrays, Arrays]:
        """Weights and biases of all layers, as arrays that share the tensors' memory."""
        weights: Arrays = [tensors[name].detach().numpy() for name in self.chain.weights]
        biases: Arrays = [None if name is None else tensors[name].detach().numpy() for name in self.chain.biases]
        return weights, biases


@dataclass
class NativeClient(Client):
    """A client whose weights are in a session while it trains; `params` and `velocity` hold them when exposed."""

    bench: Workbench
    structure: _native.Structure
    received: Tensors

    def begin(self) -> None:
        """Bring the received weights into the session."""
        trained = {name for name, value in self.bench.module.named_parameters() if value.requires_grad}
        chain, session = self.bench.chain, self.bench.session
        session.load(self.structure, *self.bench.arrays(self.received))
        session.set_trained([name in trained for name in chain.weights], [name in trained for name in chain.biases])
        self._load_anchor()

    def epochs(self, epochs: Sequence[Sequence[Indices]]) -> list[float]:
        local, batches = self.job.work.local, [batch for epoch in epochs for batch in epoch]
        # One call for them all: each would wait for Python's lock when it comes back.
        losses = iter(
            self.bench.session.train(
                self.job.inputs.numpy(),
                self.job.labels.numpy(),
                np.concatenate(batches),
                [len(batch) for batch in batches],
                local.lr,
                local.momentum,
                local.l2,
                self._pull(),
            )
        )
        return [sum(next(losses) for _ in epoch) for epoch in epochs]

    def mean_gradient(self, images: Tensor, temperature: float = 1.0) -> dict[str, Tensor]:
        self.bench.session.load(self.structure, *self.bench.arrays(self.params))
        found = self._room()
        self.bench.session.mean_gradient(
            self.job.inputs.numpy(), self.job.labels.numpy(), images.numpy(), temperature, *self.bench.arrays(found)
        )
        for name, value in self.bench.module.named_parameters():
            if not value.requires_grad:
                found[name].zero_()
        return found

    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]:
        load(self.bench.module, self.params, {})
        return self.bench.module, dict(self.bench.module.named_parameters())

    def expose(self) -> None:
        self.params, self.velocity = self._room(), self._room()
        self.bench.session.store(*self.bench.arrays(self.params))
        self.bench.session.store(*self.bench.arrays(self.velocity), velocity=True)

    def adopt(self, masks: Masks) -> None:
        self.masks = masks
        self.structure = self.bench.structures.of(masks)
        self.bench.session.load(self.structure, *self.bench.arrays(self.params))
        self.bench.session.load_velocity(*self.bench.arrays(self.velocity))
        self._load_anchor()

    def final(self) -> dict[str, Tensor]:
        self.params = self._room()
        self.bench.session.store(*self.bench.arrays(self.params))
        return self.params

    def buffers(self) -> dict[str, Tensor]:
        return {}

    def _room(self) -> dict[str, Tensor]:
        return {name: torch.empty(self.received[name].shape) for name in self.bench.chain.names}

    def _pull(self) -> float:
        """The strength of the proximal term."""
        proximal = self.job.work.proximal
        return proximal.mu if proximal is not None and proximal.gradient == "exact" else 0.0

    def _load_anchor(self) -> None:
        if self._pull():
            self.bench.session.load_anchor(*self.bench.arrays(self.received))


def train_client(bench: Workbench, job: Job) -> Outcome:
    """Carry out one job."""
    begun = beginning(bench.module, job)
    structures = bench.structures
    client = NativeClient(
        job=begun.job,
        masks=begun.masks,
        params={},
        velocity={},
        bench=bench,
        structure=(structures.of if job.work.ticket is not None else structures.shared)(begun.masks),
        received={name: begun.weights[name].contiguous() for name in bench.chain.names},
    )
    client.begin()
    loss = train(client) if job.work.train else 0.0
    return outcome(client, loss)
