"""The peers' bench: PyTorch in processes against a plain loop, jobs as files, and who has a turn when."""

import ast
import copy
import json
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import benchmarks.rivals
from benchmarks.peers import runners
from benchmarks.peers.measure import PeersBench, PeersRecord, measure, remarks, table
from benchmarks.peers.runners import FRAMEWORKS, Ours, Peer, RunnerError, Task, Turn, make_task, probe
from benchmarks.rivals.job import Client, Training, accuracy, make_job, read_job, write_job
from benchmarks.rivals.torch_processes import ALLOCATOR, TorchProcesses, image_order
from feddst.data import Dataset
from feddst.data.config import SOURCES
from feddst.errors import OptionError
from feddst.models.paper import cifar10_cnn, mnist_cnn

FLOWER = FRAMEWORKS[0]
Shape = tuple[int, ...]


def made_up(shape: Shape, sizes: tuple[int, ...]) -> list[Client]:
    """Clients with so many images each, of ten classes."""
    draws = torch.Generator().manual_seed(3)
    return [(torch.randn(n, *shape, generator=draws), torch.randint(0, 10, (n,), generator=draws)) for n in sizes]


# PyTorch in processes.


def plain_round(module: nn.Module, clients: list[Client], training: Training, number: int) -> None:
    """A round as anybody would write it: one client after another, every tensor by itself."""
    total = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in module.named_parameters()}
    for client, (inputs, labels) in enumerate(clients):
        local, draws = copy.deepcopy(module), image_order(number, client)
        velocity = {name: torch.zeros_like(value) for name, value in local.named_parameters()}
        for _ in range(training.epochs):
            order = torch.randperm(len(labels), generator=draws)
            for start in range(0, len(labels), training.batch):
                batch = order[start : start + training.batch]
                loss = F.cross_entropy(local(inputs[batch]), labels[batch])
                gradients = torch.autograd.grad(loss, list(local.parameters()))
                with torch.no_grad():
                    for (name, value), gradient in zip(local.named_parameters(), gradients, strict=True):
                        step = gradient + training.weight_decay * value
                        velocity[name] = training.momentum * velocity[name] + step
                        value.sub_(training.lr * velocity[name])
        for name, value in local.named_parameters():
            total[name] += len(labels) * value.detach().double()
    images = sum(len(labels) for _, labels in clients)
    with torch.no_grad():
        for name, value in module.named_parameters():
            value.copy_(total[name] / images)


@pytest.mark.parametrize(("network", "shape", "workers"), [(mnist_cnn, (1, 14, 14), 2), (cifar10_cnn, (3, 16, 16), 1)])
def test_processes_do_what_a_plain_loop_does(
    network: Callable[[Shape, int], nn.Sequential], shape: Shape, workers: int
) -> None:
    torch.manual_seed(1)
    module, training = network(shape, 10), Training(epochs=2, batch=8, lr=0.02, momentum=0.8, weight_decay=0.01)
    before, expected = copy.deepcopy(module), copy.deepcopy(module)
    first, second = made_up(shape, (11, 6, 9)), made_up(shape, (5,))  # in the last round a process has nothing to do
    with TorchProcesses(module, workers, training) as rival:
        for number, clients in enumerate((first, first, second)):
            assert 0 < rival.round(clients) < 60
            plain_round(expected, clients, training, number)
    for (name, value), found in zip(expected.named_parameters(), rival.module.parameters(), strict=True):
        assert torch.allclose(found, value, rtol=0, atol=1e-5), name
        assert not torch.allclose(found, before.get_parameter(name), rtol=0, atol=1e-3), name
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), before.parameters(), strict=True))


def test_an_error_in_a_process_is_the_callers() -> None:
    inputs, _ = made_up((1, 14, 14), (4,))[0]
    with (
        TorchProcesses(mnist_cnn((1, 14, 14), 10), 1, Training(epochs=1)) as rival,
        pytest.raises(IndexError, match="Target 10 is out of bounds"),
    ):
        rival.round([(inputs, torch.full((4,), 10))])


