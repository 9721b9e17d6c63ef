"""What an engine is: something that carries out clients' work and evaluates models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from feddst.protocol import Broadcast, ClientState, ClientWork, Positions, Tensors, Update
from feddst.wire import Parcel, WireConfig


@dataclass(frozen=True)
class Assignment:
    """One client's part in one round of one run, as it reaches the client: the broadcast is bytes.

    inputs: float [images, *shape]; labels: int64 [images]. `initial` are the run's initial weights, for work that needs
    them: they follow from the seed, so that a client can draw them itself and they need not be sent.
    """

    client: int
    seed: int
    parcel: Parcel
    work: ClientWork
    inputs: Tensor
    labels: Tensor
    state: ClientState = field(default_factory=ClientState)
    wire: WireConfig = WireConfig()
    initial: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What comes back: the update as bytes, what the client keeps, and its last epoch's mean loss."""

    payload: bytes
    state: ClientState
    loss: float


@dataclass(frozen=True)
class Job:
    """An assignment unpacked: what a client works on.

    inputs: float [images, *shape]; labels: int64 [images]. `positions` are those of the broadcast's masks, where they
    are known already.
    """

    client: int
    seed: int
    broadcast: Broadcast
    work: ClientWork
    inputs: Tensor
    labels: Tensor
    state: ClientState = field(default_factory=ClientState)
    initial: Tensors = field(default_factory=dict)
    positions: Positions | None = None


@dataclass(frozen=True)
class Outcome:
    """What a job gives back, before it is packed: see `Reply`."""

    update: Update
    state: ClientState
    loss: float


@dataclass(frozen=True)
class Exam:
    """A model to be tested on all test images, or on those at the int64 indices `images`."""

    params: Tensors
    buffers: Tensors = field(default_factory=dict)
    images: Tensor | None = None


@dataclass(frozen=True)
class Evaluation:
    """What came of an exam. correct: bool [images]; loss: the mean over them."""

    correct: Tensor
    loss: float


Deliver = Callable[[int, Reply], None]
"""Takes a reply, and the index of its assignment. May be called in another thread than the one that waits for it."""


class Engine(Protocol):
    """Assignments of several runs may be mixed: a run of ten seeds in lockstep is one long list of them."""

    def train(self, assignments: Sequence[Assignment], deliver: Deliver) -> None:
        """Carry them out, and deliver each reply with its assignment's index: one at a time, in any order."""
        ...

    def evaluate(self, exams: Sequence[Exam]) -> list[Evaluation]:
        """Test models, each on its images."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...
