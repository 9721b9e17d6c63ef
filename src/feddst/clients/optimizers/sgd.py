"""Stochastic gradient descent with momentum."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.optimizer import LocalOptimizer
from feddst.core.registry import register


@register
class SGD(LocalOptimizer):
    """v ← βv + g, θ ← θ − ηv, with β = `local.momentum`."""

    name: ClassVar[str] = "sgd"
    slots: ClassVar[tuple[str, ...]] = ("velocity",)

    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: LocalTraining, taken: int
    ) -> None:
        theta.sub_(slots["velocity"].mul_(local.momentum).add_(gradient), alpha=local.lr)
