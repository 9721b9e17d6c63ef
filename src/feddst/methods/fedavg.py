"""Federated averaging (McMahan et al., AISTATS 2017) and its two relatives called FedAvgM.

Clients run SGD from the server's model; the server takes the mean of what they send, weighted by their number
of images. Hsu et al. (2019) put momentum on the server: v ← βv + Δ, θ ← θ + v with Δ = mean(θ_c) − θ. The
FedDST paper calls FedAvgM what has momentum in the clients' SGD. Both are here, under two names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from feddst.core import ClientPlan, InitialModel, Masks, ServerState, SparseSum, Tensors, masked
from feddst.methods.base import Card, Method
from feddst.options import option


@dataclass(frozen=True)
class FedAvg(Method):
    """Plain SGD on clients, plain weighted mean on the server."""

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "plain SGD on clients, weighted mean on the server (McMahan et al. 2017)"
    card: ClassVar[Card] = Card("McMahan et al. 2017")
    pins: ClassVar[Mapping[str, Any]] = {"local.momentum": 0.0}

    def init(self, model: InitialModel, seed: int) -> ServerState:
        return ServerState(round=1, seed=seed, params=model.params, buffers=model.buffers)

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        return ClientPlan(self.local)

    def aggregate(self, state: ServerState, total: SparseSum) -> ServerState:
        params, extra = self.step(state, total)
        return state.next(params=params, buffers=total.mean("buffers"), extra=extra)

    def step(self, state: ServerState, total: SparseSum) -> tuple[Tensors, Tensors]:
        """The server's step: new weights, and what it keeps for its next one. Here, the mean itself."""
        return self.mean(state, total), state.extra

    def mean(self, state: ServerState, total: SparseSum, otherwise: Tensors | None = None) -> Tensors:
        """The clients' mean that the server steps by; `otherwise` is for what none of them holds."""
        return total.mean(otherwise=otherwise)

    def forget(self, extra: Tensors, masks: Masks) -> Tensors:
        """What the server keeps, without what belongs to weights that `masks` leave out."""
        return extra


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """FedAvg with momentum in the clients' SGD: the FedDST paper's FedAvgM."""

    name: ClassVar[str] = "fedavgm"
    summary: ClassVar[str] = "FedAvg with momentum in the clients' SGD: what the FedDST paper calls FedAvgM"
    card: ClassVar[Card] = Card("McMahan et al. 2017; named so by Bibikar et al. 2022")
    pins: ClassVar[Mapping[str, Any]] = {}


@dataclass(frozen=True)
class ServerMomentum:
    """Momentum on the server."""

    momentum: float = option(0.9, "β: momentum of the server's steps", at_least=0, below=1)


@dataclass(frozen=True)
class FedAvgMServer(FedAvg):
    """FedAvg with momentum on the server: Hsu et al.'s FedAvgM."""

    name: ClassVar[str] = "fedavgm-server"
    summary: ClassVar[str] = "FedAvg with momentum on the server: FedAvgM as Hsu et al. (2019) define it"
    card: ClassVar[Card] = Card("Hsu et al. 2019")

    server: ServerMomentum = ServerMomentum()

    def init(self, model: InitialModel, seed: int) -> ServerState:
        still = {f"velocity/{name}": torch.zeros_like(value) for name, value in model.params.items()}
        return replace(super().init(model, seed), extra=still)

    def step(self, state: ServerState, total: SparseSum) -> tuple[Tensors, Tensors]:
        theta, mean = state.params, total.mean()
        v = {
            name: self.server.momentum * state.extra[f"velocity/{name}"] + (mean[name] - theta[name]) for name in theta
        }
        return {name: theta[name] + v[name] for name in theta}, {f"velocity/{name}": v[name] for name in v}

    def forget(self, extra: Tensors, masks: Masks) -> Tensors:
        return masked(extra, {f"velocity/{name}": mask for name, mask in masks.items()})
