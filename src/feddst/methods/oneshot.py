"""One-shot pruning: one client looks at the dense initial network once; then FedAvgM within the mask for ever.

In round 0 no client trains: one sends a tensor that it computes from its images. SNIP (Lee et al., ICLR
2019) takes the gradient g of one minibatch and keeps the weights of largest |θ⊙g|, those whose removal would change the
loss most. GraSP (Wang et al., ICLR 2020) takes Hg, with the gradient g and the Hessian H of the prunable weights and
the network's outputs divided by 200, and removes the weights of largest −θ⊙Hg, those whose removal would let the
gradient flow best.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from feddst.clients.steps import Report
from feddst.core import (
    Aggregator,
    ClientPlan,
    InitialModel,
    Layer,
    ServerState,
    Tensors,
    count_active,
    masked,
)
from feddst.errors import OptionError
from feddst.methods.base import Card
from feddst.methods.randommask import RandomMask
from feddst.options import option
from feddst.sparsity import Sparsity, prune_within
from feddst.sparsity.masks import top


@dataclass(frozen=True)
class OneShot:
    """How the mask is made of one client's scores."""

    scope: Literal["global", "layer", "erk"] = option(
        "global",
        "scores are ranked over all layers together, or within each: every layer keeps the same share (layer) or what "
        "sparsity.distribution gives it (erk)",
    )
    client: Literal["random", "first"] = option(
        "random", "who is asked: a client at random, or (published code, GraSP) always client 0"
    )
    kept: Literal["1-S", "S"] = option(
        "1-S", "the share of the prunable weights that the first mask keeps: 1−S, or (published code, GraSP) S itself"
    )
    server_prunes: bool = option(
        False,
        "if a mask keeps more than 1−S, as with kept = S, the server cuts each layer by magnitude to what "
        "sparsity.distribution gives it after round 1 (published code, GraSP)",
    )
    images: Literal["batch", "minibatches"] = option(
        "batch",
        "what a client looks at: one minibatch, of GraSP as balanced as its classes allow, or (published code, GraSP) "
        "all minibatches of an epoch, whose mean losses GraSP adds up",
    )


@dataclass(frozen=True)
class OneShotPruning(RandomMask):
    """RandomMask with a mask from one client's answer instead of the initial weights alone."""

    report: ClassVar[Report]

    oneshot: OneShot = OneShot()

    @property
    def reads_gradients(self) -> bool:
        return True

    @abstractmethod
    def worth(self, theta: Tensor, reported: Tensor) -> Tensor:
        """A score for each weight of a layer, from what the client reported; the largest stay."""

    def init(self, model: InitialModel, seed: int) -> ServerState:
        later = self.sparsity.budgets(model.layers) if self.oneshot.server_prunes else {}  # what `pruned_again` needs
        extra = {f"later/{name}": torch.tensor(budget) for name, budget in later.items()}
        return ServerState(
            round=0,
            seed=seed,
            params=model.params,
            buffers=model.buffers,
            budgets=self.first_budgets(model.layers),
            extra={**self.server_step.fresh(model.params), **extra},
        )

    def first_budgets(self, layers: Sequence[Layer]) -> dict[str, int]:
        """What each layer keeps in round 0; with scope `global` only their sum counts."""
        level = self.sparsity.level if self.oneshot.kept == "1-S" else 1 - self.sparsity.level
        distribution = "uniform" if self.oneshot.scope == "layer" else self.sparsity.distribution
        return Sparsity(level, distribution).budgets(layers)

    def cohort(self, state: ServerState, sampled: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
        if state.round > 0:
            return super().cohort(state, sampled)
        return [0] if self.oneshot.client == "first" else [int(sampled[0])]

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        plan = super().plan(state, client)
        return plan if state.round > 0 else replace(plan.adding(self.asked(state)), train=False)

    def asked(self, state: ServerState) -> Report:
        """What a client is asked for in round 0."""
        return self.report if self.oneshot.images == "batch" else replace(self.report, images="minibatches")

    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        if state.round > 0:
            return self.pruned_again(super().aggregate(state, total))
        reported = total.mean(self.report.kind)
        worths = {name: self.worth(state.params[name], reported[name]) for name in state.budgets}
        if self.oneshot.scope == "global":
            masks = best_of_all(worths, sum(state.budgets.values()))
        else:
            masks = {name: top(worth[None], state.budgets[name])[0] for name, worth in worths.items()}
        return state.next(params=masked(state.params, masks), masks=masks, budgets=count_active(masks))

    def pruned_again(self, state: ServerState) -> ServerState:
        """The state with a network no denser than 1−S, if `server_prunes`."""
        if not self.oneshot.server_prunes:
            return state
        later = {name: int(state.extra[f"later/{name}"]) for name in state.budgets}
        if sum(state.budgets.values()) <= sum(later.values()):
            return state
        masks = prune_within(state.params, later, among=state.masks, held=state.masks)
        kept = self.forget(state.extra, masks)
        return replace(state, params=masked(state.params, masks), masks=masks, budgets=count_active(masks), extra=kept)

    def check(self) -> None:
        super().check()
        if self.oneshot.kept == "S" and self.sparsity.level == 0:
            raise OptionError("oneshot.kept is S and sparsity.level is 0: no weight would be kept")


def best_of_all(worths: Tensors, count: int) -> dict[str, Tensor]:
    """Masks of the `count` largest worths over all layers together; a layer may end up empty."""
    flat = torch.cat([worth.reshape(-1) for worth in worths.values()])
    chosen = torch.split(top(flat[None], count)[0], [worth.numel() for worth in worths.values()])
    return {name: mask.reshape(worths[name].shape) for name, mask in zip(worths, chosen, strict=True)}


@dataclass(frozen=True)
class SNIP(OneShotPruning):
    """Keeps the weights whose removal would change the loss most."""

    name: ClassVar[str] = "snip"
    summary: ClassVar[str] = "FedAvgM in a mask of the largest |θ·gradient| on one client (Lee et al. 2019)"
    card: ClassVar[Card] = Card(
        "Lee et al. 2019",
        "active weights; in round 0 one client's dense gradient",
        "active weights; in round 0 all weights to one client, later the mask once",
        "32(1−S)n",
    )
    report: ClassVar[Report] = Report("gradient", images="minibatch")

    def worth(self, theta: Tensor, reported: Tensor) -> Tensor:
        return (theta * reported).abs()


@dataclass(frozen=True)
class GraSP(OneShotPruning):
    """Removes the weights whose removal would let the gradient flow best."""

    name: ClassVar[str] = "grasp"
    summary: ClassVar[str] = "FedAvgM in a mask that preserves the gradient flow on one client (Wang et al. 2020)"
    card: ClassVar[Card] = replace(
        SNIP.card,
        paper="Wang et al. 2020",
        up="active weights; in round 0 one client's dense product of Hessian and gradient",
    )
    report: ClassVar[Report] = Report("hessian-gradient", images="balanced", temperature=200.0)

    def asked(self, state: ServerState) -> Report:
        return replace(super().asked(state), within=frozenset(state.budgets))

    def worth(self, theta: Tensor, reported: Tensor) -> Tensor:
        return theta * reported  # the score is −θ⊙Hg, and the highest leave
