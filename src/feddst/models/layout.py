"""The memory order of images and kernels while PyTorch trains.

Channels last is the order in which PyTorch's convolutions and pools are fastest. But a module whose `forward` says
`x.view(-1, n)` after a convolution, as many do, cannot be run with it, so every module is tried first.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from feddst.core.batches import Batch, call, device_of, mapped, tensors_of

Layout = Callable[[Tensor], Tensor]
"""Returns a tensor in the memory order to use."""


def channels_last(tensor: Tensor) -> Tensor:
    """Images and kernels with channels last; other tensors as they are."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def plain(tensor: Tensor) -> Tensor:
    """Images and kernels in PyTorch's default order; other tensors as they are."""
    return tensor.contiguous() if tensor.dim() == 4 else tensor


def layout_for(module: nn.Module, example: Batch) -> Layout:
    """Channels last, if the module can be trained and tested with it on inputs like `example` [1, *shape].

    The module is left as it is.
    """
    if all(value.dim() != 4 for value in (*tensors_of(example), *module.parameters())):
        return plain  # nothing to lay out
    # A copied LSTM on a GPU warns of scattered weights until it is moved there again.
    return channels_last if _works(copy.deepcopy(module).to(device_of(example)), example) else plain


def lay_out(module: nn.Module, layout: Layout) -> nn.Module:
    """The module itself, with its parameters laid out."""
    for parameter in module.parameters():
        parameter.data = layout(parameter.data)
    return module


def _works(module: nn.Module, example: Batch) -> bool:
    """Whether training and evaluation work with channels last; the module may be changed."""
    lay_out(module, channels_last)
    two = mapped(lambda value: value.repeat(2, *[1] * (value.dim() - 1)), example)  # BatchNorm cannot be trained on one
    inputs, device = mapped(channels_last, two), device_of(example)
    trained = [value for value in module.parameters() if value.requires_grad]
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices), torch.enable_grad():
            outputs = call(module.train(), inputs)
            if trained:
                torch.autograd.grad([value.sum() for value in tensors_of(outputs)], trained, allow_unused=True)
            with torch.no_grad():
                call(module.eval(), inputs)
    except Exception:  # a user's forward may raise anything; if the layout is not the cause, training raises it again
        return False
    return True
