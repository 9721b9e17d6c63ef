"""What is tested after a round and what the results amount to, by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from feddst.core import ClientState, ServerState, Tensors
from feddst.data import Federation, RemoteFederation
from feddst.engines import Evaluation
from feddst.methods import FedAvgM
from feddst.runtime.evaluation import Evaluator, Scores

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


def right(*images: int) -> torch.Tensor:
    return torch.isin(torch.arange(10), torch.tensor(images))


def test_the_global_model_alone_where_nobody_has_one_of_its_own(federation: Federation) -> None:
    [task] = Evaluator(FedAvgM(), federation, 7, 100).tasks(STATE, CLIENTS)
    assert (task.params, task.buffers, task.images) == (STATE.params, STATE.buffers, None)


def test_then_the_models_of_clients_by_rising_number_on_some_of_their_own_images(federation: Federation) -> None:
    evaluator = Evaluator(Personal(), federation, 7, 3)
    whole, *own = evaluator.tasks(STATE, CLIENTS)
    assert whole.images is None
    assert [task.params["w"].tolist() for task in own] == [[5.0, 5.0], [7.0, 7.0]]
    images = [[] if task.images is None else task.images.tolist() for task in own]
    for chosen, mine in zip(images, ({0, 1, 2, 3}, {6, 7, 8, 9}), strict=True):
        assert len(chosen) == 3
        assert set(chosen) < mine
        assert chosen == sorted(chosen)
    again = evaluator.tasks(STATE.next(), CLIENTS)[1:]
    assert [[] if task.images is None else task.images.tolist() for task in again] == images
    assert all(task.buffers == STATE.buffers for task in own)


def test_nothing_where_there_is_nothing_to_test_on() -> None:
    evaluator = Evaluator(Personal(), RemoteFederation(torch.zeros(1, 2), 3, 3), 7, 3)
    assert evaluator.tasks(STATE, CLIENTS) == []
    assert evaluator.scores([], CLIENTS) == Scores()


def test_scores_by_hand(federation: Federation) -> None:
    """Of the clients' four images 4, 3 and 0 are right: 1, 3/4 and 0. Of all ten, five: 0 to 3 and 5."""
    found = Evaluator(FedAvgM(), federation, 7, 100).scores([Evaluation(right(0, 1, 2, 3, 5), 0.25)], {})
    assert found.each is not None
    assert found.each.tolist() == [1.0, 0.75, 0.0]
    assert found.accuracy == pytest.approx(1.75 / 3)
    assert (found.worst, found.overall, found.loss, found.personal) == (0.0, 0.5, 0.25, None)


def test_a_client_with_a_model_of_its_own_counts_with_that(federation: Federation) -> None:
    """Client 2 gets 2 of 3 right with its own, where the global model gets none, and client 0 one of 3 instead of all.

    Client 1 has not taken part, and counts with the global model.
    """
    results = [Evaluation(right(0, 1, 2, 3, 5), 0.25)]
    results += [Evaluation(torch.tensor(correct), 9.0) for correct in ([True, False, False], [True, False, True])]
    found = Evaluator(Personal(), federation, 7, 3).scores(results, CLIENTS)
    assert found.personal == pytest.approx((1 / 3 + 0.75 + 2 / 3) / 3)
    assert found.accuracy == pytest.approx(1.75 / 3)
    assert found.loss == 0.25
