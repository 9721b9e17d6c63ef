"""Sprout, this package's own: RandomMask whose server grows and moves the mask, which need not cost any upload.

The network may begin with fewer weights than it ends with, or with more, and differently spread over its layers: each
layer's number of weights then changes by the same factor each round. The same bytes train a smaller network for more
rounds, and accuracy grows with rounds: this pays as long as no layer is starved at first.

Every ΔR rounds each layer may also lose the share α_r of its weights and grow as many elsewhere, at zero; clients train
within the mask that they receive, and send none. The server chooses weights by what it knows anyway: how large they
are, and how much recent rounds have moved them. Where a unit's weights move, those that it lacks would move too: a
weight's gradient is the product of its input and of the gradient at its output. Layers whose weights move much may also
get more weights, at the expense of others. Or the server asks: before each change the clients of a round report the
gradient at the model that they receive, which costs upload, and do not train. Grown weights may be spared for some
rounds, since they begin at zero and so among the smallest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

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
    generator,
    masked,
)
from feddst.errors import OptionError
from feddst.methods.base import Card
from feddst.methods.layers import layers_of, stacked_in
from feddst.methods.randommask import RandomMask
from feddst.options import option
from feddst.sparsity import Distribution, Sparsity, drop_smallest, grow_largest, prune_to_budgets

MEMORY = 0.9
"""How much of a weight's movement is remembered from one round to the next."""
_PREFIX = "movement/"
_SPARED = "spared/"
"""Until which round a weight is spared."""
_GRADIENT = Report("gradient")


@dataclass(frozen=True)
class Sprouting:
    """How much of a mask moves, and what decides where."""

    every: int = option(10, "ΔR: rounds between two changes of the mask", at_least=1)
    alpha: float = option(0.0, "α: share of each layer's weights replaced in round 1", at_least=0, at_most=1)
    until: int = option(
        1000, "R_end: from this round on nothing is replaced; α falls as a cosine until then", at_least=1
    )
    drop: Literal["magnitude", "movement", "product"] = option(
        "magnitude", "which weights leave: the smallest, those that have moved least, or those with the least of both"
    )
    grace: int = option(
        0, "for how many rounds a weight that has grown does not leave, unless its layer must shrink", at_least=0
    )
    where: Literal["random", "scarce", "movement", "gradient"] = option(
        "random",
        "where weights grow: anywhere, likelier between units that have few, likelier between units whose weights have "
        "moved much, or where clients' mean gradient at the model they receive is steepest; they report it, whole, in "
        "a round in which they do not train",
    )
    layers: Literal["fixed", "movement"] = option(
        "fixed",
        "how many weights a layer has: as sparsity.distribution and sprout.spread give it, or α_r of them and all that "
        "grow are dealt out to layers whose weights have moved much",
    )
    start: float = option(
        0.98,
        "S at first; it falls to sparsity.level until sprout.end, or rises, if that is larger",
        at_least=0,
        below=1,
    )
    spread: Literal["same", Distribution] = option(
        "root",
        "how the weights are spread over the layers at first: same as sparsity.distribution, with which they end, or "
        "in another way; unless the network shrinks, no layer does",
    )
    begin: int = option(100, "the round from which on S and shares change to those of the end", at_least=1)
    end: int = option(2000, "the round from which on they are those; shorter runs end on the way", at_least=1)

    def done(self, r: int) -> float:
        """How much of the change from first to last is done after round r."""
        return 1.0 if r >= self.end else max(0.0, (r - self.begin) / max(1, self.end - self.begin))

    def share(self, r: int) -> float:
        """α_r."""
        return self.alpha / 2 * (1 + math.cos(math.pi * r / self.until)) if r < self.until else 0.0

    @property
    def replaces(self) -> bool:
        """Whether weights are ever replaced."""
        return self.alpha > 0 and self.until > self.every

    @property
    def watches(self) -> bool:
        """Whether it matters how much weights have moved."""
        return self.drop != "magnitude" or "movement" in (self.where, self.layers)


