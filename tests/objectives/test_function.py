"""Losses and metrics of a user's own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.core import OBJECTIVES, Mean, Metric, Objective, Whole, register
from feddst.core.objective import Reduction
from feddst.errors import OptionError
from feddst.objectives import CrossEntropy, Huber, MissingObjective, SquaredError, objective_from
from feddst.objectives.function import as_metric
from feddst.runtime.loop import Silent
from feddst.runtime.session import with_objective

TWO = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 3.0])


def bias(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.squeeze(1) - targets).mean())


def distance(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).abs()


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).square().mean()


def each_squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).square()


def right_share(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(dim=1) == targets).float().mean()


@pytest.mark.parametrize("function", [squared, each_squared])
def test_a_mean_or_a_loss_for_each_example(function: Callable[..., Tensor]) -> None:
    objective = objective_from(CrossEntropy(), function, ())
    assert objective.name == function.__name__
    assert float(objective.loss(*TWO)) == 0.5
    assert float(objective.loss(*TWO, "sum")) == 1.0


def test_whether_a_metric_is_a_mean_is_found_out() -> None:
    mean, whole = as_metric("distance", distance, *TWO), as_metric("bias", bias, *TWO)
    assert isinstance(mean, Mean)
    assert mean.of(mean.added(*TWO)) == 0.5
    assert isinstance(whole, Whole)
    assert whole.of(*TWO) == -0.5
    assert mean.higher_is_better
    assert not as_metric("my error", distance, *TWO).higher_is_better


def test_targets_that_would_be_spread_against_outputs_are_refused() -> None:
    objective = objective_from(CrossEntropy(), nn.functional.mse_loss, ())
    with pytest.raises(OptionError, match=r"loss: outputs \[2, 1\] do not have the shape of targets \[2\], .*squeeze"):
        objective.check_outputs(*TWO, 0)
    objective.check_outputs(TWO[0], TWO[1][:, None], 0)


def test_given_metrics_come_before_the_objectives_own() -> None:
    objective = objective_from(SquaredError(), None, {"mae": distance, "bias": bias})
    assert objective.name == "squared-error with mae, bias"
    assert objective.minimised == "squared-error"
    assert [metric.name for metric in objective.resolved(*TWO).metrics] == ["mae", "bias", "rmse", "r2"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (lambda outputs, targets: "good", r"metrics\['odd'\] must give a number, got str"),
        (lambda outputs, targets: torch.zeros(3, 2), "one for each example .* got a tensor of shape"),
        (lambda outputs, targets: outputs @ outputs, r"metrics\['odd'\] failed on two examples: "),
    ],
)
def test_a_metric_that_gives_something_else_is_refused(given: Any, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        as_metric("odd", given, *TWO)


def test_a_run_with_a_loss_and_metrics_of_ones_own() -> None:
    """The same loss as `squared-error` trains the same weights, and the run goes by the first metric."""
    draws = np.random.default_rng(1)
    inputs = draws.normal(size=(60, 4)).astype("float32")
    targets = inputs.sum(axis=1)
    data = (inputs[:40], targets[:40]), (inputs[40:], targets[40:])

    def run(**given: Any) -> feddst.Result:
        config = feddst.configure(
            method="fedavg",
            rounds=2,
            eval_every=1,
            data={"clients": 4, "partition": "iid", "images_per_class": 5},
            cohort={"size": 4},
            local={"epochs": 1, **given.pop("local", {})},
            engine={"kind": "reference", "workers": 1},
        )
        model = lambda: nn.Linear(4, 1)  # noqa: E731
        return feddst.run(config, model=model, data=data, watcher=Silent(), **given)

    usual = run(local={"objective": "squared-error"})
    own = run(loss=squared, metrics={"bias": bias})
    for name, value in usual.model.state_dict().items():
        assert torch.equal(value, own.model.state_dict()[name])
    assert own.summary.metric.name == "bias"
    row = own.rows[-1]
    assert row.value("test_loss") == pytest.approx(usual.rows[-1].loss)
    outputs = usual.model(torch.from_numpy(inputs[40:])).detach()
    assert row.score == pytest.approx(bias(outputs, torch.from_numpy(targets[40:])), rel=1e-5)
    with pytest.raises(OptionError, match=r"a metric's name must begin .* got 'rounds left'"):
        run(loss=squared, metrics={"rounds left": bias})


def test_what_a_loss_of_ones_own_does_not_read_is_refused() -> None:
    data = (np.zeros((9, 4), "float32"), np.zeros(9, "float32")), (np.zeros((3, 4), "float32"), np.zeros(3, "float32"))
    config = feddst.configure(method="fedavg", rounds=1, data={"partition": "iid"}, local={"label_smoothing": 0.1})
    with pytest.raises(OptionError, match=r"local.label_smoothing has no effect with a loss of your own, squared"):
        feddst.run(config, model=nn.Linear(4, 1), data=data, loss=squared)
    config = feddst.configure(method="fedavg", rounds=1, data={"partition": "iid"}, local={"optimizer": "adam"})
    with_objective(config, squared, ())  # whose momentum, 0 in this method, does nothing either, but nobody has set it
    with pytest.raises(OptionError, match=r"local.label_smoothing has no effect on fedavg with local.objective huber"):
        feddst.configure(method="fedavg", local={"label_smoothing": 0.1, "objective": "huber"})


def test_a_loss_is_not_taken_for_a_built_in_one() -> None:
    def huber(outputs: Tensor, targets: Tensor) -> Tensor:
        return squared(outputs, targets)

    with pytest.raises(OptionError, match=r"a function called huber, as a built-in objective is: give it another name"):
        objective_from(CrossEntropy(), huber, ())
    with pytest.raises(OptionError, match=r"loss is huber with constants of its own: set local.huber_delta instead"):
        objective_from(CrossEntropy(), Huber(3.0), ())
    assert objective_from(CrossEntropy(), Huber(), ()) == Huber()


def defined() -> Objective:
    """An objective of a class that is defined anew at each call, as by a notebook's cell that is run again."""

    class Doubled(Objective):
        name = "doubled"
        metrics = ()

        def loss(self, outputs: Any, targets: Any, reduction: Reduction = "mean") -> Tensor:
            return 2 * squared(outputs, targets)

    return Doubled()


