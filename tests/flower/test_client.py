"""The client's side: it carries out what it can, and whatever it is sent, it answers or raises, and lives."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from feddst.data import Federation
from feddst.engines import EngineConfig
from feddst.errors import FeddstError, OptionError
from feddst.flower import InProcessGrid
from feddst.flower.client import Worker
from feddst.flower.messages import TRAIN, read_task_message
from feddst.flower.tasks import read_task, write_task
from feddst.runtime import RunConfig
from feddst.wire import ClientTask

Configure = Callable[..., RunConfig]
Asked = tuple[str, ClientTask]


@pytest.fixture
def asked(configure: Configure, play: Callable[..., Any]) -> Asked:
    """What client 0 is asked in a first round of FedDST."""

    def note(message: Message, work: Callable[[Message], Message]) -> Message:
        if message.metadata.message_type == TRAIN and read_task_message(message)[1].client == 0:
            _ASKED.append(read_task_message(message))
        return work(message)

    if not _ASKED:
        play(configure(rounds=1, local__batch=3), courier=note)
    return _ASKED[0]


_ASKED: list[Asked] = []


@pytest.fixture
def context() -> Context:
    return Context(1, 1, {"partition-id": 0}, RecordDict(), {})


@pytest.fixture(params=["reference", "native"])
def worker(request: pytest.FixtureRequest, federation: Federation, network: Any) -> Worker:
    def images_of(context: Context) -> Any:
        return federation.client_data(0)

    return Worker(network, images_of, EngineConfig(kind=request.param))


def test_the_same_task_is_carried_out_the_same_way(worker: Worker, asked: Asked, context: Context) -> None:
    one, two = (worker.carry_out(*asked, context) for _ in range(2))
    assert one.payload == two.payload
    assert one.loss == two.loss


def test_another_seed_is_another_network(worker: Worker, asked: Asked, context: Context) -> None:
    _, task = asked
    first = worker.carry_out(*asked, context)
    other = worker.carry_out("another", replace(task, seed=8), context)
    assert other.payload != first.payload
    assert worker.carry_out("third", task, context).payload == first.payload


REPORTING: dict[str, Any] = {"images": "all", "temperature": 1.0, "bound": 1.0, "within": []}
SETTLING = {
    "step": "initial-pruning",
    "rounds": 3,
    "every": 2,
    "prunable": 1e9,
    "times": {},
    "constant": -1.0,
    "steady": 0.1,
    "in_a_row": 5,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("steps.0.epoch", -5),
        ("steps.0.epoch", 10**12),
        ("steps.0.drop", {"0.weight": -3}),
        ("steps.0.drop", {"0.weight": 10**15}),
        ("steps.0.drop", {"nobody.weight": 1}),
        ("steps.0.drop", {}),
        ("steps.0.budgets", {"0.weight": 10**15}),
        ("steps.0.budgets", {"0.weight": -1, "3.weight": 0}),
        ("steps.0.budgets", {"0.bias": 1}),
        ("steps.0.growth.max_images", -1),
        ("keep", ["nobody.weight"]),
        ("keep", ["0.weight", "0.bias", "3.weight", "3.bias", "5.weight", "5.bias"]),
        ("steps", [{"step": "report", "kind": "sign", **REPORTING, "temperature": 0.0, "bound": -1.0}] * 3),
        ("steps", [{"step": "report", "kind": "squared-gradient", **REPORTING}] * 2),
        ("steps", [{"step": "report", "kind": "kept", **REPORTING}]),
        ("steps", [SETTLING]),
        ("steps", [{**SETTLING, "every": 0}]),
        ("steps", [{**SETTLING, "prunable": -3.0, "in_a_row": 0}]),
        ("steps", [{**SETTLING, "times": {"nobody.weight": 1.0}}]),
        ("steps", [{"step": "proximal", "mu": -1e300, "gradient": "exact"}]),
        (
            "steps",
            [
                {
                    "step": "lottery-pruning",
                    "threshold": -1.0,
                    "prune": 7.0,
                    "held_out": 5.0,
                    "budgets": {"0.weight": -9},
                }
            ],
        ),
        ("steps", [{"step": "lottery-pruning", "threshold": 0.0, "prune": 0.5, "held_out": 1.0, "budgets": {}}]),
        ("local.batch", 2**62),
        ("local.lr", 1e300),
    ],
    ids=lambda part: str(part)[:30],
)
def test_senseless_tasks_do_not_bring_a_client_down(
    path: str, value: Any, worker: Worker, asked: Asked, context: Context
) -> None:
    """They come from a server that may be anybody's: an error is an answer, and the next task is carried out."""
    run, task = asked
    tree = json.loads(write_task(run, task))
    node: Any = tree["plan"]
    *steps, last = path.split(".")
    for step in steps:
        node = node[int(step) if isinstance(node, list) else step]
    node[last] = value
    try:
        result = worker.carry_out(*read_task(json.dumps(tree), task.message), context)
    except (FeddstError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        pass
    else:
        assert result.payload is not None
    after = worker.carry_out("next", task, context)
    assert math.isfinite(after.loss)


def test_engines_for_whole_cohorts_are_not_for_clients(federation: Federation, network: Any) -> None:
    with pytest.raises(OptionError, match=r"engine\.kind must be native or reference"):
        Worker(network, lambda context: federation.client_data(0), EngineConfig(kind="stacked"))


class Counted(TorchDataset[Any]):
    """Examples that are read as they are needed; `reads` are those that were."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.pairs = list(zip(images, labels.tolist(), strict=True))
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, item: int) -> tuple[Tensor, int]:
        self.reads.append(item)
        return self.pairs[item]


def test_data_are_read_once_for_a_task(federation: Federation, network: Any, asked: Asked, context: Context) -> None:
    """Besides the few that are looked at beforehand."""
    images, labels = federation.client_data(0).pair
    counted = Counted(images.repeat(20, 1, 1, 1), labels.repeat(20))
    worker = Worker(network, lambda context: counted, EngineConfig(kind="reference"))
    assert worker.introduce(context).images == len(counted)
    assert len(counted.reads) < 40
    counted.reads.clear()
    worker.carry_out(*asked, context)
    assert len(counted) <= len(counted.reads) < len(counted) + 40


def test_one_app_serves_many_runs_at_once(
    configure: Configure, play: Callable[..., Any], make_grid: Callable[..., InProcessGrid], alike: Any
) -> None:
    """What clients keep of one run does not mix with another's."""
    config, other = configure(method="lg-fedavg"), configure(method="lg-fedavg", seed=5)
    alone = play(config).weights[-1]
    grid = make_grid()
    play(other, grid=grid)
    assert alike(play(config, grid=grid).weights[-1], alone)
