import io
import sys
from dataclasses import replace

import pytest

from feddst.cli.live import LiveView
from feddst.cli.progress import FINISHING, Lines, make_bar, make_display
from feddst.cli.run_progress import RunProgress
from feddst.cli.screen import say, show_table
from feddst.runtime import Row, RunConfig
from feddst.runtime.pace import Pace
from feddst.runtime.wording import counted, duration, percent

ROW = Row(
    round=10,
    score=0.5,
    score_worst=0.1,
    score_global=0.5,
    score_personal=None,
    loss=1.0,
    train_loss=1.0,
    density=0.2,
    entered=0,
    left=0,
    clients=20,
    refused=0,
    upload_bytes=40 * 2**20,
    upload_mask_bytes=0,
    download_bytes=0,
    download_mask_bytes=0,
    upload_bits=0,
    download_bits=0,
    flops_dense=0,
    flops_sparse=0,
    seconds=2.0,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_limit_that_comes_first_says_how_far_a_run_is() -> None:
    # 10 of 20 rounds, and 40 of 1024 MiB.
    assert Pace(RunConfig(rounds=20, cap_gib=1.0)).done(ROW) == 0.5
    # 40 of 128 MiB, without a limit on rounds.
    assert Pace(RunConfig(rounds=0, cap_gib=0.125)).done(ROW) == 40 / 128


def test_the_time_left_follows_the_pace_of_the_last_ten_rounds() -> None:
    pace = Pace(RunConfig(rounds=25))
    for seconds in [100.0] * 5 + [3.0] * 10:
        pace.add(replace(ROW, seconds=seconds))
    assert pace.seconds_a_round == 3.0
    assert pace.seconds_left(ROW) == pytest.approx(45.0)  # 15 rounds to go


def progress(*rows: Row) -> RunProgress:
    shown = RunProgress(RunConfig(rounds=20), 0.2)
    for row in rows:
        shown.add(row)
    return shown


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What stands in for standard error from now on."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return terminal


def test_lines_are_for_evaluations_only(capsys: pytest.CaptureFixture[str]) -> None:
    Lines().show(progress())
    Lines().show(progress(ROW, replace(ROW, score=None)))
    assert capsys.readouterr().err == ""
    Lines().show(progress(ROW))
    expected = "round 10: accuracy 50.0 %, upload 40.0 MiB measured, 2.0 s a round, about 20 s left\n"
    assert capsys.readouterr().err == expected


def test_a_terminal_gets_a_live_view_that_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    shown = progress(ROW)
    display = make_display(shown)
    assert isinstance(display, LiveView)
    say("feddst: warning: something [odd] happened")
    shown.add(replace(ROW, round=11, score=None))
    display.show(shown)
    display.announce(FINISHING, shown)
    display.close()
    assert sys.stderr is terminal
    drawn = terminal.getvalue()
    assert "10 of 20" in drawn
    assert "11 of 20" in drawn
    assert FINISHING in drawn
    assert "feddst: warning: something [odd] happened\n" in drawn
    up, clear = "\x1b[1A", "\x1b[2K"
    assert drawn.endswith(f"\x1b[?25h\r{(up + clear) * 6}")  # five lines of numbers and the notice


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_draw_again_gets_lines(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    on_a_terminal(monkeypatch)
    assert make_bar() is not None
    monkeypatch.setenv("TERM", term)
    assert isinstance(make_display(progress()), Lines)
    assert make_bar() is None


def test_without_rich_a_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(make_display(progress()), Lines)


def test_no_terminal_gets_lines() -> None:
    assert isinstance(make_display(progress()), Lines)


def test_numbers_as_people_write_them() -> None:
    assert [duration(s) for s in (0.4, 59.4, 60, 125, 3600, 7500)] == [
        "0 s",
        "59 s",
        "1 min 00 s",
        "2 min 05 s",
        "1 h 00 min",
        "2 h 05 min",
    ]
    assert (percent(0.93456), percent(0.93456, 2)) == ("93.5 %", "93.46 %")
    assert (counted(1, "round"), counted(2, "round")) == ("1 round", "2 rounds")


def test_a_table_is_aligned_on_a_pipe_and_whole_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("method", "1 GiB"), ("feddst[x]", "93.4")]
    show_table(rows, numbers=True)
    assert capsys.readouterr().out == "method     1 GiB\nfeddst[x]   93.4\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    show_table(rows, numbers=True)
    assert "feddst[x]" in terminal.getvalue()
