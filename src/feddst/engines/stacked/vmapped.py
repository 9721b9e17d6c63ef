"""Any module, many times over: PyTorch's `vmap` over functional calls."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from feddst.core import LocalTraining
from feddst.core.minibatches import Indices
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.lockstep import Lockstep
from feddst.engines.stacked.model_stack import ModelStack
from feddst.engines.stacked.slots import Images
from feddst.errors import UnsupportedModelError
from feddst.models import persistent_buffers
from feddst.models.norms import lone_images

CHUNK = 256
"""Images of a client in one pass where a gradient is averaged over many."""

Gradients = tuple[dict[str, Tensor], Tensor]
"""Each model's gradient of every parameter, and its loss."""


class VmapTrainer:
    """Trains stacks of any module that `vmap` can take.

    Models with equally many images in a step are one call; nothing is padded, so that BatchNorm sees real images only.
    """

    def __init__(self, module: nn.Module, flat: Flat, images: Images) -> None:
        self._module = module
        self._flat = flat
        self._images = images
        self._used = used_parameters(module, images.inputs[:1])

    def stack(self, models: int) -> ModelStack:
        return ModelStack.empty(models, self._flat, self._images.inputs.device)

    def epochs(self, stack: ModelStack, steps: Lockstep, local: LocalTraining, mu: float) -> Tensor:
        device = stack.theta.device
        index = torch.from_numpy(steps.index).to(device)
        losses = torch.zeros(steps.lengths.shape, device=device)
        self._module.train()
        for step, lengths in enumerate(steps.lengths):
            for length in np.unique(lengths[lengths > 0]).tolist():
                rows = _rows(lengths == length, device)
                losses[step, rows] = self._step(stack, rows, index[step, rows, :length], local, mu)
        return losses

    def mean_gradient(self, stack: ModelStack, chosen: Sequence[Indices], temperature: float = 1.0) -> Tensor:
        device, counts = stack.theta.device, np.array([len(images) for images in chosen])
        total = torch.zeros_like(stack.theta)
        self._module.eval()
        for count in np.unique(counts).tolist():
            rows = _rows(counts == count, device)
            together = np.stack([images for images in chosen if len(images) == count])
            for images in torch.split(torch.from_numpy(together).to(device), CHUNK, dim=1):
                found, _ = self._gradients(stack, rows, images, temperature)
                for name, value in self._used_of(found).items():
                    # The mean over a chunk, times its share of all images.
                    self._flat.view(total, name)[rows] += value * (images.shape[1] / count)
        self._module.train()
        return total

    def _step(self, stack: ModelStack, rows: Tensor | slice, images: Tensor, local: LocalTraining, mu: float) -> Tensor:
        found, losses = self._gradients(stack, rows, images, 1.0)
        theta, velocity, masks = stack.theta[rows], stack.velocity[rows], stack.masks[rows]
        gradient = torch.zeros_like(theta)
        used = torch.zeros_like(theta[0], dtype=torch.uint8)
        for name, value in self._used_of(found).items():
            self._flat.view(gradient, name).copy_(value)
            self._flat.view(used[None], name).fill_(1)
        step = torch.add(gradient, theta, alpha=local.l2)
        if mu:
            step.add_(theta - stack.received[rows], alpha=mu)
        velocity.mul_(local.momentum).add_(step.mul_(masks * used))
        theta.sub_(velocity, alpha=local.lr)
        if not isinstance(rows, slice):
            stack.theta[rows], stack.velocity[rows] = theta, velocity
        return losses

    def _gradients(self, stack: ModelStack, rows: Tensor | slice, images: Tensor, temperature: float) -> Gradients:
        """images: rows of `Images`, [models, images]."""
        params = {name: value[rows] for name, value in self._flat.views(stack.theta).items()}
        buffers = {name: value[rows] for name, value in stack.buffers.items()}
        inputs, labels = self._images.inputs[images], self._images.labels[images]
        found = stacked_gradients(self._module, params, buffers, inputs, labels, temperature)
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
    inputs: Tensor,
    labels: Tensor,
    temperature: float = 1.0,
) -> Gradients:
    """The gradient of the mean loss of M models, each on its own images; buffers are changed in place.

    params and buffers: [M, *shape] each; inputs: [M, images, *shape]; labels: int64 [M, images].
    """

    def loss(params: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        scores: Tensor = functional_call(module, {**params, **buffers}, (inputs,))
        return F.cross_entropy(scores / temperature, labels)

    call: Callable[..., Any] = vmap(grad_and_value(loss), randomness="different")
    with lone_images(module, "a client"):
        return call(dict(params), dict(buffers), inputs, labels)  # type: ignore[no-any-return]


def used_parameters(module: nn.Module, example: Tensor) -> list[str]:
    """The trained parameters that the scores depend on; raises if `vmap` cannot take the module."""
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    buffers = dict(persistent_buffers(module))
    _try(partial(_dry_gradients, module, trained, buffers, example))
    before = {name: value.clone() for name, value in buffers.items()}
    with torch.random.fork_rng(devices=[]):
        scores = module.train()(example.expand(2, *example.shape[1:]))
    found = torch.autograd.grad(scores.sum(), list(trained.values()), allow_unused=True)
    for name, value in buffers.items():
        value.copy_(before[name])
    return [name for name, value in zip(trained, found, strict=True) if value is not None]


def _dry_gradients(
    module: nn.Module, trained: Mapping[str, Tensor], buffers: Mapping[str, Tensor], example: Tensor
) -> None:
    """Try two models with two images each."""
    everything = {name: value.detach() for name, value in module.named_parameters()}
    params, kept = (
        {name: value.expand(2, *value.shape).clone() for name, value in tensors.items()}
        for tensors in (everything, buffers)
    )
    inputs = example.expand(2, 2, *example.shape[1:]).clone()
    labels = torch.zeros(2, 2, dtype=torch.int64, device=example.device)
    with torch.random.fork_rng(devices=[]):
        stacked_gradients(module.train(), params, kept, inputs, labels)


def _try(dry_run: Callable[[], None]) -> None:
    try:
        dry_run()
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedModelError(f"models of this kind cannot be stacked: {reason}") from None


def _rows(chosen: np.ndarray[Any, np.dtype[np.bool_]], device: torch.device) -> Tensor | slice:
    """The chosen models' rows; if all are chosen, a slice, which needs no copies."""
    return slice(None) if chosen.all() else torch.from_numpy(np.flatnonzero(chosen)).to(device)
