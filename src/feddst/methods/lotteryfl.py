"""LotteryFL (Li et al., SEC 2021): every client looks for a sparse network of its own, a winning lottery ticket.

A client holds a mask m_c, all ones at first, and never trains on a fifth of its images. It receives all weights θ. If
θ⊙m_c gets more than half of those images right, and m_c keeps more than its budgets, every layer drops the fifth of
its active weights that is smallest in |θ|, and what is left goes back to its initial values: θ_c = θ⁰⊙m_c. Else
θ_c = θ⊙m_c. The client trains θ_c within m_c and sends the weights that m_c keeps, with m_c itself. The server takes
the mean of each weight over the clients that hold it, and keeps the old value where nobody does.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from feddst.core import (
    ClientState,
    ClientWork,
    InitialModel,
    Masks,
    ServerState,
    SparseSum,
    Tensors,
    Ticket,
    masked,
)
from feddst.methods.base import Card
from feddst.methods.fedavg import FedAvgM
from feddst.options import option
from feddst.sparsity import Sparsity

_MASK = "mask/"


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

    Clients keep their masks alone. The weights they trained would serve them better still, but would have to be kept:
    32 bits for each weight instead of one.
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

    sparsity: Sparsity = Sparsity()
    lottery: Lottery = Lottery()

    def init(self, model: InitialModel, seed: int) -> ServerState:
        state, budgets = super().init(model, seed), self.sparsity.budgets(model.layers)
        first = {f"initial/{name}": value for name, value in model.params.items()}
        return replace(state, budgets=budgets, extra=first)

    def work(self, state: ServerState, client: int) -> ClientWork:
        lottery = self.lottery
        ticket = Ticket(lottery.threshold, lottery.prune, lottery.held_out, state.budgets)
        return replace(super().work(state, client), ticket=ticket)

    def step(self, state: ServerState, total: SparseSum) -> tuple[Tensors, Tensors]:
        return total.mean(otherwise=state.params), state.extra

    def personal(self, state: ServerState, kept: ClientState) -> Tensors | None:
        shapes = {name: state.params[name].shape for name in state.budgets}
        device = next(iter(state.params.values())).device
        return masked(state.params, own_masks(kept, shapes, device))


def own_masks(
    kept: ClientState, shapes: Mapping[str, Sequence[int]], device: torch.device | None = None
) -> dict[str, Tensor]:
    """The masks that a client holds, all ones where it has none yet."""
    masks: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        bits = kept.tensors.get(_MASK + name)
        if bits is None:
            masks[name] = torch.ones(tuple(shape), dtype=torch.bool)
        else:
            flags = np.unpackbits(bits.numpy(), count=math.prod(shape), bitorder="little")
            masks[name] = torch.from_numpy(flags.view(np.bool_)).reshape(tuple(shape))
    return {name: mask.to(device) for name, mask in masks.items()}


def kept_masks(masks: Masks) -> dict[str, Tensor]:
    """Masks as a client keeps them between rounds, eight weights in a byte."""
    return {
        _MASK + name: torch.from_numpy(np.packbits(mask.reshape(-1).numpy(), bitorder="little"))
        for name, mask in masks.items()
    }
