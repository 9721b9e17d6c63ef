"""A client's examples: counted, picked by their rows, and nobody's rows of a data set unless they come from one."""

import pytest
import torch

from feddst.core import ClientData, Examples

THREE = Examples(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([0, 1, 0]))


def test_they_are_counted_and_are_loaded_already() -> None:
    assert len(THREE) == 3
    assert THREE.load() is THREE
    assert isinstance(THREE, ClientData)


def test_some_of_them_by_their_rows() -> None:
    some = THREE.at(torch.tensor([2, 0]))
    inputs, targets = some.pair
    assert inputs.tolist() == [[5, 6], [1, 2]]
    assert targets.tolist() == [0, 0]
    assert len(some) == 2
    assert len(THREE) == 3


def test_on_the_device_they_are_on_they_are_the_same_tensors() -> None:
    moved = THREE.to(torch.device("cpu"))
    assert moved.inputs is THREE.inputs
    assert moved.targets is THREE.targets
    elsewhere = THREE.to(torch.device("meta")).pair
    assert [value.device.type for value in elsewhere] == ["meta", "meta"]


def test_without_tensors_there_are_none() -> None:
    nothing = Examples()
    assert len(nothing) == 0
    assert nothing.pair[1].dtype is torch.int64


def test_tensors_are_no_rows_of_a_data_set() -> None:
    with pytest.raises(TypeError, match="Examples is not part of a data set that the engine has"):
        _ = THREE.indices
