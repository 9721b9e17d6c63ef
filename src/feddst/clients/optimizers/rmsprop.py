"""RMSprop (Tieleman & Hinton 2012)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.optimizer import LocalOptimizer
from feddst.core.registry import register


@register
@dataclass(frozen=True)
class RMSprop(LocalOptimizer):
    """v ← αv + (1−α)g², θ ← θ − η·g/(√v + ε). For other constants: `feddst.register(RMSprop(alpha=0.9, name="r9"))`."""

    alpha: float = 0.99
    epsilon: float = 1e-8
    name: str = "rmsprop"  # type: ignore[misc]
    slots: ClassVar[tuple[str, ...]] = ("square",)
    elementwise: ClassVar[bool] = True
    counts_steps: ClassVar[bool] = False

    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: LocalTraining, taken: int
    ) -> None:
        square = slots["square"].mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        theta.addcdiv_(gradient, square.sqrt().add_(self.epsilon), value=-local.lr)
