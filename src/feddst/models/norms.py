"""BatchNorm and minibatches of one image.

BatchNorm cannot be trained on one value a channel, which has no variance. A client with one image must not end the run:
for that step BatchNorm uses the running statistics instead, as in evaluation. If every minibatch has one image
(`local.batch` 1), no batch would ever be normalised by its own values, so this is refused beforehand. Layers with more
than one value a channel in an image, as after most convolutions, are trained as usual.
"""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from feddst.core.batches import Batch, call
from feddst.errors import ModelError, TrainingError


def check_batch(module: nn.Module, example: Batch, batch: int) -> None:
    """Raise `ModelError` if minibatches have one image and the module's norms need two; example: [1, *shape]."""
    if batch > 1 or not any(isinstance(layer, _BatchNorm) for layer in module.modules()):
        return
    alone: list[str] = []
    tried = copy.deepcopy(module).train()
    for name, layer in _norms(tried):
        layer.register_forward_pre_hook(
            lambda layer, inputs, name=name: alone.append(name) if _one_value(inputs[0]) else None
        )
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            call(tried, example)
        except ValueError:
            if not alone:
                raise
    if alone:
        raise ModelError(
            f"local.batch must be at least 2 for this model, got 1: {alone[0]} is a BatchNorm, which cannot be trained "
            "on one value a channel (GroupNorm and LayerNorm can)"
        )


@contextmanager
def lone_images(module: nn.Module, whose: str) -> Iterator[None]:
    """Within this, a BatchNorm that is given one value a channel uses its running statistics; `whose` is for errors."""
    with ExitStack() as hooks:
        for name, layer in _norms(module):
            hooks.enter_context(layer.register_forward_pre_hook(_rest(name, whose)))
            hooks.enter_context(layer.register_forward_hook(_wake, always_call=True))
        yield


def _norms(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, layer) for name, layer in module.named_modules() if isinstance(layer, _BatchNorm))


def _one_value(inputs: Tensor) -> bool:
    """Whether there is one value for each channel; inputs: [images, channels, …]."""
    return inputs.dim() > 1 and inputs.numel() == inputs.shape[1]


def _rest(name: str, whose: str) -> Any:
    def before(layer: Any, inputs: tuple[Tensor, ...]) -> None:
        if not layer.training or not _one_value(inputs[0]):
            return
        if layer.running_mean is None:
            raise TrainingError(
                f"{whose} has one image to train on, but {name}, a BatchNorm without running statistics, needs two: "
                "give it more images, or set track_running_stats"
            )
        layer.training, layer.woken = False, True

    return before


def _wake(layer: Any, inputs: Any, output: Any) -> None:
    if vars(layer).pop("woken", False):
        layer.training = True
