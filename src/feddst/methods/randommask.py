"""RandomMask: prune the random initial network once by magnitude, then FedAvgM within that mask for ever.

The FedDST paper's strongest baseline: as many bytes as FedDST, without ever moving the mask.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from feddst.core import InitialModel, ServerState, masked
from feddst.methods.base import Card
from feddst.methods.fedavg import FedAvgM
from feddst.sparsity import Sparsity, prune_to_budgets


@dataclass(frozen=True)
class RandomMask(FedAvgM):
    """FedAvgM on a sparse network whose mask never changes."""

    name: ClassVar[str] = "randommask"
    summary: ClassVar[str] = "FedAvgM on a randomly drawn sparse network whose mask never moves"

    card: ClassVar[Card] = Card("Bibikar et al. 2022", "active weights", "active weights", "32(1−S)n")

    sparsity: Sparsity = Sparsity()

    def init(self, model: InitialModel, seed: int) -> ServerState:
        budgets = self.sparsity.budgets(model.layers)
        masks = prune_to_budgets(model.params, budgets)
        return replace(super().init(model, seed), params=masked(model.params, masks), masks=masks, budgets=budgets)
