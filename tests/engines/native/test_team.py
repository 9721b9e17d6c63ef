"""Threads that share tasks: each is done once, a failure ends it all, and Ctrl-C is heard."""

import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from feddst import _native
from feddst.engines.native.team import Team


@pytest.mark.parametrize("members", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_every_task_is_done_once_and_delivered_under_its_index(members: int, count: int) -> None:
    team = Team(members)
    found: list[tuple[int, int]] = []
    team.share([lambda i=i: i * i for i in range(count)], lambda *result: found.append(result))  # type: ignore[misc]
    team.close()
    assert sorted(found) == [(i, i * i) for i in range(count)]


def test_results_are_delivered_one_at_a_time() -> None:
    team, inside, most = Team(4), 0, 0

    def deliver(index: int, result: None) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.001)
        inside -= 1

    team.share([lambda: None] * 50, deliver)
    team.close()
    assert most == 1


@pytest.mark.parametrize("members", [1, 3])
def test_after_a_failure_nothing_is_begun_or_delivered(members: int) -> None:
    team, delivered, started = Team(members), [], threading.Barrier(members)

    def task(index: int) -> int:
        if index < members:
            started.wait(10)  # so that all of them are at work when they fail
            raise ValueError(f"task {index}")
        return index

    with pytest.raises(ValueError, match="task 0"):
        team.share([lambda i=i: task(i) for i in range(30)], lambda *result: delivered.append(result))  # type: ignore[misc]
    assert not delivered
    team.share([lambda: 1], lambda *result: delivered.append(result))
    team.close()
    assert delivered == [(0, 1)]


def test_a_delivery_that_fails_is_an_error_of_the_whole() -> None:
    def refuse(index: int, result: int) -> None:
        raise KeyError(index)

    team = Team(2)
    with pytest.raises(KeyError):
        team.share([lambda: 1] * 9, refuse)
    team.close()


@pytest.fixture
def heeded_interrupts() -> Iterator[None]:
    """Python's own handler of SIGINT, which it leaves out where the signal was ignored by whoever started it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_interrupts")
def test_training_in_the_main_thread_hears_of_an_interrupt() -> None:
    assert threading.current_thread() is threading.main_thread()
    network = _native.Network((64, 1, 1), [("linear", 64, (1, 1, 1, 1, 0, 0), False, True)])
    session = _native.Session(network, _native.supported()[0])
    session.load(_native.Weights(_native.Structure(network, [None]), [np.zeros(network.sizes[0], np.float32)], [None]))
    steps = 1_000_000
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        session.train(
            np.zeros((32, 64), np.float32),
            np.zeros(32, np.int64),
            np.tile(np.arange(32), steps),
            [32] * steps,
            0.01,
            0.9,
            0.0,
            0.0,
        )
    timer.join()
