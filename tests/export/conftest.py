"""Runs to export: of the built-in network on MNIST, and of a user's own module on data of their own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.data.config import SOURCES
from feddst.data.mnist import load_mnist
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent

SMALL: dict[str, Any] = {
    "rounds": 2,
    "eval_every": 2,
    "data": {"clients": 6, "images_per_class": 10},
    "cohort": {"size": 3},
    "local": {"epochs": 1},
    "engine": {"workers": 1},
}


def small(**changes: Any) -> RunConfig:
    return feddst.configure(**{**SMALL, **changes})


class OwnNet(nn.Module):
    """A module with buffers, one of them an integer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(36, 12)
        self.norm = nn.BatchNorm1d(12)
        self.last = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(torch.relu(self.norm(self.first(x.flatten(1)))))
        return scores


def own_data() -> feddst.Dataset:
    draws = torch.Generator().manual_seed(3)
    centres = torch.randn(4, 1, 6, 6, generator=draws)
    labels = torch.arange(200) % 4
    images = centres[labels] + 0.5 * torch.randn(200, 1, 6, 6, generator=draws)
    return feddst.Dataset.from_arrays(train=(images[:120], labels[:120]), test=(images[120:], labels[120:]))


@dataclass(frozen=True)
class Own:
    """A run of a user's module: what went in, what came out, and where it is."""

    model: type[nn.Module]
    data: feddst.Dataset
    result: feddst.Result
    path: Path


@pytest.fixture(scope="session")
def mnist() -> feddst.Dataset:
    """Some of MNIST, so that it is quickly read."""
    whole = load_mnist()
    return replace(whole, train=whole.train.taken(np.arange(2000)), test=whole.test.taken(np.arange(300)))


@pytest.fixture(autouse=True)
def some_of_mnist(mnist: feddst.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands in for the whole."""
    monkeypatch.setattr(SOURCES["mnist"], "load", lambda config: mnist)


@pytest.fixture(scope="session")
def digits(mnist: feddst.Dataset) -> Tensor:
    """A hundred test images as a network takes them."""
    found = mnist.inputs(mnist.test_images[:100])
    assert isinstance(found, Tensor)
    return found


@pytest.fixture(scope="session")
def mnist_run(mnist: feddst.Dataset, tmp_path_factory: pytest.TempPathFactory) -> feddst.Result:
    """FedDST on MNIST, on disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SOURCES["mnist"], "load", lambda config: mnist)
        return feddst.run(small(), out=tmp_path_factory.mktemp("mnist") / "run", watcher=Silent())


@pytest.fixture(scope="session")
def graph(mnist_run: feddst.Result, mnist: feddst.Dataset, tmp_path_factory: pytest.TempPathFactory) -> feddst.Exported:
    """That run as an ONNX graph: it takes seconds to make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SOURCES["mnist"], "load", lambda config: mnist)
        return feddst.export(str(mnist_run.path), "onnx", tmp_path_factory.mktemp("onnx") / "digits.onnx")


@pytest.fixture(scope="session")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Own:
    """FedDST with a module and data of the user's own, on disk."""
    data, path = own_data(), tmp_path_factory.mktemp("own") / "run"
    config = small(engine={"workers": 1, "kind": "reference"})
    return Own(OwnNet, data, feddst.run(config, model=OwnNet, data=data, out=path, watcher=Silent()), path)


@pytest.fixture
def run_with(tmp_path: Path) -> Callable[..., feddst.Result]:
    """Runs another config in a directory of its own."""

    def run(**changes: Any) -> feddst.Result:
        return feddst.run(small(**changes), out=tmp_path / "run", watcher=Silent())

    return run
