"""A federation that trains in milliseconds, on a Flower grid in this process."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

with warnings.catch_warnings():
    # Flower imports typer, which imports what click is about to drop.
    warnings.filterwarnings("ignore", "'click.utils", DeprecationWarning)
    import flwr.app

from feddst.core import Examples
from feddst.data import Federation
from feddst.engines import EngineConfig
from feddst.flower import FlowerConfig, InProcessGrid, Strategy, client_app
from feddst.runtime import RunConfig
from feddst.runtime.config import config_of
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run

from ..clients.conftest import one_thread  # noqa: F401

CLIENTS = 6
SMALL = {
    "rounds": 3,
    "eval_every": 2,
    "checkpoint_every": 1,
    "data.clients": CLIENTS,
    "cohort.size": CLIENTS,
    "local.epochs": 1,
    "local.batch": 8,
    "local.lr": 0.1,
    "sparsity.level": 0.6,
    "readjust.every": 1,
    "readjust.until": 10,
    "readjust.alpha": 0.3,
    "prunefl.every": 2,
    "prunefl.layer_times": "flops",
    "prunefl.initial_rounds": 4,
    "lottery.threshold": 0.1,
    "engine.kind": "reference",
    "engine.workers": 1,
}
Weights = dict[str, Tensor]
Pair = tuple[Any, Any]


def convolutional() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def network() -> Callable[[], nn.Sequential]:
    return convolutional


def _federation(clients: int, images: Callable[[int], int]) -> Federation:
    """Clients with so many images of three kinds."""
    draws = np.random.default_rng(4)
    centres = draws.integers(60, 190, (3, 6, 6))

    def some(count: int) -> Pair:
        labels = draws.integers(0, 3, count)
        return (centres[labels] + draws.integers(-60, 60, (count, 6, 6))).astype(np.uint8), labels

    return Federation.from_clients([some(images(client)) for client in range(clients)], some(40))


@pytest.fixture(scope="session")
def federation_of() -> Callable[[int], Federation]:
    """So many clients; the first of them have the same images, however many there are."""

    def make(clients: int) -> Federation:
        whole = _federation(CLIENTS, lambda client: 8 + 2 * client)
        if clients > CLIENTS:
            return _federation(clients, lambda client: 4)
        each = [whole.client_data(client) for client in range(clients)]
        pairs = [(one.inputs, one.targets) for one in each]
        dataset = whole.dataset
        test = dataset.inputs(dataset.test_images), dataset.test_labels
        return Federation.from_clients(pairs, test, whole.partition.test[:clients])

    return make


@pytest.fixture(scope="session")
def federation(federation_of: Callable[[int], Federation]) -> Federation:
    return federation_of(CLIENTS)


@pytest.fixture
def configure() -> Callable[..., RunConfig]:
    def make(**changes: Any) -> RunConfig:
        return config_of({**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}})

    return make


@pytest.fixture
def make_grid(federation: Federation) -> Callable[..., InProcessGrid]:
    """A grid of nodes that train `model` on a client's images."""

    def make(
        *,
        model: Callable[[], nn.Module] = convolutional,
        data: Federation = federation,
        engine: str = "reference",
        kind: type[InProcessGrid] = InProcessGrid,
        nodes: int | None = None,
        **others: Any,
    ) -> InProcessGrid:
        def images_of(context: flwr.app.Context) -> Examples:
            return data.client_data(int(context.node_config["partition-id"]))

        app = client_app(model, images_of, engine=EngineConfig(kind=engine))
        return kind(app, data.num_clients if nodes is None else nodes, **others)

    return make


class Seen(Silent):
    """Keeps the rows of a run and its weights after each of them; stops it after `last` of them."""

    def __init__(self, last: int | None = None) -> None:
        self.rows: list[Row] = []
        self.weights: list[Weights] = []
        self._last = last

    def row(self, run: Run, row: Row) -> None:
        self.rows.append(row)
        self.weights.append({**run.state.params, **run.state.buffers})

    def stop(self) -> bool:
        return len(self.rows) == self._last


@pytest.fixture
def seen() -> type[Seen]:
    return Seen


@pytest.fixture
def play(make_grid: Callable[..., InProcessGrid], federation: Federation) -> Callable[..., Seen]:
    """Plays a run on a grid, by `Strategy.start`; what the strategy is not told is made for it."""

    def start(config: RunConfig, *, flower: FlowerConfig | None = None, last: int | None = None, **others: Any) -> Seen:
        told = {name: others.pop(name) for name in ("out", "resume") if name in others}
        grid = others.pop("grid", None) or make_grid(engine=config.engine.kind, **others)
        looker = Seen(last)
        model, data = others.get("model", convolutional), others.get("data", federation)
        Strategy(config, model=model, data=data, watcher=looker, flower=flower or FlowerConfig(wait=5), **told).start(
            grid
        )
        return looker

    return start


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """New nodes are looked for at every opportunity."""
    monkeypatch.setattr("feddst.flower.nodes.LOOK_EVERY", 0.0)


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.fixture
def alike() -> Callable[[Weights, Weights], bool]:
    """Whether weights are the same, bit for bit."""
    return same
