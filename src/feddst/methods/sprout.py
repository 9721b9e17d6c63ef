"""Sprout, this package's own: a network that begins with few weights and grows, its mask moved by the server alone.

With little upload a sparser network learns more, because more rounds fit; with much of it a denser one does. So the
network begins at sparsity S₀ and stays there until round `begin`; from then to round `end` its density rises, by the
same factor each round, to that of `sparsity.level`. Every ΔR rounds the server drops the share α_r of each layer's
active weights, the smallest, and grows what the layer lacks of its new budget. Clients train within the mask that they
receive and upload no masks at all: where to grow is drawn at random, or, with `units`, the likelier the more the
weights of the unit before and of the unit behind amount to. What grows starts at zero.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from feddst.errors import OptionError
from feddst.methods.base import Card
from feddst.methods.fedopt import FedAdam
from feddst.methods.randommask import RandomMask
from feddst.options import option
from feddst.protocol import InitialModel, Layer, ServerState, SparseSum, count_active, generator, masked
from feddst.sparsity import drop_smallest, grow_largest, prune_to_budgets

FAINT = 1e-3
"""A unit without weights is drawn as if it had this share of the mean unit's."""


@dataclass(frozen=True)
class Sprouting:
    """How a network grows, and how much of its mask moves."""

    start: float = option(0.95, "S₀: sparsity at first, at least sparsity.level", at_least=0, below=1)
    begin: int = option(50, "the round from which on density rises", at_least=1)
    end: int = option(400, "the round from which on it is that of sparsity.level", at_least=1)
    every: int = option(10, "ΔR: rounds between two changes of the mask", at_least=1)
    alpha: float = option(0.1, "α: share of each layer's weights replaced in round 1", at_least=0, at_most=1)
    until: int = option(
        400, "R_end: from this round on nothing is replaced; α falls as a cosine until then", at_least=1
    )
    where: Literal["random", "units"] = option(
        "random", "where weights grow: anywhere, or likelier at units with much weight"
    )

    def level(self, r: int, final: float) -> float:
        """The sparsity after round r."""
        first, last = 1 - self.start, 1 - final
        done = min(1.0, max(0.0, (r - self.begin) / max(1, self.end - self.begin)))
        return float(1 - first * (last / first) ** done)

    def share(self, r: int) -> float:
        """α_r."""
        return self.alpha / 2 * (1 + math.cos(math.pi * r / self.until)) if r < self.until else 0.0

    def due(self, r: int) -> bool:
        """Whether the mask may change after round r."""
        return r % self.every == 0 and r < max(self.until, self.end + self.every)


@dataclass(frozen=True)
class Sprout(RandomMask):
    """RandomMask that begins sparser, grows, and replaces its smallest weights, all of it on the server."""

    name: ClassVar[str] = "sprout"
    summary: ClassVar[str] = "a sparse network that begins sparser still and grows; the server alone moves its mask"
    card: ClassVar[Card] = Card(
        "this package", "active weights", "active weights; the mask when it has changed", "at most 32(1−S)n"
    )

    sprout: Sprouting = Sprouting()

    def init(self, model: InitialModel, seed: int) -> ServerState:
        state = super().init(model, seed)
        budgets = self.budgets(model.layers, 0)
        masks = prune_to_budgets(model.params, budgets)
        return replace(state, params=masked(model.params, masks), masks=masks, budgets=budgets)

    def budgets(self, layers: tuple[Layer, ...], r: int) -> dict[str, int]:
        """How many weights each layer has after round r."""
        return replace(self.sparsity, level=self.sprout.level(r, self.sparsity.level)).budgets(layers)

    def aggregate(self, state: ServerState, total: SparseSum) -> ServerState:
        after = super().aggregate(state, total)
        if not self.sprout.due(state.round):
            return after
        layers = tuple(Layer(name, tuple(mask.shape)) for name, mask in sorted(state.masks.items()))
        budgets = self.budgets(layers, state.round)
        masks = self.moved(after, budgets, state.round)
        params, extra = masked(after.params, masks), self.forget(after.extra, masks)
        return replace(after, params=params, masks=masks, budgets=budgets, extra=extra)

    def moved(self, state: ServerState, budgets: Mapping[str, int], r: int) -> dict[str, Tensor]:
        """The masks after a change: what is small has left, what was missing has grown."""
        draws, share = generator(state.seed, "sprout", r), self.sprout.share(r)
        active = count_active(state.masks)
        found: dict[str, Tensor] = {}
        for name in sorted(state.masks):
            theta, mask = state.params[name][None], state.masks[name][None]
            lost = max(active[name] - budgets[name], 0) + round(share * min(active[name], budgets[name]))
            kept = drop_smallest(theta, mask, lost)
            missing = budgets[name] - (active[name] - min(lost, active[name]))
            found[name] = grow_largest(self.scores(theta[0], mask[0], draws)[None], kept, missing)[0]
        return found

    def scores(self, theta: Tensor, mask: Tensor, draws: np.random.Generator) -> Tensor:
        """Numbers of which the largest are grown: a draw with a probability for each weight."""
        chance = torch.from_numpy(1 - draws.random(tuple(mask.shape))).to(mask.device)  # in (0, 1]
        if self.sprout.where == "random":
            return chance
        return chance.log() / _likelihood(theta.double() * mask)

    def check(self) -> None:
        super().check()
        if self.sprout.start < self.sparsity.level:
            raise OptionError(
                f"sprout.start must be at least sparsity.level ({self.sparsity.level:g}), got {self.sprout.start:g}"
            )
        if self.sprout.end < self.sprout.begin:
            raise OptionError(f"sprout.end must be at least sprout.begin ({self.sprout.begin}), got {self.sprout.end}")


@dataclass(frozen=True)
class SproutAdam(FedAdam, Sprout):
    """Sprout whose server steps with Adam before it moves the mask."""

    name: ClassVar[str] = "sprout+fedadam"
    summary: ClassVar[str] = "Sprout with Adam on the server"
    card: ClassVar[Card] = replace(Sprout.card, paper="both")


@dataclass(frozen=True)
class RandomMaskAdam(FedAdam, RandomMask):
    """RandomMask whose server steps with Adam."""

    name: ClassVar[str] = "randommask+fedadam"
    summary: ClassVar[str] = "RandomMask with Adam on the server"
    card: ClassVar[Card] = replace(RandomMask.card, paper="both")


def _likelihood(weights: Tensor) -> Tensor:
    """For each weight [out, in, …] the sum of |weights| of its output times that of its input, none of them 0."""
    size = weights.abs().flatten(2) if weights.ndim > 2 else weights.abs()[..., None]
    out, into = size.sum(dim=(1, 2)), size.sum(dim=(0, 2))
    out, into = (
        out + FAINT * out.mean() + torch.finfo(out.dtype).tiny,
        into + FAINT * into.mean() + torch.finfo(into.dtype).tiny,
    )
    product = (out / out.max())[:, None] * (into / into.max())[None]
    return product.reshape(*product.shape, *[1] * (weights.ndim - 2)).expand(weights.shape)
