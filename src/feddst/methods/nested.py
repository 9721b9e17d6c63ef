"""NestedMask: RandomMask for clients that can afford different numbers of weights.

Client c belongs to tier c mod T and holds a share s of each layer's budget: its largest weights, chosen anew after each
round. So the weaker clients' networks lie within those of the stronger ones, as the widths of HeteroFL do (Diao et al.,
ICLR 2021). The server averages each weight over the clients that hold it; one that no client held in a round stays
as it is.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from feddst.core import Aggregator, Broadcast, InitialModel, ServerState, Tensors
from feddst.errors import OptionError
from feddst.methods.base import Card
from feddst.methods.randommask import RandomMask
from feddst.options import option
from feddst.sparsity import prune_within


@dataclass(frozen=True)
class Tiers:
    """How much of the network each client holds."""

    shares: tuple[float, ...] = option(
        (1.0, 0.5, 0.25), "share of each layer's budget that clients 0, 1, … hold, over and over", above=0, at_most=1
    )


@dataclass(frozen=True)
class NestedMask(RandomMask):
    """A fixed sparse network of which each client holds as much as its tier says."""

    name: ClassVar[str] = "nestedmask"
    summary: ClassVar[str] = "RandomMask whose clients hold different shares of it: each its tier's largest weights"
    card: ClassVar[Card] = Card(
        "after Diao et al. 2021",
        "the tier's weights",
        "the tier's weights; its mask when it has changed",
        "32s(1−S)n for a tier of share s",
    )

    tiers: Tiers = Tiers()

    def init(self, model: InitialModel, seed: int) -> ServerState:
        return self._with_tiers(super().init(model, seed))

    def broadcast(self, state: ServerState, client: int) -> Broadcast:
        tier = client % len(self.tiers.shares)
        masks = {name: state.extra[f"tier {tier}/{name}"] for name in state.masks}
        return replace(super().broadcast(state, client), masks=masks)

    def mean(self, state: ServerState, total: Aggregator, otherwise: Tensors | None) -> Tensors:
        return super().mean(state, total, state.params if otherwise is None else otherwise)

    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        return self._with_tiers(super().aggregate(state, total))

    def check(self) -> None:
        super().check()
        if not self.tiers.shares:
            raise OptionError("tiers.shares must have at least one share, got none")

    def _with_tiers(self, state: ServerState) -> ServerState:
        """The state with the masks of each tier, among the largest weights of the whole network."""
        own = {
            f"tier {tier}/{name}": mask
            for tier, share in enumerate(self.tiers.shares)
            for name, mask in tier_masks(state, share).items()
        }
        return replace(state, extra={**state.extra, **own})


def tier_masks(state: ServerState, share: float) -> dict[str, Tensor]:
    """Masks of the largest weights of each layer: this share of its budget, at least one."""
    budgets = {name: max(1, round(share * budget)) for name, budget in state.budgets.items()}
    return prune_within(state.params, budgets, among=state.masks, held=state.masks)
