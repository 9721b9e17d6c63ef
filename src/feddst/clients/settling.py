"""PruneFL's first stage: one client trains and prunes by itself until its density settles."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from feddst.clients.squares import Squares
from feddst.core import Masks, Settling, count_active
from feddst.core.model import LayerTimes
from feddst.methods.prunefl import reconfigure


def choose_masks(
    params: dict[str, Tensor], velocity: dict[str, Tensor], masks: Masks, squares: Squares, orders: Settling
) -> dict[str, Tensor]:
    """The masks that PruneFL's server would choose; weights and momentum are zeroed where they move."""
    times = LayerTimes(orders.times, orders.constant)
    with torch.no_grad():
        chosen = reconfigure(params, squares.mean(params), masks, times, orders.prunable)
        for name, mask in chosen.items():
            for values in (params[name], velocity[name]):
                values.masked_fill_(mask != masks[name], 0.0)
    return {**masks, **chosen}


def settled(densities: Sequence[float], orders: Settling) -> bool:
    """Whether the last densities differ little enough, each from the one before it, for long enough."""
    last = list(pairwise(densities))[-orders.in_a_row :]
    return len(last) == orders.in_a_row and all(abs(now - then) <= orders.steady * then for then, now in last)


def density(masks: Masks) -> float:
    """Which share of the weights that have masks is active."""
    return sum(count_active(masks).values()) / sum(mask.numel() for mask in masks.values())
