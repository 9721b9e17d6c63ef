"""FedDST: federated dynamic sparse training (Bibikar et al., AAAI 2022), Algorithm 1.

Every ΔR rounds until R_end, each client drops the α_r·budget smallest |θ| of each layer after its E_p-th
epoch and grows as many inactive weights where its gradient is largest. The server averages each weight over
the clients that hold it, θ[i] = Σ n_c θ_c[i] m_c[i] / Σ n_c m_c[i], and prunes each layer back to its budget.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from feddst.clients.steps import Growth, Readjust
from feddst.core import Aggregator, ClientPlan, InitialModel, ServerState, Tensors, masked
from feddst.errors import OptionError
from feddst.methods.base import Card
from feddst.methods.layers import layers_of, stacked_in
from feddst.methods.randommask import RandomMask
from feddst.options import option
from feddst.sparsity import Timetable, prune_within


@dataclass(frozen=True)
class MaskMerge:
    """What the server makes of clients' masks that differ. The paper has the first of each."""

    grown: Literal["holders", "all"] = option(
        "holders",
        "whom a weight is averaged over that was not broadcast: those who have grown it, or all, the others with 0; "
        "the same where clients readjust after their last epoch, when it is 0",
    )
    keep: Literal["largest", "most-held"] = option(
        "largest", "which weights stay: the largest, or those that most clients hold, and of these the largest"
    )


@dataclass(frozen=True)
class FedDST(RandomMask):
    """Begins as RandomMask does; then clients vote with their masks and the server keeps the largest weights."""

    name: ClassVar[str] = "feddst"
    summary: ClassVar[str] = (
        "sparse clients drop and grow connections, the server averages and prunes (Bibikar et al. 2022)"
    )

    card: ClassVar[Card] = Card(
        "Bibikar et al. 2022",
        "active weights; the mask when it was readjusted",
        "active weights; the mask when it has changed",
        "32(1−S)n, every ΔR rounds n more",
    )

    readjust: Timetable = Timetable()
    growth: Growth = Growth()
    merge: MaskMerge = MaskMerge()

    def init(self, model: InitialModel, seed: int) -> ServerState:
        state = super().init(model, seed)
        known = stacked_in(model) if self.readjust.dropped == "resolved" else {}
        return replace(state, extra={**state.extra, **known})

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        plan = super().plan(state, client)
        drop = self.drops(state)
        if not drop:
            return plan
        after = self.readjust.epoch(self.local.epochs)
        return plan.adding(Readjust(after, drop, state.budgets, self.growth))

    def drops(self, state: ServerState) -> dict[str, int]:
        """How many weights each layer drops in the state's round; empty when there is nothing to drop."""
        if self.readjust.dropped == "share":
            return self.readjust.drops(state.round, state.budgets)
        share, level = self.readjust.share(state.round), self.sparsity.level
        if not share:
            return {}
        left = replace(self.sparsity, level=level + (1 - level) * share).budgets(layers_of(state))
        return {name: max(0, budget - left[name]) for name, budget in state.budgets.items()}

    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        theta, extra = self.step(state, total)
        scores = by_votes(theta, total.votes()) if self.merge.keep == "most-held" else theta
        masks = prune_within(scores, state.budgets, among=total.held(), held=state.masks)
        kept = self.forget(extra, masks)
        return state.next(params=masked(theta, masks), buffers=total.mean("buffers"), masks=masks, extra=kept)

    def mean(self, state: ServerState, total: Aggregator, otherwise: Tensors | None) -> Tensors:
        mean = super().mean(state, total, otherwise)
        return mean if self.merge.grown == "holders" else {**mean, **shrunk(mean, state, total)}

    def check(self) -> None:
        super().check()
        if self.readjust.after_epoch > self.local.epochs:
            raise OptionError(
                f"readjust.after_epoch must be at most local.epochs ({self.local.epochs}), "
                f"got {self.readjust.after_epoch}"
            )


def shrunk(mean: Tensors, state: ServerState, total: Aggregator) -> dict[str, Tensor]:
    """Layers whose newly grown weights are averaged over all clients; those without them count as 0."""
    shares = {name: votes / total.weight for name, votes in total.votes().items()}
    return {name: torch.where(state.masks[name], mean[name], mean[name] * share) for name, share in shares.items()}


def by_votes(theta: Tensors, votes: Tensors) -> dict[str, Tensor]:
    """Scores that order a layer's weights by votes, and by size where votes are equal."""
    sizes = {name: theta[name].abs().double() for name in votes}
    return {name: votes[name] + size / (1 + size) for name, size in sizes.items()}
