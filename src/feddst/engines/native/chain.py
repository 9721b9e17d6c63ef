"""Reads a module as a chain of layers that the kernels know, or says why it is none."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from feddst.errors import UnsupportedModelError
from feddst.models import persistent_buffers

if TYPE_CHECKING:
    from feddst._native import Description

_POINT = (1, 1, 1, 1, 0, 0)
_WIDEST_MAXIMUM = 127


@dataclass(frozen=True)
class Chain:
    """Layers for the kernels, and the names of the weights and biases of those that have any.

    A bias is None where a layer has none.
    """

    shape: tuple[int, int, int]
    layers: tuple["Description", ...]
    weights: tuple[str, ...]
    biases: tuple[str | None, ...]

    @property
    def names(self) -> list[str]:
        """All parameters."""
        return [*self.weights, *(name for name in self.biases if name is not None)]


def read_chain(module: nn.Module, shape: tuple[int, ...]) -> Chain:
    """The chain that a module is, for inputs of this shape; raises `UnsupportedModelError` if it is none."""
    _refuse_tensors(module)
    if len(shape) not in (1, 3):
        raise UnsupportedModelError(f"inputs of shape {tuple(shape)} are neither images nor vectors")
    layers: list[Description] = []
    owners: list[tuple[str, nn.Conv2d | nn.Linear]] = []
    x = scores = torch.zeros(1, *shape)
    last = ""
    for name, layer in _leaves(module, ""):
        description = _describe(name, layer, x)
        if description is not None:
            if layers and layers[-1][0] == "softmax":
                raise UnsupportedModelError(f"{_called(name, layer)} follows a Softmax, which must come last")
            layers.append(description)
            with torch.no_grad():
                x = layer(x)
            if description[0] not in ("relu", "softmax"):
                last, scores = _called(name, layer), x
        elif isinstance(layer, nn.Flatten):
            x = x.flatten(1)
        if isinstance(layer, nn.Conv2d | nn.Linear):
            for other, one in owners:
                if one.weight is layer.weight or (layer.bias is not None and one.bias is layer.bias):
                    raise UnsupportedModelError(f"{_called(name, layer)} shares its weights with layer {other}")
            owners.append((name, layer))
    if last and (x.dim() != 2 or scores.shape[2:].numel() != 1):
        raise UnsupportedModelError(f"{last} gives scores of shape {tuple(scores.shape[1:])}, not one row of them")
    weights = tuple(f"{name}.weight" if name else "weight" for name, _ in owners)
    biases = tuple(_bias_name(name) if layer.bias is not None else None for name, layer in owners)
    chain = Chain((*shape, 1, 1)[:3], tuple(layers), weights, biases)  # type: ignore[arg-type]
    for name, _ in module.named_parameters():
        if name not in chain.names:
            raise UnsupportedModelError(f"{name} is a parameter of no layer that the kernels know")
    return chain


def _bias_name(layer: str) -> str:
    return f"{layer}.bias" if layer else "bias"


def _refuse_tensors(module: nn.Module) -> None:
    for name, value in module.named_parameters():
        if value.dtype != torch.float32:
            raise UnsupportedModelError(f"{name} is {value.dtype}, the kernels know torch.float32 only")
    for name, _ in persistent_buffers(module):
        owner = name.rpartition(".")[0]
        raise UnsupportedModelError(_unknown(owner, module.get_submodule(owner)))


def _leaves(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested `nn.Sequential`, in order."""
    _refuse_additions(module, name)
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        for key, child in module._modules.items():  # named_children leaves out what occurs twice
            assert child is not None
            yield from _leaves(child, f"{name}.{key}" if name else key)
    else:
        yield name, module


def _refuse_additions(module: nn.Module, name: str) -> None:
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    if hooks:
        raise UnsupportedModelError(f"{_called(name, module)} has hooks")
    if "forward" in vars(module):
        raise UnsupportedModelError(f"{_called(name, module)} has a forward of its own")
    if is_parametrized(module):
        raise UnsupportedModelError(f"{_called(name, module)} is parametrized")


def _called(name: str, layer: nn.Module) -> str:
    return f"layer {name} ({type(layer).__name__})" if name else type(layer).__name__


