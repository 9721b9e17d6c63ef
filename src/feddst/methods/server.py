"""How the server uses the clients' mean: as the new weights, or for a step of an optimizer of its own.

FedOpt (Reddi et al., ICLR 2021) treats the mean change Δ = mean(θ_c) − θ as a gradient.

With the mean alone the server goes the share η of the way, θ ← θ + ηΔ: all of it with η = 1.

Momentum (Hsu et al. 2019): v ← βv + Δ, θ ← θ + ηv. The adaptive ones keep m ← β₁m + (1−β₁)Δ and a second moment v, and
step θ ← θ + η·m/(√v + τ). Adagrad: v ← v + Δ², with β₁ = 0; Adam: v ← β₂v + (1−β₂)Δ²; Yogi:
v ← v − (1−β₂)Δ²·sign(v − Δ²). At first m = 0 and v = τ². On sparse updates Δ is 0 where no client holds a weight, and
a weight outside the mask has m = 0 and v = τ². The weights around one that enters may have a much larger v, so that its
first steps are longer than theirs: with `adaptive.entering = "layer"` it enters with the mean v of its layer.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from feddst.core import Masks, Tensors, masked
from feddst.options import option


@dataclass(frozen=True)
class ServerOptimizer:
    """The optimizer of the server's own steps."""

    optimizer: Literal["mean", "momentum", "adagrad", "adam", "yogi"] = option(
        "mean", "what the server makes of the clients' mean change: the mean itself, or a step by this optimizer"
    )
    momentum: float = option(0.9, "β of momentum", at_least=0, below=1)
    lr: float = option(
        1.0, "η of mean and momentum: how far the server goes where the clients' mean change leads", above=0
    )


@dataclass(frozen=True)
class Adaptive:
    """The server's optimizer where it is adagrad, adam or yogi."""

    lr: float = option(0.01, "η: the server's learning rate", above=0)
    beta1: float = option(0.9, "β₁ of adam and yogi: decay of the mean change", at_least=0, below=1)
    beta2: float = option(0.99, "β₂ of adam and yogi: decay of the second moment", at_least=0, below=1)
    tau: float = option(1e-3, "τ: what is added to √v; v begins at τ²", above=0)
    entering: Literal["anew", "layer"] = option(
        "anew", "v of a weight that enters the mask: τ² as at first, or the mean v of its layer's active weights"
    )


IDLE: Mapping[str, tuple[str, ...]] = {
    "mean": ("server.momentum", "adaptive"),
    "momentum": ("adaptive",),
    "adagrad": ("server.momentum", "server.lr", "adaptive.beta1", "adaptive.beta2"),
    "adam": ("server.momentum", "server.lr"),
    "yogi": ("server.momentum", "server.lr"),
}
"""The options and groups of options that do nothing with each optimizer."""


class ServerStep(ABC):
    """A step of the server; what it keeps for its next one lies in the state's `extra`.

    One that `needs_all` takes the mean of a weight that no client holds to be the weight itself.
    """

    needs_all: ClassVar[bool] = True

    @abstractmethod
    def fresh(self, params: Tensors) -> Tensors:
        """What is kept before the first step."""

    @abstractmethod
    def step(self, theta: Tensors, mean: Tensors, kept: Tensors) -> tuple[Tensors, Tensors]:
        """New weights and what is kept, from the weights, the clients' mean of them, and what was kept."""

    @abstractmethod
    def forget(self, kept: Tensors, masks: Masks) -> Tensors:
        """What is kept, reset for weights that `masks` leave out."""


def server_step(server: ServerOptimizer, adaptive: Adaptive) -> ServerStep:
    """The step that options ask for."""
    if server.optimizer == "mean":
        return Mean() if server.lr == 1 else PartOfTheWay(server.lr)
    if server.optimizer == "momentum":
        return Momentum(server.momentum, server.lr)
    return ADAPTIVE[server.optimizer](adaptive)


