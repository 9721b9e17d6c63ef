"""What has become of processes."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest


def gone(pid: int) -> bool:
    """Whether a process has ended. Where nobody waits for orphans, they stay in the table as zombies."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def all_gone() -> Callable[[Sequence[int]], bool]:
    """Whether processes have ended, or do so in a moment."""

    def wait(pids: Sequence[int]) -> bool:
        deadline = time.monotonic() + 5
        while not all(map(gone, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return all(map(gone, pids))

    return wait
