"""FedProx (Li et al., MLSys 2020): clients pay μ/2·‖θ − θ^r‖² for leaving the received model.

The server also averages stragglers' updates after fewer epochs, which FedAvg leaves out. Any other method does
both with `proximal.mu` above 0.
"""

from dataclasses import dataclass
from typing import ClassVar

from feddst.clients.steps import Proximal
from feddst.methods.base import Card
from feddst.methods.fedavg import FedAvgM


@dataclass(frozen=True)
class FedProx(FedAvgM):
    """FedAvgM with the proximal term; it takes partial work without one too."""

    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "FedAvgM with a proximal term on clients; takes stragglers' partial work (Li et al. 2020)"
    card: ClassVar[Card] = Card("Li et al. 2020")

    proximal: Proximal = Proximal(mu=1.0)

    @property
    def accepts_partial(self) -> bool:
        return True
