"""The FedDST paper's three networks.

Each is convolution 5×5 → max-pool 3×3 with stride 1 → ReLU, twice, then linear layers. Kept as plain chains,
so that an engine can read off what they compute.
"""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from feddst.errors import ModelError

Shape = tuple[int, ...]


def mnist_cnn(input_shape: Shape, classes: int) -> nn.Sequential:
    return _cnn(input_shape, classes, channels=(10, 20), hidden=(50,))


def cifar10_cnn(input_shape: Shape, classes: int) -> nn.Sequential:
    return _cnn(input_shape, classes, channels=(6, 16), hidden=(120, 84))


def cifar100_cnn(input_shape: Shape, classes: int) -> nn.Sequential:
    return _cnn(input_shape, classes, channels=(6, 16), hidden=(120,))


def _cnn(input_shape: Shape, classes: int, channels: Sequence[int], hidden: Sequence[int]) -> nn.Sequential:
    if len(input_shape) != 3 or min(input_shape[1:]) < 13:
        raise ModelError(f"this network takes images of at least 13×13 pixels, got inputs of shape {input_shape}")
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    depth, height, width = input_shape
    for i, out in enumerate(channels, 1):
        chain[f"conv{i}"] = nn.Conv2d(depth, out, 5)
        chain[f"pool{i}"] = nn.MaxPool2d(3, stride=1)
        chain[f"relu{i}"] = nn.ReLU()
        depth, height, width = out, height - 6, width - 6
    chain["flatten"] = nn.Flatten()
    features = depth * height * width
    for i, units in enumerate(hidden, 1):
        chain[f"fc{i}"] = nn.Linear(features, units)
        chain[f"relu{len(channels) + i}"] = nn.ReLU()
        features = units
    chain[f"fc{len(hidden) + 1}"] = nn.Linear(features, classes)
    return nn.Sequential(chain)