@dataclass(frozen=True)
class Sprout(RandomMask):
    """RandomMask that begins small and grows, and may replace weights, all of it on the server."""

    name: ClassVar[str] = "sprout"
    summary: ClassVar[str] = "a sparse network that the server alone grows or moves, so that clients upload no masks"
    card: ClassVar[Card] = Card(
        "this package",
        "active weights",
        "active weights; the mask when it has changed",
        "32(1−S)n, less while it grows",
    )

    sprout: Sprouting = Sprouting()

    def init(self, model: InitialModel, seed: int) -> ServerState:
        state = super().init(model, seed)
        budgets = self.budgets(model.layers, 0)
        masks = prune_to_budgets(model.params, budgets)
        extra = {**state.extra, **stacked_in(model)}
        return replace(state, params=masked(model.params, masks), masks=masks, budgets=budgets, extra=extra)

    @property
    def reads_gradients(self) -> bool:
        return self.sprout.where == "gradient"

    def plan(self, state: ServerState, client: int) -> ClientPlan:
        plan = super().plan(state, client)
        return replace(plan.adding(_GRADIENT), train=False) if self.asks(state) else plan

    def asks(self, state: ServerState) -> bool:
        """Whether clients of this round report gradients instead of training, since the mask is to change after it."""
        if not self.reads_gradients or not self.due(state.round):
            return False
        budgets = self.next_budgets(state, state.round)
        return any(enter for _, enter in self.turnover(state, budgets, state.round).values())

    @property
    def first(self) -> Sparsity:
        """The sparsity that the network begins with."""
        spread = self.sparsity.distribution if self.sprout.spread == "same" else self.sprout.spread
        return Sparsity(self.sprout.start, spread)

    @property
    def changes(self) -> bool:
        """Whether the network's sparsity or its spread over layers changes."""
        return self.first != self.sparsity

    def due(self, r: int) -> bool:
        """Whether the mask may change after round r."""
        sprout = self.sprout
        last = max(sprout.until, sprout.end + sprout.every) if self.changes else sprout.until
        return r % sprout.every == 0 and r < last

    def budgets(self, layers: tuple[Layer, ...], r: int) -> dict[str, int]:
        """How many weights each layer has after round r: from first to last they change by the same factor a round."""
        layers = tuple(sorted(layers, key=lambda layer: layer.name))  # the same halves are rounded up in any order
        last = self.sparsity.budgets(layers)
        if not self.changes:
            return last
        first, done = self.first.budgets(layers), self.sprout.done(r)
        last = grown(first, last)
        return {name: between(count, last[name], done) for name, count in first.items()}

    def aggregate(self, state: ServerState, total: Aggregator) -> ServerState:
        if self.asks(state):
            return self.with_next_mask(state, state.next(), total.mean(_GRADIENT.kind))
        after = super().aggregate(state, total)
        if self.sprout.watches:
            after = replace(after, extra={**after.extra, **_movement(state, total)})
        return self.with_next_mask(state, after, {}) if self.due(state.round) else after

    def with_next_mask(self, state: ServerState, after: ServerState, gradient: Tensors) -> ServerState:
        """The state after a round, with its next mask; `gradient` is what clients reported, if anything."""
        budgets = self.next_budgets(after, state.round)
        if budgets == state.budgets and not self.sprout.share(state.round):
            return after
        masks = self.moved(after, budgets, state.round, gradient)
        stayed = {name: mask & state.masks[name] for name, mask in masks.items()}  # entering weights begin anew
        params, extra = masked(after.params, masks), self.forget(after.extra, stayed)
        if self.sprout.grace:
            extra = {**extra, **self.spared(after, masks, state.round)}
        return replace(after, params=params, masks=masks, budgets=budgets, extra=extra)

    def next_budgets(self, state: ServerState, r: int) -> Mapping[str, int]:
        """How many weights each layer has after round r's change; dealing leaves it at least one."""
        planned = self.budgets(layers_of(state), r) if self.changes else state.budgets
        if self.sprout.layers == "fixed":
            return planned
        whole, share = sum(planned.values()), self.sprout.share(r)
        kept = {name: max(count - round(share * count), min(count, 1)) for name, count in state.budgets.items()}
        scale = min(1.0, whole / max(sum(kept.values()), 1))
        kept = {name: math.floor(scale * count) for name, count in kept.items()}
        rooms = [state.masks[name].numel() - count for name, count in kept.items()]
        wants = [root_mean(state.extra[_PREFIX + name], state.masks[name]) for name in kept]
        dealt = deal(whole - sum(kept.values()), wants, rooms)
        return {name: count + more for (name, count), more in zip(kept.items(), dealt, strict=True)}

    def spared(self, state: ServerState, masks: Mapping[str, Tensor], r: int) -> Tensors:
        """Until which round each weight is spared, if `masks` follow after round r."""
        until, before = r + self.sprout.grace, {name: state.extra.get(_SPARED + name, 0) for name in masks}
        return {
            _SPARED + name: torch.where(mask & ~state.masks[name], until, before[name]) for name, mask in masks.items()
        }

    def forget(self, extra: Tensors, masks: Mapping[str, Tensor]) -> Tensors:
        return masked(super().forget(extra, masks), {_PREFIX + name: mask for name, mask in masks.items()})

    def moved(self, state: ServerState, budgets: Mapping[str, int], r: int, gradient: Tensors) -> dict[str, Tensor]:
        """The masks after a change: the least important weights leave, absent ones grow, and none does both."""
        draws, found = generator(state.seed, "sprout", r), dict[str, Tensor]()
        for name, (leave, enter) in sorted(self.turnover(state, budgets, r).items()):
            mask, movement = state.masks[name], state.extra.get(_PREFIX + name)
            importance = spare(self.importance(state.params[name], movement), is_spared(state, name, r))
            kept = drop_smallest(importance[None], mask[None], leave)[0]
            scores = self.scores(mask, movement, gradient.get(name), draws)
            found[name] = grow_largest(scores[None], mask[None], enter)[0] & (kept | ~mask)
        return found

    def turnover(self, state: ServerState, budgets: Mapping[str, int], r: int) -> dict[str, tuple[int, int]]:
        """By layer, how many weights leave after round r and how many enter, so that it has its budget then."""
        found: dict[str, tuple[int, int]] = {}
        for name, mask in state.masks.items():
            active = state.budgets[name]
            fewer, more = sorted((active, budgets[name]))
            free = int((mask & ~is_spared(state, name, r)).sum())
            replaced = min(round(self.sprout.share(r) * fewer), mask.numel() - more, max(0, free - (active - fewer)))
            found[name] = active - fewer + replaced, budgets[name] - fewer + replaced
        return found

    def importance(self, theta: Tensor, movement: Tensor | None) -> Tensor:
        """A score for each weight; the smallest leave."""
        if movement is None or self.sprout.drop == "magnitude":
            return theta
        return movement if self.sprout.drop == "movement" else theta.abs() * movement.sqrt()

    def scores(
        self, mask: Tensor, movement: Tensor | None, gradient: Tensor | None, draws: np.random.Generator
    ) -> Tensor:
        """A score for each weight; the largest are grown. Gradients, or a draw with a probability for each."""
        if gradient is not None:
            return gradient.abs()
        chance = torch.from_numpy(1 - draws.random(tuple(mask.shape))).to(mask.device)  # in (0, 1]
        if self.sprout.where == "scarce":
            return chance.log() / scarcity(mask)
        if movement is None or self.sprout.where != "movement":
            return chance
        return chance.log() / expected_movement(movement, mask)

    def check(self) -> None:
        super().check()
        sprout, level = self.sprout, self.sparsity.level
        for name, usual, used in (
            ("drop", "magnitude", self.changes and sprout.start <= level),
            ("grace", 0, False),
            ("where", "random", self.changes),
            ("layers", "fixed", sprout.start != level),
        ):
            if getattr(sprout, name) != usual and not used and not sprout.replaces:
                raise OptionError(
                    f"sprout.{name} {getattr(sprout, name)} has no effect: with sprout.alpha {sprout.alpha:g}, "
                    f"sprout.every {sprout.every} and sprout.until {sprout.until} no weight is ever replaced"
                )
        if 0 < sprout.grace <= sprout.every:
            raise OptionError(
                f"sprout.grace must be 0 or more than sprout.every ({sprout.every}), when a weight could leave "
                f"first; got {sprout.grace}"
            )
        if self.reads_gradients and sprout.every == 1:
            raise OptionError(
                "sprout.every must be at least 2 with sprout.where gradient, or nobody trains while masks change; got 1"
            )
        if sprout.end < sprout.begin:
            raise OptionError(f"sprout.end must be at least sprout.begin ({sprout.begin}), got {sprout.end}")


