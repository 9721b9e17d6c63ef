"""How the learning rate changes from round to round, or from step to step of a round."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from feddst.core import LocalTraining
from feddst.core.optimizer import Schedule
from feddst.core.registry import register


@register
class Constant(Schedule):
    """The rate stays the same."""

    name: ClassVar[str] = "constant"

    def factor(self, round: int, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True)
class _Falling(Schedule):
    """The rate falls to the share `end` after the last round."""

    end: float = 0.0
    needs_rounds: ClassVar[bool] = True
    heeds: ClassVar[tuple[str, ...]] = ("lr_end",)

    def with_options(self, local: LocalTraining) -> Self:
        return replace(self, end=local.lr_end)

    @staticmethod
    def done(round: int, rounds: int) -> float:
        """The share of the rounds that lies behind."""
        return min(max(round - 1, 0) / rounds, 1.0)


@register
class Linear(_Falling):
    """The rate falls along a line."""

    name: ClassVar[str] = "linear"

    def factor(self, round: int, rounds: int) -> float:
        return self.end + (1 - self.end) * (1 - self.done(round, rounds))


@register
class Cosine(_Falling):
    """The rate falls along half a cosine (Loshchilov & Hutter, ICLR 2017)."""

    name: ClassVar[str] = "cosine"

    def factor(self, round: int, rounds: int) -> float:
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * self.done(round, rounds))) / 2


@dataclass(frozen=True)
class _Decaying(Schedule):
    """The rate falls by `by` every so many rounds."""

    by: float = 0.5
    every: int = 50
    heeds: ClassVar[tuple[str, ...]] = ("lr_factor", "lr_every")

    def with_options(self, local: LocalTraining) -> Self:
        return replace(self, by=local.lr_factor, every=local.lr_every)


@register
class Step(_Decaying):
    """The rate stays for some rounds, then falls at once."""

    name: ClassVar[str] = "step"

    def factor(self, round: int, rounds: int) -> float:
        return float(self.by ** (max(round - 1, 0) // self.every))


@register
class Exponential(_Decaying):
    """The rate falls by the same share each round."""

    name: ClassVar[str] = "exponential"

    def factor(self, round: int, rounds: int) -> float:
        return float(self.by ** (max(round - 1, 0) / self.every))