class Mean(ServerStep):
    """The mean itself."""

    needs_all: ClassVar[bool] = False

    def fresh(self, params: Tensors) -> Tensors:
        return {}

    def step(self, theta: Tensors, mean: Tensors, kept: Tensors) -> tuple[Tensors, Tensors]:
        return mean, kept

    def forget(self, kept: Tensors, masks: Masks) -> Tensors:
        return kept


@dataclass(frozen=True)
class PartOfTheWay(Mean):
    """A step towards the mean, or beyond it."""

    lr: float
    needs_all: ClassVar[bool] = True

    def step(self, theta: Tensors, mean: Tensors, kept: Tensors) -> tuple[Tensors, Tensors]:
        return {name: value + self.lr * (mean[name] - value) for name, value in theta.items()}, kept


@dataclass(frozen=True)
class Momentum(ServerStep):
    """A step along the sum of all changes so far, in which older ones count ever less."""

    beta: float
    lr: float = 1.0

    def fresh(self, params: Tensors) -> Tensors:
        return {f"velocity/{name}": torch.zeros_like(value) for name, value in params.items()}

    def step(self, theta: Tensors, mean: Tensors, kept: Tensors) -> tuple[Tensors, Tensors]:
        v = {name: self.beta * kept[f"velocity/{name}"] + (mean[name] - theta[name]) for name in theta}
        stepped = {name: value + self.lr * v[name] for name, value in theta.items()}
        return stepped, {**kept, **{f"velocity/{name}": value for name, value in v.items()}}

    def forget(self, kept: Tensors, masks: Masks) -> Tensors:
        return masked(kept, {f"velocity/{name}": mask for name, mask in masks.items()})


@dataclass(frozen=True)
class AdaptiveStep(ServerStep):
    """A step that is shorter for weights that have changed much."""

    options: Adaptive

    @property
    def beta1(self) -> float:
        """β₁."""
        return self.options.beta1

    @abstractmethod
    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """The new v, from the old one and Δ²."""

    def fresh(self, params: Tensors) -> Tensors:
        m = {f"m/{name}": torch.zeros_like(value) for name, value in params.items()}
        return m | {f"v/{name}": torch.full_like(value, self.options.tau**2) for name, value in params.items()}

    def step(self, theta: Tensors, mean: Tensors, kept: Tensors) -> tuple[Tensors, Tensors]:
        params, extra = dict(theta), dict(kept)
        for name, before in theta.items():
            delta = mean[name] - before
            m = self.beta1 * kept[f"m/{name}"] + (1 - self.beta1) * delta
            v = self.second_moment(kept[f"v/{name}"], delta**2)
            params[name] = before + self.options.lr * m / (v.sqrt() + self.options.tau)
            extra |= {f"m/{name}": m, f"v/{name}": v}
        return params, extra

    def forget(self, kept: Tensors, masks: Masks) -> Tensors:
        left = dict(kept)
        for name, mask in masks.items():
            m, v = left[f"m/{name}"], left[f"v/{name}"]
            left[f"m/{name}"] = torch.where(mask, m, 0.0)
            left[f"v/{name}"] = torch.where(mask, v, self.first_v(v, mask))
        return left

    def first_v(self, v: Tensor, mask: Tensor) -> float:
        """The v that a weight outside the mask of a layer enters with."""
        if self.options.entering == "anew" or not mask.any():
            return self.options.tau**2
        return float(v[mask].double().mean())


class Adagrad(AdaptiveStep):
    """v adds up, without momentum."""

    @property
    def beta1(self) -> float:
        return 0.0

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v + squared


class Adam(AdaptiveStep):
    """v is a moving average."""

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return self.options.beta2 * v + (1 - self.options.beta2) * squared


class Yogi(AdaptiveStep):
    """v moves towards Δ² by steps that do not depend on v itself."""

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v - (1 - self.options.beta2) * squared * torch.sign(v - squared)


ADAPTIVE: Mapping[str, type[AdaptiveStep]] = {"adagrad": Adagrad, "adam": Adam, "yogi": Yogi}
"""The adaptive steps, by the names of `server.optimizer`."""