def root_mean(movement: Tensor, mask: Tensor) -> float:
    """How much a layer's weights have moved: the root of their mean square."""
    return math.sqrt(float((movement.double() * mask).sum() / mask.sum().clamp_min(1)))


def grown(first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, int]:
    """The numbers of weights that layers end with: `last`, but unless the network shrinks, no layer does.

    A layer that would shrink keeps its weights; the others gain that much less, in proportion to their gains.
    """
    more = sum(last.values()) - sum(first.values())
    if more < 0:
        return dict(last)
    wants = [max(0, last[name] - count) for name, count in first.items()]
    dealt = deal(more, wants, wants)
    return {name: count + gain for (name, count), gain in zip(first.items(), dealt, strict=True)}


def between(first: int, last: int, done: float) -> int:
    """A layer's number of weights on the way from first to last; at least 1 before the end, unless both are 0."""
    if done == 1 or first == last:
        return last
    return max(1, round(math.pow(first, 1 - done) * math.pow(last, done)))


def deal(count: int, wants: Sequence[float], rooms: Sequence[int]) -> list[int]:
    """Divide `count` in proportion to `wants`, each part at most its room; what does not fit goes to the others.

    Fractions go to the parts closest to one more; a part that wants nothing gets some only when all others are full.
    """
    most = max(wants)
    parts = [max(want / most, 1e-9) if most else 1.0 for want in wants]
    full: set[int] = set()
    while True:
        rest = [i for i in range(len(rooms)) if i not in full]
        level = (count - sum(rooms[i] for i in full)) / (sum(parts[i] for i in rest) or 1.0)
        over = [i for i in rest if level * parts[i] > rooms[i]]
        if not over:
            break
        full.update(over)
    exact = [float(rooms[i]) if i in full else level * parts[i] for i in range(len(rooms))]
    dealt = [math.floor(part) for part in exact]
    closest = sorted(range(len(rooms)), key=lambda i: dealt[i] - exact[i])
    for i in [i for i in closest if dealt[i] < rooms[i]][: count - sum(dealt)]:
        dealt[i] += 1
    return dealt


