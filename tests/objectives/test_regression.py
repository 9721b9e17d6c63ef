"""Numbers: losses and metrics by hand."""

import math

import pytest
import torch
from torch import Tensor

from feddst.core import LocalTraining, Mean, Objective
from feddst.core.metric import Metric
from feddst.errors import ModelError
from feddst.objectives import AbsoluteError, Huber, SquaredError
from feddst.objectives.metrics import R2

OUTPUTS = torch.tensor([[1.0], [2.0], [6.0]])
TARGETS = torch.tensor([1.0, 3.0, 3.0])
"""The errors are 0, −1 and 3."""


def value(metric: Metric, outputs: Tensor, targets: Tensor) -> float:
    assert isinstance(metric, Mean)
    return metric.of(metric.added(outputs, targets))


@pytest.mark.parametrize(
    ("objective", "mean"),
    [
        (SquaredError(), 10 / 3),
        (AbsoluteError(), 4 / 3),
        (Huber(), (0 + 0.5 + 2.5) / 3),  # half of 1, then 3 less a half
        (Huber(2.0), (0 + 0.5 + 2 * 3 - 2) / 3),
    ],
)
def test_losses_by_hand(objective: Objective, mean: float) -> None:
    assert float(objective.loss(OUTPUTS, TARGETS)) == pytest.approx(mean)
    assert float(objective.loss(OUTPUTS, TARGETS, "sum")) == pytest.approx(3 * mean)


def test_an_examples_loss_is_the_mean_over_its_numbers() -> None:
    """Squares 0 and 4, then 1 and 1."""
    outputs, targets = torch.tensor([[0.0, 2.0], [1.0, 1.0]]), torch.zeros(2, 2)
    assert float(SquaredError().loss(outputs, targets)) == pytest.approx((2 + 1) / 2)


def test_metrics_by_hand() -> None:
    """The targets' mean is 7/3, their squares about it 16/9 + 4/9 + 4/9 = 8/3: R² = 1 − 10 / (8/3)."""
    rmse, mae, r2 = SquaredError().metrics
    assert value(rmse, OUTPUTS, TARGETS) == pytest.approx(math.sqrt(10 / 3))
    assert value(mae, OUTPUTS, TARGETS) == pytest.approx(4 / 3)
    assert value(r2, OUTPUTS, TARGETS) == pytest.approx(1 - 10 / (8 / 3))
    assert math.isnan(value(r2, OUTPUTS, torch.ones(3)))
    assert [metric.higher_is_better for metric in (rmse, mae, r2)] == [False, False, True]


def test_the_metrics_of_two_numbers_an_example() -> None:
    """R² of the first is 1, of the second 0, as its output is always the mean."""
    targets = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    outputs = torch.tensor([[0.0, 2.0], [2.0, 2.0]])
    assert value(SquaredError().metrics[2], outputs, targets) == pytest.approx(0.5)


def test_the_main_metric_is_what_is_minimised() -> None:
    assert [one.metrics[0].name for one in (SquaredError(), AbsoluteError(), Huber())] == ["rmse", "mae", "mae"]
    assert Huber().with_options(LocalTraining(huber_delta=3.0)) == Huber(3.0)


def test_outputs_that_would_be_broadcast_are_refused() -> None:
    with pytest.raises(ModelError, match=r"numbers of shape \[examples, 1\], got shape \(2, 3\)"):
        SquaredError().check_outputs(torch.zeros(2, 3), torch.zeros(2), 0)
    SquaredError().check_outputs(torch.zeros(2), torch.zeros(2, 1), 0)
    SquaredError().check_outputs(torch.zeros(2, 1), torch.zeros(2), 0)


def test_equal_targets_have_no_share_that_is_explained() -> None:
    """Their squares and the square of their sum differ by rounding, which is no spread; a real one may be small."""
    for value in (0.1, 1 / 3, 123.456, 2000.1):
        for count in (1, 3, 9, 56):
            targets = torch.full((count,), value)
            assert math.isnan(R2.of(R2.added(targets + 0.5, targets)))
    targets = torch.tensor([1000.0, 1000.001, 1000.002])
    assert R2.of(R2.added(targets, targets)) == pytest.approx(1)
