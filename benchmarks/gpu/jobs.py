"""What the GPU bench trains: models side by side, each with weights, masks and images of its own."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.arithmetic import image_flops
from benchmarks.wire.updates import SHAPES
from feddst.core import LocalTraining, generator
from feddst.core.minibatches import Indices
from feddst.models import ModelConfig, make_module, network, prunable_layers
from feddst.sparsity import Sparsity, keep_largest

ChainName = Literal["mnist-cnn", "cifar10-cnn", "cifar100-cnn"]
"""The paper's networks, which are chains of layers."""

SPARSITY = Sparsity(level=0.8, distribution="erk")
LOCAL = LocalTraining()
"""How the models train, as the paper's clients do."""

STEPS = 20
"""Steps of a client in one of the paper's rounds: ten epochs of two minibatches."""

CLIENT_IMAGES = 40
"""Images of a client, or as many as a minibatch has, if those are more."""


@dataclass(frozen=True)
class GpuJob:
    """M models that are to take steps of SGD.

    params: float32 [M, *shape] each, zero where masks (bool [M, *shape], of prunable tensors) say so; inputs and
    labels: all models' images, [N, *shape] and [N]; index: int64 [STEPS, M, images], which of them each model sees;
    flops: of one step of all models, if nothing is left out of their layers. `module` has weights of no importance.
    """

    network: ChainName
    module: nn.Sequential
    params: dict[str, Tensor]
    masks: dict[str, Tensor]
    inputs: Tensor
    labels: Tensor
    index: Indices
    flops: int

    @property
    def models(self) -> int:
        """M."""
        return len(self.index[0])

    @property
    def images(self) -> int:
        """Images of a model in a step."""
        return len(self.index[0, 0])

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.inputs.device


def make_job(name: ChainName, models: int, images: int, device: torch.device) -> GpuJob:
    """So many models, which take steps on so many images; all draws are the same every time."""
    shape, classes = SHAPES[name]
    modules = [make_module(lambda: network(ModelConfig(name=name), shape, classes), seed) for seed in range(models)]
    module = modules[0]
    assert isinstance(module, nn.Sequential)
    params = {
        key: torch.stack([dict(one.named_parameters())[key].detach() for one in modules]).to(device)
        for key, _ in module.named_parameters()
    }
    budgets = SPARSITY.budgets(prunable_layers(module))
    masks = {key: keep_largest(params[key], count) for key, count in budgets.items()}
    for key, mask in masks.items():
        params[key].mul_(mask)
    each = max(CLIENT_IMAGES, images)
    inputs, labels = _noise(models * each, shape, classes)
    flops = models * images * image_flops(module, torch.zeros(1, *shape), {})
    index = _index(models, each, images)
    return GpuJob(name, module.to(device), params, masks, inputs.to(device), labels.to(device), index, flops)


def _noise(images: int, shape: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
    draws = generator(0, "made-up images")
    pixels = draws.standard_normal((images, *shape), dtype=np.float32)
    return torch.from_numpy(pixels), torch.from_numpy(draws.integers(0, classes, images))


def _index(models: int, each: int, images: int) -> Indices:
    """Minibatches of every model, each drawn anew from its own images."""
    draws = generator(0, "minibatches")
    own = np.arange(models * each, dtype=np.int64).reshape(1, models, each).repeat(STEPS, axis=0)
    return draws.permuted(own, axis=2)[:, :, :images].copy()
