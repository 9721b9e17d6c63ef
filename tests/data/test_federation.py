"""Federations: what clients get, and the user's own splits."""

from typing import Any

import numpy as np
import pytest
import torch

from feddst.core.batches import Batch
from feddst.data import Dataset, Federation, Partition, StoredRecords
from feddst.errors import DataError

DATASET = Dataset(
    name="tiny",
    train=StoredRecords(
        torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1) * 51, torch.tensor([0, 1, 2, 1]), (0.2,), (0.2,)
    ),
    test=StoredRecords(torch.zeros(3, 1, 1, 1, dtype=torch.uint8), torch.tensor([2, 0, 1]), (0.2,), (0.2,)),
    classes=("a", "b", "c"),
)


def tolist(batch: Batch) -> list[Any]:
    assert isinstance(batch, torch.Tensor)
    found: list[Any] = batch.tolist()
    return found


def federation(train: list[list[int]], test: list[list[int]]) -> Federation:
    def as_arrays(lists: list[list[int]]) -> tuple[np.ndarray, ...]:
        return tuple(np.array(positions, np.int64) for positions in lists)

    return Federation(DATASET, Partition(as_arrays(train), as_arrays(test)))


def test_a_client_gets_inputs_and_labels() -> None:
    clients = federation([[0, 1], [3]], [[0], [1, 2]])
    found = clients.client_data(1)
    # 3 · 51/255 = 0.6, and (0.6 - 0.2)/0.2 = 2.
    torch.testing.assert_close(found.inputs, torch.full((1, 1, 1, 1), 2.0))
    assert tolist(found.targets) == [1]
    assert clients.num_clients == 2
    assert tolist(clients.client_data(0).targets) == [0, 1]


def test_class_counts() -> None:
    assert federation([[0, 1], [3, 1, 2]], [[0], [1]]).class_counts().tolist() == [[1, 1, 0], [0, 2, 1]]


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([], [], "a partition needs clients: 0 training sets and 0 test sets"),
        ([[0], [1]], [[0]], "a partition needs clients: 2 training sets and 1 test sets"),
        ([[0], []], [[0], [0]], "client 1: train has no images"),
        ([[0], [1]], [[0], []], "client 1: test has no images"),
        ([[0, 4]], [[0]], "client 0: train indices must be 0 to 3, got 0 to 4"),
        ([[0]], [[-1, 2]], "client 0: test indices must be 0 to 2, got -1 to 2"),
    ],
)
def test_a_bad_partition_is_refused(train: list[list[int]], test: list[list[int]], message: str) -> None:
    with pytest.raises(DataError) as refused:
        federation(train, test)
    assert str(refused.value) == message


OWN = [
    (np.zeros((2, 3), np.float32), np.array([0, 1])),
    (np.ones((1, 3), np.float32), np.array([2])),
]
TEST = (np.full((4, 3), 5.0, np.float32), np.array([0, 1, 2, 2]))


def test_a_users_own_split() -> None:
    clients = Federation.from_clients(OWN, TEST, name="mine")
    assert clients.num_clients == 2
    assert tolist(clients.client_data(1).inputs) == [[1.0, 1.0, 1.0]]
    assert tolist(clients.client_data(1).targets) == [2]
    assert [test.tolist() for test in clients.partition.test] == [[0, 1], [2, 3]]
    assert clients.description == "mine, 2 clients"


def test_a_users_own_test_sets() -> None:
    clients = Federation.from_clients(OWN, TEST, [np.array([3], np.int32), np.array([0, 1])])
    assert [test.tolist() for test in clients.partition.test] == [[3], [0, 1]]


def test_bad_clients_are_named() -> None:
    wide = (np.zeros((2, 4), np.float32), np.array([0, 1]))
    with pytest.raises(
        DataError, match=r"clients: client 1 inputs are float32 \[4\] but the test set inputs are float32 \[3\]"
    ):
        Federation.from_clients([OWN[0], wide], TEST)
    with pytest.raises(DataError, match="clients: client 1: train has no examples"):
        Federation.from_clients([OWN[0], (np.zeros((0, 3), np.float32), np.zeros(0, int))], TEST)
    with pytest.raises(DataError, match="clients: train labels out of range: label 1 at position 1"):
        Federation.from_clients(OWN, TEST, classes=("only",))
    with pytest.raises(DataError, match="needs at least one client"):
        Federation.from_clients([], TEST)
    with pytest.raises(DataError, match="client 0: test indices must be int64"):
        Federation.from_clients(OWN, TEST, [np.array([0.0]), np.array([1])])
    with pytest.raises(DataError, match="client 0 has no test images"):
        Federation.from_clients(OWN, (TEST[0][2:], TEST[1][2:]))


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        (None, TEST, "clients: train must hold a pair .* for each client, got None"),
        (OWN, None, r"clients: test must be a pair \(inputs, targets\) of arrays or tensors, .* got None"),
        (OWN, TEST[0], r"clients: test must be a pair \(inputs, targets\) of arrays or tensors, .* got ndarray"),
    ],
)
def test_what_is_no_pair_is_refused_by_its_name(train: Any, test: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Federation.from_clients(train, test)


def test_a_federation_is_shown_in_one_line() -> None:
    clients = Federation.from_clients(OWN, TEST, name="mine")
    assert repr(clients) == f"Federation(2 clients, {clients.dataset!r})"
