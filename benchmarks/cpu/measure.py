"""Rounds on this machine's CPU: the native engine at several sparsities, beside PyTorch and what arithmetic allows."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchmarks.cpu.arithmetic import Gemm, gemm_rates
from benchmarks.cpu.evaluation import EvaluationRow, evaluation_rows
from benchmarks.cpu.foreign_load import ForeignLoad
from benchmarks.cpu.jobs import CpuJob, JobName, cases, make_job
from benchmarks.cpu.kernels import CrossingRow, KernelRow, crossing_rows, kernel_rows
from benchmarks.cpu.rounds import Laps, RoundRow, make_runners
from feddst.core.keys import LARGEST_SEED
from feddst.engines.native.library import chosen_isa, why_missing
from feddst.engines.select import cores
from feddst.errors import OptionError
from feddst.options import check_list, option
from feddst.runtime.machine import commit, machine
from feddst.stopwatch import one_thread

Tell = Callable[[str], None]
Part = Literal["rounds", "kernels", "evaluation"]

_FORMAT = 1


@dataclass(frozen=True)
class CpuBench:
    """What to measure."""

    jobs: tuple[JobName, ...] = option(
        ("mnist", "cifar10"), "the paper's networks to train: on MNIST, and on noise in CIFAR-10's form"
    )
    sparsities: tuple[float, ...] = option(
        (0.0, 0.5, 0.8, 0.9, 0.95),
        "sparsities S, each spread by ERK and evenly; 0: dense, with FedAvgM",
        at_least=0,
        below=1,
    )
    parts: tuple[Part, ...] = option(
        ("rounds", "kernels", "evaluation"),
        "rounds: whole rounds; kernels: layers by density; evaluation: tests of a network",
    )
    turns: int = option(3, "how often each has its turn", at_least=1)
    rounds: int = option(3, "timed rounds of PyTorch in a turn, after one that is not timed; ours are ten", at_least=1)
    clients: int = option(20, "clients, all of which take part in every round", at_least=1)
    epochs: int = option(10, "passes over a client's images in a round", at_least=1)
    repeats: int = option(20, "times that a layer is timed in a turn, at most: slow ones fewer", at_least=1)
    workers: int = option(0, "threads of ours, and processes of PyTorch; 0: one for each core", at_least=0)
    reference: bool = option(False, "also time rounds of our own engine that uses PyTorch")
    seed: int = option(0, "weights, masks, clients and noise follow from this", at_least=0, at_most=LARGEST_SEED)

    def check(self) -> None:
        """Raise `OptionError` if there is nothing to measure, or nothing to measure it with."""
        for name in ("jobs", "sparsities", "parts"):
            check_list(name, getattr(self, name))
        if why_missing():
            raise OptionError(f"bench cpu measures compiled kernels, but {why_missing()}")
        chosen_isa()


@dataclass(frozen=True)
class CpuRecord:
    """All that was measured; `gemm` is None, and rows are none, of parts that were not asked for.

    `others`: the share of the processors' time that went to other processes meanwhile, None if unknown.
    """

    isa: str
    workers: int
    gemm: Gemm | None
    rounds: tuple[RoundRow, ...]
    kernels: tuple[KernelRow, ...]
    crossings: tuple[CrossingRow, ...]
    evaluations: tuple[EvaluationRow, ...]
    seconds: float
    others: float | None = None

    def torch(self, row: RoundRow) -> RoundRow:
        """PyTorch's rounds of the same job."""
        return next(other for other in self.rounds if (other.job, other.runner) == (row.job, "PyTorch"))

    def speedup(self, row: RoundRow) -> float:
        """How many times as long PyTorch takes for a round, if one in ten readjusts masks."""
        return self.torch(row).usual / row.usual

    def floor(self, row: RoundRow) -> float:
        """Seconds of an ordinary round if all its arithmetic went as fast as products of matrices."""
        assert self.gemm is not None
        return row.flops / self.gemm.together_median / 1e9

    def as_json(self, command: str) -> dict[str, Any]:
        """Everything, with where and how it was made."""
        return {
            "format": _FORMAT,
            "command": command,
            "commit": commit(),
            "machine": machine(),
            "isa": self.isa,
            "workers": self.workers,
            "seconds": round(self.seconds, 1),
            "others": None if self.others is None else round(self.others, 4),
            "gemm_gflops": None if self.gemm is None else asdict(self.gemm),
            "rounds": [asdict(row) | self._derived(row) for row in self.rounds],
            "kernels": [asdict(row) | {"ratio": row.ratio} for row in self.kernels],
            "crossings": [asdict(row) for row in self.crossings],
            "evaluations": [asdict(row) | {"ratio": row.ratio} for row in self.evaluations],
        }

    def _derived(self, row: RoundRow) -> dict[str, Any]:
        rare = row.readjusting
        return {
            "ordinary": asdict(row.ordinary),
            "readjusting": None if rare is None else asdict(rare),
            "usual": row.usual,
            "speedup": self.speedup(row),
            "gflops": row.gflops,
            "floor": self.floor(row),
        }


