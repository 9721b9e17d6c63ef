"""What a round's arithmetic comes to, and how fast this machine multiplies matrices."""

import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from benchmarks.arithmetic import image_flops
from benchmarks.cpu.jobs import CpuJob
from feddst.stopwatch import one_thread

SIZE = 1024
"""Rows and columns of the matrices."""

_CALLS = 8


@dataclass(frozen=True)
class Gemm:
    """GFLOP/s of products of matrices: of one thread by itself, and of `threads` at once, as often as measured."""

    threads: int
    alone: tuple[float, ...]
    together: tuple[float, ...]

    @property
    def alone_median(self) -> float:
        """What one thread reaches."""
        return statistics.median(self.alone)

    @property
    def together_median(self) -> float:
        """What all threads at once reach, in sum."""
        return statistics.median(self.together)


def round_flops(job: CpuJob, densities: Mapping[str, float]) -> int:
    """FLOPs of a round's convolutions and linear layers, each at its density; see `image_flops`."""
    return job.passes * image_flops(job.module, job.example, densities)


def gemm_rates(threads: int) -> tuple[float, float]:
    """GFLOP/s of `torch.mm`, float32: of one thread, and of `threads` with one product each at a time."""
    return _rate(1), _rate(threads)


def _rate(threads: int) -> float:
    left, right = torch.rand(2, threads, SIZE, SIZE)
    product = torch.empty(threads, SIZE, SIZE)

    def multiply(thread: int) -> None:
        for _ in range(_CALLS):
            torch.mm(left[thread], right[thread], out=product[thread])

    with one_thread(), ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1)) as pool:
        list(pool.map(multiply, range(threads)))
        began = time.perf_counter()
        list(pool.map(multiply, range(threads)))
        seconds = time.perf_counter() - began
    return threads * _CALLS * 2 * SIZE**3 / seconds / 1e9
