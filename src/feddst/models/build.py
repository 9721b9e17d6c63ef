"""The built-in networks by name."""

from collections.abc import Callable

import torch
from torch import nn

from feddst.errors import ModelError
from feddst.models.config import ModelConfig
from feddst.models.paper import cifar10_cnn, cifar100_cnn, mnist_cnn
from feddst.models.resnet import resnet18
from feddst.models.signals import har_cnn, mlp
from feddst.models.text import char_lstm, char_transformer

OF_NUMBERS: dict[str, Callable[[tuple[int, ...], int], nn.Sequential]] = {
    "mnist-cnn": mnist_cnn,
    "cifar10-cnn": cifar10_cnn,
    "cifar100-cnn": cifar100_cnn,
    "resnet18": resnet18,
    "har-cnn": har_cnn,
    "mlp": mlp,
}
OF_TOKENS: dict[str, Callable[[tuple[int, ...], int], nn.Sequential]] = {
    "char-lstm": char_lstm,
    "char-transformer": char_transformer,
}
NETWORKS = OF_NUMBERS | OF_TOKENS


def network(
    config: ModelConfig, input_shape: tuple[int, ...], classes: int, dtype: torch.dtype = torch.float32
) -> nn.Sequential:
    """A freshly initialised built-in network for inputs of this shape and kind.

    `classes` counts its outputs, which for a network of tokens are the vocabulary, of its inputs too.
    """
    name = network_name(config, input_shape, classes, dtype)
    if _tokens(dtype) != (name in OF_TOKENS):
        wanted = "token ids (whole numbers)" if name in OF_TOKENS else "numbers"
        kind = str(dtype).removeprefix("torch.")
        allowed = ", ".join(OF_TOKENS if _tokens(dtype) else OF_NUMBERS)
        raise ModelError(f"model.name {name} takes {wanted}, but the inputs are {kind}; for those there are {allowed}")
    module = NETWORKS[name](input_shape, classes)
    if config.head == "softmax":
        module.add_module("softmax", nn.Softmax(dim=1))
    return module


def network_name(
    config: ModelConfig, input_shape: tuple[int, ...], classes: int, dtype: torch.dtype = torch.float32
) -> str:
    """Which of the built-in networks it is."""
    if config.name != "auto":
        return config.name
    if _tokens(dtype):
        return "char-lstm"
    if len(input_shape) < 3:
        return "har-cnn" if len(input_shape) == 2 else "mlp"
    if input_shape[0] == 1:
        return "mnist-cnn"
    return "cifar10-cnn" if classes <= 10 else "cifar100-cnn"


def _tokens(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
