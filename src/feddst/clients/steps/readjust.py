"""A mask readjustment: drop the smallest weights, grow where the gradient is largest.

The functions take tensors of M clients side by side, [M, *shape]; all hold equally many weights of each layer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from feddst.clients.client import Client
from feddst.core import ClientPlan, Masks, Tensors, generator
from feddst.core.minibatches import Indices
from feddst.core.registry import register
from feddst.core.step import ClientStep, MaskBounds
from feddst.core.tensors import count_kept, positions_in
from feddst.options import option, validate
from feddst.sparsity import drop_smallest, grow_from_any, grow_largest


@dataclass(frozen=True)
class Growth:
    """How a client chooses the connections it grows."""

    rule: Literal["gradient", "random"] = option("gradient", "grow the largest |gradient|, or at random")
    grow_from: Literal["inactive", "any"] = option(
        "inactive", "candidates: inactive weights, or (published code) any, zeroing active ones it picks"
    )
    images: Literal["all", "last-batch"] = option(
        "all", "the growth gradient is averaged over all images, or (published code) the last minibatch"
    )
    max_images: int = option(1024, "at most this many images enter the growth gradient", at_least=1)
    weights: Literal["pruned", "unpruned"] = option(
        "pruned", "the growth gradient is taken after the drop, or (published code) before it"
    )


@register
@dataclass(frozen=True)
class Readjust(ClientStep):
    """Drop `drop[layer]` active weights of each layer, then grow back to `budgets[layer]`.

    A straggler that stops before `epoch` readjusts after its last one.
    """

    name: ClassVar[str] = "readjust"

    epoch: int
    drop: Mapping[str, int]
    budgets: Mapping[str, int]
    growth: Growth = Growth()

    def exchange(self, layer: str, active: int) -> tuple[int, int]:
        """How many of a layer's `active` weights leave, and how many then enter to fill its budget."""
        if layer not in self.drop:
            return 0, 0
        budget = self.budgets[layer]
        kept = max(0, min(active, budget - self.drop[layer]))
        return active - kept, budget - kept

    def pauses(self, epochs: int) -> Sequence[int]:
        return (min(self.epoch, epochs),)

    def after_epoch(self, client: Client, last_batch: Indices) -> None:
        client.expose()
        with torch.no_grad():
            client.adopt(_readjusted(client, self, last_batch))

    def mask_bounds(self, layer: str, active: int | None) -> MaskBounds | None:
        if active is None:
            return None
        leaving, entering = self.exchange(layer, active)
        most = self.budgets[layer] if layer in self.drop else active
        least = most if self.growth.grow_from == "inactive" else active - leaving
        return MaskBounds(least, most, leaving, entering)

    def differentiated(self, plan: ClientPlan, images: int) -> int:
        if self.growth.rule != "gradient":
            return 0
        return min(images, self.growth.max_images if self.growth.images == "all" else plan.local.batch)

    def check(self) -> None:
        if self.epoch < 1:
            raise ValueError(f"readjust.epoch must be at least 1, got {self.epoch}")
        validate(self.growth)


def grown_by(client: Client, growth: Growth, last_batch: Indices) -> Indices:
    """The images over which a client averages the growth gradient."""
    if growth.images == "last-batch":
        return last_batch
    return growth_images(len(client.examples), growth, *client.draw)


def _readjusted(client: Client, step: Readjust, last_batch: Indices) -> Masks:
    """The client's new masks; its dropped and grown weights are zeroed."""

    def scores() -> Tensors:
        if step.growth.rule == "random":
            return _alone(random_scores(client.masks, *client.draw))
        chosen = torch.from_numpy(grown_by(client, step.growth, last_batch))
        with torch.enable_grad():
            gradient = client.mean_gradient(chosen.to(client.examples.device))
        return {name: g.abs()[None] for name, g in gradient.items()}

    params = {name: value.detach() for name, value in client.params.items()}
    masks = readjust(
        _alone(params), [_alone(kept) for kept in client.slots.values()], _alone(client.masks), step, scores
    )
    return {name: mask[0] for name, mask in masks.items()}


def _alone(tensors: Tensors) -> Tensors:
    """One client's tensors as [1, *shape], in the same memory."""
    return {name: value[None] for name, value in tensors.items()}


def readjust(
    params: Tensors, slots: Sequence[Tensors], masks: Masks, step: Readjust, scores: Callable[[], Tensors]
) -> dict[str, Tensor]:
    """The new masks; weights that leave or enter are zeroed, and so are their optimizer slots.

    `scores` computes what growth ranks by, from the weights at the time of the call.
    """
    early = scores() if step.growth.weights == "unpruned" else None
    kept = drop(params, slots, masks, step)
    return {**masks, **grow(params, slots, masks, kept, early or scores(), step)}


def drop(params: Tensors, slots: Sequence[Tensors], masks: Masks, step: Readjust) -> dict[str, Tensor]:
    """The masks after the drop, of layers to be readjusted; dropped weights are zeroed."""
    kept: dict[str, Tensor] = {}
    for name in step.drop:
        leaving, _ = step.exchange(name, count_kept(masks[name][0]))
        kept[name] = drop_smallest(params[name], masks[name], leaving)
    for name, mask in kept.items():
        _zero(name, (params, *slots), masks[name] & ~mask)
    return kept


def grow(
    params: Tensors, slots: Sequence[Tensors], masks: Masks, kept: Masks, scores: Tensors, step: Readjust
) -> dict[str, Tensor]:
    """The new masks of these layers, grown from `kept`; `masks` are those before the drop."""
    grown: dict[str, Tensor] = {}
    for name, mask in kept.items():
        count = step.budgets[name] - count_kept(mask[0])
        if step.growth.grow_from == "any":
            grown[name], picked = grow_from_any(scores[name], mask, count)
            _zero(name, (params, *slots), picked)
        else:
            grown[name] = grow_largest(scores[name], mask, count, held=masks[name])
    return grown


def growth_images(images: int, growth: Growth, seed: int, round: int, client: int) -> Indices:
    """The images over which the growth gradient is averaged, unless it is the last minibatch."""
    if images <= growth.max_images:
        return np.arange(images)
    draws = generator(seed, "growth", round, client)
    return draws.choice(images, growth.max_images, replace=False).astype(np.int64)


def random_scores(masks: Masks, seed: int, round: int, client: int) -> dict[str, Tensor]:
    """Random numbers to rank one client's weights by, drawn in the order of names; masks: [*shape] each."""
    draws = generator(seed, "growth", round, client)
    return {
        name: torch.from_numpy(draws.random(tuple(mask.shape))).to(mask.device) for name, mask in sorted(masks.items())
    }


def _zero(name: str, tensors: Sequence[Tensors], where: Tensor) -> None:
    """Set a layer's numbers to zero where a mask says so."""
    for values in (each[name] for each in tensors):
        if values.is_contiguous():
            at = positions_in(where)
            values.put_(at, values.new_zeros(len(at)))
        else:
            values.masked_fill_(where, 0.0)
