"""Worker processes give the same bits as one process, and pass errors on."""

import copy
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import nn

from feddst.clients import Assignment
from feddst.core import LocalTraining
from feddst.data import Dataset
from feddst.engines import EngineConfig, Exam, ProcessEngine, ReferenceEngine, make_engine
from feddst.engines.base import replies_of
from feddst.engines.processes import can_travel
from feddst.errors import OptionError, TrainingError
from feddst.methods import FedAvgM, FedDST
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import WireConfig

AssignmentMaker = Callable[..., Assignment]
LOCAL = LocalTraining(epochs=2, batch=8, lr=0.1)


@pytest.fixture
def engine(module: nn.Sequential, dataset: Dataset) -> Iterator[ProcessEngine]:
    with closing(ProcessEngine(module, dataset, workers=2)) as processes:
        yield processes


@pytest.mark.parametrize(
    "wire", [WireConfig(), WireConfig("q4"), WireConfig("q2", feedback=True)], ids=["float32", "q4", "feedback"]
)
def test_workers_agree_with_one_process_to_the_last_bit(
    engine: ProcessEngine, module: nn.Sequential, dataset: Dataset, assignment: AssignmentMaker, wire: WireConfig
) -> None:
    method = FedDST(local=LOCAL, sparsity=Sparsity(0.6), readjust=Timetable(alpha=0.3, every=1))
    given = [assignment(method, client=client, wire=wire) for client in range(5)]
    plain = ReferenceEngine(module, dataset, torch.device("cpu"))
    alone, shared = replies_of(plain, given), replies_of(engine, given)
    assert set(shared) == set(alone) == set(range(5))
    for index, reply in alone.items():
        assert reply.payload == shared[index].payload
        assert reply.loss == shared[index].loss
        kept, also = reply.state.feedback, shared[index].state.feedback
        assert kept.keys() == also.keys()
        assert all(torch.equal(value, also[name]) for name, value in kept.items())
        assert bool(kept) == wire.feedback
    assert len({reply.payload for reply in alone.values()}) == 5


def test_workers_evaluate_as_one_process_does(engine: ProcessEngine, module: nn.Sequential, dataset: Dataset) -> None:
    plain = ReferenceEngine(copy.deepcopy(module), dataset, torch.device("cpu"))
    params = {name: value.detach().clone() for name, value in module.named_parameters()}
    models = [Exam({name: scale * v for name, v in params.items()}) for scale in (1, 2)]
    models.append(Exam(params, images=torch.arange(0, 1200, 7)))
    for one, two in zip(plain.evaluate(models), engine.evaluate(models), strict=True):
        assert torch.equal(one.correct, two.correct)
        assert one.loss == two.loss
        assert len(one.correct) in (1200, 172)


def test_errors_come_through(engine: ProcessEngine, assignment: AssignmentMaker) -> None:
    given = [assignment(FedAvgM(local=replace(LOCAL, lr=1e30)), client=1)]
    with pytest.raises(TrainingError, match="client 1 diverged in round 1"):
        replies_of(engine, given)
    assert len(replies_of(engine, [assignment(FedAvgM(local=LOCAL))])) == 1


def test_a_dead_worker_is_an_error_and_not_a_hang(engine: ProcessEngine, assignment: AssignmentMaker) -> None:
    for worker in engine._workers:
        worker.send_signal(signal.SIGKILL)
    with pytest.raises(TrainingError, match="worker process ended unexpectedly with code -9"):
        replies_of(engine, [assignment(FedAvgM(local=LOCAL))])


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


@pytest.mark.parametrize("device", ["tpu", "gpu", "mps", "cuda:99", ""])
def test_devices_that_are_not_there_are_refused(device: str) -> None:
    with pytest.raises(OptionError, match=r"engine\.device"):
        EngineConfig(device=device).torch_device()
