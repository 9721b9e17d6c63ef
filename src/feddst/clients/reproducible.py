"""Settings under which PyTorch computes the same bits in every process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class _Settings:
    """PyTorch's settings that change bits; they apply to the whole process."""

    threads: int
    benchmark: bool
    deterministic: bool
    tf32: bool
    matmul_tf32: bool

    @classmethod
    def found(cls) -> "_Settings":
        cudnn = torch.backends.cudnn
        matmul = torch.backends.cuda.matmul.allow_tf32
        return cls(torch.get_num_threads(), cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul)

    def apply(self) -> None:
        torch.set_num_threads(self.threads)
        torch.backends.cudnn.benchmark = self.benchmark
        torch.backends.cudnn.deterministic = self.deterministic
        torch.backends.cudnn.allow_tf32 = self.tf32
        torch.backends.cuda.matmul.allow_tf32 = self.matmul_tf32


_LOCK = threading.Lock()
_BEFORE: list[_Settings] = []
"""The original settings, once for each open `reproducible` block: the last one to end restores them."""


@contextmanager
def reproducible(*, tf32: bool = False) -> Iterator[None]:
    """One CPU thread, and on CUDA deterministic kernels: the same bits in every process.

    One thread is also the fastest for tensors of this size, above all when worker processes use the other cores. With
    `tf32` CUDA's matrix products may have 11 bits of precision; where several threads of a process compute at once, the
    first of them decides.
    """
    with _LOCK:
        _BEFORE.append(_BEFORE[-1] if _BEFORE else _Settings.found())
        if len(_BEFORE) == 1:
            _Settings(1, benchmark=False, deterministic=True, tf32=tf32, matmul_tf32=tf32).apply()
        else:
            torch.set_num_threads(1)  # this setting is per thread
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                before.apply()
