"""Layer times are positive and finite, found without a trace, and refused where a layer is never called."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from feddst.core.model import TimeBasis
from feddst.errors import ModelError
from feddst.models import prunable_layers
from feddst.models.timing import layer_times

EXAMPLE = torch.randn(1, 2, 10, 10)


def small_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Dropout(), nn.Linear(256, 5)
    )


class Tied(nn.Module):
    """One layer that is called twice, and one that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.never = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.twice(self.twice(x).relu())
        return found


def test_measured_times_are_positive_and_finite() -> None:
    module = small_network()
    times = layer_times(module, EXAMPLE, 8, prunable_layers(module), "measured")
    assert set(times.per_weight) == {"0.weight", "5.weight"}
    assert all(math.isfinite(t) and t > 0 for t in times.per_weight.values())
    assert math.isfinite(times.constant)
    assert times.constant >= 0


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_measuring_leaves_no_trace() -> None:
    module = small_network().eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    draws = torch.random.get_rng_state()
    layer_times(module, EXAMPLE, 8, prunable_layers(module), "measured")
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(value.grad is None for value in module.parameters())
    assert not any(child._forward_pre_hooks for child in module.modules())
    assert not module.training
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.random.get_rng_state(), draws)


def test_a_frozen_layer_is_timed_too() -> None:
    layers = prunable_layers(small_network())
    module = small_network().requires_grad_(False)
    assert layer_times(module, EXAMPLE, 8, layers, "measured").per_weight["5.weight"] > 0


def test_flops_are_multiply_adds_of_one_weight() -> None:
    module = small_network()
    times = layer_times(module, EXAMPLE, 8, prunable_layers(module), "flops")
    assert times.per_weight == {"0.weight": 8 * 8, "5.weight": 1}
    assert times.constant == 0


@pytest.mark.parametrize(
    ("basis", "message"), [("flops", "counted: .* equal or measured"), ("measured", "timed: .* equal")]
)
def test_a_layer_that_is_never_called_is_refused(basis: TimeBasis, message: str) -> None:
    module, example = Tied(), torch.randn(1, 6)
    called = prunable_layers(module, dense=("never",))
    assert layer_times(module, example, 4, called, basis).per_weight["twice.weight"] > 0
    with pytest.raises(ModelError, match=f"the time of never.weight cannot be {message}"):
        layer_times(module, example, 4, prunable_layers(module), basis)
