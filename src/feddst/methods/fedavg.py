"""Federated averaging (McMahan et al., AISTATS 2017) and its two relatives called FedAvgM.

Clients run SGD from the server's model; the server takes the mean of what they send, weighted by their number
of images, or makes an optimizer step with it (`server.optimizer`). With `proximal.mu` clients pay a penalty for leaving
the model that they receive. The FedAvgM of Hsu et al. (2019) has momentum on the server, that of the FedDST paper
in the clients' SGD. Both are here, under two names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from feddst.clients.steps import Proximal
from feddst.core import Aggregator, ClientPlan, InitialModel, Masks, ServerState, Tensors
from feddst.methods.base import Card, Method
from feddst.methods.server import IDLE, Adaptive, ServerOptimizer, ServerStep, server_step


@dataclass(frozen=True)
class FedAvg(Method):
    """Plain SGD on clients, plain weighted mean on the server."""

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "plain SGD on clients, weighted mean on the server (McMahan et al. 2017)"
    card: ClassVar[Card] = Card("McMahan et al. 2017")
    pins: ClassVar[Mapping[str, Any]] = {"local.momentum": 0.0}

    proximal: Proximal = Proximal()
    server: ServerOptimizer = ServerOptimizer()
    adaptive: Adaptive = Adaptive()

    @property
    def accepts_partial(self) -> bool:
        return self.proximal.mu > 0

    @classmethod
    def idle(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        optimizer = values.get("server.optimizer", ServerOptimizer.optimizer)
        found = dict.fromkeys(IDLE.get(optimizer, ()), f"server.optimizer {optimizer}")
        return found if values.get("proximal.mu") else found | {"proximal.gradient": "proximal.mu 0"}

    def init(self, model: InitialModel, seed: int) -> ServerState:
        kept = self.server_step.fresh(model.params)
        return ServerState(round=1, seed=seed, params=model.params, buffers=model.buffers, extra=kept)

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        plan = ClientPlan(self.local)
        return plan.adding(self.proximal) if self.proximal.mu else plan

    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        params, extra = self.step(state, total)
        return state.next(params=params, buffers=total.mean("buffers"), extra=extra)

    @property
    def server_step(self) -> ServerStep:
        """What the server does with the clients' mean."""
        return server_step(self.server, self.adaptive)

    def step(self, state: ServerState, total: Aggregator) -> tuple[Tensors, Tensors]:
        """The server's step: new weights, and what it keeps for its next one."""
        otherwise = state.params if self.server_step.needs_all else None
        return self.server_step.step(state.params, self.mean(state, total, otherwise), state.extra)

    def mean(self, state: ServerState, total: Aggregator, otherwise: Tensors | None) -> Tensors:
        """The clients' mean that the server steps by; `otherwise` has the values of weights that none holds."""
        return total.mean(otherwise=otherwise)

    def forget(self, extra: Tensors, masks: Masks) -> Tensors:
        """What the server keeps, reset for weights that `masks` leave out."""
        return self.server_step.forget(extra, masks)


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """FedAvg with momentum in the clients' SGD: the FedDST paper's FedAvgM."""

    name: ClassVar[str] = "fedavgm"
    summary: ClassVar[str] = "FedAvg with momentum in the clients' SGD: what the FedDST paper calls FedAvgM"
    card: ClassVar[Card] = Card("McMahan et al. 2017; named so by Bibikar et al. 2022")
    pins: ClassVar[Mapping[str, Any]] = {}


@dataclass(frozen=True)
class FedAvgMServer(FedAvg):
    """FedAvg with momentum on the server: Hsu et al.'s FedAvgM."""

    name: ClassVar[str] = "fedavgm-server"
    summary: ClassVar[str] = "FedAvg with momentum on the server: FedAvgM as Hsu et al. (2019) define it"
    card: ClassVar[Card] = Card("Hsu et al. 2019")
    pins: ClassVar[Mapping[str, Any]] = {**FedAvg.pins, "server.optimizer": "momentum"}

    server: ServerOptimizer = ServerOptimizer("momentum")
