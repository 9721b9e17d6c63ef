"""Frames of the live view, as rich draws them on consoles of several widths."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from feddst.cli.live import Redrawn, View
from feddst.cli.run_progress import RunProgress
from feddst.runtime import Row, RunConfig

MIB = 2**20
ROW = Row(
    round=0,
    score=None,
    score_worst=None,
    score_global=None,
    score_personal=None,
    loss=None,
    train_loss=None,
    density=0.2,
    entered=0,
    left=0,
    clients=20,
    refused=0,
    upload_bytes=0,
    upload_mask_bytes=0,
    download_bytes=0,
    download_mask_bytes=0,
    upload_bits=0,
    download_bits=0,
    flops_dense=0,
    flops_sparse=0,
    seconds=0.8,
)
SCORES = {5: 0.1, 10: 0.45, 15: 0.8, 20: 0.7}


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> RunProgress:
    """20 of 40 rounds, with four evaluations and readjustments in rounds 10 and 20, and no time since."""
    monkeypatch.setattr("feddst.cli.run_progress.time.monotonic", lambda: 7.0)
    progress = RunProgress(RunConfig(rounds=40), 0.2, "run 2 of 3: feddst, seed 0")
    for number in range(1, 21):
        moved = 1234 * number // 10 if number % 10 == 0 else 0
        sent: dict[str, Any] = {"upload_bytes": number * MIB, "download_bytes": number * MIB * 3 // 2}
        progress.add(replace(ROW, round=number, score=SCORES.get(number), entered=moved, left=moved, **sent))
    return progress


def drawn(progress: RunProgress, width: int, **console: object) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=width, force_terminal=False, **console).print(View(progress))  # type: ignore[arg-type]
    return screen.getvalue().splitlines()


def test_eighty_columns(progress: RunProgress) -> None:
    assert drawn(progress, 80) == [
        "run 2 of 3: feddst, seed 0",
        "rounds    20 of 40  ━━━━━━━━━━━━━━━━━━━━━━━━━━───────────────────────────   50 %",
        "accuracy  70.0 %, best 80.0 % in round 15  ▁▄█▇",
        "sent      20.0 MiB up, 30.0 MiB down",
        "weights   20.0 % active, 2,468 in and 2,468 out in round 20",
        "time      0.80 s a round, about 16 s left",
    ]


def test_forty_columns_leave_out_what_does_not_fit(progress: RunProgress) -> None:
    progress.scores = [score for score in progress.scores for _ in range(20)]
    assert drawn(progress, 40) == [
        "run 2 of 3: feddst, seed 0",
        "rounds    20 of 40  ━━━━━━───────   50 %",
        "accuracy  70.0 %, best 80.0 %  ▁▁▃▄▆██▇▇",  # nine means of eighty values
        "sent      20.0 MiB up, 30.0 MiB down",
        "weights   20.0 %, 2,468 in, 2,468 out",
        "time      0.80 s/round, 16 s left",
    ]


def test_a_wide_console_gets_lines_that_can_still_be_read(progress: RunProgress) -> None:
    lines = drawn(progress, 120)
    assert lines[1] == "rounds    20 of 40  " + "━" * 36 + "─" * 37 + "   50 %"
    assert max(map(len, lines)) == 100


@pytest.mark.parametrize("width", [1, 5, 12, 20, 29, 33])
def test_no_line_is_longer_than_the_console_is_wide(progress: RunProgress, width: int) -> None:
    assert [len(line) <= width for line in drawn(progress, width)] == [True] * 6


def test_the_notice_is_whole_at_any_width(progress: RunProgress) -> None:
    progress.notice = "finishing this round; press Ctrl-C again to stop at once"
    assert drawn(progress, 40)[6:] == ["finishing this round; press Ctrl-C again", "to stop at once"]
    assert drawn(progress, 80)[6:] == [progress.notice]


def test_before_the_first_round_there_is_something_to_see() -> None:
    assert drawn(RunProgress(RunConfig(rounds=0, cap_gib=1.0), 1.0), 60) == [
        "rounds    0  ────────────────────────────────────────    0 %",
        "accuracy  not evaluated yet",
        "sent      0.0 MiB up, 0.0 MiB down",
        "weights   100.0 % active",
        "time      the first round is under way",
    ]


def test_the_time_left_runs_on_during_a_round(progress: RunProgress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feddst.cli.run_progress.time.monotonic", lambda: 12.0)
    assert drawn(progress, 80)[5] == "time      0.80 s a round, about 11 s left"
    monkeypatch.setattr("feddst.cli.run_progress.time.monotonic", lambda: 100.0)
    assert drawn(progress, 80)[5] == "time      0.80 s a round, about 0 s left"


def test_a_terminal_without_unicode_gets_ascii(progress: RunProgress) -> None:
    class Latin(io.StringIO):
        encoding = "latin-1"

    screen = Latin()
    Console(file=screen, width=60, force_terminal=True, color_system=None).print(View(progress))
    screen.getvalue().encode("ascii")
    assert "  =======" in screen.getvalue()


def test_lines_that_a_narrower_terminal_has_broken_are_taken_away_too(progress: RunProgress) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=80, height=30, force_terminal=True, color_system=None)
    live = Redrawn(View(progress), console)
    live.auto_refresh = False
    live.start(refresh=True)
    console.width = 50
    screen.seek(0)
    screen.truncate()
    live.refresh()
    # Six lines are gone over again; of them, the bar of 80 columns and the weights of 60 had become two each.
    assert screen.getvalue().count("\x1b[1A") == 5 + 2
    live.stop()
