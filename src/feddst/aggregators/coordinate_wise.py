"""The base of aggregators that need all clients' values of a weight at once."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Self

import torch
from torch import Tensor

from feddst.core import Masks, Positions, SparseSum, Tensors, Update, positions_in

_AT_ONCE = 2**22
"""How many values are combined at a time."""


class CoordinateWise(SparseSum):
    """Holds a round's updates, and at its end combines each weight's values from the clients that hold it.

    Only parameters are combined; buffers and reports are averaged. Results do not depend on the order in which updates
    come, because they are sorted by client.
    """

    streaming: ClassVar[bool] = False

    def __init__(self, masks: Masks, positions: Positions | None = None, *, count_holders: bool = False) -> None:
        super().__init__(masks, positions, count_holders=count_holders)
        self._updates: list[tuple[Update, Masks]] = []

    @abstractmethod
    def combine(self, values: Tensor, held: Tensor, weights: Tensor) -> Tensor:
        """The combined values of n weights, [n]; anything where no client holds one.

        values: float64 [clients, n], 0 where a client does not hold a weight; held: bool, of the same shape; weights:
        float64 [clients], the n_c.
        """

    def add(self, update: Update) -> None:
        super().add(update)
        self._updates.append((update, self.masks if update.masks is None else update.masks))

    def merge(self, other: Self) -> None:
        super().merge(other)
        self._updates += other._updates

    def mean(self, group: str = "params", *, otherwise: Tensors | None = None) -> dict[str, Tensor]:
        plain = super().mean(group, otherwise=otherwise)
        if group != "params":
            return plain
        return {name: self._combined(name, value) for name, value in plain.items()}

    def _combined(self, name: str, plain: Tensor) -> Tensor:
        """A parameter's combined values; its plain mean where no client holds it."""
        mine = [one for one in self._updates if name in one[0].params]
        mine.sort(key=lambda one: (one[0].client, one[0].weight))
        values, held = zip(*(_whole(update, masks, name, plain) for update, masks in mine), strict=True)
        weights = torch.tensor([update.weight for update, _ in mine], dtype=torch.float64, device=plain.device)
        found = plain.reshape(-1).clone()
        for columns in _in_columns(len(found), len(mine)):
            some = torch.stack([value[columns] for value in values]).double()
            here = torch.stack([mask[columns] for mask in held])
            made = self.combine(some, here, weights).to(plain.dtype)
            found[columns] = torch.where(here.any(0), made, found[columns])
        return found.reshape(plain.shape)


def _whole(update: Update, masks: Masks, name: str, like: Tensor) -> tuple[Tensor, Tensor]:
    """One client's values of a parameter, [n], and which of them it holds, bool [n]."""
    value = update.params[name].reshape(-1)
    if name not in masks:
        return value, torch.ones_like(value, dtype=torch.bool)
    whole = torch.zeros(like.numel(), dtype=value.dtype, device=value.device)
    whole[positions_in(masks[name])] = value
    return whole, masks[name].reshape(-1)


def _in_columns(width: int, clients: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // clients)
    return (slice(begin, begin + step) for begin in range(0, width, step))
