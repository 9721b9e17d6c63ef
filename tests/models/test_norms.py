"""BatchNorm and minibatches of one image."""

import copy

import pytest
import torch
from torch import nn

from feddst.errors import ModelError, TrainingError
from feddst.models.norms import check_batch, lone_images

ONE, TWO = torch.ones(1, 3), torch.arange(6.0).reshape(2, 3)


def test_one_value_a_channel_is_normalised_by_running_statistics() -> None:
    norm = nn.BatchNorm1d(3).train()
    norm.running_mean = torch.full((3,), 0.5)
    before = copy.deepcopy(norm.state_dict())
    with lone_images(norm, "client 7"):
        given = norm(ONE)
    assert torch.allclose(given, torch.full((1, 3), 0.5), atol=1e-4)  # (1 − 0.5) / 1
    assert norm.training
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    with pytest.raises(ValueError, match="more than 1 value"):
        norm(ONE)  # nothing of it is left


@pytest.mark.parametrize(("norm", "inputs"), [(nn.BatchNorm1d(3), TWO), (nn.BatchNorm2d(3), torch.rand(1, 3, 2, 2))])
def test_what_can_be_trained_is_trained_as_ever(norm: nn.Module, inputs: torch.Tensor) -> None:
    plain = copy.deepcopy(norm)
    with lone_images(norm, "client 7"):
        assert torch.equal(norm(inputs), plain(inputs))
    assert all(torch.equal(value, norm.state_dict()[name]) for name, value in plain.state_dict().items())


def test_a_norm_without_statistics_names_the_client() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False))
    with (
        lone_images(module, "client 7"),
        pytest.raises(TrainingError, match=r"client 7 has one image to train on, but 1, a BatchNorm without"),
    ):
        module(ONE)


def test_minibatches_of_one_are_refused_where_norms_need_two() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    check_batch(module, ONE, 2)
    with pytest.raises(ModelError, match=r"local.batch must be at least 2 for this model, got 1: 1 is a BatchNorm"):
        check_batch(module, ONE, 1)
    check_batch(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), torch.zeros(1, 1, 6, 6), 1)
    assert not module[1]._forward_pre_hooks
