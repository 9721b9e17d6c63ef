"""What a client sends back, and what it keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from feddst.protocol.tensors import Masks, Tensors


@dataclass(frozen=True)
class Update:
    """One client's answer to one round.

    `params` holds what the client holds: of a masked layer only the weights its mask keeps, in the order of
    their flat index, [active]; every other tensor whole. `masks` is None when the client still has the mask it
    was sent. `weight` is its n_c in the average. `extra` holds the named tensors that the work asked for, such as
    `gradient`, whole.
    """

    client: int
    round: int
    weight: int
    params: Tensors
    buffers: Tensors = field(default_factory=dict)
    masks: Masks | None = None
    extra: Mapping[str, Tensors] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientState:
    """What a client keeps between rounds: checkpointed under its id, never uploaded."""

    tensors: Tensors = field(default_factory=dict)
