"""Multiply-adds of the MNIST network, counted by hand."""

import torch
from torch import nn

from feddst.models import ModelConfig, forward_flops, multiply_adds, network, training_flops

# 28 → conv 5×5 → 24 → pool 3×3 → 22 → conv 5×5 → 18 → pool → 16.
CONV1, CONV2 = 24 * 24 * 10 * 25, 18 * 18 * 20 * 250
FC1, FC2 = 20 * 16 * 16 * 50, 50 * 10


def test_mnist_network_layer_by_layer() -> None:
    module = network(ModelConfig(), (1, 28, 28), 10)
    counts = multiply_adds(module, torch.zeros(1, 1, 28, 28))
    assert counts == {"conv1.weight": CONV1, "conv2.weight": CONV2, "fc1.weight": FC1, "fc2.weight": FC2}
    assert module.training


def test_a_transposed_convolution_spreads_its_input() -> None:
    layer = nn.ConvTranspose2d(3, 5, 2, stride=2)
    assert multiply_adds(layer, torch.zeros(1, 3, 4, 4)) == {"weight": 4 * 4 * 3 * 5 * 2 * 2}


def test_a_forward_pass_costs_two_flops_a_multiply_add() -> None:
    assert forward_flops({"a": 100, "b": 10}, {}) == 2 * 110
    assert forward_flops({"a": 100, "b": 10}, {"a": 0.25}) == 2 * 35


def test_training_costs_three_passes_of_two_flops() -> None:
    assert training_flops({"a": 100, "b": 10}, {}) == 6 * 110
    assert training_flops({"a": 100, "b": 10}, {"a": 0.25}) == 6 * 35
