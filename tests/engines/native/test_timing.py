"""Layer times on the sparse kernels: the fit by hand, and what is measured where the kernels train."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from feddst.core.model import LayerTimes
from feddst.engines import times
from feddst.engines.native import timing
from feddst.engines.native.timing import fitted
from feddst.engines.select import EngineConfig
from feddst.models import prunable_layers
from feddst.models import timing as in_pytorch

EXAMPLE = torch.randn(1, 2, 12, 12)


def chain() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(600, 40), nn.ReLU(), nn.Linear(40, 5))


def test_times_are_those_that_explain_what_was_measured() -> None:
    """7, 3 for each weight of a and ½ for each of b: 7 + 3·2 + ½·4 = 15, and so on."""
    counts = np.array([[2, 4], [4, 4], [2, 4], [2, 10]])
    found = fitted(["a", "b"], counts, np.array([15.0, 21.0, 15.0, 18.0]))
    assert found.constant == pytest.approx(7)
    assert found.per_weight == pytest.approx({"a": 3, "b": 0.5})


def test_nothing_is_free_or_earns_time() -> None:
    """b seems to take −1 a weight: it gets a hundredth of the mean, here (3·4)/(4 + 10)."""
    counts = np.array([[2, 4], [4, 4], [2, 4], [2, 10]])
    found = fitted(["a", "b"], counts, np.array([9.0, 15.0, 9.0, 3.0]))
    assert found.per_weight == pytest.approx({"a": 3, "b": 0.01 * 12 / 14})
    still = fitted(["a", "b"], counts, np.array([5.0, 5.0, 5.0, 5.0]))
    assert still.constant == pytest.approx(5)
    assert all(t > 0 for t in still.per_weight.values())


def test_each_layer_is_timed_at_several_densities_while_the_others_keep_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, int]] = []

    def seconds(chain: Any, params: Any, masks: dict[str, Tensor], example: Tensor, batch: int) -> float:
        seen.append({name: int(mask.sum()) for name, mask in masks.items()})
        assert batch == 8
        return 1.0 + 5 * seen[-1]["0.weight"] + 0.25 * seen[-1]["3.weight"] + 2 * seen[-1]["5.weight"]

    monkeypatch.setattr(timing, "_seconds", seconds)
    module = chain()
    found = times.layer_times(EngineConfig(), module, EXAMPLE, 8, prunable_layers(module), "measured")
    assert [counts["0.weight"] for counts in seen] == [5, 38, 70, 108] + [5] * 8
    assert [counts["3.weight"] for counts in seen] == [1200] * 4 + [1200, 8400, 15600, 24000] + [1200] * 4
    assert found.per_weight == pytest.approx({"0.weight": 5, "3.weight": 0.25, "5.weight": 2})
    assert found.constant == pytest.approx(1, abs=1e-6)


def test_measured_times_are_positive_and_a_convolutions_weight_is_dear() -> None:
    module = chain()
    found = times.layer_times(EngineConfig(), module, EXAMPLE, 32, prunable_layers(module), "measured")
    assert set(found.per_weight) == {"0.weight", "3.weight", "5.weight"}
    assert all(math.isfinite(t) and t > 0 for t in found.per_weight.values())
    assert found.per_weight["0.weight"] > 5 * found.per_weight["3.weight"]  # it takes part in 100 products an image
    assert found.constant >= 0


@pytest.mark.parametrize(
    ("kind", "module", "basis"),
    [
        ("reference", chain(), "measured"),
        ("native", chain(), "flops"),
        ("native", nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(600, 5)), "measured"),
    ],
)
def test_elsewhere_pytorch_is_measured(
    kind: str, module: nn.Module, basis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(module: nn.Module, example: Tensor, batch: int, layers: Sequence[Any], basis: str) -> LayerTimes:
        return LayerTimes({basis: 1.0})

    monkeypatch.setattr(in_pytorch, "layer_times", asked)
    found = times.layer_times(EngineConfig(kind=kind), module, EXAMPLE, 8, prunable_layers(module), basis)
    assert found == LayerTimes({basis: 1.0})
