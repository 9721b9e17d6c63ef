"""The paper's MNIST network as FedDST begins with it."""

from collections.abc import Callable
from functools import cache

import pytest
from torch import nn

from feddst.core import ServerState
from feddst.methods import FedDST
from feddst.models import ModelConfig, initial_model, make_module, network
from feddst.sparsity import Sparsity


@cache
def _mnist_state(level: float) -> ServerState:
    def draw() -> nn.Module:
        return network(ModelConfig(), (1, 28, 28), 10)

    return FedDST(sparsity=Sparsity(level)).init(initial_model(make_module(draw, seed=5)), seed=5)


@pytest.fixture(scope="session")
def mnist_state() -> Callable[[float], ServerState]:
    """FedDST's first state at a given sparsity."""
    return _mnist_state
