"""PruneFL's first stage: one client trains and prunes by itself until its density settles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from feddst.clients.client import Client, refuse_diverged, train_batch_by_batch
from feddst.clients.steps.squares import Squares, gather
from feddst.core import ClientPlan, Masks, Tensors, count_active, minibatches
from feddst.core.model import LayerTimes
from feddst.core.registry import register
from feddst.core.step import ClientStep
from feddst.errors import WireError
from feddst.sparsity.reconfiguration import reconfigure

MOST_ROUNDS = 100_000


@register
@dataclass(frozen=True)
class InitialPruning(ClientStep):
    """PruneFL's first stage, by one client alone and instead of its epochs: rounds of training and pruning.

    A round is one pass over the client's images. After every `every` rounds the client chooses new masks, as PruneFL's
    server would, from the mean squared gradients of all steps since the last choice. Each weight of a layer costs
    `times[layer]`, everything else `constant`, and the share `prunable` of a layer's active weights may leave. It ends
    when the density has changed by at most the share `steady` for `in_a_row` choices, or after `rounds`. It sends all
    weights, 0 where masked out, and the group `kept`: 1 where a weight is kept or has no mask, else 0.
    """

    name: ClassVar[str] = "initial-pruning"

    rounds: int
    every: int
    prunable: float
    times: Mapping[str, float]
    constant: float
    steady: float = 0.1
    in_a_row: int = 5

    def train(self, client: Client) -> float:
        """Train all rounds; returns the last one's mean loss. The masks are restored."""
        task, sent, densities, loss = client.task, client.masks, list[float](), 0.0
        local, squares = replace(task.plan.local, epochs=self.rounds), Squares()
        rounds = minibatches(len(task.data), local, *client.draw)
        for r, batches in enumerate(rounds, 1):
            total = train_batch_by_batch(client, batches, partial(gather, client, squares))
            loss = total / len(task.data)
            refuse_diverged(loss, r, task.client, task.round, local.lr)
            if r % self.every == 0:
                client.expose()
                client.adopt(choose_masks(client.params, list(client.slots.values()), client.masks, squares, self))
                squares = Squares()
                densities.append(density(client.masks))
            if settled(densities, self):
                break
        client.expose()
        client.scratch[self.name] = client.masks
        client.adopt(sent)
        return loss

    def reports(self, client: Client) -> Mapping[str, Tensors]:
        chosen = client.scratch.get(self.name, {})
        return {
            "kept": {name: _kept(value, chosen.get(name)) for name, value in client.task.sent.broadcast.params.items()}
        }

    @property
    def groups(self) -> tuple[str, ...]:
        return ("kept",)

    def check_report(self, group: str, name: str, value: Tensor) -> None:
        if ((value != 0) & (value != 1)).any():
            raise WireError(f"{name} of kept holds other numbers than 0 and 1")

    def passes(self, epochs: int) -> int:
        return self.rounds

    def differentiated(self, plan: ClientPlan, images: int) -> int:
        return images * self.rounds

    def check(self) -> None:
        if not (1 <= self.rounds <= MOST_ROUNDS and self.every >= 1 and self.in_a_row >= 1):
            raise ValueError(f"initial pruning lasts {self.rounds} rounds, with masks every {self.every}")


def _kept(value: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(value.shape) if mask is None else mask.float().cpu()


def choose_masks(
    params: Tensors, slots: Sequence[Tensors], masks: Masks, squares: Squares, step: InitialPruning
) -> dict[str, Tensor]:
    """The masks that PruneFL's server would choose; weights and momentum are zeroed where masks change."""
    times = LayerTimes(step.times, step.constant)
    with torch.no_grad():
        chosen = reconfigure(params, squares.mean(params), masks, times, step.prunable)
        for name, mask in chosen.items():
            for values in (params, *slots):
                values[name].masked_fill_(mask != masks[name], 0.0)
    return {**masks, **chosen}


def settled(densities: Sequence[float], step: InitialPruning) -> bool:
    """Whether the last densities differ little enough, each from the one before it, for long enough."""
    last = list(pairwise(densities))[-step.in_a_row :]
    return len(last) == step.in_a_row and all(abs(now - then) <= step.steady * then for then, now in last)


def density(masks: Masks) -> float:
    """The active share of the weights that have masks."""
    return sum(count_active(masks).values()) / sum(mask.numel() for mask in masks.values())
