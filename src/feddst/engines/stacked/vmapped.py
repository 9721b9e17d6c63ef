"""Any module, many times over: PyTorch's `vmap` over functional calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from feddst.clients.optimizers.clipping import shortening
from feddst.core import OPTIMIZERS, Examples, LocalOptimizer, LocalTraining, Objective, objective_of
from feddst.core.batches import Batch, arguments, call, divided, mapped, tensors_of
from feddst.core.minibatches import Indices
from feddst.core.plan import USUAL
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.lockstep import Lockstep
from feddst.engines.stacked.model_stack import ModelStack
from feddst.errors import UnsupportedModelError
from feddst.models import persistent_buffers
from feddst.models.norms import lone_images

CHUNK = 256
"""Images of a client in one pass where a gradient is averaged over many."""

Gradients = tuple[dict[str, Tensor], Tensor]
"""Each model's gradient of every parameter, and its loss."""


class VmapTrainer:
    """Trains stacks of any module and for any objective that `vmap` can take, with any elementwise optimizer.

    Models with equally many images in a step are one call; nothing is padded, so that BatchNorm sees real images only.
    """

    def __init__(self, module: nn.Module, flat: Flat, images: Examples, local: LocalTraining = USUAL) -> None:
        self._module = module
        self._flat = flat
        self._images = images
        self._used = used_parameters(
            module, images.at(torch.zeros(1, dtype=torch.int64, device=images.device)), objective_of(local)
        )
        self._trained = torch.zeros(flat.width, dtype=torch.uint8, device=images.device)
        for name in self._used:
            flat.view(self._trained[None], name).fill_(1)

    def stack(self, models: int) -> ModelStack:
        return ModelStack.empty(models, self._flat, self._images.device)

    def epochs(self, stack: ModelStack, steps: Lockstep, local: LocalTraining, mu: float) -> Tensor:
        device = stack.theta.device
        index = torch.from_numpy(steps.index).to(device)
        losses = torch.zeros(steps.lengths.shape, device=device)
        self._module.train()
        for step, lengths in enumerate(steps.lengths):
            for length in np.unique(lengths[lengths > 0]).tolist():
                rows = _rows(lengths == length, device)
                losses[step, rows], gradient = self._slopes(stack, rows, index[step, rows, :length], local)
                taken, planned = (each[lengths == length] for each in (steps.taken(step), steps.all_planned))
                self._step(stack, rows, gradient, _turns(local, taken, planned), mu)
        return losses

    def mean_gradient(
        self, stack: ModelStack, chosen: Sequence[Indices], local: LocalTraining, temperature: float = 1.0
    ) -> Tensor:
        device, counts = stack.theta.device, np.array([len(images) for images in chosen])
        total = torch.zeros_like(stack.theta)
        self._module.eval()
        for count in np.unique(counts).tolist():
            rows = _rows(counts == count, device)
            together = np.stack([images for images in chosen if len(images) == count])
            chunks = torch.split(torch.from_numpy(together).to(device), CHUNK, dim=1)
            for images, shares in zip(chunks, self._shares(chunks, objective_of(local)), strict=True):
                found, _ = self._gradients(stack, rows, images, objective_of(local), temperature)
                for name, value in self._used_of(found).items():
                    # The mean over a chunk, times its share of all terms of the loss.
                    each = shares.view(-1, *[1] * (value.dim() - 1))
                    self._flat.view(total, name)[rows] += value * each
        self._module.train()
        return total

    def _shares(self, chunks: Sequence[Tensor], objective: Objective) -> list[Tensor]:
        """The share of each model's loss that each chunk of its examples, [models, examples], has: [models] each."""
        if len(chunks) == 1:
            return [torch.ones(len(chunks[0]), device=chunks[0].device)]
        terms = [[objective.terms(self._images.at(mine).targets) for mine in chunk] for chunk in chunks]
        totals = [sum(column) for column in zip(*terms, strict=True)]
        return [
            torch.tensor([one / total for one, total in zip(each, totals, strict=True)], device=chunks[0].device)
            for each in terms
        ]

    def _slopes(
        self, stack: ModelStack, rows: Tensor | slice, images: Tensor, local: LocalTraining
    ) -> tuple[Tensor, Tensor]:
        """The losses of some models, [R], and their gradients, [R, width]: clipped, and 0 where nothing depends on."""
        found, losses = self._gradients(stack, rows, images, objective_of(local), 1.0)
        gradient = stack.theta.new_zeros(len(losses), stack.theta.shape[1])
        for name, value in self._used_of(found).items():
            self._flat.view(gradient, name).copy_(value)
        if local.clip:
            gradient.mul_(stack.masks[rows])
            gradient.mul_(shortening(torch.linalg.vector_norm(gradient, dim=1, keepdim=True), local.clip))
        return losses, gradient

    def _step(
        self, stack: ModelStack, rows: Tensor | slice, gradient: Tensor, turns: "Sequence[_Turn]", mu: float
    ) -> None:
        """Step some models along their gradients."""
        local = turns[0].local
        optimizer = _optimizer(local)
        theta, live = stack.theta[rows], stack.masks[rows] * self._trained
        step = torch.add(gradient, theta, alpha=0.0 if optimizer.decoupled else local.l2)
        if mu:
            step.add_(theta - stack.received[rows], alpha=mu)
        step.mul_(live)
        before = theta.clone() if optimizer.decoupled else theta
        slots = {slot: stack.slots[slot][rows] for slot in optimizer.slots}
        for turn in turns:
            mine = {slot: kept[turn.rows] for slot, kept in slots.items()}
            weights = theta[turn.rows]
            optimizer.step(weights, step[turn.rows], mine, turn.local, turn.taken)
            if not isinstance(turn.rows, slice):
                theta[turn.rows] = weights
                for slot, kept in mine.items():
                    slots[slot][turn.rows] = kept
        if optimizer.decoupled:  # its decay does not ask for a gradient
            theta.copy_(torch.where(live.bool(), theta, before))
        if not isinstance(rows, slice):
            stack.theta[rows] = theta
            for slot, kept in slots.items():
                stack.slots[slot][rows] = kept

    def _gradients(
        self, stack: ModelStack, rows: Tensor | slice, images: Tensor, objective: Objective, temperature: float
    ) -> Gradients:
        """images: rows of the examples, [models, images]."""
        params = {name: value[rows] for name, value in self._flat.views(stack.theta).items()}
        buffers = {name: value[rows] for name, value in stack.buffers.items()}
        seen = self._images.at(images)
        found = stacked_gradients(self._module, params, buffers, seen, objective, temperature)
        if not isinstance(rows, slice):
            for name, value in buffers.items():
                stack.buffers[name][rows] = value
        return found

    def _used_of(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: gradients[name] for name in self._used}


