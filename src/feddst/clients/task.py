"""What a client is given, and what comes back from it."""

from dataclasses import dataclass, field

from torch import Tensor

from feddst.core import Broadcast, ClientPlan, ClientState, Positions, Tensors, Update
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
    plan: ClientPlan
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
class Failure:
    """What comes instead of a reply: why there is none.

    `size` is how many bytes came all the same. If not `sent`, the client was not even given its assignment. A client
    that has `diverged` could not train the model that it was sent.
    """

    reason: str
    size: int = 0
    sent: bool = True
    diverged: bool = False


@dataclass(frozen=True)
class Job:
    """An assignment unpacked: what a client works on.

    inputs: float [images, *shape]; labels: int64 [images]. `positions` are those of the broadcast's masks, where they
    are known already.
    """

    client: int
    seed: int
    broadcast: Broadcast
    plan: ClientPlan
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
