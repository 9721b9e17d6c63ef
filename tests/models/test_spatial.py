"""Where linear layers get their inputs from: chains, functions, plain networks, and what is no picture."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from feddst.models import ModelConfig, network
from feddst.models.spatial import input_grids


class Functional(nn.Module):
    """As in many a tutorial: what is between layers is no module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc1 = nn.Linear(4 * 3 * 2, 5)
        self.fc2 = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.conv(x)), 2)
        scores: Tensor = self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))
        return scores


def test_the_papers_network_reads_what_its_last_pool_leaves() -> None:
    module = network(ModelConfig(), (1, 28, 28), 10)
    assert input_grids(module, torch.zeros(1, 1, 28, 28)) == {"fc1.weight": (20, 16, 16), "fc2.weight": None}
    assert module.training
    assert not any(layer._forward_pre_hooks for layer in module.modules())


def test_functions_are_seen_as_modules_are() -> None:
    assert input_grids(Functional(), torch.zeros(1, 1, 8, 6)) == {"fc1.weight": (4, 3, 2), "fc2.weight": None}


@pytest.mark.parametrize("shape", [(1, 6, 5), (6, 5)])
def test_a_plain_network_reads_the_image(shape: tuple[int, ...]) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 3))
    assert input_grids(module, torch.zeros(1, *shape)) == {"1.weight": (1, 6, 5), "3.weight": None}


def test_a_linear_layer_alone_is_the_whole_model() -> None:
    assert input_grids(nn.Linear(7, 3), torch.zeros(1, 7)) == {"weight": None}


def test_the_last_of_several_activations_of_one_size_counts() -> None:
    module = nn.Sequential(nn.PixelUnshuffle(2), nn.Flatten(), nn.Linear(32, 4))
    assert input_grids(module, torch.zeros(1, 2, 4, 4)) == {"2.weight": (8, 2, 2)}


def test_what_was_pooled_to_one_place_is_no_picture() -> None:
    module = nn.Sequential(nn.Conv2d(3, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
    assert input_grids(module, torch.zeros(1, 3, 8, 8)) == {"3.weight": None}


def test_a_layer_that_is_applied_to_many_vectors_has_no_picture() -> None:
    module = nn.Sequential(nn.Linear(16, 16), nn.Flatten(), nn.Linear(64, 2))
    assert input_grids(module, torch.zeros(1, 1, 4, 16)) == {"0.weight": None, "2.weight": (1, 4, 16)}
