import io
import sys
from dataclasses import replace

import pytest

from feddst.cli.progress import Bar, Lines, make_display
from feddst.cli.screen import show_table
from feddst.experiment import Row, RunConfig
from feddst.experiment.pace import Pace
from feddst.experiment.wording import counted, duration, percent

ROW = Row(
    round=10,
    accuracy=0.5,
    accuracy_worst=0.1,
    accuracy_global=0.5,
    accuracy_personal=None,
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


def test_lines_are_for_evaluations_only(capsys: pytest.CaptureFixture[str]) -> None:
    pace = Pace(RunConfig(rounds=20))
    pace.add(ROW)
    Lines().show(pace, replace(ROW, accuracy=None), ROW)
    assert capsys.readouterr().err == ""
    Lines().show(pace, ROW, ROW)
    expected = "round 10: accuracy 50.0 %, upload 40.0 MiB measured, 2.0 s a round, about 20 s left\n"
    assert capsys.readouterr().err == expected


def test_a_terminal_gets_a_bar_with_the_latest_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    display = make_display()
    assert isinstance(display, Bar)
    pace = Pace(RunConfig(rounds=20))
    pace.add(ROW)
    display.show(pace, replace(ROW, round=11, accuracy=None), ROW)
    display.close()
    assert "round 11" in terminal.getvalue()
    assert "50.0 %  40.0 MiB  2.0 s/round  18 s left" in terminal.getvalue()


def test_no_terminal_gets_lines() -> None:
    assert isinstance(make_display(), Lines)


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
