"""PruneFL's choice of masks: the weights that reduce the loss fastest, for the time they take."""

import math

import torch
from torch import Tensor

from feddst.core import Masks, Tensors
from feddst.core.model import LayerTimes
from feddst.sparsity.masks import drop_smallest


def reconfigure(theta: Tensors, gains: Tensors, masks: Masks, times: LayerTimes, share: float) -> dict[str, Tensor]:
    """The new masks: each layer's active weights except the smallest `share`, and candidates while Γ rises.

    `gains` are the g² of all parameters.
    """
    gain, time = _gains_and_times(gains, masks, times)
    kept = _in_a_row({name: _without_smallest(theta[name], mask, share) for name, mask in masks.items()})
    dense = math.fsum(float(value.double().sum()) for name, value in gains.items() if name not in masks)
    candidates = (~kept).nonzero().reshape(-1)
    order = candidates[torch.argsort((gain / time)[candidates], descending=True, stable=True)]
    gain_before = dense + gain[kept].sum() + _sum_before(gain[order])
    time_before = times.constant + time[kept].sum() + _sum_before(time[order])
    # g²/t > Γ, without dividing by what may be zero.
    faster = (gain / time)[order] * time_before > gain_before
    kept[order[: _leading(faster)]] = True
    return _by_layer(kept, masks)


def reconfigure_published(gains: Tensors, masks: Masks, times: LayerTimes, share: float) -> dict[str, Tensor]:
    """The new masks as the FedDST authors' code makes them: of all weights those with the largest g²."""
    gain, time = _gains_and_times(gains, masks, times)
    order = torch.argsort(gain, descending=True, stable=True)
    faster = (gain / time)[order] * (times.constant + _sum_before(time[order])) >= _sum_before(gain[order])
    few = torch.arange(len(order), device=order.device) <= (1 - share) * len(order)
    kept = torch.zeros(len(order), dtype=torch.bool, device=order.device)
    kept[order[: _leading(faster | few)]] = True
    return _by_layer(kept, masks)


def _without_smallest(theta: Tensor, mask: Tensor, share: float) -> Tensor:
    """`mask` without this share of its weights, those of smallest magnitude."""
    return drop_smallest(theta[None], mask[None], int(share * int(mask.sum())))[0]


def _gains_and_times(gains: Tensors, masks: Masks, times: LayerTimes) -> tuple[Tensor, Tensor]:
    """g² and t of all prunable weights in a row: float64 [weights] each."""
    exact = {name: gains[name].double() for name in masks}
    return _in_a_row(exact), _in_a_row({name: torch.full_like(exact[name], times.per_weight[name]) for name in masks})


def _in_a_row(layers: Tensors) -> Tensor:
    """All layers' weights one after the other, [weights], by name: a resumed run may have them in another order."""
    return torch.cat([layers[name].reshape(-1) for name in sorted(layers)])


def _by_layer(row: Tensor, masks: Masks) -> dict[str, Tensor]:
    """The reverse of `_in_a_row`, in the shapes of `masks`."""
    names = sorted(masks)
    parts = torch.split(row, [masks[name].numel() for name in names])
    return {name: part.reshape(masks[name].shape) for name, part in zip(names, parts, strict=True)}


def _sum_before(values: Tensor) -> Tensor:
    """For each place the sum of all values before it."""
    return torch.cat([values.new_zeros(1), values.cumsum(0)])[:-1]


def _leading(truths: Tensor) -> int:
    """How many are true before the first false one."""
    return int(truths.to(torch.int64).cumprod(0).sum())