# Jobs as files.


def test_a_job_in_a_file_is_the_job(tmp_path: Path) -> None:
    module, clients = cifar10_cnn((3, 16, 16), 10), made_up((3, 16, 16), (5, 3))
    training = Training(epochs=3, batch=2, lr=0.5, momentum=0.25, weight_decay=0.125)
    write_job(make_job(module, clients, training, rounds=4, workers=6, tuned=True), tmp_path / "job.npz")
    job = read_job(str(tmp_path / "job.npz"))
    assert (job.training, job.rounds, job.workers, job.tuned) == (training, 4, 6, True)
    network = job.network()
    assert str(network) == str(module)
    assert torch.equal(network(clients[0][0]), module(clients[0][0]))
    for number, (inputs, labels) in enumerate(clients):
        assert torch.equal(job.client(number)[0], inputs)
        assert torch.equal(job.client(number)[1], labels)


@pytest.mark.parametrize("tuned", [False, True])
def test_a_tuned_job_trains_the_same_in_another_layout(*, tuned: bool) -> None:
    torch.manual_seed(1)
    module, (client,) = mnist_cnn((1, 14, 14), 10), made_up((1, 14, 14), (4,))
    expected, training = copy.deepcopy(module), Training(epochs=1, batch=4, lr=0.02)
    job = make_job(module, [client], training, rounds=1, workers=1, tuned=tuned)
    trained = job.trainee()
    assert trained.get_parameter("conv2.weight").is_contiguous() != tuned
    job.train(trained, job.client(0))
    plain_round(expected, [client], training, 0)
    for (name, value), found in zip(expected.named_parameters(), trained.parameters(), strict=True):
        assert torch.allclose(found, value, rtol=0, atol=1e-5), name


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm2d(3), "layer 0 is a BatchNorm2d; a job can have Conv2d, MaxPool2d, Linear, ReLU, Flatten"),
        (nn.Conv2d(3, 3, 3, padding=1), "layer 0, Conv2d.* has settings that a job cannot have"),
    ],
)
def test_a_network_that_a_job_cannot_have(layer: nn.Module, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make_job(nn.Sequential(layer), [], Training(), rounds=1, workers=1, tuned=True)


def test_accuracy_is_over_all_images() -> None:
    clients = [(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])), (torch.eye(2)[:1], torch.tensor([0]))]
    assert accuracy(nn.Identity(), clients) == pytest.approx(2 / 3)


def test_scripts_need_nothing_of_this_package() -> None:
    folder = Path(benchmarks.rivals.__file__).parent
    scripts = [path for path in folder.glob("*.py") if path.name != "torch_processes.py"]
    assert {path.stem for path in scripts} >= {framework.option for framework in FRAMEWORKS}
    for path in scripts:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] in ("feddst", "benchmarks") for name in names), path


# Turns.


class Fake:
    """A runner whose rounds take as long as it is told, and who fails when there is nothing left to tell."""

    def __init__(self, name: str, calls: list[str], *turns: tuple[float, ...]) -> None:
        self.name = name
        self.versions: Mapping[str, str] = {"engine": "Fake"} if name == "ours" else {"flwr": "1.2.3"}
        self._calls = calls
        self._turns = list(turns)

    def turn(self) -> Turn:
        self._calls.append(self.name)
        if not self._turns:
            raise RunnerError("it is tired, in /home/me")
        return Turn(self._turns.pop(0), 0.5)


def measured(*runners: Fake, turns: int) -> tuple[PeersRecord, list[str]]:
    told: list[str] = []
    return measure(PeersBench(turns=turns, rounds=2, workers=3, pfl="x"), runners, told.append), told


