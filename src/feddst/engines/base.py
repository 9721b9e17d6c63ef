"""What an engine is: something that carries out clients' work and evaluates models."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feddst.clients.task import Assignment, Failure, Reply
from feddst.core import (
    ClientPlan,
    ClientState,
    SparseSum,
    Tensors,
)
from feddst.errors import DivergenceError, TrainingError
from feddst.wire import Reference, WireConfig


@dataclass(frozen=True)
class Member:
    """One client of a cohort: its orders, where its images are in the training set, and what it keeps."""

    client: int
    plan: ClientPlan
    images: NDArray[np.int64]
    state: ClientState = field(default_factory=ClientState)


@dataclass(frozen=True)
class Cohort:
    """One run's clients of a round, for an engine that adds their updates up where it makes them.

    `reference` is what they have received, on the engine's device. Bytes are counted; if `audited`, updates are written
    and read as well, and must agree with what was counted and added up. `correction` is what is to be added to every
    weight that comes back, where the broadcast was rounded. With `count_holders` the sum also says how many hold each
    weight.
    """

    seed: int
    reference: Reference
    members: Sequence[Member]
    wire: WireConfig = WireConfig()
    initial: Tensors = field(default_factory=dict)
    correction: Tensors | None = None
    audited: bool = False
    count_holders: bool = False


@dataclass(frozen=True)
class Receipt:
    """What is known of an update that was added up elsewhere.

    `bytes` it would have as a payload, `mask_bytes` of them for its mask; `own` is how many weights the client's masks
    keep, if they are not those it was sent. `refusal` says why it was not added, if it was not.
    """

    bytes: int
    mask_bytes: int
    weight: int
    loss: float
    state: ClientState
    own: Mapping[str, int] | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Tally:
    """A cohort's updates added up, and a receipt for each of its members, in their order, or why it sent nothing.

    If there is a `failure` the cohort cannot go on.
    """

    total: SparseSum
    receipts: Sequence[Receipt | Failure]
    failure: TrainingError | None = None


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


Deliver = Callable[[int, Reply | Failure], bool]
"""Takes what came of the assignment of an index, and says whether it could be used.

May be called in another thread than the one that waits for it.
"""


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


def replies_of(engine: Engine, assignments: Sequence[Assignment]) -> dict[int, Reply]:
    """Have assignments carried out here, and wait for all replies, by the assignment's index; raises if one fails."""
    found: dict[int, Reply] = {}
    failures: list[Failure] = []

    def keep(index: int, reply: Reply | Failure) -> bool:
        if isinstance(reply, Failure):
            failures.append(reply)
            return False
        found[index] = reply
        return True

    engine.train(assignments, keep)
    for failure in failures:
        raise (DivergenceError if failure.diverged else TrainingError)(failure.reason)
    return found


@runtime_checkable
class CohortEngine(Protocol):
    """An engine that trains whole cohorts at once, of as many runs as there are, on a device of its own.

    It adds updates up where it makes them, and is trusted to: no bytes are sent.
    """

    @property
    def device(self) -> torch.device:
        """Where broadcasts are expected."""
        ...

    @property
    def tf32(self) -> bool:
        """Whether CUDA's matrix products may be less precise than float32."""
        ...

    def at_work(self) -> AbstractContextManager[object]:
        """Whatever is done with tensors on that device while runs are played is done within this."""
        ...

    def train_cohorts(self, cohorts: Sequence[Cohort]) -> list[Tally]:
        """Carry out their work."""
        ...

    def evaluate(self, exams: Sequence[Exam]) -> list[Evaluation]:
        """Test models, each on its images."""
        ...

    def close(self) -> None:
        """Let go of memory."""
        ...


AnyEngine = Engine | CohortEngine
"""What the round loop can drive."""
