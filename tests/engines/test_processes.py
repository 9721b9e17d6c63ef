"""Worker processes give the same bits as one process, and pass errors on."""

import copy
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import nn

from feddst.clients.steps import Proximal
from feddst.core import LocalTraining
from feddst.core.step import STEPS
from feddst.data import Dataset
from feddst.engines import EngineConfig, EvalTask, ProcessEngine, ReferenceEngine, make_engine, results_of
from feddst.engines.processes import can_travel
from feddst.errors import DivergenceError, OptionError, TrainingError
from feddst.methods import FedAvgM, FedDST
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import ClientTask, WireConfig

TaskMaker = Callable[..., ClientTask]
LOCAL = LocalTraining(epochs=2, batch=8, lr=0.1)


@pytest.fixture
def engine(module: nn.Sequential, dataset: Dataset) -> Iterator[ProcessEngine]:
    with closing(ProcessEngine(module, dataset, workers=2)) as processes:
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


def test_a_dead_worker_is_an_error_and_not_a_hang(engine: ProcessEngine, task: TaskMaker) -> None:
    for worker in engine._workers:
        worker.send_signal(signal.SIGKILL)
    with pytest.raises(TrainingError, match="worker process ended unexpectedly with code -9"):
        results_of(engine, [task(FedAvgM(local=LOCAL))])


def test_a_module_from_the_users_script_stays_in_one_process(
    dataset: Dataset, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(nn.Linear):
        pass

    monkeypatch.setattr(Local, "__module__", "__main__")
    module = nn.Sequential(nn.Flatten(), Local(64, 4))
    assert not can_travel(module)
    with closing(make_engine(EngineConfig(workers=2), module, dataset)) as engine:
        assert isinstance(engine, ReferenceEngine)
    assert "so one process trains all clients" in caplog.text


def test_steps_of_the_users_script_stay_in_one_process(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_travel(module)
    monkeypatch.setitem(STEPS, "proximal", type("Scripted", (Proximal,), {"__module__": "__main__"}))
    assert not can_travel(module)


@pytest.mark.parametrize("device", ["tpu", "gpu", "mps", "cuda:99", ""])
def test_devices_that_are_not_there_are_refused(device: str) -> None:
    with pytest.raises(OptionError, match=r"engine\.device"):
        EngineConfig(device=device).torch_device()
