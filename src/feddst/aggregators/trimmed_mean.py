"""The trimmed mean (Yin et al., ICML 2018): the mean without the largest and the smallest values of each weight.

Of the k clients that hold a weight, the ⌊βk⌋ largest and as many of the smallest values are left out; the others are
averaged by their n_c. A weight that fewer than 1/β clients hold has its plain mean.
"""

from fractions import Fraction
from typing import ClassVar, Self

import torch
from torch import Tensor

from feddst.aggregators.coordinate_wise import CoordinateWise
from feddst.core import AggregatorConfig, Masks, Positions, register


@register
class TrimmedMean(CoordinateWise):
    """Averages each weight's values without a share `trim` of them at either end."""

    name: ClassVar[str] = "trimmed-mean"

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

    def combine(self, values: Tensor, held: Tensor, weights: Tensor) -> Tensor:
        return trimmed(values, held, weights, self._trim)


def trimmed(values: Tensor, held: Tensor, weights: Tensor, share: float) -> Tensor:
    """Each column's weighted mean over the clients that hold it, without a share of them at either end.

    values: float [clients, n]; held: bool, of the same shape; weights: [clients]. NaN where none holds it.
    """
    ordered, order = torch.where(held, values, torch.inf).sort(dim=0, stable=True)  # non-holders come last
    holders = held.sum(0)
    cut = _cuts(share, len(values)).to(values.device)[holders]
    rank = torch.arange(len(values), device=values.device)[:, None]
    mine = weights[order] * ((rank >= cut) & (rank < holders - cut))
    return (torch.where(mine > 0, ordered, 0.0) * mine).sum(0) / mine.sum(0)


def _cuts(share: float, most: int) -> Tensor:
    """How many values are left out at either end, for 0, 1, … holders: int64 [most + 1].

    The share is taken as it is written: in binary 0.29 · 100 is less than 29, and nearly a half may become one.
    """
    written = Fraction(str(share))
    return torch.tensor([int(written * holders) for holders in range(most + 1)])
