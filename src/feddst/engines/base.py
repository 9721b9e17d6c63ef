"""What an engine is: something that carries out clients' tasks and evaluates models."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from feddst.core import Aggregator, Tensors
from feddst.errors import DivergenceError, TrainingError
from feddst.wire import ClientResult, ClientTask


@dataclass(frozen=True)
class EvalTask:
    """A model to be tested on all test images, or on those at the int64 indices `images`."""

    params: Tensors
    buffers: Tensors = field(default_factory=dict)
    images: Tensor | None = None


@dataclass(frozen=True)
class Evaluation:
    """What came of testing a model. correct: bool [images]; loss: the mean over them."""

    correct: Tensor
    loss: float


class Sink(Protocol):
    """Takes what comes of a round's tasks, which are named by their index: one call at a time, in any order.

    May be called in another thread than the one that waits for it.
    """

    def result(self, index: int, result: ClientResult) -> bool:
        """What came of one task; whether it could be used. A payload is read, checked and added up here."""
        ...

    def empty_sum(self, index: int) -> Aggregator:
        """An empty sum for updates like that of this task, for an engine that adds updates up itself."""
        ...

    def partial(self, index: int, total: Aggregator) -> None:
        """The updates of some tasks of the run that this task belongs to, added up; their results have no payload."""
        ...

    def failed(self, index: int, error: TrainingError) -> None:
        """The run that this task belongs to cannot go on."""
        ...


class Engine(ABC):
    """Carries out tasks, which may be those of several runs, and hands what comes of them to a sink.

    An engine that reads messages' payloads and answers with payloads need only have `run` and `evaluate`. One that adds
    up updates where it trains hands in sums as well, on a `device` of its own, and is trusted to: no bytes are sent.
    `tf32` says whether CUDA's matrix products may be less precise than float32 there.
    """

    device: torch.device = torch.device("cpu")
    tf32: bool = False

    @abstractmethod
    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        """Carry out tasks, and hand over what comes of each of them."""

    @abstractmethod
    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        """Test models, each on its images."""

    def at_work(self) -> AbstractContextManager[object]:
        """Whatever is done with tensors on the engine's device while runs are played is done within this."""
        return nullcontext()

    def close(self) -> None:
        """Let go of processes and memory."""


class Results(dict[int, ClientResult]):
    """A sink that keeps results, by their index, and takes no sums."""

    def result(self, index: int, result: ClientResult) -> bool:
        self[index] = result
        return not result.failure

    def empty_sum(self, index: int) -> Aggregator:
        raise TypeError("results alone are wanted here")

    def partial(self, index: int, total: Aggregator) -> None:
        raise TypeError("results alone are wanted here")

    def failed(self, index: int, error: TrainingError) -> None:
        raise error


def results_of(engine: Engine, tasks: Sequence[ClientTask]) -> list[ClientResult]:
    """Have tasks carried out here, and wait for all results, in their order; raises if one fails."""
    found = Results()
    engine.run(tasks, found)
    for result in found.values():
        if result.failure:
            raise (DivergenceError if result.diverged else TrainingError)(result.failure)
    return [found[index] for index in range(len(tasks))]
