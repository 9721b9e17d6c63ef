"""A small federation that trains in milliseconds."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from feddst.clients import Assignment, Job, Outcome
from feddst.clients import reference as torch_client
from feddst.core import ServerState
from feddst.data import Dataset
from feddst.engines.native.chain import read_chain
from feddst.methods import Method
from feddst.models import initial_model
from feddst.wire import Downlink, MaskHistory, WireConfig


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
    draws = torch.Generator().manual_seed(2)
    images = torch.randn(1300, 1, 8, 8, generator=draws)
    labels = torch.randint(0, 4, (1300,), generator=draws)
    return Dataset.from_arrays(train=(images[:100], labels[:100]), test=(images[100:], labels[100:]))


JobMaker = Callable[..., Job]


@pytest.fixture
def job(dataset: Dataset) -> JobMaker:
    def make(method: Method, *, client: int = 0, round: int = 1, images: int = 20) -> Job:
        state = method.init(initial_model(tiny_network()), seed=7)
        state = ServerState(**{**state.__dict__, "round": round})
        start = client * images
        inputs, labels = dataset.train_images[start : start + images], dataset.train_labels[start : start + images]
        return Job(client, 7, method.broadcast(state), method.plan(state, client), inputs, labels)

    return make


AssignmentMaker = Callable[..., Assignment]


@pytest.fixture
def assignment(job: JobMaker) -> AssignmentMaker:
    """The same work as bytes on their way to a client that holds no mask yet."""

    def make(method: Method, *, client: int = 0, wire: WireConfig | None = None) -> Assignment:
        one, wire = job(method, client=client), wire or WireConfig()
        parcel = Downlink(one.broadcast, wire, MaskHistory(0), one.seed).parcel_for(client)
        return Assignment(client, one.seed, parcel, one.plan, one.inputs, one.labels, wire=wire)

    return make


TrainClient = Callable[[nn.Module, Job], Outcome]


@pytest.fixture
def native_client() -> TrainClient:
    """Carries out a job through the compiled kernels."""
    from feddst import _native
    from feddst.engines.native import client
    from feddst.engines.native.library import chosen_isa
    from feddst.engines.native.weights import Beginnings

    def train(module: nn.Module, job: Job) -> Outcome:
        chain = read_chain(module, tuple(job.inputs.shape[1:]))
        kernels = _native.Network(chain.shape, chain.layers)
        session = _native.Session(kernels, chosen_isa())
        bench = client.Workbench(chain, Beginnings(chain, kernels), session, copy.deepcopy(module))
        return client.train_client(bench, job)

    return train


@pytest.fixture(params=["torch", "native"])
def train_client(request: pytest.FixtureRequest) -> TrainClient:
    """Carries out a job in PyTorch, and through the compiled kernels."""
    if request.param == "torch":
        return torch_client.train_client
    return request.getfixturevalue("native_client")  # type: ignore[no-any-return]
