"""Rounds of a job, in turn: plain PyTorch, then this package with each network."""

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from benchmarks.cpu.arithmetic import round_flops
from benchmarks.cpu.jobs import INTERVAL, Case, CpuJob, readjusts
from benchmarks.rivals.torch_processes import TorchProcesses
from feddst.core import count_active
from feddst.engines import make_engine
from feddst.engines.select import EngineConfig
from feddst.runtime.loop import Silent, play
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.stopwatch import Timing

RunnerName = Literal["PyTorch", "native", "reference"]


@dataclass(frozen=True)
class Laps:
    """Seconds of one turn's timed rounds, by whether masks were readjusted in them."""

    ordinary: tuple[float, ...]
    readjusting: tuple[float, ...] = ()


@dataclass(frozen=True)
class RoundRow:
    """One runner's turns with one network. `flops`: of an ordinary round; `density`: of all weights together."""

    job: str
    runner: RunnerName
    case: Case
    density: float
    flops: int
    turns: tuple[Laps, ...]

    @property
    def ordinary(self) -> Timing:
        """Seconds of a round without readjustment."""
        return _timing([seconds for laps in self.turns for seconds in laps.ordinary])

    @property
    def readjusting(self) -> Timing | None:
        """Seconds of a round with readjustment; None if there are no masks."""
        found = [seconds for laps in self.turns for seconds in laps.readjusting]
        return _timing(found) if found else None

    @property
    def usual(self) -> float:
        """Seconds of a round in the mean, if one in ten readjusts masks, from the medians of both kinds."""
        rare = self.readjusting or self.ordinary
        return ((INTERVAL - 1) * self.ordinary.median + rare.median) / INTERVAL

    @property
    def gflops(self) -> float:
        """GFLOP/s of ordinary rounds."""
        return self.flops / self.ordinary.median / 1e9


class Runner:
    """Takes turns at one job: some rounds of PyTorch, or ten of ours, one of which readjusts masks."""

    def __init__(self, job: CpuJob, name: RunnerName, case: Case, turn: Callable[[], Laps]) -> None:
        self.label = name if name == "PyTorch" else f"{name}, {case}"
        self._job = job
        self._name = name
        self._case = case
        self._turn = turn
        self._turns: list[Laps] = []

    def turn(self) -> Laps:
        """Take a turn, and note its times."""
        self._turns.append(self._turn())
        return self._turns[-1]

    def row(self) -> RoundRow:
        """All turns so far."""
        densities, density = _densities(self._job, self._case)
        flops = round_flops(self._job, densities)
        return RoundRow(self._job.name, self._name, self._case, density, flops, tuple(self._turns))


def make_runners(
    job: CpuJob, cases: Sequence[Case], rounds: int, workers: int, *, reference: bool = False
) -> list[Runner]:
    """PyTorch, the native engine with each network and, if wanted, the reference engine with each."""
    kinds: list[Literal["native", "reference"]] = ["native", "reference"] if reference else ["native"]
    ours = [
        Runner(job, kind, case, _our_turn(job, case, EngineConfig(kind=kind, workers=workers)))
        for kind in kinds
        for case in cases
    ]
    return [Runner(job, "PyTorch", Case(0.0), _torch_turn(job, rounds, workers)), *ours]


def _torch_turn(job: CpuJob, rounds: int, workers: int) -> Callable[[], Laps]:
    def turn() -> Laps:
        with TorchProcesses(job.module, workers, job.training) as rival:
            rival.round(job.clients)
            return Laps(tuple(rival.round(job.clients) for _ in range(rounds)))

    return turn


def _our_turn(job: CpuJob, case: Case, engine: EngineConfig) -> Callable[[], Laps]:
    config = job.config(case, engine)

    def turn() -> Laps:
        module, watch = copy.deepcopy(job.module), _Stopwatch(1 + INTERVAL)
        run = Run(config, job.federation, module)
        with closing(make_engine(config.engine, module, job.federation.dataset)) as running:
            play([run], running, watch)
        return watch.laps(masks=bool(case.level))

    return turn


class _Stopwatch(Silent):
    """Notes when rounds end, and stops the run after the last. Nothing before the end of the first is timed."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._ends: list[float] = []

    def row(self, run: Run, row: Row) -> None:
        self._ends.append(time.perf_counter())

    def stop(self) -> bool:
        return len(self._ends) == self._last

    def laps(self, *, masks: bool) -> Laps:
        seconds = {number: self._ends[number - 1] - self._ends[number - 2] for number in range(2, len(self._ends) + 1)}
        return Laps(
            tuple(value for number, value in seconds.items() if not (masks and readjusts(number))),
            tuple(value for number, value in seconds.items() if masks and readjusts(number)),
        )


def _densities(job: CpuJob, case: Case) -> tuple[dict[str, float], float]:
    """The share of its weights that each layer has, and that all have together."""
    masks = job.initial(case).masks
    if not masks:
        return {}, 1.0
    active, sizes = count_active(masks), {name: mask.numel() for name, mask in masks.items()}
    return {name: active[name] / sizes[name] for name in masks}, sum(active.values()) / sum(sizes.values())


def _timing(seconds: Sequence[float]) -> Timing:
    return Timing(statistics.median(seconds), min(seconds), len(seconds))
