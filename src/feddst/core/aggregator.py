"""Aggregators: they combine a round's updates."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from feddst.core.registry import Registry
from feddst.core.tensors import Masks, Positions, Tensors
from feddst.core.update import Update
from feddst.options import option


class Aggregator(ABC):
    """Combines the updates of a round, added one by one: a value of `aggregator.kind`.

    Each round has a new one. `masks` are the broadcast's, and `positions`, if known, those of the weights that they
    keep. With `count_holders` it also measures how much clients' masks differ. An aggregator that is not `streaming`
    holds every update until the end of the round.
    """

    registry: "ClassVar[Registry[type[Aggregator]]]"
    name: ClassVar[str]
    streaming: ClassVar[bool] = True

    def __init__(self, masks: Masks, positions: Positions | None = None, *, count_holders: bool = False) -> None:
        """Start empty: `weight` is the sum of the n_c, `updates` the number of updates."""
        self.masks = masks
        self.weight = 0
        self.updates = 0

    @classmethod
    def begin(
        cls,
        options: "AggregatorConfig",
        masks: Masks,
        positions: Positions | None = None,
        *,
        count_holders: bool = False,
    ) -> Self:
        """An empty aggregator with a run's options."""
        return cls(masks, positions, count_holders=count_holders)

    @abstractmethod
    def add(self, update: Update) -> None:
        """Add one client's update."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add what another aggregator of this kind has, from other clients of the round."""

    @abstractmethod
    def mean(self, group: str = "params", *, otherwise: Tensors | None = None) -> dict[str, Tensor]:
        """Each entry aggregated over the clients that hold it; where none does, `otherwise` or 0.

        `group` is `params`, `buffers`, or the name of an extra such as `gradient`.
        """

    @abstractmethod
    def held(self) -> dict[str, Tensor]:
        """Which masked weights at least one client holds: the union of the clients' masks."""

    @abstractmethod
    def votes(self) -> dict[str, Tensor]:
        """The weight n_c of the clients that hold each masked weight: int64, of the tensor's shape."""

    def apart(self) -> dict[str, float]:
        """By layer, how much clients' masks differ; empty if that is not known."""
        return {}


AGGREGATORS: Registry[type[Aggregator]] = Registry("aggregator", Aggregator, classes=True)
"""Every aggregator, by the name a user types."""
Aggregator.registry = AGGREGATORS


@dataclass(frozen=True)
class AggregatorConfig:
    """What a round's updates are added up with."""

    kind: str = option(
        "mean",
        "mean: each weight's average over the clients that hold it, added up as updates come; trimmed-mean: without "
        "the largest and the smallest values of each weight, with all of a round's updates in memory at its end",
        among=AGGREGATORS,
    )
    trim: float = option(
        0.1,
        "(trimmed-mean) share of a weight's holders left out at either end, rounded down",
        at_least=0,
        below=0.5,
    )
