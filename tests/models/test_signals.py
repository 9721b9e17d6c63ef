"""Networks for signals over time and for rows of numbers."""

import pytest
import torch

from feddst.errors import ModelError
from feddst.models import ModelConfig, network, prunable_layers
from feddst.models.signals import har_cnn, mlp


def test_the_sizes_of_the_convolutional_network() -> None:
    module = har_cnn((6, 128), 12)
    # 128 samples: 124 after the first convolution, 62 after its pool; 58 and 29; 25 and 12.
    layers = {layer.name: layer.shape for layer in prunable_layers(module)}
    assert layers == {
        "conv1.weight": (32, 6, 5),
        "conv2.weight": (64, 32, 5),
        "conv3.weight": (64, 64, 5),
        "fc1.weight": (128, 64 * 12),
        "fc2.weight": (12, 128),
    }
    assert module(torch.zeros(3, 6, 128)).shape == (3, 12)


def test_the_shortest_windows_fit() -> None:
    assert har_cnn((1, 36), 2)(torch.zeros(1, 1, 36)).shape == (1, 2)
    with pytest.raises(ModelError, match=r"windows of at least 36 samples, got inputs of shape \(1, 35\)"):
        har_cnn((1, 35), 2)
    with pytest.raises(ModelError, match=r"windows of shape \(channels, time\), got inputs of shape \(128,\)"):
        har_cnn((128,), 2)


def test_the_perceptron_takes_numbers_of_any_shape() -> None:
    assert sum(value.numel() for value in mlp((10,), 1).parameters()) == 11 * 64 + 65 * 64 + 65
    assert mlp((1, 4, 4), 3)(torch.zeros(2, 1, 4, 4)).shape == (2, 3)
    chances = network(ModelConfig(name="mlp", head="softmax"), (4,), 3)(torch.zeros(1, 4)).detach()
    assert float(chances.sum()) == pytest.approx(1)
