"""The progress bar appears on a terminal, after a while, and nowhere else."""

import io
import sys

import pytest

from feddst.data import progress
from feddst.data.progress import Meter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, patience: float, in_bytes: bool = False) -> str:
    """What is written to `stream`, as stderr, while three things are counted."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    with Meter("reading pets", 3, in_bytes=in_bytes) as meter:
        for _ in range(3):
            meter.update()
    assert meter.done == 3
    return stream.getvalue()


@pytest.mark.parametrize(("in_bytes", "count"), [(False, "3/3"), (True, "3/3 bytes")])
def test_a_long_reading_shows_a_bar(monkeypatch: pytest.MonkeyPatch, in_bytes: bool, count: str) -> None:
    text = shown(monkeypatch, Terminal(), -1.0, in_bytes)
    assert "reading pets" in text
    assert count in text


def test_a_short_reading_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), 60.0) == ""


def test_a_log_file_stays_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO(), -1.0) == ""


def test_nothing_is_shown_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert shown(monkeypatch, Terminal(), -1.0) == ""


def test_poochs_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    # pooch ends a download with reset, an update by the total, and close.
    monkeypatch.setattr(sys, "stderr", Terminal())
    meter = Meter("x", 10)
    meter.update(7)
    meter.reset()
    meter.update(10)
    meter.close()
    assert meter.done == 10
