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
    """One client's update in one round.

    `params` has the client's weights: of a masked layer only those its mask keeps, in the order of their flat
    index, [active]; every other tensor whole. `masks` is None when the client still has the mask it was sent.
    `weight` is its n_c in the average. `extra` has the named tensors that the plan asked for, such as `gradient`,
    whole.
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
    """A tensor's place in a row, and its kind; `masked` if clients may hold only a part of it.

    `kept` is its number of columns if a row has only the weights that the broadcast's masks keep: for all masked
    tensors of a stack, or for none.
    """

    start: int
    shape: torch.Size
    dtype: torch.dtype
    masked: bool = False
    kept: int | None = None

    @property
    def columns(self) -> slice:
        """The tensor's columns in a row."""
        return slice(self.start, self.start + (self.shape.numel() if self.kept is None else self.kept))


@dataclass(frozen=True)
class Stack:
    """The tensors of K clients' updates, side by side.

    values: [K, n], a row for each client, 0 where it holds no weight; held: uint8 [K, n], 1 where it holds one, used
    for masked tensors only, None if all clients have the broadcast's masks; weights: their n_c.
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
        """Whether it has no tensors."""
        return not self.tensors and not self.feedback
