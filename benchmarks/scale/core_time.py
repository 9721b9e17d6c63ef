"""Seconds of a core: what a thread computed for, however long it waited for a core."""

import statistics
import time
from collections.abc import Callable


def core_time(action: Callable[[], object], calls: int = 15) -> float:
    """The median of so many calls, after one that is not timed."""
    action()
    seconds: list[float] = []
    for _ in range(calls):
        began = time.thread_time()
        action()
        seconds.append(time.thread_time() - began)
    return statistics.median(seconds)
