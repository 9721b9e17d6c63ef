"""FedOpt (Reddi et al., ICLR 2021): the server treats the clients' mean change as a gradient for an adaptive optimizer.

With Δ = mean(θ_c) − θ the server keeps m ← β₁m + (1−β₁)Δ and a second moment v, and steps θ ← θ + η·m/(√v + τ).
Adagrad: v ← v + Δ²; Adam: v ← β₂v + (1−β₂)Δ²; Yogi: v ← v − (1−β₂)Δ²·sign(v − Δ²). At first m = 0 and v = τ². On sparse
updates Δ is 0 where no client holds a weight, and what is kept of a weight outside the mask is m = 0 and v = τ². Those
around a weight that enters may have a much larger v, so that its first steps are longer than theirs: with
`adaptive.entering = "layer"` it enters with the mean v of its layer.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from feddst.core import Aggregator, InitialModel, Masks, ServerState, Tensors
from feddst.methods.base import Card
from feddst.methods.fedavg import FedAvgM
from feddst.methods.feddst import FedDST
from feddst.methods.randommask import RandomMask
from feddst.methods.sprout import Sprout
from feddst.options import option


@dataclass(frozen=True)
class Adaptive:
    """The server's adaptive optimizer."""

    lr: float = option(0.01, "η: the server's learning rate", above=0)
    beta1: float = option(0.9, "β₁: decay of the mean change", at_least=0, below=1)
    beta2: float = option(0.99, "β₂: decay of the second moment", at_least=0, below=1)
    tau: float = option(1e-3, "τ: what is added to √v; v begins at τ²", above=0)
    entering: Literal["anew", "layer"] = option(
        "anew", "v of a weight that enters the mask: τ² as at first, or the mean v of its layer's active weights"
    )


@dataclass(frozen=True)
class FedOpt(FedAvgM):
    """Any method's mean with an adaptive step instead of the mean itself: listed before another, it wraps that one."""

    adaptive: Adaptive = Adaptive()

    @abstractmethod
    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """The new v, from the old one and Δ²."""

    def init(self, model: InitialModel, seed: int) -> ServerState:
        state = super().init(model, seed)
        return replace(state, extra={**state.extra, **self.fresh(state.params)})

    def fresh(self, params: Tensors) -> dict[str, Tensor]:
        """m and v before the first step."""
        m = {f"m/{name}": torch.zeros_like(value) for name, value in params.items()}
        return m | {f"v/{name}": torch.full_like(value, self.adaptive.tau**2) for name, value in params.items()}

    def step(self, state: ServerState, total: Aggregator) -> tuple[Tensors, Tensors]:
        mean, params, extra = self.mean(state, total, otherwise=state.params), dict(state.params), dict(state.extra)
        for name, theta in state.params.items():
            delta = mean[name] - theta
            m = self.adaptive.beta1 * state.extra[f"m/{name}"] + (1 - self.adaptive.beta1) * delta
            v = self.second_moment(state.extra[f"v/{name}"], delta**2)
            params[name] = theta + self.adaptive.lr * m / (v.sqrt() + self.adaptive.tau)
            extra |= {f"m/{name}": m, f"v/{name}": v}
        return params, extra

    def forget(self, extra: Tensors, masks: Masks) -> Tensors:
        kept = dict(super().forget(extra, masks))
        for name, mask in masks.items():
            m, v = kept[f"m/{name}"], kept[f"v/{name}"]
            kept[f"m/{name}"] = torch.where(mask, m, 0.0)
            kept[f"v/{name}"] = torch.where(mask, v, self.first_v(v, mask))
        return kept

    def first_v(self, v: Tensor, mask: Tensor) -> float:
        """The v that a weight outside the mask of a layer shall enter with."""
        if self.adaptive.entering == "anew" or not mask.any():
            return self.adaptive.tau**2
        return float(v[mask].double().mean())


@dataclass(frozen=True)
class FedAdagrad(FedOpt):
    """v adds up, without momentum."""

    name: ClassVar[str] = "fedadagrad"
    summary: ClassVar[str] = "FedAvgM with Adagrad on the server"
    pins: ClassVar[Mapping[str, Any]] = {"adaptive.beta1": 0.0}
    card: ClassVar[Card] = replace(FedAvgM.card, paper="Reddi et al. 2021")

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v + squared


@dataclass(frozen=True)
class FedAdam(FedOpt):
    """v is a moving average."""

    name: ClassVar[str] = "fedadam"
    summary: ClassVar[str] = "FedAvgM with Adam on the server"
    card: ClassVar[Card] = replace(FedAvgM.card, paper="Reddi et al. 2021")

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return self.adaptive.beta2 * v + (1 - self.adaptive.beta2) * squared


@dataclass(frozen=True)
class FedYogi(FedOpt):
    """v moves towards Δ² by steps that do not depend on v itself."""

    name: ClassVar[str] = "fedyogi"
    summary: ClassVar[str] = "FedAvgM with Yogi on the server"
    card: ClassVar[Card] = replace(FedAvgM.card, paper="Reddi et al. 2021")

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v - (1 - self.adaptive.beta2) * squared * torch.sign(v - squared)


@dataclass(frozen=True)
class FedDSTAdagrad(FedAdagrad, FedDST):
    """FedDST whose server steps with Adagrad before it prunes."""

    name: ClassVar[str] = "feddst+fedadagrad"
    summary: ClassVar[str] = "FedDST with Adagrad on the server"
    card: ClassVar[Card] = replace(FedDST.card, paper="both")


@dataclass(frozen=True)
class FedDSTAdam(FedAdam, FedDST):
    """FedDST whose server steps with Adam before it prunes."""

    name: ClassVar[str] = "feddst+fedadam"
    summary: ClassVar[str] = "FedDST with Adam on the server"
    card: ClassVar[Card] = replace(FedDST.card, paper="both")


@dataclass(frozen=True)
class FedDSTYogi(FedYogi, FedDST):
    """FedDST whose server steps with Yogi before it prunes."""

    name: ClassVar[str] = "feddst+fedyogi"
    summary: ClassVar[str] = "FedDST with Yogi on the server"
    card: ClassVar[Card] = replace(FedDST.card, paper="both")


@dataclass(frozen=True)
class RandomMaskAdam(FedAdam, RandomMask):
    """RandomMask whose server steps with Adam."""

    name: ClassVar[str] = "randommask+fedadam"
    summary: ClassVar[str] = "RandomMask with Adam on the server"
    card: ClassVar[Card] = replace(RandomMask.card, paper="both")


@dataclass(frozen=True)
class SproutAdam(FedAdam, Sprout):
    """Sprout whose server steps with Adam before it moves the mask."""

    name: ClassVar[str] = "sprout+fedadam"
    summary: ClassVar[str] = "Sprout with Adam on the server"
    card: ClassVar[Card] = replace(Sprout.card, paper="both")
