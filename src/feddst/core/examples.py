"""A client's training examples: where they are, and as tensors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feddst.core.batches import Batch, device_of, form_of, length, placed, rows, tensors_of

Draw = tuple[int, int, int]
"""What random draws are keyed by: seed, round, client."""


class ClientData(ABC):
    """Where a client's training examples are. The process that trains on them loads them."""

    @abstractmethod
    def __len__(self) -> int:
        """How many examples there are; 0 if that is not known."""

    @abstractmethod
    def load(self, draw: Draw | None = None) -> "Examples":
        """The examples as tensors, on the CPU; random changes of them follow from `draw`."""

    @property
    def indices(self) -> NDArray[np.int64]:
        """Their indices in the federation's data set, for engines that have that data set on a device."""
        raise TypeError(f"{type(self).__name__} is not part of a data set that the engine has")


@dataclass(frozen=True, eq=False)
class Examples(ClientData):
    """Examples as tensors: what a network takes in, and what its outputs are compared with, [n, …] each.

    The targets of classification are labels, int64 [n].
    """

    inputs: Batch = field(default_factory=lambda: torch.zeros(0))
    targets: Batch = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def __len__(self) -> int:
        return length(self.targets)

    def load(self, draw: Draw | None = None) -> "Examples":
        return self

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return device_of(self.inputs)

    def to(self, device: torch.device) -> "Examples":
        """The same on a device."""
        return Examples(placed(self.inputs, device), placed(self.targets, device))

    def at(self, index: Tensor) -> "Examples":
        """The examples at these int64 indices."""
        return Examples(rows(self.inputs, index), rows(self.targets, index))

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets where each is one tensor; raises `TypeError` where they are several."""
        if isinstance(self.inputs, Tensor) and isinstance(self.targets, Tensor):
            return self.inputs, self.targets
        raise TypeError(f"these are several tensors: inputs {form_of(self.inputs)}, targets {form_of(self.targets)}")

    @property
    def classes(self) -> NDArray[np.int64]:
        """Their classes; all 0 if the targets are not one class for each example."""
        return labels_in(self.targets)


def labels_in(targets: Batch) -> NDArray[np.int64]:
    """The class of each example; all 0 if the targets are not one class for each."""
    if is_labels(targets):
        assert isinstance(targets, Tensor)
        found: NDArray[np.int64] = targets.cpu().numpy()
        return found
    return np.zeros(length(targets), np.int64)


def highest(several: Sequence[Batch]) -> int:
    """The highest whole number among these targets; −1 if they are of another kind."""
    whole = [
        value for targets in several for value in tensors_of(targets) if value.dtype == torch.int64 and value.numel()
    ]
    return max((int(value.max()) for value in whole), default=-1)


def is_labels(targets: Batch) -> bool:
    """Whether these targets are one whole number for each example."""
    return isinstance(targets, Tensor) and targets.dim() == 1 and targets.dtype == torch.int64