def _unknown(name: str, layer: nn.Module) -> str:
    return (
        f"{_called(name, layer)} is not among the layers that the kernels know: they train an nn.Sequential of Conv2d, "
        "Linear, ReLU, MaxPool2d, AvgPool2d and Flatten"
    )


def _describe(name: str, layer: nn.Module, inputs: Tensor) -> "Description | None":
    """The layer for the kernels; None if it computes nothing. inputs: [1, …], its input."""
    kind, images = type(layer), inputs.dim() == 4
    if kind in (nn.Identity, nn.Flatten) or (kind is nn.Dropout and layer.p == 0):
        if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) not in ((1, -1), (1, inputs.dim() - 1)):
            raise UnsupportedModelError(f"{_called(name, layer)} does not flatten everything but the images")
        return None
    if kind is nn.ReLU:
        return "relu", 0, _POINT, False, True
    if isinstance(layer, nn.Linear) and kind is nn.Linear and inputs.dim() == 2:
        return "linear", layer.out_features, _POINT, layer.bias is not None, True
    if isinstance(layer, nn.Softmax) and kind is nn.Softmax and inputs.dim() == 2 and layer.dim in (1, -1):
        return "softmax", 0, _POINT, False, True
    if isinstance(layer, nn.Conv2d) and kind is nn.Conv2d and images:
        return _convolution(name, layer)
    if isinstance(layer, nn.MaxPool2d) and kind is nn.MaxPool2d and images:
        return _max_pool(name, layer)
    if isinstance(layer, nn.AvgPool2d) and kind is nn.AvgPool2d and images:
        return _average_pool(name, layer)
    if kind is nn.AdaptiveAvgPool2d and images and layer.output_size in (1, (1, 1), [1, 1]):
        return "average_pool", 0, (inputs.shape[2], inputs.shape[3], 1, 1, 0, 0), False, True
    raise UnsupportedModelError(_unknown(name, layer))


def _convolution(name: str, layer: nn.Conv2d) -> "Description":
    _refuse(name, layer, groups=1, dilation=(1, 1), padding_mode="zeros")
    padding = layer.padding
    if padding == "same":
        _refuse(name, layer, stride=(1, 1))
        if any(side % 2 == 0 for side in layer.kernel_size):
            raise UnsupportedModelError(f"{_called(name, layer)} has padding='same' with a kernel of even size")
        padding = tuple(side // 2 for side in layer.kernel_size)
    pads = (0, 0) if isinstance(padding, str) else _pair(padding)
    window = (*_pair(layer.kernel_size), *_pair(layer.stride), *pads)
    return "convolution", layer.out_channels, window, layer.bias is not None, True


def _max_pool(name: str, layer: nn.MaxPool2d) -> "Description":
    _refuse(name, layer, return_indices=False, ceil_mode=False)
    if _pair(layer.dilation) != (1, 1):
        raise UnsupportedModelError(f"{_called(name, layer)} has dilation={layer.dilation}")
    if max(_pair(layer.kernel_size)) > _WIDEST_MAXIMUM:
        raise UnsupportedModelError(
            f"{_called(name, layer)} has kernel_size={layer.kernel_size}, more than {_WIDEST_MAXIMUM} rows or columns"
        )
    window = (*_pair(layer.kernel_size), *_pair(layer.stride), *_pair(layer.padding))
    return "max_pool", 0, window, False, True


def _average_pool(name: str, layer: nn.AvgPool2d) -> "Description":
    _refuse(name, layer, divisor_override=None, ceil_mode=False)
    window = (*_pair(layer.kernel_size), *_pair(layer.stride), *_pair(layer.padding))
    return "average_pool", 0, window, False, layer.count_include_pad


def _refuse(name: str, layer: nn.Module, **known: object) -> None:
    for attribute, value in known.items():
        if (found := getattr(layer, attribute)) != value:
            raise UnsupportedModelError(f"{_called(name, layer)} has {attribute}={found!r}")


def _pair(value: object) -> tuple[int, int]:
    first, second = value if isinstance(value, tuple | list) else (value, value)
    return int(first), int(second)
