"""LotteryFL's clients: each finds its own sparse network before it trains."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from feddst.clients.client import Beginning, Client
from feddst.core import ClientState, LocalTraining, Masks, Mean, Tensors, count_active, generator, masked, objective_of
from feddst.core.batches import call
from feddst.core.registry import register
from feddst.core.step import ClientStep, MaskBounds
from feddst.errors import OptionError
from feddst.models import load
from feddst.sparsity import drop_smallest
from feddst.wire import ClientTask

_MASK = "mask/"


@register
@dataclass(frozen=True)
class LotteryPruning(ClientStep):
    """A client's own sparse network, found as a lottery ticket before the training of a round.

    The client holds a mask of its own, all ones at first. The share `held_out` of its images is never trained on. If
    the received weights under its mask get more than `threshold` of these images right, each layer drops the smallest
    share `prune` of its active weights, never below `budgets`, and the rest return to their initial values.
    """

    name: ClassVar[str] = "lottery-pruning"

    threshold: float
    prune: float
    held_out: float
    budgets: Mapping[str, int]

    def begin(self, module: nn.Module, begun: Beginning) -> Beginning:
        trained, masks, weights = _find(module, begun.task, self)
        return Beginning(begun.task.with_data(begun.task.examples.at(trained)), masks, weights, trained)

    def keeps(self, client: Client) -> Tensors:
        return kept_masks(client.masks)

    @property
    def own_layers(self) -> Sequence[str]:
        return tuple(self.budgets)

    @property
    def needs_initial(self) -> bool:
        return True

    def mask_bounds(self, layer: str, active: int | None) -> MaskBounds | None:
        return MaskBounds(least=self.budgets[layer]) if layer in self.budgets else None

    def trained_on(self, images: int) -> int:
        return images - held_out_images(images, self.held_out)


def _find(module: nn.Module, task: ClientTask, step: LotteryPruning) -> tuple[Tensor, dict[str, Tensor], Tensors]:
    """Which images are trained on, as int64 indices, the client's masks, and the weights it begins with."""
    sent = task.sent.broadcast
    shapes = {name: sent.params[name].shape for name in step.budgets}
    masks = own_masks(task.state, shapes, next(iter(sent.params.values())).device)
    weights: Tensors = masked(sent.params, masks)
    trained, held_out = _divide(task, step.held_out)
    surplus = _surplus(masks, step)
    if any(surplus.values()):
        load(module, weights, sent.buffers)
        if _accuracy(module, task, held_out) > step.threshold:
            masks = {name: drop_smallest(weights[name][None], masks[name][None], n)[0] for name, n in surplus.items()}
            weights = masked(task.initial, masks)
    return trained, masks, weights


def held_out_images(count: int, share: float) -> int:
    """How many of a client's images are held out: at least one, but never all."""
    return min(max(1, round(share * count)), count - 1)


def _divide(task: ClientTask, share: float) -> tuple[Tensor, Tensor]:
    """The images a client trains on and those it holds out, the same in every round."""
    count, device = len(task.data), task.examples.device
    order = torch.from_numpy(generator(task.seed, "held out", client=task.client).permutation(count))
    out = held_out_images(count, share)
    return order[out:].sort().values.to(device), order[:out].to(device)


def _surplus(masks: Masks, step: LotteryPruning) -> dict[str, int]:
    """How many weights each layer may drop now: the share `prune` of its active ones, but at least one, if it can."""
    active = count_active(masks)
    return {name: min(max(1, round(step.prune * n)), n - step.budgets[name]) for name, n in active.items()}


def _accuracy(module: nn.Module, task: ClientTask, images: Tensor) -> float:
    """The share of these images that the module gets right; 0 if there are none."""
    if not len(images):
        return 0.0
    module.eval()
    with torch.no_grad():
        metric = accuracy_of(task.plan.local)
        chunks = [task.examples.at(chunk) for chunk in torch.split(images, 256)]
        return metric.of(torch.cat([metric.added(call(module, chunk.inputs), chunk.targets) for chunk in chunks]))


def accuracy_of(local: LocalTraining) -> Mean:
    """The accuracy among an objective's metrics; raises `OptionError` if it has none."""
    objective = objective_of(local)
    for metric in objective.metrics:
        if isinstance(metric, Mean) and metric.name == "accuracy":
            return metric
    raise OptionError(f"lotteryfl needs an objective with an accuracy, got local.objective {objective.name}")


def own_masks(
    kept: ClientState, shapes: Mapping[str, Sequence[int]], device: torch.device | None = None
) -> dict[str, Tensor]:
    """The masks that a client holds, all ones where it has none yet."""
    masks: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        bits = kept.tensors.get(_MASK + name)
        if bits is None:
            masks[name] = torch.ones(tuple(shape), dtype=torch.bool)
        else:
            flags = np.unpackbits(bits.numpy(), count=math.prod(shape), bitorder="little")
            masks[name] = torch.from_numpy(flags.view(np.bool_)).reshape(tuple(shape))
    return {name: mask.to(device) for name, mask in masks.items()}


def kept_masks(masks: Masks) -> dict[str, Tensor]:
    """Masks as a client keeps them between rounds, eight weights in a byte."""
    return {
        _MASK + name: torch.from_numpy(np.packbits(mask.reshape(-1).cpu().numpy(), bitorder="little"))
        for name, mask in masks.items()
    }