def is_spared(state: ServerState, name: str, r: int) -> Tensor:
    """Which of a layer's weights do not leave after round r."""
    until = state.extra.get(_SPARED + name)
    return torch.zeros_like(state.masks[name]) if until is None else until > r


def spare(importance: Tensor, spared: Tensor) -> Tensor:
    """Importance with spared weights above all others, and in the same order among themselves."""
    size = importance.abs().double()  # the smallest must stay distinct beside the largest
    return torch.where(spared, 1 + size.max() + size, size)


def scarcity(mask: Tensor) -> Tensor:
    """How likely each weight [out, in, …] is to grow: the fewer its output and its input have, the likelier."""
    held = mask.double().reshape(*mask.shape[:2], -1)
    product = 1 / ((held.sum((1, 2)) + 1)[:, None] * (held.sum((0, 2)) + 1)[None])
    return product.reshape(*product.shape, *[1] * (mask.ndim - 2)).expand(mask.shape)


def expected_movement(movement: Tensor, mask: Tensor) -> Tensor:
    """How much each weight [out, in, …] may be expected to move, from those at the same output and the same input.

    It is the root of the product of both mean squares, relative to the layer's. Each mean counts one weight more than
    there are, with the mean movement of all: so units without weights are neither ruled out nor preferred.
    """
    ends = *mask.shape[:2], -1
    squares, held = (movement.double() * mask).reshape(ends), mask.double().reshape(ends)
    mean = squares.sum() / held.sum().clamp_min(1) + torch.finfo(torch.float64).tiny
    out = (squares.sum((1, 2)) / mean + 1) / (held.sum((1, 2)) + 1)
    into = (squares.sum((0, 2)) / mean + 1) / (held.sum((0, 2)) + 1)
    product = (out[:, None] * into[None]).sqrt()
    return product.reshape(*product.shape, *[1] * (mask.ndim - 2)).expand(mask.shape)


def _movement(before: ServerState, total: Aggregator) -> Tensors:
    """The square of how far clients have moved each weight; past rounds count ever less."""
    mean, found = total.mean(otherwise=before.params), {}
    for name in before.masks:
        step = (mean[name] - before.params[name]).square()
        past = before.extra.get(_PREFIX + name)
        found[_PREFIX + name] = step if past is None else MEMORY * past + step
    return found
