"""Clients side by side: their images, and which tasks go together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from feddst.core import ClientData, ClientPlan, Examples
from feddst.core.batches import joined
from feddst.core.examples import Draw
from feddst.core.minibatches import Indices, cuts, orders
from feddst.data import Records
from feddst.errors import UnsupportedModelError
from feddst.wire import ClientTask

PIECE = 5000
"""Examples that are copied to a device together."""


def on_device(records: Records, device: torch.device) -> Examples:
    """All records on a device; raises `UnsupportedModelError` if they are not the same each time they are read.

    They are computed on the CPU, whose divisions differ from a GPU's in the last bits, and some at a time.
    """
    if not records.fixed:
        raise UnsupportedModelError("the data are read as they are needed, and may change each time")
    if device.type == "cpu":
        return records.read()
    every = np.split(np.arange(len(records)), range(PIECE, len(records), PIECE))
    pieces = [records.read(index).to(device) for index in every]
    return Examples(joined([piece.inputs for piece in pieces]), joined([piece.targets for piece in pieces]))


@dataclass(frozen=True, eq=False)
class Rows(ClientData):
    """Some of the examples on the device."""

    rows: Indices

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, draw: Draw | None = None) -> Examples:
        raise TypeError("these are loaded already")

    @property
    def indices(self) -> Indices:
        return self.rows


def sequence(task: ClientTask) -> Indices:
    """A task's images in the order in which each epoch sees them, [epochs, images]."""
    return task.data.indices[orders(len(task.data), task.plan.local, *task.draw)]


def alike(tasks: Sequence[ClientTask], most: int) -> list[list[int]]:
    """The indices of tasks whose plans differ only in the number of epochs, at most `most` together.

    Those with the most steps come first.
    """
    kinds: list[tuple[ClientPlan, list[int]]] = []
    for index, task in enumerate(tasks):
        known = next((members for plan, members in kinds if _alike(plan, task.plan)), None)
        if known is None:
            kinds.append((task.plan, [index]))
        else:
            known.append(index)
    together: list[list[int]] = []
    for _, members in kinds:
        members.sort(key=lambda index: _steps(tasks[index]), reverse=True)
        together += [members[start : start + most] for start in range(0, len(members), most)]
    return together


def _alike(plan: ClientPlan, other: ClientPlan) -> bool:
    return plan == other or plan.lasting(other.local.epochs) == other


def _steps(task: ClientTask) -> int:
    return task.plan.local.epochs * len(cuts(len(task.data), task.plan.local.batch))
