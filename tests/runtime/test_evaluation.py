"""What is tested after a round and what the results amount to, by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from feddst.core import ClientState, Metric, ServerState, Tensors, Whole
from feddst.data import Federation, RemoteFederation
from feddst.engines import Evaluation
from feddst.errors import OptionError
from feddst.methods import FedAvgM
from feddst.objectives import CrossEntropy, SquaredError
from feddst.runtime.evaluation import Evaluator, Scores, chosen

METRICS = CrossEntropy().metrics
STATE = ServerState(3, 0, {"w": torch.ones(2)}, {"mean": torch.zeros(2)})
CLIENTS: Mapping[int, ClientState] = {client: ClientState({"w": torch.full((2,), 5.0 + client)}) for client in (2, 0)}
"""What two of three clients keep."""


@dataclass(frozen=True)
class Personal(FedAvgM):
    """Whoever has taken part has a model of its own."""

    name: ClassVar[str] = "personal"

    def personal(self, state: ServerState, kept: ClientState) -> Tensors | None:
        return kept.tensors


@pytest.fixture
def federation() -> Federation:
    """Three clients, who are tested on images 0 to 3, 2 to 5, and 6 to 9."""
    pair = torch.zeros(3, 1, 2, 2), torch.arange(3)
    test = torch.zeros(10, 1, 2, 2), torch.arange(10) % 3
    return Federation.from_clients([pair] * 3, test, [np.arange(4), np.arange(2, 6), np.arange(6, 10)])


def right(*images: int) -> Evaluation:
    return judged(torch.isin(torch.arange(10), torch.tensor(images)))


def judged(correct: torch.Tensor, loss: float = 0.25) -> Evaluation:
    """What a model gives that gets these examples right."""
    return Evaluation({"accuracy": torch.stack([correct.double(), torch.ones(len(correct))], dim=1)}, loss)


def test_the_global_model_alone_where_nobody_has_one_of_its_own(federation: Federation) -> None:
    [task] = Evaluator(FedAvgM(), federation, 7, 100, METRICS).tasks(STATE, CLIENTS)
    assert (task.params, task.buffers, task.images) == (STATE.params, STATE.buffers, None)


def test_then_the_models_of_clients_by_rising_number_on_some_of_their_own_images(federation: Federation) -> None:
    evaluator = Evaluator(Personal(), federation, 7, 3, METRICS)
    whole, *own = evaluator.tasks(STATE, CLIENTS)
    assert whole.images is None
    assert [task.params["w"].tolist() for task in own] == [[5.0, 5.0], [7.0, 7.0]]
    images = [[] if task.images is None else task.images.tolist() for task in own]
    for some, mine in zip(images, ({0, 1, 2, 3}, {6, 7, 8, 9}), strict=True):
        assert len(some) == 3
        assert set(some) < mine
        assert some == sorted(some)
    again = evaluator.tasks(STATE.next(), CLIENTS)[1:]
    assert [[] if task.images is None else task.images.tolist() for task in again] == images
    assert all(task.buffers == STATE.buffers for task in own)


def test_nothing_where_there_is_nothing_to_test_on() -> None:
    evaluator = Evaluator(Personal(), RemoteFederation(torch.zeros(1, 2), 3, 3), 7, 3, METRICS)
    assert evaluator.tasks(STATE, CLIENTS) == []
    assert evaluator.scores([], CLIENTS) == Scores()


def test_scores_by_hand(federation: Federation) -> None:
    """Of the clients' four images 4, 3 and 0 are right: 1, 3/4 and 0. Of all ten, five: 0 to 3 and 5."""
    found = Evaluator(FedAvgM(), federation, 7, 100, METRICS).scores([right(0, 1, 2, 3, 5)], {})
    assert found.each is not None
    assert found.each.tolist() == [1.0, 0.75, 0.0]
    assert found.mean == pytest.approx(1.75 / 3)
    assert (found.worst, found.overall, found.loss, found.personal) == (0.0, 0.5, 0.25, None)


def test_a_client_with_a_model_of_its_own_counts_with_that(federation: Federation) -> None:
    """Client 2 gets 2 of 3 right with its own, where the global model gets none, and client 0 one of 3 instead of all.

    Client 1 has not taken part, and counts with the global model.
    """
    results = [right(0, 1, 2, 3, 5)]
    results += [judged(torch.tensor(correct), 9.0) for correct in ([True, False, False], [True, False, True])]
    found = Evaluator(Personal(), federation, 7, 3, METRICS).scores(results, CLIENTS)
    assert found.personal == pytest.approx((1 / 3 + 0.75 + 2 / 3) / 3)
    assert found.mean == pytest.approx(1.75 / 3)
    assert found.loss == 0.25


def test_a_metric_that_needs_all_outputs_looks_at_each_client(federation: Federation) -> None:
    """The largest output among a client's examples: 3, 5 and 9; NaN for a client without a value counts for nobody."""

    def largest(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        return float(outputs.max()) if outputs.max() < 9 else float("nan")

    metric = Whole("largest", function=largest)
    whole = Evaluation({}, 0.5, torch.arange(10.0), torch.zeros(10))
    found = Evaluator(FedAvgM(), federation, 7, 100, [metric]).scores([whole], {})
    assert (found.mean, found.worst) == (4.0, 3.0)
    assert found.overall != found.overall


def test_other_metrics_stand_beside_the_runs_own(federation: Federation) -> None:
    metric = Whole("largest", function=lambda outputs, targets: outputs.max())
    both = replace(right(0, 1, 2, 3, 5), outputs=torch.arange(10.0), targets=torch.zeros(10))
    found = Evaluator(FedAvgM(), federation, 7, 100, [*METRICS, metric]).scores([both], {})
    assert found.mean == pytest.approx(1.75 / 3)
    assert found.others == {"largest": pytest.approx(17 / 3), "largest_worst": 3.0, "largest_global": 9.0}


def test_the_metric_that_a_run_goes_by() -> None:
    objective = SquaredError()
    assert [metric.name for metric in chosen(objective.metrics, "mae")] == ["mae", "rmse", "r2"]
    with pytest.raises(OptionError, match=r"metric must be one of rmse, mae, r2 for this objective, got 'auc'"):
        chosen(objective.metrics, "auc")


@pytest.mark.parametrize("name", ["rmse_worst", "mae_global"])
def test_no_metric_is_called_as_a_figure_of_another(name: str) -> None:
    with pytest.raises(OptionError, match=f"a metric must not be called '{name}', as a figure of another metric is"):
        chosen([Metric(name), *SquaredError().metrics], "")
