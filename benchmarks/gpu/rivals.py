"""A step of M models as PyTorch can take it: one model after another, by `vmap`, and by grouped convolutions."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.gpu.jobs import LOCAL, GpuJob
from feddst.core import OBJECTIVES, Examples
from feddst.engines.stacked.vmapped import stacked_gradients

Gradients = Callable[[nn.Sequential, Mapping[str, Tensor], Tensor, Tensor], dict[str, Tensor]]
"""From params [M, *shape], inputs [M, images, *shape] and labels [M, images]: every parameter's gradient."""


class Rival(Protocol):
    """M models that train."""

    def reset(self) -> None:
        """Back to the job's weights, at rest."""
        ...

    def step(self, index: Tensor) -> None:
        """One step of SGD of every model, on its own images: int64 [M, images]."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """All weights now, [M, *shape] each."""
        ...


@dataclass(frozen=True)
class State:
    """Tensors of one model, or of M side by side."""

    params: Mapping[str, Tensor]
    velocity: Mapping[str, Tensor]
    masks: Mapping[str, Tensor]

    @classmethod
    def at_rest(cls, params: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> "State":
        """Weights that have not moved yet."""
        return cls(params, {name: torch.zeros_like(value) for name, value in params.items()}, masks)

    @torch.no_grad()
    def load(self, params: Mapping[str, Tensor]) -> None:
        """Take these weights, at rest."""
        for name, value in params.items():
            self.params[name].copy_(value)
            self.velocity[name].zero_()

    @torch.no_grad()
    def descend(self, gradients: Mapping[str, Tensor]) -> None:
        """One step of masked SGD with momentum and L2, in place."""
        for name, gradient in gradients.items():
            theta = self.params[name]
            step = torch.add(gradient, theta, alpha=LOCAL.l2)
            if name in self.masks:
                step.mul_(self.masks[name])
            theta.sub_(self.velocity[name].mul_(LOCAL.momentum).add_(step), alpha=LOCAL.lr)


class OneByOne:
    """A module for each model, and plain autograd."""

    def __init__(self, job: GpuJob) -> None:
        self._job = job
        self._modules = [copy.deepcopy(job.module) for _ in range(job.models)]
        self._states = [
            State.at_rest(dict(module.named_parameters()), {name: mask[i] for name, mask in job.masks.items()})
            for i, module in enumerate(self._modules)
        ]
        self.reset()

    def reset(self) -> None:
        for i, state in enumerate(self._states):
            state.load({name: value[i] for name, value in self._job.params.items()})

    def step(self, index: Tensor) -> None:
        for module, state, images in zip(self._modules, self._states, index, strict=True):
            loss = F.cross_entropy(module(self._job.inputs[images]), self._job.labels[images])
            found = torch.autograd.grad(loss, list(state.params.values()))
            state.descend(dict(zip(state.params, found, strict=True)))

    def weights(self) -> dict[str, Tensor]:
        return {name: torch.stack([s.params[name].detach() for s in self._states]) for name in self._job.params}


class SideBySide:
    """All models in one set of tensors."""

    def __init__(self, job: GpuJob, gradients: Gradients) -> None:
        self._job = job
        self._gradients = gradients
        self._state = State.at_rest({name: value.clone() for name, value in job.params.items()}, job.masks)

    def reset(self) -> None:
        self._state.load(self._job.params)

    def step(self, index: Tensor) -> None:
        inputs, labels = self._job.inputs[index], self._job.labels[index]
        self._state.descend(self._gradients(self._job.module, self._state.params, inputs, labels))

    def weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self._state.params.items()}


def vmap_gradients(
    module: nn.Sequential, params: Mapping[str, Tensor], inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """By `vmap` over functional calls."""
    return stacked_gradients(module, params, {}, Examples(inputs, labels), OBJECTIVES["cross-entropy"])[0]


def grouped_gradients(
    module: nn.Sequential, params: Mapping[str, Tensor], inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """By convolutions with a group for each model, and batches of matrix products."""

    def loss(params: Mapping[str, Tensor]) -> Tensor:
        scores = _grouped_scores(module, params, inputs)
        # The sum of every model's mean: no model's weights are in another's loss.
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum") / labels.shape[1]

    found: dict[str, Tensor] = torch.func.grad(loss)(dict(params))
    return found


def _grouped_scores(module: nn.Sequential, params: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """What a chain of layers gives, [M, images, classes]; convolutions see [images, M · channels, height, width]."""
    models = len(inputs)
    x = inputs.transpose(0, 1).flatten(1, 2)
    for name, layer in module.named_children():
        if isinstance(layer, nn.Conv2d):
            weight, bias = params[f"{name}.weight"].flatten(0, 1), params[f"{name}.bias"].flatten()
            x = F.conv2d(x, weight, bias, layer.stride, layer.padding, groups=models)
        elif isinstance(layer, nn.Flatten):
            x = x.reshape(len(x), models, -1).transpose(0, 1)
        elif isinstance(layer, nn.Linear):
            x = torch.baddbmm(params[f"{name}.bias"][:, None], x, params[f"{name}.weight"].transpose(1, 2))
        else:
            x = layer(x)
    return x
