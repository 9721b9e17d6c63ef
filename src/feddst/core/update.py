"""What a client sends back, and what it keeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from feddst.core.tensors import Masks, Tensors

Key = tuple[str, str]
"""A tensor's group, which is `params`, `buffers` or the name of an extra such as `gradient`, and its own name."""


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
class Place:
    """Where a tensor lies in a row, and what it is; `masked` if clients may hold only a part of it.

    `kept` is how many numbers a row has of it, where it has no more of it than the broadcast's masks keep: of all
    masked tensors of a stack, or of none.
    """

    start: int
    shape: torch.Size
    dtype: torch.dtype
    masked: bool = False
    kept: int | None = None

    @property
    def columns(self) -> slice:
        """Which columns of the row are its."""
        return slice(self.start, self.start + (self.shape.numel() if self.kept is None else self.kept))


@dataclass(frozen=True)
class Stack:
    """What K clients send, side by side.

    values: [K, n], a row a client, 0 where it holds nothing; held: uint8 [K, n], 1 where it holds something, which
    counts for masked tensors alone, None if all of them hold what the broadcast's masks keep; weights: their n_c.
    """

    values: Tensor
    weights: Sequence[int]
    places: Mapping[Key, Place]
    held: Tensor | None = None

    @cached_property
    def peaks(self) -> list[float]:
        """The largest magnitude in each row; NaN if there is one."""
        if not self.values.shape[1]:
            return [0.0] * len(self.weights)
        peaks: list[float] = self.values.abs().amax(dim=1).tolist()
        return peaks


@dataclass(frozen=True)
class ClientState:
    """What a client keeps between rounds: checkpointed under its id, never uploaded.

    `tensors` are what its method tells it to keep, `feedback` is what the wire left out of its updates.
    """

    tensors: Tensors = field(default_factory=dict)
    feedback: Tensors = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it."""
        return not self.tensors and not self.feedback
