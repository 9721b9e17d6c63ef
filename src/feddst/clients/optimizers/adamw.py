"""AdamW (Loshchilov & Hutter, ICLR 2019): Adam with decoupled weight decay."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from feddst.clients.optimizers.adam import Adam
from feddst.core import LocalTraining
from feddst.core.registry import register


@register
@dataclass(frozen=True)
class AdamW(Adam):
    """θ ← (1 − ηλ)θ, then Adam's step, with λ = `local.l2`: it is no part of the gradient."""

    name: str = "adamw"  # type: ignore[misc]
    decoupled: ClassVar[bool] = True

    def step(
        self, theta: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], local: LocalTraining, taken: int
    ) -> None:
        theta.mul_(1 - local.lr * local.l2)
        super().step(theta, gradient, slots, local, taken)
