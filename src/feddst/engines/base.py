"""An engine carries out clients' tasks and evaluates models."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from feddst.core import Aggregator, Batch, Mean, Metric, Objective, Tensors, Whole
from feddst.core.batches import joined, placed, rows
from feddst.errors import DivergenceError, TrainingError
from feddst.wire import ClientResult, ClientTask


@dataclass(frozen=True)
class EvalTask:
    """A model to evaluate on all test examples, or on those at the int64 indices `images`."""

    params: Tensors
    buffers: Tensors = field(default_factory=dict)
    images: Tensor | None = None


@dataclass(frozen=True)
class Evaluation:
    """What a model gives for some test examples.

    `added` has, by metric, what each example adds to it, float64 [examples, k]; `outputs` and `targets` are there if a
    metric needs them all at once. `loss` is the mean.
    """

    added: Mapping[str, Tensor]
    loss: float
    outputs: Batch | None = None
    targets: Batch | None = None

    def of(self, metric: Metric, index: Tensor | None = None) -> float:
        """A metric's value for all examples, or for those at these int64 indices."""
        if isinstance(metric, Mean):
            added = self.added[metric.name]
            return metric.of(added if index is None else added[index])
        assert isinstance(metric, Whole)
        assert self.outputs is not None
        assert self.targets is not None
        here = slice(None) if index is None else index
        return metric.of(rows(self.outputs, here), rows(self.targets, here))


@dataclass(frozen=True)
class Marked:
    """What a model gives for one chunk of test examples: see `Evaluation`. `loss` is the sum, `terms` divide it."""

    added: Mapping[str, Tensor]
    loss: float
    terms: float
    outputs: Batch | None = None
    targets: Batch | None = None


def marked(objective: Objective, outputs: Any, targets: Batch) -> Marked:
    """Judge a network's outputs for one chunk."""
    added = {one.name: one.added(outputs, targets) for one in objective.metrics if isinstance(one, Mean)}
    loss, terms = float(objective.loss(outputs, targets, "sum")), objective.terms(targets)
    cpu = torch.device("cpu")
    if any(isinstance(one, Whole) for one in objective.metrics):
        return Marked(added, loss, terms, placed(outputs, cpu), placed(targets, cpu))
    return Marked(added, loss, terms)


def evaluation(chunks: Sequence[Marked]) -> Evaluation:
    """One evaluation from its chunks, added up in their order."""
    added = {name: torch.cat([chunk.added[name] for chunk in chunks]) for name in chunks[0].added}
    loss = sum(chunk.loss for chunk in chunks) / sum(chunk.terms for chunk in chunks)
    outputs = [chunk.outputs for chunk in chunks if chunk.outputs is not None]
    targets = [chunk.targets for chunk in chunks if chunk.targets is not None]
    return Evaluation(added, loss, joined(outputs), joined(targets)) if outputs else Evaluation(added, loss)


class Sink(Protocol):
    """Takes the results of a round's tasks, by task index: one call at a time, in any order.

    The calls may come from another thread than the one that waits for it.
    """

    def result(self, index: int, result: ClientResult) -> bool:
        """Take one task's result; returns whether it is usable. Reads, checks and adds up the payload."""
        ...

    def empty_sum(self, index: int) -> Aggregator:
        """An empty sum for updates like that of this task, for an engine that adds updates up itself."""
        ...

    def partial(self, index: int, total: Aggregator) -> None:
        """Take the sum of the updates of some tasks of this task's run; their results have no payload."""
        ...

    def failed(self, index: int, error: TrainingError) -> None:
        """Take the error that ends this task's run."""
        ...


class Engine(ABC):
    """Carries out tasks, of one or several runs, and hands their results to a sink.

    An engine that reads messages' payloads and answers with payloads needs only `run` and `evaluate`. One that adds up
    updates where it trains also hands in sums, on its own `device`. These are trusted: no bytes are sent. `tf32` says
    whether CUDA's matrix products may be less precise than float32 there.
    """

    device: torch.device = torch.device("cpu")
    tf32: bool = False

    @abstractmethod
    def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
        """Carry out tasks, and hand over each one's result."""

    @abstractmethod
    def evaluate(self, tasks: Sequence[EvalTask]) -> list[Evaluation]:
        """Evaluate models, each on its images."""

    def at_work(self) -> AbstractContextManager[object]:
        """The context for all work with tensors on the engine's device during runs."""
        return nullcontext()

    def close(self) -> None:
        """Release processes and memory."""


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
    """Carry out tasks and wait for all results, in the tasks' order; raises if one fails."""
    found = Results()
    engine.run(tasks, found)
    for result in found.values():
        if result.failure:
            raise (DivergenceError if result.diverged else TrainingError)(result.failure)
    return [found[index] for index in range(len(tasks))]
