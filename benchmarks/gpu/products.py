"""How fast a GPU multiplies matrices, and with how many bits."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

Precision = Literal["tf32", "float32"]

SIZE = 8192
"""Rows and columns of the matrices."""

_CALLS = 8


@dataclass(frozen=True)
class GpuGemm:
    """TFLOP/s of products of matrices, as often as measured: with TF32's 11 bits, and with all of float32's."""

    tf32: tuple[float, ...]
    float32: tuple[float, ...]

    def median(self, precision: Precision) -> float:
        """What such products reach."""
        return statistics.median(self.tf32 if precision == "tf32" else self.float32)


def gemm_rate(precision: Precision, device: torch.device) -> float:
    """TFLOP/s of `torch.mm`."""
    left, right, product = torch.randn(3, SIZE, SIZE, device=device)
    with library_settings(precision):
        for calls in (2, _CALLS):  # those to warm up, then those that count
            synchronise(device)
            began = time.perf_counter()
            for _ in range(calls):
                torch.mm(left, right, out=product)
            synchronise(device)
            seconds = time.perf_counter() - began
    return _CALLS * 2 * SIZE**3 / seconds / 1e12


@contextmanager
def library_settings(precision: Precision) -> Iterator[None]:
    """CUDA's libraries at their fastest with this precision: they try their convolutions out, and take the best."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark, cudnn.deterministic
    cudnn.allow_tf32 = matmul.allow_tf32 = precision == "tf32"
    cudnn.benchmark, cudnn.deterministic = True, False
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark, cudnn.deterministic = before


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
