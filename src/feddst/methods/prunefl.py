"""PruneFL (Jiang et al., IEEE TNNLS 2022): FedAvgM within a mask that the server chooses anew from squared gradients.

In round 0 one client begins with the dense network and trains by itself; every ΔR passes over its images it chooses a
mask anew, by the rule below with r = 0, until the density has changed by at most a tenth five times in a row. The
server takes its weights and its mask over. After that, every ΔR rounds, clients send squared gradients beside their
weights. Let g² be their mean, over clients and over all steps that each of them takes in the round, t the time that a
weight adds to a round, and T the time of a round without any. Of each layer's active weights the share
0.3·0.5^(r/10000), the smallest, may leave, and every inactive weight may enter; the others stay. Γ = Σg²/(T + Σt), over
what is kept, is about how fast the loss falls. The server goes through the candidates of all layers by falling g²/t and
keeps each while its g²/t exceeds Γ, which gives the largest Γ there is. What leaves is set to zero, and what enters
starts there. How dense the network becomes is a result.

As in the authors' code, training goes on from that first client's weights, and biases and norms, whose time is part of
T, count in Γ. Their code differs in three ways: after the first stage a client squares the sum of a round's gradients,
not each of them; it gathers squares in every round, here only rounds that end with a new mask do, since few of many
clients take part in a round; and it chooses no mask before the accuracy is 1.5 times that of chance. With
`importance = "mean"` clients send gradients, as the FedDST paper has it, and g² is the square of the mean over clients
and over all images of each at the end of the round. With `initial_rounds = 0` the first client trains for one round and
reports as others do.

`published` is what the FedDST authors' code compares with. It goes through *all* weights by falling g², whatever their
magnitude, and keeps each while its g²/t is at least Γ (without biases) or it is among the first 1 − p of all. p is 0.3
in round 0 and 0.3·0.5^(r−1) after that: it halves not in 10,000 rounds but in one. With reconfigurations in rounds 2,
52, 102, … that is a floor of 70 % at first, of 85 % in round 2, and of all weights in round 52: for a network of a
quarter of a million weights, p is less than one of them from round 18 on. So from the second reconfiguration on the
mask is all ones, and the method is FedAvgM with gradients sent for nothing.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from feddst.clients.steps import InitialPruning, Report
from feddst.core import (
    Aggregator,
    ClientPlan,
    InitialModel,
    ServerState,
    Tensors,
    count_active,
    masked,
)
from feddst.core.model import LayerTimes
from feddst.errors import ModelError
from feddst.methods.base import Card
from feddst.methods.fedavg import FedAvgM
from feddst.options import option
from feddst.sparsity import Sparsity
from feddst.sparsity.reconfiguration import reconfigure, reconfigure_published


@dataclass(frozen=True)
class Reconfiguration:
    """When the server chooses the mask anew, and by what rule."""

    every: int = option(50, "ΔR: rounds between reconfigurations", at_least=1)
    prunable: float = option(
        0.3, "share of each layer's active weights, the smallest, that may leave at first", at_least=0, below=1
    )
    halving: int = option(
        10_000, "rounds in which that share halves; (published code) 1, whatever this says", at_least=1
    )
    initial_rounds: int = option(
        1000,
        "at most so many rounds, a pass over its images each, in which the first client trains and prunes alone, every "
        "ΔR of them, until its density settles; 0, or (published code) whatever this says: it prunes once, after its "
        "epochs",
        at_least=0,
    )
    layer_times: Literal["measured", "flops", "equal"] = option(
        "measured",
        "the time t of a layer's weights: measured on this machine when the run begins, with the sparse kernels if "
        "they train and else in PyTorch, its multiply-adds with T = 0, or the same for all with T = 0; only the last "
        "two make the same run again, and without a T the first client keeps very few weights",
    )
    importance: Literal["squares", "mean"] = option(
        "squares",
        "what a weight is worth: the mean square of its gradients in all steps of clients' rounds, or (FedDST's text; "
        "published code, whatever this says) the square of their mean gradient at the end",
    )
    variant: Literal["authors", "published"] = option(
        "authors",
        "the PruneFL authors' rule, or that of the FedDST authors' published code, which soon keeps every weight",
    )

    @property
    def squares(self) -> bool:
        """Whether clients are asked for squared gradients, instead of gradients."""
        return self.importance == "squares" and self.variant == "authors"

    def settles(self, r: int) -> bool:
        """Whether in round r one client alone trains and prunes until its density settles."""
        return r == 0 and self.initial_rounds > 0 and self.variant == "authors"

    def due(self, r: int) -> bool:
        """Whether round r ends with a reconfiguration."""
        if self.variant == "published":
            return r == 0 or (r >= 2 and (r - 2) % self.every == 0)
        return r % self.every == 0

    def share(self, r: int) -> float:
        """The share of weights that may leave in round r."""
        if self.variant == "published":
            return float(self.prunable * 0.5 ** max(0, r - 1))
        return float(self.prunable * 0.5 ** (r / self.halving))


@dataclass(frozen=True)
class PruneFL(FedAvgM):
    """FedAvgM within a mask that maximises the loss's fall per time, as far as gradients tell."""

    name: ClassVar[str] = "prunefl"
    summary: ClassVar[str] = (
        "FedAvgM in a mask chosen anew from squared gradients for the fastest fall of the loss (Jiang et al. 2022)"
    )
    card: ClassVar[Card] = Card(
        "Jiang et al. 2022",
        "active weights; every ΔR rounds the dense squared gradient; in round 0 one client's weights and mask",
        "active weights; the mask when it has changed",
        "32(1−S)n, every ΔR rounds 32n more",
        result="one model; its S is found, not given",
    )

    prunefl: Reconfiguration = Reconfiguration()

    @property
    def reads_gradients(self) -> bool:
        return True

    @property
    def reads_squares(self) -> bool:
        return self.prunefl.squares

    def init(self, model: InitialModel, seed: int) -> ServerState:
        every_weight = Sparsity(0.0, "uniform").budgets(model.layers)
        times = self.times(model)
        constant = {"time": torch.tensor(times.constant, dtype=torch.float64)}
        each = {f"time/{name}": torch.tensor(t, dtype=torch.float64) for name, t in times.per_weight.items()}
        state = super().init(model, seed)
        return replace(
            state,
            round=0,
            masks={layer.name: torch.ones(layer.shape, dtype=torch.bool) for layer in model.layers},
            budgets=every_weight,
            extra={**state.extra, **constant, **each},
        )

    def times(self, model: InitialModel) -> LayerTimes:
        """The time that a round takes, kept in the state, since another measurement would differ."""
        if self.prunefl.layer_times == "equal":
            n = sum(layer.size for layer in model.layers)
            return LayerTimes({layer.name: 1 / n for layer in model.layers})
        if model.layer_times is None:
            raise ModelError(f"prunefl.layer_times is {self.prunefl.layer_times}, but nothing here can run the model")
        return model.layer_times(self.prunefl.layer_times)

    def cohort(self, state: ServerState, sampled: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
        return super().cohort(state, sampled if state.round > 0 else sampled[:1])

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        if self.prunefl.settles(state.round):
            # Without a proximal term: it would hold the one client back at random weights for all its rounds.
            return ClientPlan(self.local).adding(self.settling(state))
        plan = super().plan(state, client)
        return plan.adding(self.asked) if self.prunefl.due(state.round) else plan

    def settling(self, state: ServerState) -> InitialPruning:
        """The first client's step in round 0."""
        options, times = self.prunefl, self.remembered(state)
        return InitialPruning(options.initial_rounds, options.every, options.prunable, times.per_weight, times.constant)

    def remembered(self, state: ServerState) -> LayerTimes:
        """The times that the state has kept."""
        each = {name: float(state.extra[f"time/{name}"]) for name in state.masks}
        return LayerTimes(each, float(state.extra["time"]))

    @property
    def asked(self) -> Report:
        """What clients report when the mask is chosen anew."""
        return Report("squared-gradient" if self.prunefl.squares else "gradient")

    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        after = super().aggregate(state, total)
        if not self.prunefl.due(state.round):
            return after
        masks = self.chosen(state, after, total)
        return replace(
            after,
            params=masked(after.params, masks),
            masks=masks,
            budgets=count_active(masks),
            extra=self.forget(after.extra, masks),
        )

    def step(self, state: ServerState, total: Aggregator) -> tuple[Tensors, Tensors]:
        if self.prunefl.settles(state.round):
            return total.mean(), state.extra  # the first client's weights are taken over
        return super().step(state, total)

    def chosen(self, state: ServerState, after: ServerState, total: Aggregator) -> dict[str, Tensor]:
        """The new masks."""
        if self.prunefl.settles(state.round):
            kept = total.mean("kept")
            return {name: kept[name] > 0.5 for name in state.masks}
        gain, times, share = self.gain(total), self.remembered(state), self.prunefl.share(state.round)
        if self.prunefl.variant == "published":
            return reconfigure_published(gain, state.masks, times, share)
        return reconfigure(after.params, gain, state.masks, times, share)

    def gain(self, total: Aggregator) -> dict[str, Tensor]:
        """g² of every parameter."""
        if self.prunefl.squares:
            return dict(total.mean("squared-gradient"))
        return {name: g.double() ** 2 for name, g in total.mean("gradient").items()}
