"""FedProx's penalty on leaving the received model (Li et al., MLSys 2020)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from feddst.core.registry import register
from feddst.core.step import ClientStep
from feddst.options import option, validate


@register
@dataclass(frozen=True)
class Proximal(ClientStep):
    """FedProx's penalty μ/2·‖θ − θ^r‖² on leaving the received model."""

    name: ClassVar[str] = "proximal"

    mu: float = option(0.0, "μ: strength of the proximal term; 0: none", at_least=0)
    gradient: Literal["exact", "detached"] = option(
        "exact", "the term's real gradient, or (published code) none because its tensors are detached"
    )

    @property
    def pull(self) -> float:
        """The factor of θ − θ^r added to the gradient."""
        return self.mu if self.gradient == "exact" else 0.0

    def at_gradient(self, gradient: Tensor, theta: Tensor, received: Tensor) -> None:
        if self.gradient == "exact":
            gradient.add_(theta - received, alpha=self.mu)

    def check(self) -> None:
        validate(self)
