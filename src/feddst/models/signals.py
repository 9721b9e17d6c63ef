"""Networks for signals over time, and for rows of numbers."""

import math
from collections import OrderedDict

from torch import nn

from feddst.errors import ModelError

Shape = tuple[int, ...]

KERNEL = 5
CHANNELS = (32, 64, 64)


def har_cnn(input_shape: Shape, classes: int) -> nn.Sequential:
    """For windows [channels, time]: three times convolution, ReLU and max-pool, then two linear layers."""
    if len(input_shape) != 2:
        raise ModelError(f"har-cnn takes windows of shape (channels, time), got inputs of shape {input_shape}")
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    depth, time = input_shape
    for number, out in enumerate(CHANNELS, 1):
        chain[f"conv{number}"] = nn.Conv1d(depth, out, KERNEL)
        chain[f"relu{number}"] = nn.ReLU()
        chain[f"pool{number}"] = nn.MaxPool1d(2)
        depth, time = out, (time - KERNEL + 1) // 2
        if time < 1:
            raise ModelError(f"har-cnn takes windows of at least 36 samples, got inputs of shape {input_shape}")
    chain["flatten"] = nn.Flatten()
    chain["fc1"] = nn.Linear(depth * time, 128)
    chain["relu4"] = nn.ReLU()
    chain["fc2"] = nn.Linear(128, classes)
    return nn.Sequential(chain)


def mlp(input_shape: Shape, classes: int) -> nn.Sequential:
    """For numbers of any shape: two hidden layers of 64 units."""
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    chain["flatten"] = nn.Flatten()
    chain["fc1"] = nn.Linear(math.prod(input_shape), 64)
    chain["relu1"] = nn.ReLU()
    chain["fc2"] = nn.Linear(64, 64)
    chain["relu2"] = nn.ReLU()
    chain["fc3"] = nn.Linear(64, classes)
    return nn.Sequential(chain)
