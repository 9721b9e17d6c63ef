"""What the commands do when the user interrupts them, with signals sent from inside."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feddst.cli.progress import Reporter
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run

Call = Callable[..., Any]


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Sends signals when a round has ended: `interrupt(round, times)`."""

    def arrange(last: int, times: int) -> None:
        usual = Reporter.row

        def row(self: Reporter, run: Run, row: Row) -> None:
            usual(self, run, row)
            if row.round == last:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(Reporter, "row", row)

    return arrange


def test_a_run_stopped_once_keeps_the_round(feddst: Call, small: str, interrupt: Callable[[int, int], None]) -> None:
    interrupt(2, 1)
    outcome = feddst(f"run --rounds 9 {small} --out here --checkpoint_every 5".replace("--checkpoint_every 1 ", "", 1))
    assert outcome.code == 130
    assert "stopped after round 2; go on with" in outcome.err
    assert outcome.err.splitlines()[-1].endswith(" run --resume --out here")


def test_a_run_stopped_twice_goes_back_to_the_last_checkpoint(
    feddst: Call, small: str, interrupt: Callable[[int, int], None]
) -> None:
    interrupt(2, 2)
    outcome = feddst(f"run --rounds 4 {small} --out here")
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    assert "stopped; go on from the last checkpoint with" in outcome.err


def test_a_comparison_stopped_goes_on_with_the_same_command(
    feddst: Call, small: str, tmp_path: Path, interrupt: Callable[[int, int], None]
) -> None:
    interrupt(2, 1)
    words = f"compare --methods fedavgm,feddst --rounds 3 {small}"
    outcome = feddst(words)
    assert outcome.code == 130
    assert outcome.out == ""
    command = outcome.err.splitlines()[-1].split()
    assert command[-2:] == ["--out", "runs/compare-mnist"]
    assert (tmp_path / "runs/compare-mnist/comparison.md").is_file()
    again = feddst(*command[command.index("compare") :])
    assert again.code == 130  # the second run passes round 2 as well
    assert "[1/2] fedavgm, seed 0, resumed" in again.err
    last = feddst(*command[command.index("compare") :])
    assert last.code == 0
    assert "[1/2] fedavgm, seed 0: finished already" in last.err
    assert "[2/2] feddst, seed 0, resumed" in last.err
