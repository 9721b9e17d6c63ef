"""Yes or no: losses and metrics by hand."""

import math

import pytest
import torch
from torch import Tensor

from feddst.core import Mean, Whole
from feddst.core.metric import Metric
from feddst.errors import DataError, ModelError
from feddst.objectives import Binary, MultiLabel
from feddst.objectives.metrics import area


def value(metric: Metric, outputs: Tensor, targets: Tensor) -> float:
    if isinstance(metric, Whole):
        return metric.of(outputs, targets)
    assert isinstance(metric, Mean)
    return metric.of(metric.added(outputs, targets))


def test_binary_by_hand() -> None:
    """Even odds cost ln 2; probability 3/4 of yes costs −ln 3/4 where yes is right."""
    outputs = torch.tensor([[0.0], [math.log(3.0)]])
    targets = torch.tensor([0, 1])
    both = math.log(2) - math.log(0.75)
    assert float(Binary().loss(outputs, targets)) == pytest.approx(both / 2)
    assert float(Binary().loss(outputs.squeeze(1), targets, "sum")) == pytest.approx(both)
    weighted = Binary((1.0, 3.0))
    assert float(weighted.loss(outputs, targets)) == pytest.approx((math.log(2) - 3 * math.log(0.75)) / 4)
    assert weighted.terms(targets) == 4


def test_multi_label_by_hand() -> None:
    """Two questions each: an example's loss is the mean of its two."""
    outputs = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    targets = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    first, second = (math.log(2) - math.log(0.75)) / 2, math.log(2)
    assert float(MultiLabel().loss(outputs, targets)) == pytest.approx((first + second) / 2)
    assert float(MultiLabel().loss(outputs, targets, "sum")) == pytest.approx(first + second)


def test_the_metrics_by_hand() -> None:
    """Said yes yes no no, true yes no yes no: half are right; TP, FP and FN are 1 each, F1 = 2/4.

    Of the four pairs of a yes and a no, the scores order 3 > 2, 3 > −2, −1 > −2 rightly and −1 < 2 wrongly: 3/4.
    """
    outputs, targets = torch.tensor([3.0, 2.0, -1.0, -2.0]), torch.tensor([1, 0, 1, 0])
    accuracy, f1, auc = Binary().metrics
    assert value(accuracy, outputs, targets) == 0.5
    assert value(f1, outputs, targets) == 0.5
    assert value(auc, outputs, targets) == 0.75


def test_the_area_counts_a_tie_half_and_needs_both_kinds() -> None:
    assert area(torch.tensor([1.0, 1.0]), torch.tensor([0, 1])) == 0.5
    assert math.isnan(area(torch.tensor([1.0, 2.0]), torch.tensor([1, 1])))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match=r"one 0 or 1 for each example, got 2 at example 1"):
        Binary().check_targets(torch.tensor([0, 2]), 3)
    with pytest.raises(DataError, match=r"a 0 or 1 for each question, got targets int64"):
        MultiLabel().check_targets(torch.tensor([0, 1]), 2)
    with pytest.raises(ModelError, match=r"one score for each example, \[examples, 1\], got shape \(2, 2\)"):
        Binary().check_outputs(torch.zeros(2, 2), torch.zeros(2), 2)
    with pytest.raises(ModelError, match=r"\[examples, 3\], got shape \(2, 2\)"):
        MultiLabel().check_outputs(torch.zeros(2, 2), torch.zeros(2, 3), 0)
