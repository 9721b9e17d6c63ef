"""Adam (Kingma & Ba, ICLR 2015)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from feddst.core import LocalTraining
from feddst.core.optimizer import LocalOptimizer
from feddst.core.registry import register


@register
@dataclass(frozen=True)
class Adam(LocalOptimizer):
    """m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², θ ← θ − η·m̂/(√v̂ + ε) with m̂ = m/(1−β₁ᵗ) and v̂ = v/(1−β₂ᵗ) at step t.

    For other constants: `feddst.register(Adam(beta2=0.99, name="a99"))`.
    A grown weight begins with m = v = 0, while t goes on: its first steps are longer than others'.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    name: str = "adam"  # type: ignore[misc]
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")
    elementwise: ClassVar[bool] = True

    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: LocalTraining, taken: int
    ) -> None:
        t, mean, square = taken + 1, slots["mean"], slots["square"]
        mean.mul_(self.beta1).add_(gradient, alpha=1 - self.beta1)
        square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        root = (square / (1 - self.beta2**t)).sqrt_().add_(self.epsilon)
        theta.addcdiv_(mean, root, value=-local.lr / (1 - self.beta1**t))
