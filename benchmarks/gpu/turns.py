"""Contestants at one job, by turns."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.gpu.contestants import Contestant, RunnerName
from benchmarks.gpu.jobs import GpuJob
from benchmarks.gpu.products import synchronise

Tell = Callable[[str], None]
Make = Callable[[RunnerName], Contestant]

_LONGEST_REASON = 300


@dataclass(frozen=True)
class StepRow:
    """One contestant's times at one job.

    laps: seconds of a step in each turn; prepared: seconds until it was ready, compilers included; difference: of its
    weights from ours after one step, see `difference`; failure: why there are no more laps, if so.
    """

    network: str
    models: int
    images: int
    runner: RunnerName
    flops: int
    laps: tuple[float, ...] = ()
    prepared: float = 0.0
    difference: float | None = None
    failure: str = ""

    @property
    def median(self) -> float:
        """Seconds of a step."""
        return statistics.median(self.laps)

    @property
    def tflops(self) -> float:
        """TFLOP/s of the layers' arithmetic."""
        return self.flops / self.median / 1e12


class Player:
    """A contestant's turns. Any error is told and ends its own turns, not those of others."""

    def __init__(self, job: GpuJob, runner: RunnerName, tell: Tell) -> None:
        self.runner: RunnerName = runner
        self.failure = ""
        self.prepared = 0.0
        self.first: dict[str, Tensor] | None = None
        self._job = job
        self._tell = tell
        self._contestant: Contestant | None = None
        self._laps: list[float] = []

    def prepare(self, make: Make) -> None:
        """Make the contestant, note the weights after its first step, and warm up."""

        def prepared() -> None:
            contestant = make(self.runner)
            contestant.reset()
            contestant.steps(1)
            first = contestant.weights()
            _check_step(first, self._job.params)
            self.first = first
            contestant.steps(contestant.most)
            self._contestant = contestant

        self.prepared = self._timed(prepared)
        if not self.failure:
            self._tell(f"{self.runner} is ready after {self.prepared:.1f} s")

    def turn(self) -> None:
        """Note what a step takes, of as many as are timed together."""
        contestant = self._contestant
        if contestant is not None and not self.failure:
            seconds = self._timed(lambda: contestant.steps(contestant.most))
            if not self.failure:
                self._laps.append(seconds / contestant.most)

    def row(self, others: Mapping[str, Tensor] | None) -> StepRow:
        """All turns; `others` are the weights after a first step that its own are compared with."""
        job = self._job
        compared = self.first is not None and others is not None
        return StepRow(
            job.network,
            job.models,
            job.images,
            self.runner,
            job.flops,
            tuple(self._laps),
            self.prepared,
            difference(self.first or {}, others or {}, job.params) if compared else None,
            self.failure,
        )

    def _timed(self, action: Callable[[], None]) -> float:
        began = time.perf_counter()
        try:
            synchronise(self._job.device)
            began = time.perf_counter()
            action()
            synchronise(self._job.device)
        except Exception as error:  # compilers and drivers raise exceptions of any kind
            self.failure = _reason(error)
            self._tell(f"{self.runner} failed: {self.failure}")
        return time.perf_counter() - began


def play(job: GpuJob, runners: Sequence[RunnerName], make: Make, repeats: int, tell: Tell) -> list[StepRow]:
    """All contestants get ready, then each takes a turn, `repeats` times over; ours is the first of `runners`."""
    players = [Player(job, runner, tell) for runner in runners]
    for player in players:
        player.prepare(make)
    for _ in range(repeats):
        for player in players:
            player.turn()
    rows = [player.row(players[0].first) for player in players]
    tell(f"{job.network}, {job.images} images: {', '.join(map(_told, rows))}")
    return rows


def difference(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """The largest difference of a weight, as a share of the largest change that the expected ones made."""
    changes = max(float((expected[name] - value).abs().max()) for name, value in start.items())
    apart = max(float((expected[name] - found[name]).abs().max()) for name in start)
    return apart / changes


def _check_step(weights: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> None:
    """Raise unless a step has changed weights, to numbers."""
    if not all(bool(value.isfinite().all()) for value in weights.values()):
        raise ArithmeticError("after one step there are weights that are no numbers")
    if all(torch.equal(value, weights[name]) for name, value in start.items()):
        raise ArithmeticError("a step changes nothing")


def _told(row: StepRow) -> str:
    return f"{row.runner} {1e3 * row.median:.2f} ms" if row.laps else f"{row.runner} failed"


def _reason(error: Exception) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:_LONGEST_REASON]}"
