"""FedProx (Li et al., MLSys 2020): clients pay μ/2·‖θ − θ^r‖² for leaving the received model.

The server also averages what stragglers have after fewer epochs, where FedAvg leaves them out.
"""

from dataclasses import dataclass
from typing import ClassVar

from feddst.clients.steps import Proximal
from feddst.core import ClientPlan, ServerState
from feddst.methods.base import Card
from feddst.methods.fedavg import FedAvgM


@dataclass(frozen=True)
class FedProx(FedAvgM):
    """Any method's work with the proximal term added: listed before another method, it wraps that one."""

    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "FedAvgM with a proximal term on clients; takes stragglers' partial work (Li et al. 2020)"
    card: ClassVar[Card] = Card("Li et al. 2020")
    accepts_partial: ClassVar[bool] = True

    proximal: Proximal = Proximal()

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        return super().plan(state, client).adding(self.proximal)
