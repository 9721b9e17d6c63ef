"""A report says whose network and data a run had, and gives no command for what no command makes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.data.config import SOURCES
from feddst.data.mnist import load_mnist
from feddst.report import provenance as module
from feddst.report.content import content
from feddst.report.provenance import BUILT_IN, Provenance, provenance
from feddst.runtime.loop import Silent

from .conftest import MakeRun

OWN_NETWORK = Provenance(network=True, own=True)


class OwnNet(nn.Module):
    def __init__(self, pixels: int = 784, classes: int = 10) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(pixels, 6), nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(torch.relu(self.first(x.flatten(1))))
        return scores


def own_data() -> feddst.Dataset:
    images, labels = torch.randn(120, 1, 6, 6, generator=torch.Generator().manual_seed(3)), torch.arange(120) % 4
    return feddst.Dataset.from_arrays(train=(images[:80], labels[:80]), test=(images[80:], labels[80:]))


@pytest.fixture(scope="module")
def mnist() -> feddst.Dataset:
    """Some of MNIST, so that it is quickly read."""
    whole = load_mnist()
    return replace(whole, train=whole.train.taken(np.arange(1000)), test=whole.test.taken(np.arange(200)))


@pytest.fixture(autouse=True)
def some_of_mnist(mnist: feddst.Dataset, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It stands in for the whole."""
    monkeypatch.setattr(SOURCES["mnist"], "load", lambda config: mnist)
    module._federation.cache_clear()
    yield
    module._federation.cache_clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


def play(path: Path, **given: Any) -> Path:
    data = {"clients": 4, "partition": "dirichlet"}
    config = feddst.configure(rounds=1, data=data, cohort={"size": 2}, engine={"workers": 1})
    feddst.run(config, out=path, watcher=Silent(), **given)
    return path


def test_what_is_built_in_is_known_by_its_digest(path: Path) -> None:
    assert provenance(play(path)) == BUILT_IN
    shown = content([path])
    assert shown["data"] == "mnist, 4 clients (dirichlet)"
    assert shown["commands"]["runs"][0].endswith(f"--out {path}")
    assert shown["commands"]["note"] == ""


@pytest.mark.parametrize("data", [None, own_data()], ids=["built-in", "own"])
def test_an_own_network_is_known_by_its_tensors_names(path: Path, data: feddst.Dataset | None) -> None:
    assert provenance(play(path, model=lambda: OwnNet(*((36, 4) if data else ())), data=data)) == OWN_NETWORK
    shown = content([path])
    assert shown["data"] == "own network, 4 clients"  # whose data, its digest does not tell
    assert shown["commands"]["runs"] == []
    assert shown["commands"]["note"].startswith("This run was given a model or data of the user's own")
    assert shown["commands"]["note"].endswith("from Python, with the same model and data.")
    values = {setting["name"]: setting["values"] for setting in shown["settings"]}
    assert (values["data.dataset"], values["model.name"]) == (("?",), ("own",))


def test_the_built_in_network_on_data_of_another_shape(path: Path) -> None:
    images, labels = torch.randn(80, 1, 32, 32), torch.arange(80) % 4
    data = feddst.Dataset.from_arrays(train=(images, labels), test=(images, labels))
    assert provenance(play(path, data=data)) == Provenance(own=True)
    assert content([path])["data"] == "own network or data, 4 clients"


def test_own_data_of_mnist_s_shape_with_the_built_in_network(path: Path, mnist: feddst.Dataset) -> None:
    other = replace(mnist, train=mnist.train.taken(np.arange(1000)[::-1].copy()))
    assert provenance(play(path, data=other)) == Provenance(network=False, data=True, own=True)
    assert content([path])["data"] == "own data, 4 clients"
    assert content([path])["commands"]["runs"] == []


def test_what_cannot_be_compared_is_not_called_own(make_run: MakeRun) -> None:
    run = make_run("run", [0.1])  # without a checkpoint
    assert provenance(run) == Provenance()
    shown = content([run])
    assert len(shown["commands"]["runs"]) == 1
    assert "cannot be told here" in shown["commands"]["note"]
