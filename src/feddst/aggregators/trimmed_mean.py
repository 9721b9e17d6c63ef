"""The trimmed mean (Yin et al., ICML 2018): the mean without the largest and the smallest values of each weight.

Of the k clients that hold a weight, the ⌊βk⌋ largest and as many of the smallest values are left out; the others are
averaged by their n_c. A weight that fewer than 1/β clients hold has its plain mean.
"""

from collections.abc import Iterator
from typing import ClassVar, Self

import torch
from torch import Tensor

from feddst.core import AggregatorConfig, Masks, Positions, SparseSum, Tensors, Update, positions_in, register

_AT_ONCE = 2**22
"""So many values are sorted at once."""


@register
class TrimmedMean(SparseSum):
    """Trims parameters; buffers and what clients report are averaged as ever.

    Results do not depend on the order in which updates come: they are taken in the order of their clients.
    """

    name: ClassVar[str] = "trimmed-mean"
    streaming: ClassVar[bool] = False

    def __init__(
        self,
        masks: Masks,
        positions: Positions | None = None,
        *,
        count_holders: bool = False,
        trim: float = AggregatorConfig.trim,
    ) -> None:
        super().__init__(masks, positions, count_holders=count_holders)
        self._trim = trim
        self._updates: list[Update] = []

    @classmethod
    def begin(
        cls,
        options: AggregatorConfig,
        masks: Masks,
        positions: Positions | None = None,
        *,
        count_holders: bool = False,
    ) -> Self:
        return cls(masks, positions, count_holders=count_holders, trim=options.trim)

    def add(self, update: Update) -> None:
        super().add(update)
        self._updates.append(update)

    def merge(self, other: Self) -> None:
        super().merge(other)
        self._updates += other._updates

    def mean(self, group: str = "params", *, otherwise: Tensors | None = None) -> dict[str, Tensor]:
        plain = super().mean(group, otherwise=otherwise)
        if group != "params":
            return plain
        return {name: self._trimmed(name, value) for name, value in plain.items()}

    def _trimmed(self, name: str, plain: Tensor) -> Tensor:
        """The trimmed mean of a parameter, and what it is without trimming where nobody holds it."""
        updates = sorted((one for one in self._updates if name in one.params), key=lambda one: one.client)
        found = plain.reshape(-1).clone()
        values, held = zip(*(self._whole_values(one, name, plain) for one in updates), strict=True)
        weights = torch.tensor([one.weight for one in updates], dtype=torch.float64, device=plain.device)
        for columns in _in_columns(len(found), len(updates)):
            some = torch.stack([value[columns] for value in values])
            here = torch.stack([mask[columns] for mask in held])
            mean = trimmed(some.double(), here, weights, self._trim).to(plain.dtype)
            found[columns] = torch.where(here.any(0), mean, found[columns])
        return found.reshape(plain.shape)

    def _whole_values(self, update: Update, name: str, like: Tensor) -> tuple[Tensor, Tensor]:
        """One client's values of a parameter, [n], and which of them it holds, bool [n]."""
        masks, value = self.masks if update.masks is None else update.masks, update.params[name].reshape(-1)
        if name not in masks:
            return value, torch.ones_like(value, dtype=torch.bool)
        whole = torch.zeros(like.numel(), dtype=value.dtype, device=value.device)
        whole[positions_in(masks[name])] = value
        return whole, masks[name].reshape(-1)


def trimmed(values: Tensor, held: Tensor, weights: Tensor, share: float) -> Tensor:
    """The mean of each column over those that hold it, by their weights, without a share of them at either end.

    values: float [clients, n]; held: bool, of the same shape; weights: [clients]. NaN where nobody holds it.
    """
    ordered, order = torch.where(held, values, torch.inf).sort(dim=0, stable=True)  # those that hold nothing are last
    holders = held.sum(0)
    cut = (share * holders).floor()
    rank = torch.arange(len(values), device=values.device)[:, None]
    mine = weights[order] * ((rank >= cut) & (rank < holders - cut))
    return (torch.where(mine > 0, ordered, 0.0) * mine).sum(0) / mine.sum(0)


def _in_columns(width: int, clients: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // clients)
    return (slice(begin, begin + step) for begin in range(0, width, step))
