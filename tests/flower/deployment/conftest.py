"""What has become of processes, and how a killed one comes back."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from feddst.errors import FlowerError
from feddst.flower.deployment.local import wait_for_node
from feddst.flower.deployment.services import Service

REJOIN = 90.0
"""Seconds after which a SuperNode that was killed must have been let in again."""
STILL_ONLINE = "[code: 2004]"


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


@pytest.fixture
def start_again() -> Callable[[Service], None]:
    """Starts a SuperNode again after it was killed, with the same key, configuration and state directory.

    The SuperLink lets nobody in with a key whose node it believes to be online, which it does until it has missed two
    heartbeats, up to a minute after the kill. So this asks again and again. Without keys it is at once.
    """

    def start(node: Service) -> None:
        deadline = time.monotonic() + REJOIN
        while True:
            node.start()
            try:
                return wait_for_node(node)
            except FlowerError:
                if STILL_ONLINE not in node.output() or time.monotonic() > deadline:
                    raise
            time.sleep(2.0)

    return start
