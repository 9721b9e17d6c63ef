"""Which built-in network goes with which data."""

import pytest
import torch

from feddst.errors import ModelError
from feddst.models import ModelConfig, network, network_name


@pytest.mark.parametrize(
    ("shape", "classes", "dtype", "name"),
    [
        ((1, 28, 28), 10, torch.float32, "mnist-cnn"),
        ((3, 32, 32), 10, torch.float32, "cifar10-cnn"),
        ((3, 32, 32), 100, torch.float32, "cifar100-cnn"),
        ((6, 128), 12, torch.float32, "har-cnn"),
        ((10,), 2, torch.float32, "mlp"),
        ((80,), 81, torch.int32, "char-lstm"),
        ((80,), 81, torch.int64, "char-lstm"),
    ],
)
def test_the_data_choose_the_network(shape: tuple[int, ...], classes: int, dtype: torch.dtype, name: str) -> None:
    assert network_name(ModelConfig(), shape, classes, dtype) == name
    outputs = network(ModelConfig(), shape, classes, dtype)(torch.zeros(1, *shape, dtype=dtype))
    assert outputs.shape[:2] == (1, classes)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("char-lstm", (80,), torch.float32, r"model\.name char-lstm takes token ids .*, but the inputs are float32"),
        ("mlp", (80,), torch.int64, "are int64; for those there are char-lstm, char-transformer"),
        ("char-transformer", (2, 80), torch.int64, r"takes rows of token ids, got inputs of shape \(2, 80\)"),
        ("auto", (2, 80), torch.int64, r"takes rows of token ids, got inputs of shape \(2, 80\)"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        network(ModelConfig(name=name), shape, 10, dtype)  # type: ignore[arg-type]
