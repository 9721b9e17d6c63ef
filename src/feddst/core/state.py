"""What the server knows, and what it sends."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from feddst.core.tensors import Masks, Tensors


@dataclass(frozen=True)
class ServerState:
    """Everything a method carries from one round to the next; checkpointing this is checkpointing the run.

    `round` is the round about to begin: 1, 2, … or 0 for a method that asks something of clients first.
    `masks` and `budgets` name only the layers that are sparse. `extra` holds the method's own tensors, such
    as server momentum. There is no generator here: every draw is keyed by `seed` and `round`.
    """

    round: int
    seed: int
    params: Tensors
    buffers: Tensors = field(default_factory=dict)
    masks: Masks = field(default_factory=dict)
    budgets: Mapping[str, int] = field(default_factory=dict)
    extra: Tensors = field(default_factory=dict)

    def next(self, **changes: Any) -> "ServerState":
        """The state that the following round begins with."""
        return replace(self, round=self.round + 1, **changes)

    def to(self, device: torch.device) -> "ServerState":
        """The same on a device; itself, if it is there."""
        groups = (self.params, self.buffers, self.masks, self.extra)
        if all(value.device == device for tensors in groups for value in tensors.values()):
            return self
        params, buffers, masks, extra = ({name: value.to(device) for name, value in one.items()} for one in groups)
        return replace(self, params=params, buffers=buffers, masks=masks, extra=extra)


@dataclass(frozen=True)
class Broadcast:
    """What a client of a round receives."""

    round: int
    params: Tensors
    buffers: Tensors = field(default_factory=dict)
    masks: Masks = field(default_factory=dict)
