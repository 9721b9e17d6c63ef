"""Runs small enough to be made and killed many times over."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from feddst.core import Aggregator, Broadcast, InitialModel, ServerState, Tensors
from feddst.data import Dataset
from feddst.methods import FedAvgM
from feddst.runtime import RunConfig
from feddst.runtime.config import config_of

SMALL = {
    "rounds": 6,
    "eval_every": 2,
    "checkpoint_every": 2,
    "data.clients": 8,
    "data.classes_per_client": 2,
    "data.images_per_class": 6,
    "cohort.size": 4,
    "local.epochs": 2,
    "local.batch": 5,
    "readjust.every": 2,
    "readjust.until": 6,
    "readjust.alpha": 0.3,
    "engine.workers": 1,
}


def small_network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))


def quarter_of(value: Tensor) -> Tensor:
    """In which quarter of its tensor each entry lies, 0 to 3."""
    return (4 * torch.arange(value.numel()) // value.numel()).view(value.shape)


@dataclass(frozen=True)
class Parts(FedAvgM):
    """The server keeps all weights, and sends each client a part of them.

    Clients with an even number get the first three quarters of each layer, the others its last half: the third quarter
    goes to both.
    """

    name: ClassVar[str] = "parts"

    def init(self, model: InitialModel, seed: int) -> ServerState:
        quarters = {layer.name: quarter_of(model.params[layer.name]) for layer in model.layers}
        masks = {f"0/{name}": quarter < 3 for name, quarter in quarters.items()}
        masks |= {f"1/{name}": quarter >= 2 for name, quarter in quarters.items()}
        return replace(super().init(model, seed), extra=masks)

    def broadcast(self, state: ServerState, client: int) -> Broadcast:
        masks = {name[2:]: mask for name, mask in state.extra.items() if name.startswith(f"{client % 2}/")}
        return Broadcast(state.round, state.params, state.buffers, masks)

    def mean(self, state: ServerState, total: Aggregator, otherwise: Tensors | None = None) -> Tensors:
        return total.mean(otherwise=state.params)


@pytest.fixture
def small_data() -> Dataset:
    draws = torch.Generator().manual_seed(3)
    centres = torch.randn(4, 1, 6, 6, generator=draws)
    labels = torch.arange(400) % 4
    images = centres[labels] + 0.5 * torch.randn(400, 1, 6, 6, generator=draws)
    return Dataset.from_arrays(train=(images[:200], labels[:200]), test=(images[200:], labels[200:]))


@pytest.fixture
def small_config() -> Callable[..., RunConfig]:
    def make(**changes: Any) -> RunConfig:
        named = {name.replace("__", "."): value for name, value in changes.items()}
        return config_of({**SMALL, **named})

    return make
