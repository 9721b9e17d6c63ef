"""The runners of the peers' bench: this package, PyTorch in plain processes, and other frameworks."""

import contextlib
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from benchmarks.clients import clients_in
from benchmarks.rivals.job import Client, Training, accuracy, make_job, write_job
from benchmarks.rivals.torch_processes import ALLOCATOR, TorchProcesses
from feddst.data import DataConfig, Federation, federate
from feddst.engines import make_engine
from feddst.errors import FeddstError, OptionError
from feddst.models import ModelConfig, load, make_module, network
from feddst.runtime.config import RunConfig
from feddst.runtime.configure import configure
from feddst.runtime.loop import Silent, play
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run

LIMIT = 1800
"""Seconds after which another framework's turn is given up."""

_ENDLESS = 10**9
_RIVALS = Path(__file__).parents[1] / "rivals"
_PROBE = (
    "import importlib.metadata, json, platform, sys; "
    "versions = {name: importlib.metadata.version(name) for name in sys.argv[1:]}; "
    "print(json.dumps({**versions, 'python': platform.python_version()}))"
)
_SURROUNDINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Environment variables of other frameworks' processes: no telemetry, one thread."""

TUNED = ", tuned"
"""What follows the name of a framework whose clients train as those of `PlainTorch` do."""


@dataclass(frozen=True)
class Task:
    """Rounds of federated averaging with all clients on MNIST; `rounds` of a turn are timed, one before them is not.

    `workers` is how many processes or threads each runner may have.
    """

    federation: Federation
    module: nn.Sequential
    training: Training
    rounds: int
    workers: int
    seed: int

    @property
    def clients(self) -> list[Client]:
        """Every client's inputs and labels."""
        return clients_in(self.federation)


def make_task(clients: int, epochs: int, rounds: int, workers: int, seed: int) -> Task:
    """The paper's MNIST network and as many of its clients; initial weights and images follow from the seed."""
    federation = federate(DataConfig(clients=clients), seed)
    shape, classes = federation.dataset.input_shape, federation.dataset.num_classes
    module = make_module(lambda: network(ModelConfig(name="mnist-cnn"), shape, classes), seed)
    assert isinstance(module, nn.Sequential)
    return Task(federation, module, Training(epochs=epochs), rounds, workers, seed)


@dataclass(frozen=True)
class Turn:
    """Seconds of one turn's timed rounds, and the share of the clients' images that the last model gets right."""

    seconds: tuple[float, ...]
    accuracy: float


class Runner(Protocol):
    """Does the job."""

    name: str
    versions: Mapping[str, str]

    def turn(self) -> Turn:
        """Start, do the job once, and end."""
        ...


class RunnerError(FeddstError):
    """Another framework failed."""


class Ours:
    """This package, through its own round loop. Timed: from the end of one round to the end of the next.

    That is all that a run does but evaluate: broadcasts as bytes, training, updates as bytes, aggregation, metrics.
    Masks are readjusted in one timed round of a turn, or in one of ten, as in the paper.
    """

    def __init__(self, task: Task, level: float) -> None:
        self.name = f"feddst, S = {level:g}" if level else "feddst, dense (FedAvgM)"
        self.versions: Mapping[str, str] = {"torch": torch.__version__}
        self._task = task
        self._config = _config(task, level)

    def turn(self) -> Turn:
        task, laps = self._task, Laps(1 + self._task.rounds)
        module = copy.deepcopy(task.module)
        run = Run(self._config, task.federation, module)
        with closing(make_engine(self._config.engine, module, task.federation.dataset)) as engine:
            self.versions = {**self.versions, "engine": type(engine).__name__}
            play([run], engine, laps)
        load(module, run.state.params, run.state.buffers)
        return Turn(laps.seconds, accuracy(module, task.clients))