def stacked_gradients(
    module: nn.Module,
    params: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    seen: Examples,
    objective: Objective,
    temperature: float = 1.0,
) -> Gradients:
    """The gradient of the mean loss of M models, each on its own examples; buffers are changed in place.

    params and buffers: [M, *shape] each; seen: [M, examples, …].
    """

    def loss(params: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: Batch, targets: Batch) -> Tensor:
        outputs = functional_call(module, {**params, **buffers}, *arguments(inputs))
        return objective.loss(divided(outputs, temperature), targets)

    stacked: Callable[..., Any] = vmap(grad_and_value(loss), randomness="different")
    with lone_images(module, "a client"):
        return stacked(dict(params), dict(buffers), seen.inputs, seen.targets)  # type: ignore[no-any-return]


def used_parameters(module: nn.Module, example: Examples, objective: Objective) -> list[str]:
    """The trained parameters that the outputs depend on; raises if `vmap` cannot take the module or the objective.

    example: a single one.
    """
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    buffers = dict(persistent_buffers(module))
    _try(partial(_dry_gradients, module, trained, buffers, example, objective))
    before = {name: value.clone() for name, value in buffers.items()}
    with torch.random.fork_rng(devices=[]):
        outputs = call(module.train(), _repeated(example, 2).inputs)
    total = torch.stack([value.sum() for value in tensors_of(outputs)]).sum()
    found = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    for name, value in buffers.items():
        value.copy_(before[name])
    return [name for name, value in zip(trained, found, strict=True) if value is not None]


def _dry_gradients(
    module: nn.Module,
    trained: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    example: Examples,
    objective: Objective,
) -> None:
    """Try two models with two examples each."""
    everything = {name: value.detach() for name, value in module.named_parameters()}
    params, kept = (
        {name: value.expand(2, *value.shape).clone() for name, value in tensors.items()}
        for tensors in (everything, buffers)
    )
    with torch.random.fork_rng(devices=[]):
        stacked_gradients(module.train(), params, kept, _repeated(example, 2, 2), objective)


def _repeated(example: Examples, *counts: int) -> Examples:
    """A single example, [1, …], as [*counts, …]."""

    def expand(value: Tensor) -> Tensor:
        return value.expand(*counts, *value.shape[1:]).clone()

    return Examples(mapped(expand, example.inputs), mapped(expand, example.targets))


def _try(dry_run: Callable[[], None]) -> None:
    try:
        dry_run()
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedModelError(f"models of this kind cannot be stacked: {reason}") from None


@dataclass(frozen=True)
class _Turn:
    """Rows that step alike: at the same rate, after `taken` steps of the round."""

    rows: Tensor | slice
    local: LocalTraining
    taken: int


def _optimizer(local: LocalTraining) -> LocalOptimizer:
    optimizer = OPTIMIZERS[local.optimizer]
    assert isinstance(optimizer, LocalOptimizer)  # `why_alone` sends others away
    return optimizer


def _turns(local: LocalTraining, taken: Indices, planned: Indices) -> list[_Turn]:
    """The turns of models that have taken so many steps of those planned, [R] each."""
    none = np.zeros_like(taken)
    steps = taken if _optimizer(local).counts_steps else none
    share = [none] if local.schedule_within == "constant" else [taken, planned]
    kinds, which = np.unique(np.stack([steps, *share]), axis=1, return_inverse=True)
    if kinds.shape[1] == 1:
        return [_Turn(slice(None), local.at_step(int(taken[0]), int(planned[0])), int(taken[0]))]
    found = []
    for kind in range(kinds.shape[1]):
        rows = np.flatnonzero(which.reshape(-1) == kind)
        first = int(taken[rows[0]])
        found.append(_Turn(torch.from_numpy(rows), local.at_step(first, int(planned[rows[0]])), first))
    return found


def _rows(chosen: np.ndarray[Any, np.dtype[np.bool_]], device: torch.device) -> Tensor | slice:
    """The chosen models' rows; if all are chosen, a slice, which needs no copies."""
    return slice(None) if chosen.all() else torch.from_numpy(np.flatnonzero(chosen)).to(device)
