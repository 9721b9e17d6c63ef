"""A client's mask readjustment: drop the smallest weights, grow where the gradient is largest."""

from typing import Protocol

import torch
from torch import Tensor

from feddst.engines.base import Job
from feddst.protocol import Masks, Readjustment, generator
from feddst.protocol.tensors import count_kept, positions_in
from feddst.sparsity import drop_smallest, grow_from_any, grow_largest


class Readjusting(Protocol):
    """What the readjustment needs of a client."""

    job: Job
    params: dict[str, Tensor]
    masks: Masks
    velocity: dict[str, Tensor]

    def mean_gradient(self, images: Tensor) -> dict[str, Tensor]: ...


def readjust(client: Readjusting, orders: Readjustment, last_batch: Tensor) -> dict[str, Tensor]:
    """The client's new masks; its weights and momentum are zeroed where a weight was dropped or grown."""
    held = client.masks
    early = _scores(client, orders, last_batch) if orders.growth.weights == "unpruned" else None
    kept = {name: _drop(client, orders, name) for name in orders.drop}
    for name, mask in kept.items():
        _zero(client, name, held[name] & ~mask)
    scores = early or _scores(client, orders, last_batch)
    masks = dict(held)
    for name, mask in kept.items():
        count = orders.budgets[name] - count_kept(mask)
        if orders.growth.grow_from == "any":
            grown, picked = grow_from_any(scores[name][None], mask[None], count)
            _zero(client, name, picked[0])
        else:
            grown = grow_largest(scores[name][None], mask[None], count, held=held[name][None])
        masks[name] = grown[0]
    return masks


def _drop(client: Readjusting, orders: Readjustment, name: str) -> Tensor:
    mask = client.masks[name]
    surplus = count_kept(mask) - (orders.budgets[name] - orders.drop[name])
    return drop_smallest(client.params[name].detach()[None], mask[None], max(surplus, 0))[0]


def _scores(client: Readjusting, orders: Readjustment, last_batch: Tensor) -> dict[str, Tensor]:
    """What growth ranks by: |gradient|, or random numbers."""
    job, growth = client.job, orders.growth
    draws = generator(job.seed, "growth", job.broadcast.round, job.client)
    if growth.rule == "random":
        return {
            name: torch.from_numpy(draws.random(tuple(mask.shape))).to(mask.device)
            for name, mask in client.masks.items()
        }
    images = last_batch
    if growth.images == "all":
        images = torch.arange(len(job.labels), device=last_batch.device)
        if len(images) > growth.max_images:
            chosen = draws.choice(len(images), growth.max_images, replace=False)
            images = torch.from_numpy(chosen).to(last_batch.device)
    return {name: g.abs() for name, g in client.mean_gradient(images).items()}


def _zero(client: Readjusting, name: str, where: Tensor) -> None:
    """Set a layer's weights and their momentum to zero where a mask says so."""
    at = positions_in(where)
    with torch.no_grad():
        for values in (client.params[name], client.velocity[name]):
            values.put_(at, values.new_zeros(len(at)))
