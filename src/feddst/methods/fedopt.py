"""FedOpt (Reddi et al., ICLR 2021) in its three variants: FedAvgM whose server steps with an adaptive optimizer.

Any other method does so too with `server.optimizer`; the steps are in `feddst.methods.server`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from feddst.methods.base import Card
from feddst.methods.fedavg import FedAvgM
from feddst.methods.server import ServerOptimizer

_CARD = replace(FedAvgM.card, paper="Reddi et al. 2021")


@dataclass(frozen=True)
class FedAdagrad(FedAvgM):
    """With Adagrad."""

    name: ClassVar[str] = "fedadagrad"
    summary: ClassVar[str] = "FedAvgM with Adagrad on the server"
    card: ClassVar[Card] = _CARD
    pins: ClassVar[Mapping[str, Any]] = {"server.optimizer": "adagrad", "adaptive.beta1": 0.0}

    server: ServerOptimizer = ServerOptimizer("adagrad")


@dataclass(frozen=True)
class FedAdam(FedAvgM):
    """With Adam."""

    name: ClassVar[str] = "fedadam"
    summary: ClassVar[str] = "FedAvgM with Adam on the server"
    card: ClassVar[Card] = _CARD
    pins: ClassVar[Mapping[str, Any]] = {"server.optimizer": "adam"}

    server: ServerOptimizer = ServerOptimizer("adam")


@dataclass(frozen=True)
class FedYogi(FedAvgM):
    """With Yogi."""

    name: ClassVar[str] = "fedyogi"
    summary: ClassVar[str] = "FedAvgM with Yogi on the server"
    card: ClassVar[Card] = _CARD
    pins: ClassVar[Mapping[str, Any]] = {"server.optimizer": "yogi"}

    server: ServerOptimizer = ServerOptimizer("yogi")