class Laps(Silent):
    """Notes when rounds end, and stops the run after so many."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._ends: list[float] = []

    def row(self, run: Run, row: Row) -> None:
        self._ends.append(time.perf_counter())

    def stop(self) -> bool:
        return len(self._ends) == self._rounds

    @property
    def seconds(self) -> tuple[float, ...]:
        """Of each round but the first."""
        return tuple(after - before for before, after in zip(self._ends, self._ends[1:], strict=False))


def _config(task: Task, level: float) -> RunConfig:
    local = task.training
    options: dict[str, Any] = {
        "seed": task.seed,
        "rounds": _ENDLESS,
        "eval_every": _ENDLESS,
        "data": {"clients": task.federation.num_clients},
        "cohort": {"size": task.federation.num_clients},
        "local": {
            "epochs": local.epochs,
            "batch": local.batch,
            "lr": local.lr,
            "momentum": local.momentum,
            "l2": local.weight_decay,
        },
        "engine": {"workers": task.workers},
    }
    if not level:
        return configure(method="fedavgm", **options)
    return configure(method="feddst", sparsity={"level": level}, readjust={"every": min(10, task.rounds)}, **options)


class PlainTorch:
    """PyTorch in plain processes, as fast as it was found to go; see `TorchProcesses.round` for what is timed."""

    def __init__(self, task: Task) -> None:
        self.name = "PyTorch processes"
        self.versions: Mapping[str, str] = {"torch": torch.__version__}
        self._task = task

    def turn(self) -> Turn:
        task, clients = self._task, self._task.clients
        with TorchProcesses(task.module, task.workers, task.training) as rival:
            rival.round(clients)
            seconds = tuple(rival.round(clients) for _ in range(task.rounds))
        return Turn(seconds, accuracy(rival.module, clients))


@dataclass(frozen=True)
class Framework:
    """Another framework: the name of its option and script, its own, and the packages that make it up."""

    option: str
    name: str
    packages: tuple[str, ...]


FRAMEWORKS = (
    Framework("flower", "Flower simulation", ("flwr", "ray", "torch")),
    Framework("pfl", "pfl-research", ("pfl", "torch")),
    Framework("fedlab", "FedLab", ("fedlab", "torch")),
)


def probe(framework: Framework, python: str) -> dict[str, str]:
    """The versions of a framework's packages and of Python in the environment of the interpreter `python`.

    Raises `OptionError` if it is no interpreter, or one without the framework.
    """
    wanted = f"{framework.option} must be a Python interpreter with {', '.join(framework.packages)}, got {python!r}"
    command = [python, "-c", _PROBE, *framework.packages]
    try:
        found = subprocess.run(
            command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
    except OSError as error:
        raise OptionError(f"{wanted}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise OptionError(f"{wanted}: it does not answer") from None
    try:
        versions: dict[str, str] = json.loads(found.stdout)
    except ValueError:
        raise OptionError(f"{wanted}: {_reason(found.stderr) or 'it answers with something else'}") from None
    return versions


class Peer:
    """Another framework, in its own environment; its script in `rivals` says what is timed.

    Clients train in the usual way, or `tuned`: with the layout, the optimizer and the memory settings of `PlainTorch`,
    none of which the framework sets itself.
    """

    def __init__(
        self, task: Task, framework: Framework, python: str, versions: Mapping[str, str], *, tuned: bool
    ) -> None:
        self.name = framework.name + (TUNED if tuned else "")
        self.versions = versions
        self._task = task
        self._script = framework.option
        self._tuned = tuned
        self._python = os.path.abspath(python) if os.path.dirname(python) else python

    def turn(self) -> Turn:
        task = self._task
        with tempfile.TemporaryDirectory(prefix="feddst-") as place:
            folder = Path(place)
            # Copied, so that nothing else of this package is on the other interpreter's path.
            shutil.copytree(_RIVALS, folder / "rivals", ignore=shutil.ignore_patterns("__pycache__"))
            numbers = task.training, task.rounds, task.workers
            write_job(make_job(task.module, task.clients, *numbers, tuned=self._tuned), folder / "job.npz")
            settings = ALLOCATOR if self._tuned else {}
            _run([self._python, "-m", "rivals", self._script, "job.npz", "report.json"], folder, settings)
            return self._read(folder / "report.json")

    def _read(self, path: Path) -> Turn:
        try:
            report = json.loads(path.read_text())
            turn = Turn(tuple(map(float, report["seconds"])), float(report["accuracy"]))
        except (OSError, ValueError, KeyError, TypeError):
            raise RunnerError("it left no report") from None
        if len(turn.seconds) != self._task.rounds:
            raise RunnerError(f"it timed {len(turn.seconds)} rounds instead of {self._task.rounds}")
        return turn


def _run(command: Sequence[str], folder: Path, settings: Mapping[str, str]) -> None:
    """Run a command in a folder, with these variables in its environment, and end whatever it leaves behind.

    Raises `RunnerError` if it fails.
    """
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**_environment(), **settings, "FLWR_HOME": str(folder / "flwr")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise RunnerError(f"it was not done after {LIMIT} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        raise RunnerError(f"it ended with code {code}: {_reason(log.read_text(errors='replace'))}")


def _environment() -> dict[str, str]:
    """The environment of another interpreter: ours, less what would lead it to our packages."""
    ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return ours | _SURROUNDINGS


def _reason(output: str) -> str:
    """The line of a program's output that says why it failed: the last that names an exception, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"(Error|Exception): \S", line)]
    return (named or lines or [""])[-1]
