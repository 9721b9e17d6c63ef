"""Channels last where a module can be run with it, and nowhere else."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from feddst.models import ModelConfig, network
from feddst.models.layout import channels_last, layout_for, plain

IMAGE = torch.zeros(1, 3, 8, 8)


class Tutorial(nn.Module):
    """As tutorials write it: `view` needs the values of an image one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4 * 6 * 6, 2)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.conv(x).relu().view(-1, 4 * 6 * 6))


class ViewsIn(Tutorial):
    """Views in one mode alone."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x: Tensor) -> Any:
        x = self.conv(x)
        return self.fc(x.view(len(x), -1) if self.training is self.mode else x.flatten(1))


@pytest.mark.parametrize("module", [Tutorial(), ViewsIn(True), ViewsIn(False)], ids=["both", "training", "testing"])
def test_a_module_that_views_its_images_is_run_with_the_plain_layout(module: nn.Module) -> None:
    assert layout_for(module, IMAGE) is plain


@pytest.mark.parametrize("name", ["mnist-cnn", "cifar10-cnn", "resnet18"])
def test_built_in_networks_are_run_with_channels_last(name: Any) -> None:
    shape = (1, 28, 28) if name == "mnist-cnn" else (3, 32, 32)
    module = network(ModelConfig(name), shape, 10)
    assert layout_for(module, torch.zeros(1, *shape)) is channels_last


def test_trying_a_module_leaves_no_trace() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(144, 2)).eval()
    before, draws = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    assert layout_for(module, IMAGE) is channels_last
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), draws)
    assert not module.training
    assert module.state_dict()["0.weight"].is_contiguous()


def test_what_has_no_channels_is_left_as_it_is() -> None:
    module = nn.Linear(4, 2)
    assert layout_for(module, torch.zeros(1, 4)) is plain
    turned = torch.zeros(4, 2).t()
    assert plain(turned) is turned
