"""Adagrad (Duchi et al., JMLR 2011)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.optimizer import LocalOptimizer
from feddst.core.registry import register


@register
@dataclass(frozen=True)
class Adagrad(LocalOptimizer):
    """v ← v + g², θ ← θ − η·g/(√v + ε): the steps of a round become ever shorter."""

    epsilon: float = 1e-10
    name: str = "adagrad"  # type: ignore[misc]
    slots: ClassVar[tuple[str, ...]] = ("square",)
    elementwise: ClassVar[bool] = True
    counts_steps: ClassVar[bool] = False

    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: LocalTraining, taken: int
    ) -> None:
        square = slots["square"].addcmul_(gradient, gradient)
        theta.addcdiv_(gradient, square.sqrt().add_(self.epsilon), value=-local.lr)
