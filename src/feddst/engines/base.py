"""What an engine is: something that carries out clients' work and evaluates models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from feddst.protocol import Broadcast, ClientState, ClientWork, Tensors, Update


@dataclass(frozen=True)
class Job:
    """One client's work in one round of one run, complete in itself.

    inputs: float [images, *shape]; labels: int64 [images].
    """

    client: int
    seed: int
    broadcast: Broadcast
    work: ClientWork
    inputs: Tensor
    labels: Tensor
    state: ClientState = field(default_factory=ClientState)


@dataclass(frozen=True)
class Outcome:
    """What a job gives back: the update to send, what the client keeps, and its last epoch's mean loss."""

    update: Update
    state: ClientState
    loss: float


@dataclass(frozen=True)
class Evaluation:
    """A model on the test set. correct: bool [test images]; loss: the mean over them."""

    correct: Tensor
    loss: float


class Engine(Protocol):
    """Jobs of several runs may be mixed: a run of ten seeds in lockstep is one long list of jobs."""

    def train(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """Carry out the jobs, giving each outcome with its job's index, in any order."""
        ...

    def evaluate(self, models: Sequence[tuple[Tensors, Tensors]]) -> list[Evaluation]:
        """Evaluate (parameters, buffers) pairs on the test set."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...
