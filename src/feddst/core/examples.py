"""A client's training examples: where they are, and as tensors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class ClientData(ABC):
    """Where a client's training examples are. The process that trains on them loads them."""

    @abstractmethod
    def __len__(self) -> int:
        """How many examples there are; 0 if that is not known."""

    @abstractmethod
    def load(self) -> "Examples":
        """The examples as tensors, on the CPU."""

    @property
    def indices(self) -> NDArray[np.int64]:
        """Their indices in the federation's data set, for engines that have that data set on a device."""
        raise TypeError(f"{type(self).__name__} is not part of a data set that the engine has")


@dataclass(frozen=True, eq=False)
class Examples(ClientData):
    """Examples as tensors. inputs: float [n, *shape]; labels: int64 [n]."""

    inputs: Tensor = field(default_factory=lambda: torch.zeros(0))
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def __len__(self) -> int:
        return self.labels.shape[0]

    def load(self) -> "Examples":
        return self

    def to(self, device: torch.device) -> "Examples":
        """The same on a device."""
        return Examples(self.inputs.to(device), self.labels.to(device))

    def at(self, rows: Tensor) -> "Examples":
        """The examples at these int64 indices."""
        return Examples(self.inputs[rows], self.labels[rows])
