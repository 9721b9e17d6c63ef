"""A mask readjustment: drop the smallest weights, grow where the gradient is largest.

All tensors are those of M clients side by side, [M, *shape], which hold equally many weights of each layer.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from feddst.core import Growth, Masks, Readjustment, Tensors, generator
from feddst.core.minibatches import Indices
from feddst.core.tensors import count_kept, positions_in
from feddst.sparsity import drop_smallest, grow_from_any, grow_largest


def readjust(
    params: Tensors, velocity: Tensors, masks: Masks, orders: Readjustment, scores: Callable[[], Tensors]
) -> dict[str, Tensor]:
    """The new masks; weights and momentum are zeroed where a weight was dropped or grown.

    `scores` gives what growth ranks by, for the weights as they are when it is called.
    """
    early = scores() if orders.growth.weights == "unpruned" else None
    kept = drop(params, velocity, masks, orders)
    return {**masks, **grow(params, velocity, masks, kept, early or scores(), orders)}


def drop(params: Tensors, velocity: Tensors, masks: Masks, orders: Readjustment) -> dict[str, Tensor]:
    """What is left of the masks of layers that are to be readjusted; the rest is zeroed."""
    kept: dict[str, Tensor] = {}
    for name in orders.drop:
        leaving, _ = orders.exchange(name, count_kept(masks[name][0]))
        kept[name] = drop_smallest(params[name], masks[name], leaving)
    for name, mask in kept.items():
        _zero(params[name], velocity[name], masks[name] & ~mask)
    return kept


def grow(
    params: Tensors, velocity: Tensors, masks: Masks, kept: Masks, scores: Tensors, orders: Readjustment
) -> dict[str, Tensor]:
    """The new masks of these layers, from what was kept of `masks`."""
    grown: dict[str, Tensor] = {}
    for name, mask in kept.items():
        count = orders.budgets[name] - count_kept(mask[0])
        if orders.growth.grow_from == "any":
            grown[name], picked = grow_from_any(scores[name], mask, count)
            _zero(params[name], velocity[name], picked)
        else:
            grown[name] = grow_largest(scores[name], mask, count, held=masks[name])
    return grown


def growth_images(images: int, growth: Growth, seed: int, round: int, client: int) -> Indices:
    """Which of so many images the growth gradient is averaged over, where it is not the last minibatch."""
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


def _zero(params: Tensor, velocity: Tensor, where: Tensor) -> None:
    """Set a layer's weights and their momentum to zero where a mask says so."""
    for values in (params, velocity):
        if values.is_contiguous():
            at = positions_in(where)
            values.put_(at, values.new_zeros(len(at)))
        else:
            values.masked_fill_(where, 0.0)
