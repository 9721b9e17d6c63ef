"""How long something takes, on one core."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

LONG = 0.25
"""Seconds after which a call that was timed `OFTEN` times is not timed again."""

OFTEN = 5


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median and the shortest of `calls`."""

    median: float
    shortest: float
    calls: int


def timed(action: Callable[[], object], repeats: int) -> Timing:
    """Call `action` once to warm up, then at most `repeats` times; fewer, but five or more, where it is slow."""
    action()
    seconds: list[float] = []
    end = time.perf_counter() + LONG
    while len(seconds) < repeats and (len(seconds) < OFTEN or time.perf_counter() < end):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return Timing(statistics.median(seconds), min(seconds), len(seconds))


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one core within this block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
