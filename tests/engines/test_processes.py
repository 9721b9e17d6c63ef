"""Worker processes give the same bits as one process, and pass errors on."""

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from feddst.core import LocalTraining
from feddst.data import Dataset
from feddst.engines import EngineConfig, EvalTask, ProcessEngine, ReferenceEngine, make_engine, results_of
from feddst.errors import DivergenceError, OptionError, TrainingError
from feddst.methods import FedAvgM, FedDST
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import ClientTask, WireConfig

from ..clients.conftest import some_images, tiny_network

TaskMaker = Callable[..., ClientTask]
LOCAL = LocalTraining(epochs=2, batch=8, lr=0.1)


@pytest.fixture(scope="module")
def engine() -> Iterator[ProcessEngine]:
    """One for all tests, as its workers take seconds to start."""
    with closing(ProcessEngine(tiny_network(), some_images(), workers=2)) as processes:
        yield processes


@pytest.mark.parametrize(
    "wire", [WireConfig(), WireConfig("q4"), WireConfig("q2", feedback=True)], ids=["float32", "q4", "feedback"]
)
def test_workers_agree_with_one_process_to_the_last_bit(
    engine: ProcessEngine, module: nn.Sequential, dataset: Dataset, task: TaskMaker, wire: WireConfig
) -> None:
    method = FedDST(local=LOCAL, sparsity=Sparsity(0.6), readjust=Timetable(alpha=0.3, every=1))
    tasks = [task(method, client=client, wire=wire) for client in range(5)]
    plain = ReferenceEngine(module, dataset, torch.device("cpu"))
    alone, shared = results_of(plain, tasks), results_of(engine, tasks)
    assert len(shared) == len(alone) == 5
    for one, two in zip(alone, shared, strict=True):
        assert one.payload == two.payload
        assert one.loss == two.loss
        kept, also = one.state.feedback, two.state.feedback
        assert kept.keys() == also.keys()
        assert all(torch.equal(value, also[name]) for name, value in kept.items())
        assert bool(kept) == wire.feedback
    assert len({one.payload for one in alone}) == 5


def test_workers_evaluate_as_one_process_does(engine: ProcessEngine, module: nn.Sequential, dataset: Dataset) -> None:
    plain = ReferenceEngine(copy.deepcopy(module), dataset, torch.device("cpu"))
    params = {name: value.detach().clone() for name, value in module.named_parameters()}
    models = [EvalTask({name: scale * v for name, v in params.items()}) for scale in (1, 2)]
    models.append(EvalTask(params, images=torch.arange(0, 1200, 7)))
    for one, two in zip(plain.evaluate(models), engine.evaluate(models), strict=True):
        assert torch.equal(one.added["accuracy"], two.added["accuracy"])
        assert one.loss == two.loss
        assert len(one.added["accuracy"]) in (1200, 172)


def test_errors_come_through(engine: ProcessEngine, task: TaskMaker) -> None:
    tasks = [task(FedAvgM(local=replace(LOCAL, lr=1e30)), client=1)]
    with pytest.raises(DivergenceError, match="client 1 diverged in round 1"):
        results_of(engine, tasks)
    assert len(results_of(engine, [task(FedAvgM(local=LOCAL))])) == 1


def test_a_dead_worker_is_an_error_and_not_a_hang(module: nn.Sequential, dataset: Dataset, task: TaskMaker) -> None:
    with closing(ProcessEngine(module, dataset, workers=1)) as engine:
        engine._workers[0].send_signal(signal.SIGKILL)
        with pytest.raises(TrainingError, match="worker process ended unexpectedly with code -9"):
            results_of(engine, [task(FedAvgM(local=LOCAL))])


SCRIPT = """
import sys

import torch
from torch import nn

import feddst
from feddst.core import ClientPlan, register

WIDTH = 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, WIDTH), nn.Linear(WIDTH, 4)
        self.between = lambda x: x.tanh()

    def forward(self, x):
        return self.last(self.between(self.first(x.flatten(1))))


@register
class Scaled(type(feddst.core.OBJECTIVES["cross-entropy"])):
    name = "scaled"

    def loss(self, outputs, targets, reduction="mean"):
        return WIDTH / 4 * super().loss(outputs, targets, reduction)


labels = torch.arange(80) % 4
images = torch.randn(80, 1, 4, 4, generator=torch.Generator().manual_seed(0)) + labels.view(-1, 1, 1, 1)
data = feddst.Dataset.from_arrays((images, labels), (images, labels))
for workers in map(int, sys.argv[1:]):
    config = feddst.configure(
        rounds=2,
        eval_every=1,
        data={"partition": "iid", "clients": 4, "classes_per_client": 1, "images_per_class": 10},
        cohort={"size": 4},
        local={"epochs": 1, "objective": "scaled"},
        engine={"workers": workers},
    )
    result = feddst.run(config, model=Net, data=data)
    sums = [value.double().sum().item().hex() for value in result.model.state_dict().values()]
    print(*sums, *(row.loss.hex() for row in result.rows))
"""


def script_of(folder: Path, *workers: str, without: str = "") -> "subprocess.CompletedProcess[str]":
    """What the script says with so many workers; `without` is a package that is out of its reach."""
    hidden = f"import sys; sys.modules[{without!r}] = None\n" if without else ""
    (folder / "script.py").write_text(hidden + SCRIPT)
    command = [sys.executable, str(folder / "script.py"), *workers]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


def test_classes_of_a_script_train_in_worker_processes(tmp_path: Path) -> None:
    """A module with a lambda, and a registered objective that reads a global: the bits are those of one process."""
    done = script_of(tmp_path, "1", "2")
    one, two = done.stdout.splitlines()
    assert one == two
    assert len(one.split()) == 4 + 2  # the parameters, and a loss for each round
    assert "cannot be rebuilt" not in done.stderr


def test_without_cloudpickle_one_process_trains_and_a_line_names_the_remedy(tmp_path: Path) -> None:
    done = script_of(tmp_path, "2", without="cloudpickle")
    assert "so one process trains all clients: " in done.stderr
    assert "pip install 'feddst[notebook]'" in done.stderr


def test_what_cannot_be_pickled_at_all_stays_in_one_process(dataset: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    module.register_forward_hook(_Unpicklable())
    config = EngineConfig(kind="reference", workers=2)
    with closing(make_engine(config, module, dataset)) as engine:
        assert isinstance(engine, ReferenceEngine)
    assert "so one process trains all clients: no" in caplog.text


class _Unpicklable:
    """A hook that can be copied, but is not to be sent."""

    def __deepcopy__(self, memo: object) -> "_Unpicklable":
        return self

    def __reduce__(self) -> str:
        raise TypeError("no")

    def __call__(self, *given: object) -> None:
        pass


@pytest.mark.parametrize("device", ["tpu", "gpu", "mps", "cuda:99", ""])
def test_devices_that_are_not_there_are_refused(device: str) -> None:
    with pytest.raises(OptionError, match=r"engine\.device"):
        EngineConfig(device=device).torch_device()
