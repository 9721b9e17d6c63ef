"""A small federation that trains in milliseconds."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from feddst.clients import reference as torch_client
from feddst.clients.client import Client
from feddst.core import Examples
from feddst.data import Dataset
from feddst.engines.native.chain import read_chain
from feddst.methods import Method
from feddst.models import initial_model
from feddst.wire import BroadcastEncoder, ClientTask, MaskHistory, WireConfig


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """These tensors are too small to be shared out, which takes longer than the work on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tiny_network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 8), nn.ReLU(), nn.Linear(8, 4))


@pytest.fixture
def module() -> nn.Sequential:
    return tiny_network()


@pytest.fixture
def dataset() -> Dataset:
    return some_images()


def some_images() -> Dataset:
    draws = torch.Generator().manual_seed(2)
    images = torch.randn(1300, 1, 8, 8, generator=draws)
    labels = torch.randint(0, 4, (1300,), generator=draws)
    return Dataset.from_arrays(train=(images[:100], labels[:100]), test=(images[100:], labels[100:]))


TaskMaker = Callable[..., ClientTask]


@pytest.fixture
def task(dataset: Dataset) -> TaskMaker:
    """Makes the task of a client that holds no mask yet: it can be trained on at once, or be sent as bytes."""

    def make(
        method: Method, *, client: int = 0, round: int = 1, images: int = 20, wire: WireConfig | None = None
    ) -> ClientTask:
        state = replace(method.init(initial_model(tiny_network()), seed=7), round=round)
        start, wire = client * images, wire or WireConfig()
        inputs, labels = dataset.train_images[start : start + images], dataset.train_labels[start : start + images]
        encoder = BroadcastEncoder(method.broadcast(state, client), wire, MaskHistory(0), state.seed)
        message, plan = encoder.message_for(client), method.plan(state, client)
        return ClientTask(client, state.seed, plan, message, Examples(inputs, labels), wire=wire)

    return make


TrainClient = Callable[[nn.Module, ClientTask], Client]


@pytest.fixture
def native_client() -> TrainClient:
    """Carries out a task through the compiled kernels."""
    from feddst import _native
    from feddst.engines.native import client
    from feddst.engines.native.library import chosen_isa
    from feddst.engines.native.weights import Beginnings

    def train(module: nn.Module, task: ClientTask) -> Client:
        chain = read_chain(module, tuple(task.examples.pair[0].shape[1:]))
        kernels = _native.Network(chain.shape, chain.layers)
        session = _native.Session(kernels, chosen_isa())
        bench = client.Workbench(chain, Beginnings(chain, kernels), session, copy.deepcopy(module))
        return client.train_client(bench, task)

    return train


@pytest.fixture(params=["torch", "native"])
def train_client(request: pytest.FixtureRequest) -> TrainClient:
    """Carries out a task in PyTorch, and through the compiled kernels."""
    if request.param == "torch":
        return torch_client.train_client
    return request.getfixturevalue("native_client")  # type: ignore[no-any-return]
