"""Modules for trained tensors: a built-in network by its description, or the user's own."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from feddst.core import Tensors
from feddst.errors import ModelError
from feddst.export.inputs import Inputs
from feddst.models import ModelConfig, ModuleSource, make_module, network, persistent_buffers
from feddst.models.build import NETWORKS

INPUT_DTYPES = ("float32", "int64", "int32", "int16", "int8")
"""The number formats that inputs may have: numbers, or tokens."""


def skeleton(config: ModelConfig, inputs: Inputs) -> nn.Module | None:
    """The built-in network for these inputs, without memory for its weights; None if there is none for their shape."""
    try:
        with torch.device("meta"):
            return network(config, inputs.shape, inputs.scores, getattr(torch, inputs.dtype))
    except (ModelError, RuntimeError, TypeError, ValueError, IndexError, OverflowError):
        return None


def resolved(config: ModelConfig, inputs: Inputs) -> ModelConfig:
    """The same network by its own name, where a config leaves the choice to the data."""
    wanted = str(skeleton(config, inputs))
    named = (ModelConfig(name=name, head=config.head) for name in NETWORKS)  # type: ignore[arg-type]
    return next(one for one in named if str(skeleton(one, inputs)) == wanted)


def filled(module: nn.Module, tensors: Tensors) -> nn.Module:
    """The module in evaluation mode with these tensors in it; `ModelError` unless they are what it has."""
    misfit = difference(module, tensors)
    if misfit:
        raise ModelError(f"the model is not the one that was trained: {misfit}")
    if any(value.is_meta for value in module.parameters()):
        module = module.to_empty(device="cpu")
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *persistent_buffers(module)]:
            value.copy_(tensors[name])
    return module.eval()


def own_module(source: ModuleSource) -> nn.Module:
    """A copy of the user's module, or what their function makes."""
    return copy.deepcopy(make_module(source, seed=0)).cpu()


def difference(module: nn.Module, tensors: Tensors) -> str:
    """How the tensors differ from a module's own, in words; empty if they do not."""
    for name, value in [*module.named_parameters(), *persistent_buffers(module)]:
        if name not in tensors:
            return f"it has {name}, for which there is no value"
        if tensors[name].shape != value.shape:
            return f"its {name} has shape {list(value.shape)}, the trained one {list(tensors[name].shape)}"
    # A state dict names a tensor as often as the module uses it.
    extra = sorted(tensors.keys() - module.state_dict().keys())
    return f"it has no {extra[0]!r}" if extra else ""


def example(inputs: Inputs, images: int) -> Tensor:
    """Inputs [images, *shape] of the right kind, all zeros."""
    dtype: Any = getattr(torch, inputs.dtype)
    return torch.zeros((images, *inputs.shape), dtype=dtype)
