"""Stochastic gradient descent with momentum."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.optimizer import LocalOptimizer
from feddst.core.registry import register


@register
class SGD(LocalOptimizer):
    """v ← βv + g, θ ← θ − ηv, with β = `local.momentum`; with `local.nesterov` θ ← θ − η(g + βv)."""

    name: ClassVar[str] = "sgd"
    slots: ClassVar[tuple[str, ...]] = ("velocity",)
    heeds: ClassVar[tuple[str, ...]] = ("momentum", "nesterov")
    elementwise: ClassVar[bool] = True
    counts_steps: ClassVar[bool] = False

    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: LocalTraining, taken: int
    ) -> None:
        velocity = slots["velocity"].mul_(local.momentum).add_(gradient)
        theta.sub_(gradient.add(velocity, alpha=local.momentum) if local.nesterov else velocity, alpha=local.lr)
