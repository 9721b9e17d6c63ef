"""What takes steps in the GPU bench: the stacked engine's kernels, and the ways to do the same with PyTorch alone."""

import copy
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.jobs import LOCAL, STEPS, GpuJob
from benchmarks.gpu.rivals import OneByOne, Rival, SideBySide, grouped_gradients, vmap_gradients
from feddst.core import Examples
from feddst.engines.native.chain import read_chain
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.lockstep import Lockstep
from feddst.engines.stacked.model_stack import Trainer
from feddst.engines.stacked.vmapped import VmapTrainer

RivalName = Literal["single", "vmap", "grouped"]
RunnerName = Literal["feddst", "single", "vmap", "grouped"]

TITLES: Mapping[RunnerName, str] = {
    "feddst": "feddst",
    "single": "one model after another",
    "vmap": "vmap, compiled",
    "grouped": "grouped, compiled",
}

_WARM = 3
"""Steps before a graph is captured, in which libraries choose their kernels."""


class Contestant(Protocol):
    """Takes the steps of a job; `most` is how many are timed together."""

    most: int

    def reset(self) -> None:
        """Back to the job's weights, at rest."""
        ...

    def steps(self, count: int) -> None:
        """The first steps of the job, `count` of them."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """All weights now, [M, *shape] each."""
        ...


class Ours:
    """Steps as the stacked engine has them taken, by a trainer."""

    most = STEPS

    def __init__(self, job: GpuJob, make_trainer: Callable[[GpuJob, Flat], Trainer]) -> None:
        self._job = job
        self._flat = Flat({name: tuple(value.shape[1:]) for name, value in job.params.items()})
        self._trainer = make_trainer(job, self._flat)
        self._stack = self._trainer.stack(job.models)
        for name, view in self._flat.views(self._stack.masks).items():
            view.copy_(job.masks.get(name, torch.ones_like(view)))
        self.reset()

    def reset(self) -> None:
        for name, view in self._flat.views(self._stack.theta).items():
            view.copy_(self._job.params[name])
        self._stack.received.copy_(self._stack.theta)
        self._stack.forget(["velocity"])

    def steps(self, count: int) -> None:
        lengths = np.full((count, self._job.models), self._job.images, dtype=np.int64)
        self._trainer.epochs(self._stack, Lockstep(self._job.index[:count], lengths), LOCAL, 0.0)

    def weights(self) -> dict[str, Tensor]:
        return {name: view.clone() for name, view in self._flat.views(self._stack.theta).items()}


class Eager:
    """A rival's steps as PyTorch takes them, operation by operation."""

    def __init__(self, job: GpuJob, rival: Rival, most: int) -> None:
        self.most = most
        self._rival = rival
        self._index = torch.from_numpy(job.index).to(job.device)

    def reset(self) -> None:
        self._rival.reset()

    def steps(self, count: int) -> None:
        for index in self._index[:count]:
            self._rival.step(index)

    def weights(self) -> dict[str, Tensor]:
        return self._rival.weights()


class Graphed(Eager):
    """A rival's step, compiled and captured in a CUDA graph, which is replayed."""

    def __init__(self, job: GpuJob, rival: Rival) -> None:
        super().__init__(job, rival, STEPS)
        self._seen = self._index[0].clone()
        step = torch.compile(rival.step, fullgraph=True, dynamic=False)
        for _ in range(_WARM):
            step(self._seen)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            step(self._seen)

    def steps(self, count: int) -> None:
        for index in self._index[:count]:
            self._seen.copy_(index)
            self._graph.replay()


def make_contestant(name: RunnerName, job: GpuJob, *, exact: bool) -> Contestant:
    """A contestant that is ready, on CUDA; `exact` says whether our matrix products have all of float32's bits."""
    if name == "feddst":
        return Ours(job, lambda job, flat: _graph_trainer(job, flat, exact))
    if name == "single":
        return Eager(job, OneByOne(job), most=1)
    return Graphed(job, SideBySide(job, vmap_gradients if name == "vmap" else grouped_gradients))


def _graph_trainer(job: GpuJob, flat: Flat, exact: bool) -> Trainer:
    from feddst.engines.stacked.graphed import GraphTrainer  # needs Triton, which is where CUDA is

    images = Examples(job.inputs, job.labels)
    chain = read_chain(copy.deepcopy(job.module).cpu(), tuple(job.inputs.shape[1:]))
    return GraphTrainer(chain, flat, images, exact=exact, fallback=VmapTrainer(job.module, flat, images))