def test_everybody_in_turn() -> None:
    calls: list[str] = []
    ours = Fake("ours", calls, (2.0, 1.0), (1.0, 9.0))
    record, told = measured(ours, Fake("theirs", calls, (4.0, 4.0), (6.0, 8.0)), turns=2)
    assert calls == ["ours", "theirs", "ours", "theirs"]
    assert told[1] == "turn 1 of 2, theirs: 4.00 s a round"
    # 1, 1, 2, 9 have the median 1.5 and the mean 3.25; 4, 4, 6, 8 have 5 and 5.5.
    assert table(record).rows == [
        ("runner", "median", "min", "mean", "× ours", "× its mean", "accuracy %"),
        ("ours (Fake)", "1.50", "1.00", "3.25", "1.00", "0.46", "50.0"),
        ("theirs", "5.00", "4.00", "5.50", "3.33", "1.54", "50.0"),
    ]
    assert "2 turns of 2 rounds for each runner" in table(record).caption
    assert "; 3 cores for each runner" in table(record).caption
    assert not record.failed
    assert remarks(record) == [
        "not measured: Flower simulation, for lack of --flower PYTHON",
        "not measured: FedLab, for lack of --fedlab PYTHON",
    ]


def test_who_fails_has_no_more_turns_and_the_others_go_on() -> None:
    calls: list[str] = []
    broken = Fake("Flower simulation", calls)
    record, told = measured(Fake("ours", calls, (1.0,), (3.0,)), broken, turns=2)
    assert calls == ["ours", "Flower simulation", "ours"]
    assert "turn 1 of 2, Flower simulation failed: it is tired, in /home/me" in told
    assert table(record).rows[-1] == ("Flower simulation 1.2.3", "–", "–", "–", "–", "–", "–")
    assert remarks(record)[0] == "failed: Flower simulation: it is tired, in /home/me"
    about = record.as_json("python -m benchmarks.peers")
    assert about["runners"][1] == {"name": "Flower simulation", "versions": {"flwr": "1.2.3"}, "failed": True}
    assert about["runners"][0]["turns"] == [[1.0], [3.0]]
    assert "/home" not in json.dumps(about)
    assert record.failed


def test_one_who_fails_late_keeps_the_turns_it_had() -> None:
    record, _ = measured(Fake("ours", [], (2.0,), (2.0,)), Fake("theirs", [], (3.0,)), turns=2)
    row = record.as_json("")["runners"][1]
    assert (row["failed"], row["median"], row["ratio"], row["usual_ratio"]) == (True, 3.0, 1.5, 1.5)


# Other interpreters.


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    """Two clients with 40 images of 14×14 pixels each; three timed rounds of one epoch, on one core."""
    draws = np.random.default_rng(0)
    labels = np.arange(200) % 4
    images = (draws.normal(size=(200, 1, 14, 14)) + labels[:, None, None, None]).astype("float32")
    data = Dataset.from_arrays((images[:160], labels[:160]), (images[160:], labels[160:]), name="mnist")
    monkeypatch.setattr(SOURCES["mnist"], "load", lambda config: data)
    return make_task(clients=2, epochs=1, rounds=3, workers=1, seed=0)


Interpreter = Callable[[str], str]


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """Makes a stand-in for a Python interpreter, which carries out `body` where it should run Flower's script."""

    def make(body: str) -> str:
        path = tmp_path / "python"
        path.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys, time\n"
            "if sys.argv[1] == '-c':\n"
            "    print(json.dumps(dict.fromkeys(sys.argv[3:], '1.2.3')))\n"
            "    sys.exit()\n"
            "assert sys.argv[1:4] == ['-m', 'rivals', 'flower'], sys.argv\n"
            "job, report = sys.argv[4:]\n"
            "def write(**values): open(report, 'w').write(json.dumps(values))\n"
            f"{body}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def test_another_interpreter_is_given_the_job_and_gives_back_its_seconds(
    task: Task, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    body = (
        "sys.path.insert(0, os.getcwd())\n"
        "from rivals.job import read_job\n"
        "found = read_job(job)\n"
        "assert (found.rounds, found.workers, len(found.clients)) == (3, 1, 2)\n"
        "assert 'PYTHONPATH' not in os.environ and os.environ['FLWR_TELEMETRY_ENABLED'] == '0'\n"
        "assert os.environ['RAY_USAGE_STATS_ENABLED'] == '0'\n"
        "write(seconds=[1, 2.5, 3], accuracy=0.25)"
    )
    python = interpreter(body)
    assert probe(FLOWER, python) == {"flwr": "1.2.3", "ray": "1.2.3", "torch": "1.2.3"}
    assert Peer(task, FLOWER, python, {}, tuned=False).turn() == Turn((1.0, 2.5, 3.0), 0.25)


