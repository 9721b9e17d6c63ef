"""Who rests, by hand: after so many failures in a row, for so many rounds."""

import pytest

from feddst.flower.failures import FailureTracker


def rests(tracker: FailureTracker, rounds: int) -> list[bool]:
    """Whether client 5 is left out of each of the next rounds."""
    found = []
    for _ in range(rounds):
        tracker.next_round()
        found.append(tracker.rests(5))
    return found


def test_after_so_many_failures_in_a_row_a_client_rests_and_then_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    tracker = FailureTracker(failures=2, rest=3)
    assert rests(tracker, 1) == [False]
    tracker.failed(5)
    assert rests(tracker, 1) == [False]
    tracker.failed(5)
    assert rests(tracker, 5) == [True, True, True, False, False]
    tracker.failed(5)
    assert rests(tracker, 1) == [False]
    assert [record.getMessage() for record in caplog.records] == [
        "client 5 failed 2 times in a row: 3 rounds without it"
    ]


def test_a_success_is_what_makes_failures_be_not_in_a_row() -> None:
    tracker = FailureTracker(failures=2, rest=3)
    tracker.next_round()
    tracker.failed(5)
    tracker.succeeded(5)
    tracker.failed(5)
    tracker.failed(4)
    assert rests(tracker, 1) == [False]
    tracker.failed(5)
    assert rests(tracker, 1) == [True]
    assert not tracker.rests(4)


def test_where_nobody_rests_failures_have_no_end() -> None:
    tracker = FailureTracker(failures=1, rest=0)
    for _ in range(3):
        tracker.next_round()
        tracker.failed(5)
        assert not tracker.rests(5)