def test_an_objective_may_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for known, again in ((SquaredError(), SquaredError()), (defined(), defined()), (one := defined(), type(one)())):
        monkeypatch.setitem(OBJECTIVES, known.name, known)
        assert objective_from(CrossEntropy(), again, ()) is again


def test_an_objective_with_anothers_name_is_refused() -> None:
    """A subclass that forgets to name itself would be trained as its base class where kernels know that by its name."""

    class Focal(CrossEntropy):
        pass

    with pytest.raises(OptionError, match=r"loss is a Focal named cross-entropy, as CrossEntropy is: give it a name"):
        objective_from(CrossEntropy(), Focal(), ())


@pytest.mark.parametrize("name", ["mse", "RMSE of a day", "val_loss", "perplexity"])
def test_less_is_better_of_what_is_called_so(name: str) -> None:
    assert not as_metric(name, distance, *TWO).higher_is_better
    assert as_metric("message", distance, *TWO).higher_is_better


@pytest.mark.parametrize("given", [[distance], "f1", {"f1": 3}, {"f1": Metric("f1")}, distance])
def test_metrics_of_another_kind_are_refused(given: Any) -> None:
    with pytest.raises(OptionError, match=r"metrics(\['f1'\])? must be a "):
        objective_from(CrossEntropy(), None, given)


def test_a_metric_has_the_name_that_it_is_given_under() -> None:
    objective = objective_from(SquaredError(), None, {"deviation": Mean("rmse", parts=distance)})
    assert [metric.name for metric in objective.metrics] == ["deviation", "rmse", "mae", "r2"]


def test_a_stand_in_gives_way_to_what_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of a stored run, read before a script registers its objective."""
    monkeypatch.setitem(OBJECTIVES, "doubled", MissingObjective("doubled"))
    here = register(defined())
    assert OBJECTIVES["doubled"] is here
    with pytest.raises(ValueError, match="doubled is registered already"):
        register(defined())


@pytest.mark.parametrize("without", [lambda outputs, targets: squared(outputs.detach(), targets), right_share])
def test_a_loss_without_a_gradient_is_refused(without: Any) -> None:
    """Training would fail in one engine and do nothing in another."""
    objective = objective_from(CrossEntropy(), without, ())
    with pytest.raises(OptionError, match=r"loss must have a gradient: what it gives does not follow from the outputs"):
        objective.check_outputs(*TWO, 0)
    objective_from(CrossEntropy(), squared, ()).check_outputs(*TWO, 0)


def test_outputs_of_a_kind_of_their_own_come_to_the_loss_as_they_are() -> None:
    """As those of transformers, a dict with attributes."""

    class Answer(dict[str, Any]):
        @property
        def scores(self) -> Tensor:
            found: Tensor = self["scores"]
            return found

    def of_answer(outputs: Answer, targets: Tensor) -> Tensor:
        return squared(outputs.scores, targets)

    objective_from(CrossEntropy(), of_answer, ()).check_outputs(Answer(scores=TWO[0], cache=None), TWO[1], 0)

    def writing(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.squeeze(1).sub_(targets).square().mean()

    objective_from(CrossEntropy(), writing, ()).check_outputs(*TWO, 0)
    assert TWO[0].tolist() == [[1.0], [2.0]]
