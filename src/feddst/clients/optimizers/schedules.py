"""How the learning rate changes from round to round."""

import math
from typing import ClassVar

from feddst.core.optimizer import Schedule
from feddst.core.registry import register


@register
class Constant(Schedule):
    """The rate stays the same."""

    name: ClassVar[str] = "constant"

    def factor(self, round: int, rounds: int) -> float:
        return 1.0


@register
class Cosine(Schedule):
    """The rate falls to 0 after the last round, along half a cosine."""

    name: ClassVar[str] = "cosine"
    needs_rounds: ClassVar[bool] = True

    def factor(self, round: int, rounds: int) -> float:
        return (1 + math.cos(math.pi * min(max(round - 1, 0) / rounds, 1.0))) / 2
