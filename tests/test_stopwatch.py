import time

import pytest
import torch

from feddst.stopwatch import LONG, OFTEN, one_thread, timed


@pytest.mark.parametrize("repeats", [1, OFTEN])
def test_timings_call_once_more_to_warm_up(repeats: int) -> None:
    calls: list[int] = []
    timing = timed(lambda: calls.append(1), repeats)
    assert timing.calls == repeats == len(calls) - 1
    assert 0 < timing.shortest <= timing.median


def test_what_is_slow_is_timed_five_times() -> None:
    pause = LONG / OFTEN
    timing = timed(lambda: time.sleep(pause), 100)
    assert timing.calls == OFTEN
    assert timing.shortest >= pause


def test_one_thread_is_for_the_block_alone() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
