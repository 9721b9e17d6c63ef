import os
import signal
import threading

import pytest

from feddst.flower.deployment.signals import ASKING, Signals


@pytest.mark.parametrize("number", ASKING)
def test_the_first_signal_raises_and_those_after_it_only_hurry(number: signal.Signals) -> None:
    inherited = signal.signal(number, signal.default_int_handler)  # what is ignored would stay ignored
    try:
        _check_first_and_later(number)
    finally:
        signal.signal(number, inherited)


def _check_first_and_later(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Signals() as signals:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        assert signals.stopping
        assert not signals.hurry
        os.kill(os.getpid(), number)
        assert signals.hurry
    assert signal.getsignal(number) is before


def test_stopping_that_began_without_a_signal_is_not_broken_off_by_one() -> None:
    with Signals() as signals:
        signals.stopping = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.hurry


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not signals.stopping
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_changes_nothing() -> None:
    before = [signal.getsignal(number) for number in ASKING]
    found: list[object] = []

    def enter() -> None:
        with Signals():
            found.extend(signal.getsignal(number) for number in ASKING)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == before