def test_a_tuned_job_is_done_with_other_settings_of_memory(
    task: Task, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    body = (
        "sys.path.insert(0, os.getcwd())\n"
        "from rivals.job import read_job\n"
        "settings = [name for name in os.environ if name.startswith('MALLOC_')]\n"
        "write(seconds=[1, 2, 3], accuracy=read_job(job).tuned + 10 * len(settings))"
    )
    python = interpreter(body)
    peers = [Peer(task, FLOWER, python, {}, tuned=tuned) for tuned in (False, True)]
    assert [peer.name for peer in peers] == ["Flower simulation", "Flower simulation, tuned"]
    assert [peer.turn().accuracy for peer in peers] == [0, 21]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit('it broke')", "it ended with code 1: it broke"),
        ("print('[rank1]: OSError: no room\\nFailedError:\\n===='); sys.exit(3)", "code 3: .* OSError: no room"),
        ("pass", "it left no report"),
        ("write(seconds=[1, 2, 3])", "it left no report"),
        ("write(seconds=[1], accuracy=1)", "it timed 1 rounds instead of 3"),
        ("time.sleep(60)", "it was not done after 1 s"),
    ],
)
def test_another_interpreter_that_does_not_do_the_job(
    task: Task, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    monkeypatch.setattr(runners, "LIMIT", 1)
    with pytest.raises(RunnerError, match=message):
        Peer(task, FLOWER, interpreter(body), {}, tuned=True).turn()


def test_what_another_interpreter_leaves_running_is_ended(task: Task, interpreter: Interpreter, tmp_path: Path) -> None:
    note = tmp_path / "child"
    body = (
        "child = os.fork()\n"
        "if not child:\n"
        "    time.sleep(60)\n"
        f"open({str(note)!r}, 'w').write(str(child))\n"
        "write(seconds=[1, 2, 3], accuracy=1)"
    )
    Peer(task, FLOWER, interpreter(body), {}, tuned=True).turn()
    deadline = time.monotonic() + 20
    while running(int(note.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(process: int) -> bool:
    """Whether it is there and not merely waiting for somebody to notice its end."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ("/no/such/python", "No such file or directory"),
        ("/", "Permission denied"),
        (sys.executable, "importlib.metadata.PackageNotFoundError: No package metadata was found for nonesuch"),
    ],
)
def test_an_interpreter_that_will_not_do(python: str, reason: str) -> None:
    framework = runners.Framework("flower", "Flower", ("nonesuch",))
    message = f"flower must be a Python interpreter with nonesuch, got {python!r}: {reason}"
    with pytest.raises(OptionError) as caught:
        probe(framework, python)
    assert str(caught.value) == message


# This package.


@pytest.mark.parametrize("level", [0.8, 0.0])
def test_our_own_turn(task: Task, level: float) -> None:
    runner = Ours(task, level)
    before = copy.deepcopy(task.module)
    turn = runner.turn()
    assert len(turn.seconds) == 3
    assert all(math.isfinite(seconds) and seconds > 0 for seconds in turn.seconds)
    assert 0 <= turn.accuracy <= 1
    assert runner.versions["engine"].endswith("Engine")
    assert all(torch.equal(a, b) for a, b in zip(task.module.parameters(), before.parameters(), strict=True))
