"""Squared errors by hand, and a run that minimises them."""

import logging
from typing import Any

import pytest
import torch
from torch import nn

import feddst
from feddst.data import Dataset
from feddst.objectives import CrossEntropy, MeanSquaredError
from feddst.runtime.loop import Silent

OUTPUTS = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 3.0]])
TARGETS = torch.tensor([0, 1, 0])


def test_the_loss_by_hand() -> None:
    """Errors (0, 0), (0.5, −0.5), (−1, 3): squares' means 0, 0.25, 5."""
    assert float(MeanSquaredError().loss(OUTPUTS, TARGETS)) == 1.75
    assert float(MeanSquaredError().loss(OUTPUTS, TARGETS, "sum")) == 5.25


def test_the_gradient_by_hand() -> None:
    """2(o − t)/classes, over three examples."""
    outputs = OUTPUTS.clone().requires_grad_()
    [gradient] = torch.autograd.grad(MeanSquaredError().loss(outputs, TARGETS), outputs)
    torch.testing.assert_close(gradient, torch.tensor([[0, 0], [0.5, -0.5], [-1, 3]]) / 3)


@pytest.mark.parametrize("objective", [MeanSquaredError(), CrossEntropy()])
def test_an_example_is_right_where_its_class_has_the_largest_output(objective: Any) -> None:
    assert objective.scores(OUTPUTS, TARGETS).tolist() == [True, False, False]  # the second is a tie, and not right


def test_a_run_minimises_it(caplog: pytest.LogCaptureFixture) -> None:
    draws = torch.Generator().manual_seed(3)
    labels = torch.arange(300) % 3
    images = torch.randn(3, 1, 4, 4, generator=draws)[labels] + 0.1 * torch.randn(300, 1, 4, 4, generator=draws)
    data = Dataset.from_arrays(train=(images[:200], labels[:200]), test=(images[200:], labels[200:]))
    config = feddst.configure(
        rounds=4,
        data={"clients": 4, "partition": "iid", "classes_per_client": 2, "images_per_class": 20},
        cohort={"size": 4},
        local={"objective": "mse", "lr": 0.05, "epochs": 4, "batch": 10},
        readjust={"every": 2},
        engine={"workers": 1},
    )
    model = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, 3))  # noqa: E731
    with caplog.at_level(logging.WARNING):
        result = feddst.run(config, model=model, data=data, watcher=Silent())
    assert "PyTorch" not in caplog.text
    assert result.summary.final > 0.95
    with torch.no_grad():
        outputs = result.model(data.inputs(data.test_images))
    wanted = nn.functional.one_hot(data.test_labels, 3).float()
    assert result.rows[-1].loss == pytest.approx(float(nn.functional.mse_loss(outputs, wanted)), rel=1e-5)
