"""Runs small enough to be made and killed many times over."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from feddst.data import Dataset
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
