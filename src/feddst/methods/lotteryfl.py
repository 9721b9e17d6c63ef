"""LotteryFL (Li et al., SEC 2021): every client looks for a sparse network of its own, a winning lottery ticket.

A client holds a mask m_c, all ones at first, and never trains on a fifth of its images. It receives all weights θ. If
θ⊙m_c gets more than half of those images right, and m_c keeps more than its budgets, every layer drops the fifth of
its active weights that is smallest in |θ|, and what is left goes back to its initial values: θ_c = θ⁰⊙m_c. Else
θ_c = θ⊙m_c. The client trains θ_c within m_c and sends the weights that m_c keeps, with m_c itself. The server takes
the mean of each weight over the clients that hold it, and keeps the old value where none does.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from feddst.clients.steps import LotteryPruning
from feddst.clients.steps.lottery import own_masks
from feddst.core import (
    Aggregator,
    ClientPlan,
    ClientState,
    InitialModel,
    ServerState,
    Tensors,
    masked,
)
from feddst.methods.base import Card
from feddst.methods.fedavg import FedAvgM
from feddst.options import option
from feddst.sparsity import Sparsity


@dataclass(frozen=True)
class Lottery:
    """When a client prunes its network, and how much of it."""

    threshold: float = option(
        0.5, "a client prunes when it gets more than this share of its held-out images right", at_least=0, at_most=1
    )
    prune: float = option(0.2, "share of each layer's active weights dropped at a time", above=0, below=1)
    held_out: float = option(0.2, "share of a client's images that it never trains on", above=0, below=1)


@dataclass(frozen=True)
class LotteryFL(FedAvgM):
    """The server's model is dense and poor by itself; a client's own model is the server's under the client's mask.

    Clients keep only their masks. The weights they trained would be more accurate, but take 32 bits each to keep
    instead of one.
    """

    name: ClassVar[str] = "lotteryfl"
    summary: ClassVar[str] = "every client prunes a sparse network of its own and rewinds it (Li et al. 2021)"
    card: ClassVar[Card] = Card(
        "Li et al. 2021",
        "the weights that the client's own mask keeps, and that mask",
        "all weights; the initial ones follow from the seed",
        "at most 33n, 32(1−S)n + n in the end",
        "its mask",
        "one model a client",
    )
    keeps_state: ClassVar[bool] = True

    sparsity: Sparsity = Sparsity()
    lottery: Lottery = Lottery()

    def init(self, model: InitialModel, seed: int) -> ServerState:
        state, budgets = super().init(model, seed), self.sparsity.budgets(model.layers)
        first = {f"initial/{name}": value for name, value in model.params.items()}
        return replace(state, budgets=budgets, extra={**state.extra, **first})

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        lottery = self.lottery
        step = LotteryPruning(lottery.threshold, lottery.prune, lottery.held_out, state.budgets)
        return super().plan(state, client).adding(step)

    def mean(self, state: ServerState, total: Aggregator, otherwise: Tensors | None) -> Tensors:
        return super().mean(state, total, state.params)

    def personal(self, state: ServerState, kept: ClientState) -> Tensors | None:
        shapes = {name: state.params[name].shape for name in state.budgets}
        device = next(iter(state.params.values())).device
        return masked(state.params, own_masks(kept, shapes, device))
