"""The built-in networks by name."""

from collections.abc import Callable

from torch import nn

from feddst.models.config import ModelConfig
from feddst.models.paper import cifar10_cnn, cifar100_cnn, mnist_cnn
from feddst.models.resnet import resnet18

NETWORKS: dict[str, Callable[[tuple[int, ...], int], nn.Sequential]] = {
    "mnist-cnn": mnist_cnn,
    "cifar10-cnn": cifar10_cnn,
    "cifar100-cnn": cifar100_cnn,
    "resnet18": resnet18,
}


def network(config: ModelConfig, input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """A freshly initialised built-in network for inputs of this shape."""
    module = NETWORKS[network_name(config, input_shape, classes)](input_shape, classes)
    if config.head == "softmax":
        module.add_module("softmax", nn.Softmax(dim=1))
    return module


def network_name(config: ModelConfig, input_shape: tuple[int, ...], classes: int) -> str:
    """Which of the built-in networks it is."""
    if config.name != "auto":
        return config.name
    if input_shape[0] == 1:
        return "mnist-cnn"
    return "cifar10-cnn" if classes <= 10 else "cifar100-cnn"
