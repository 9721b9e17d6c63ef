"""Classes for examples, pixels and positions: losses and metrics by hand, and beside plain PyTorch."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import feddst
from feddst.core import LocalTraining, Mean
from feddst.core.metric import Metric
from feddst.errors import DataError, ModelError, OptionError
from feddst.objectives import CrossEntropy, Segmentation, Tokens, objective_from
from feddst.runtime.loop import Silent

EVEN = torch.zeros(2, 2)
"""Scores that give both of two classes a probability of a half."""


def value(metric: Metric, outputs: Tensor, targets: Tensor) -> float:
    assert isinstance(metric, Mean)
    return metric.of(metric.added(outputs, targets))


def test_classification_by_hand() -> None:
    """With even odds every loss is ln 2. Weights 1 and 3 leave the mean and make the sum 4 ln 2."""
    targets = torch.tensor([0, 1])
    assert float(CrossEntropy().loss(EVEN, targets)) == pytest.approx(math.log(2))
    assert float(CrossEntropy().loss(EVEN, targets, "sum")) == pytest.approx(2 * math.log(2))
    weighted = CrossEntropy(class_weights=(1.0, 3.0))
    assert float(weighted.loss(EVEN, targets)) == pytest.approx(math.log(2))
    assert float(weighted.loss(EVEN, targets, "sum")) == pytest.approx(4 * math.log(2))
    assert weighted.terms(targets) == 4


def test_label_smoothing_by_hand() -> None:
    """Probabilities 3/4 and 1/4; of the target 0.2 is spread: 0.9 for the right class, 0.1 for the other."""
    outputs = torch.tensor([[math.log(3.0), 0.0]])
    found = CrossEntropy(label_smoothing=0.2).loss(outputs, torch.tensor([0]))
    assert float(found) == pytest.approx(-0.9 * math.log(0.75) - 0.1 * math.log(0.25))


def test_the_mean_is_the_sum_by_its_terms() -> None:
    draws = torch.Generator().manual_seed(5)
    outputs, targets = torch.randn(6, 3, generator=draws), torch.tensor([0, 2, 1, 1, 0, 2])
    places, wanted = torch.randn(4, 3, 5, generator=draws), torch.randint(0, 3, (4, 5), generator=draws)
    wanted[1, 2:] = -100
    for objective, given, true in (
        (CrossEntropy((0.5, 1.0, 2.0), 0.1), outputs, targets),
        (Tokens((0.5, 1.0, 2.0), 0.1), places, wanted),
        (Tokens(), places, wanted),
    ):
        mean = objective.loss(given, true)
        torch.testing.assert_close(objective.loss(given, true, "sum") / objective.terms(true), mean)


def test_options_of_a_run_reach_the_objective() -> None:
    local = LocalTraining(class_weights=(1.0, 2.0), label_smoothing=0.1, ignore_target=7)
    assert CrossEntropy().with_options(local) == CrossEntropy((1.0, 2.0), 0.1)
    assert Tokens().with_options(local) == Tokens((1.0, 2.0), 0.1, 7)
    assert CrossEntropy().with_options(LocalTraining()) == CrossEntropy()


def test_a_tie_is_not_right() -> None:
    outputs = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 3.0]])
    [accuracy] = CrossEntropy().metrics
    assert value(accuracy, outputs, torch.tensor([0, 1, 0])) == pytest.approx(1 / 3)


def test_tokens_without_padding() -> None:
    """Three real places: even odds at two (one right, a tie goes to the first class), 3/4 at one, which is right."""
    outputs = torch.zeros(2, 2, 2)
    outputs[1, 0, 0] = math.log(3.0)
    targets = torch.tensor([[0, 1], [0, -100]])
    accuracy, perplexity = Tokens().metrics
    assert value(accuracy, outputs, targets) == pytest.approx(2 / 3)
    mean = (2 * math.log(2) - math.log(0.75)) / 3
    assert value(perplexity, outputs, targets) == pytest.approx(math.exp(mean))
    assert float(Tokens().loss(outputs, targets)) == pytest.approx(mean)
    assert Tokens().terms(targets) == 3
    assert not perplexity.higher_is_better


def test_overlap_by_hand() -> None:
    """Said 0 0 1 1 1, true 0 1 1 1 and a place that does not count: 1 of 2 for class 0, 2 of 3 for class 1."""
    said = torch.tensor([[0, 0, 1, 1, 1]])
    outputs = F.one_hot(said, 3).movedim(-1, 1).float()
    targets = torch.tensor([[0, 1, 1, 1, -100]])
    overlap, accuracy = Segmentation().metrics
    assert value(overlap, outputs, targets) == pytest.approx((1 / 2 + 2 / 3) / 2)  # the third class does not occur
    assert value(accuracy, outputs, targets) == pytest.approx(3 / 4)


def test_targets_of_another_kind_are_refused() -> None:
    with pytest.raises(DataError, match=r"one class for each example, int64 .* got targets float32 .*squared-error"):
        CrossEntropy().check_targets(torch.zeros(3), 0)
    with pytest.raises(DataError, match=r"a class at each place"):
        Segmentation().check_targets(torch.zeros(3, dtype=torch.int64), 2)
    with pytest.raises(DataError, match=r"every place of example 1 .* nothing to learn"):
        Tokens().check_targets(torch.tensor([[0, 1], [-100, -100]]), 0)
    with pytest.raises(DataError, match=r"0 or more, or local.ignore_target .* got -3"):
        Tokens().check_targets(torch.tensor([[0, -3]]), 0)
    with pytest.raises(OptionError, match=r"local.class_weights must have 3 numbers, one for each class, got 2"):
        CrossEntropy((1.0, 1.0)).check_targets(torch.tensor([0, 2]), 3)


def test_outputs_of_another_form_are_refused() -> None:
    targets = torch.zeros(2, 5, dtype=torch.int64)
    with pytest.raises(ModelError, match=r"\[examples, classes, 5\], got shape \(2, 5, 9\); .*movedim"):
        Tokens().check_outputs(torch.zeros(2, 5, 9), targets, 9)
    with pytest.raises(ModelError, match=r"the model gives 8 scores a place, but the targets are 0 to 8"):
        Tokens().check_outputs(torch.zeros(2, 8, 5), targets, 9)
    with pytest.raises(ModelError, match=r"scores of shape \[examples, classes\], got tuple"):
        CrossEntropy().check_outputs((torch.zeros(2, 3),), torch.zeros(2), 3)


@pytest.mark.parametrize("ignored", [255, -100])
def test_what_is_ignored_is_no_class(ignored: int) -> None:
    """Targets 0 and 1 are two classes, also where what does not count has a higher number."""
    objective = Segmentation(ignore_target=ignored)
    targets = torch.tensor([[[0, 1], [ignored, ignored]]])
    assert objective.classes_in(targets) == objective.outputs_for(targets, 0) == 2
    assert objective_from(objective, None, {"one": lambda outputs, targets: 1.0}).classes_in(targets) == 2


def test_a_run_whose_ignored_target_is_no_class() -> None:
    """A network with two classes fits targets 0, 1 and an ignored 255."""
    images = torch.rand(8, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[[0, 1], [1, 255]]]).repeat(8, 1, 1)
    local = {"objective": "segmentation", "ignore_target": 255, "epochs": 1}
    data = {"clients": 2, "partition": "iid", "classes_per_client": 1, "images_per_class": 4}
    config = feddst.configure(rounds=1, local=local, data=data, cohort={"size": 2}, engine={"workers": 1})
    pairs = (images, targets), (images, targets)
    done = feddst.run(config, model=lambda: nn.Conv2d(1, 2, 1), data=pairs, watcher=Silent())
    assert 0 <= done.summary.final <= 1
