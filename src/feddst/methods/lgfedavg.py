"""LG-FedAvg (Liang et al. 2020): the first layers stay with each client, the last k are averaged.

Every parameter that comes before the weight of the first shared layer, in the module's order, is local: the
weights and biases of the first layers, and the norms between them. Local parameters never travel; a client begins with
their initial values and keeps what it has trained. The shared ones are averaged as in FedAvg.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from feddst.core import Aggregator, Broadcast, ClientPlan, ClientState, InitialModel, ServerState, Tensors
from feddst.errors import ModelError
from feddst.methods.base import Card
from feddst.methods.fedavg import FedAvgM
from feddst.options import option

_LOCAL = "local/"


@dataclass(frozen=True)
class SharedLayers:
    """What is shared, and what stays local."""

    shared_layers: int = option(
        1, "k: how many layers, the last ones, are shared; layers are what owns a prunable weight", at_least=1
    )


@dataclass(frozen=True)
class LGFedAvg(FedAvgM):
    """FedAvgM on the shared layers, and every client's own layers before them.

    The server's state keeps the local parameters at their initial values, and the global model is made of those: its
    accuracy says little. What counts is the personalised accuracy, of the shared layers behind each client's own.
    Buffers, such as BatchNorm's statistics, are averaged in all layers.
    """

    name: ClassVar[str] = "lg-fedavg"
    summary: ClassVar[str] = "clients keep their first layers to themselves, the last are averaged (Liang et al. 2020)"
    card: ClassVar[Card] = Card(
        "Liang et al. 2020",
        "the last k layers",
        "the last k layers; the others' initial values follow from the seed",
        "32·(n of the last k layers)",
        "its other layers",
        "one model a client",
    )
    keeps_state: ClassVar[bool] = True

    lg: SharedLayers = SharedLayers()

    def init(self, model: InitialModel, seed: int) -> ServerState:
        marks = {_LOCAL + name: torch.tensor(True) for name in self.local_names(model)}
        state = super().init(model, seed)
        return replace(state, extra={**state.extra, **marks})

    def local_names(self, model: InitialModel) -> list[str]:
        """The parameters that come before the first shared layer's weight."""
        if self.lg.shared_layers >= len(model.layers):
            raise ModelError(
                f"lg.shared_layers must be below {len(model.layers)}, the model's prunable layers, "
                f"got {self.lg.shared_layers}"
            )
        names = list(model.params)
        return names[: names.index(model.layers[-self.lg.shared_layers].name)]

    def broadcast(self, state: ServerState, client: int) -> Broadcast:
        local = _kept(state)
        shared = {name: value for name, value in state.params.items() if name not in local}
        return Broadcast(state.round, shared, state.buffers)

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        return replace(super().plan(state, client), keep=_kept(state))

    def mean(self, state: ServerState, total: Aggregator, otherwise: Tensors | None) -> Tensors:
        return {**state.params, **total.mean()}

    def personal(self, state: ServerState, kept: ClientState) -> Tensors | None:
        return {**state.params, **kept.tensors}


def _kept(state: ServerState) -> frozenset[str]:
    return frozenset(key.removeprefix(_LOCAL) for key in state.extra if key.startswith(_LOCAL))