def make_jobs(bench: CpuBench) -> list[CpuJob]:
    """The jobs that are to be measured; raises `FeddstError` if one cannot be made."""
    return [make_job(name, bench.clients, bench.epochs, bench.seed) for name in bench.jobs]


def measure(bench: CpuBench, jobs: Sequence[CpuJob], tell: Tell) -> CpuRecord:
    """Measure it all; `tell` is given lines. PyTorch has one thread in every process."""
    began, foreign = time.monotonic(), ForeignLoad()
    workers = bench.workers or cores()
    with one_thread():
        gemm, rounds = _rounds(bench, jobs, workers, tell) if "rounds" in bench.parts else (None, [])
        kernels = _kernels(bench, tell) if "kernels" in bench.parts else []
        tests = _evaluations(bench, jobs, workers, tell) if "evaluation" in bench.parts else []
    return CpuRecord(
        isa=chosen_isa(),
        workers=workers,
        gemm=gemm,
        rounds=tuple(rounds),
        kernels=tuple(kernels),
        crossings=tuple(crossing_rows(kernels, bench.seed) if kernels else []),
        evaluations=tuple(tests),
        seconds=time.monotonic() - began,
        others=foreign.share(),
    )


def _rounds(bench: CpuBench, jobs: Sequence[CpuJob], workers: int, tell: Tell) -> tuple[Gemm, list[RoundRow]]:
    """Every job's runners have a turn each, then another, and so on; matrices are multiplied before each turn."""
    rates: list[tuple[float, float]] = []
    rows: list[RoundRow] = []
    for job in jobs:
        runners = make_runners(job, cases(bench.sparsities), bench.rounds, workers, reference=bench.reference)
        for number in range(1, bench.turns + 1):
            rates.append(gemm_rates(workers))
            for runner in runners:
                tell(f"{job.name}, turn {number} of {bench.turns}, {runner.label}: {_told(runner.turn())}")
        rows += [runner.row() for runner in runners]
    alone, together = zip(*rates, strict=True)
    return Gemm(workers, alone, together), rows


def _told(laps: Laps) -> str:
    """A turn in a few words."""
    words = f"{statistics.median(laps.ordinary):.3f} s a round"
    return f"{words}, {statistics.median(laps.readjusting):.3f} s if masks move" if laps.readjusting else words


def _kernels(bench: CpuBench, tell: Tell) -> list[KernelRow]:
    rows: list[KernelRow] = []
    for row in kernel_rows(bench.turns, bench.repeats, bench.seed):
        if not rows or (rows[-1].network, rows[-1].layer) != (row.network, row.layer):
            tell(f"{row.network}, {row.layer} at densities up to 1")
        rows.append(row)
    return rows


def _evaluations(bench: CpuBench, jobs: Sequence[CpuJob], workers: int, tell: Tell) -> list[EvaluationRow]:
    """Dense networks, and those whose sparsity is spread by ERK."""
    networks = [case for case in cases(bench.sparsities) if case.distribution == "erk"]
    rows: list[EvaluationRow] = []
    for job in jobs:
        tell(f"{job.name}, evaluation")
        rows += evaluation_rows(job, networks, bench.turns, workers)
    return rows
